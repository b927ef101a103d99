"""The parts of one run, put together, and how its state is saved and restored.

Provides `Session`, `resume` and `Resumed`. A session holds a `TrainedPolicy` for each policy that
is trained; the loops decide what is done with them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from turnwise.agents import AgentConfig
from turnwise.credit import RoleBaselines
from turnwise.curriculum import Curriculum
from turnwise.engines.loop import SteppedEngine
from turnwise.envs.base import Env
from turnwise.errors import EnvError, RunError, TrainingError
from turnwise.parallel import ALONE, ProcessGroup
from turnwise.policies import Policy
from turnwise.rollout import Health, Runner
from turnwise.runs import Checkpoints, EpisodeLog, MetricsLog, Run, StopSignal
from turnwise.runs.checkpoints import Checkpoint, optimizer_file, policy_folder
from turnwise.runs.metric_names import MEMORY, TRAIN
from turnwise.tasks import GeneratedTasks
from turnwise.tasks.openings import replayed
from turnwise.trainers.opponents import Opponents
from turnwise.trainers.progress import WARNING, Progress
from turnwise.trainers.trained_policy import TrainedPolicy

ENGINE = "engine.safetensors"
"""The file of a checkpoint that holds the state of each process's engine."""
CURRICULUM = "curriculum.json"
"""The file of a checkpoint that holds the state of the curriculum, where it has one."""


@dataclass(kw_only=True)
class Session:
    """The parts of one run.

    Attributes:
        policies: policy name -> weights on this machine, those that are not trained included.
        trained: policy name -> `TrainedPolicy`, for the policies that are trained.
        agents: role -> agent.
        runner: plays training episodes.
        eval_runner: plays evaluation episodes over the same engine.
        warmup_as_training: whether the warm-up's env has the options of the training env.
        opponents: who plays the other seats in training; None is self-play.
        validation: the tasks that `eval_runner` plays.
        validation_states: unseen tasks of the training env.
        group: the processes of the run, each with a session of its own. Process 0 writes.
        totals: tokens, environment and optimizer steps of the whole run (docs/math.md 5).
        role_baselines: the running means of the roles' returns, where the scheme has any.
    """

    seed: int
    run: Run
    policies: Mapping[str, Policy]
    trained: Mapping[str, TrainedPolicy]
    agents: Mapping[str, AgentConfig]
    engine: SteppedEngine
    runner: Runner
    eval_runner: Runner
    warmup_env: Env[Any]
    warmup_as_training: bool
    warmup_tasks: GeneratedTasks
    curriculum: Curriculum
    opponents: Opponents | None
    validation: GeneratedTasks
    validation_states: GeneratedTasks
    metrics: MetricsLog
    episodes: EpisodeLog
    checkpoints: Checkpoints
    checkpoint_every: int
    progress: Progress
    stop: StopSignal
    group: ProcessGroup = ALONE
    totals: dict[str, float] = field(default_factory=dict)
    sampling: dict[str, float] = field(default_factory=dict)
    health: Health = field(default_factory=Health)
    role_baselines: RoleBaselines = field(default_factory=RoleBaselines)

    def beginning(self, rng: np.random.Generator) -> Any:
        """Return a state in which a random game of the warm-up begins, where the curriculum says.

        It is None for the first state of a task, and where the warm-up's env is another one or
        breaks on the way.
        """
        found = self.curriculum.beginning(rng) if self.warmup_as_training else None
        if found is None:
            return None
        draws = self.runner.draws("train").of_step
        try:
            return replayed(self.warmup_env, *found, draws)
        except EnvError:
            return None

    def join(self, group: ProcessGroup) -> None:
        """Go on as one of several processes, before anything is trained or played."""
        self.group = self.runner.group = self.eval_runner.group = group

    def asked_to_stop(self) -> bool:
        """Return whether the run shall stop here, the same in all processes."""
        return self.group.broadcast(bool(self.stop.requested))

    def note(self, text: str | None) -> None:
        """Show a sentence to the user, if there is one."""
        if text:
            self.progress.note(text)

    def warn(self, text: str) -> None:
        """Show a sentence as a warning, if it is not empty."""
        if text:
            self.note(f"{WARNING}{text}")

    def count(self, **amounts: float) -> None:
        """Add to the run's totals."""
        for name, amount in amounts.items():
            self.totals[name] = self.totals.get(name, 0.0) + amount

    def count_engine(self) -> None:
        """Add what the engines of all processes did since the last call to the run's totals."""
        did = _summed(self.group.gather(self.engine.metrics()))
        self.count(
            sampled_tokens=did["engine/sampled_tokens"],
            prefilled_tokens=did["engine/prefill_tokens"],
        )
        for name, amount in did.items():
            self.sampling[name] = self.sampling.get(name, 0.0) + amount

    def take_sampling(self) -> dict[str, float]:
        """Return what the engine did since the last call, by name of the metric."""
        taken, self.sampling = self.sampling, {}
        return taken

    def record(self, phase: str, step: int, metrics: Mapping[str, float], began: float) -> None:
        """Write one record of metrics, with the clock and the run's totals."""
        peaks = self.group.gather(peak_megabytes())
        clock = {"time/step": time.perf_counter() - began, MEMORY: peaks[0]}
        clock |= {f"{MEMORY}_process_{n}": peak for n, peak in enumerate(peaks[1:], start=2)}
        self.count(seconds=clock["time/step"])
        totals = {f"total/{k}": v for k, v in self.totals.items() if "seconds" not in k}
        clock["time/total"] = self.totals["seconds"]
        chosen = self.curriculum.metrics() if phase == "train" else {}
        self.metrics.append(phase, step, {**metrics, **chosen, **totals, **clock})

    def save(
        self,
        phase: str,
        step: int,
        *,
        score: float | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a checkpoint after `step` steps of `phase`; a kill loses only what follows.

        Raises:
            TrainingError: if the processes of the run have different weights.
        """
        check_equal_weights(self)
        states = self.group.gather(self.engine.state())
        if not self.group.leads:
            return

        def write(folder: Path) -> None:
            for name, trained in self.trained.items():
                trained.save(policy_folder(folder, name), optimizer_file(folder, name))
            every = {f"{rank}/{k}": v for rank, own in enumerate(states) for k, v in own.items()}
            (folder / ENGINE).write_bytes(save(every))  # whose errors say why
            if learned := self.curriculum.state():
                (folder / CURRICULUM).write_text(json.dumps(learned), encoding="utf-8")
            if self.opponents is not None:
                self.opponents.save(folder)

        meta = {
            "totals": self.totals,
            "metrics_offset": self.metrics.sync(),
            "policy_versions": {name: each.policy.version for name, each in self.trained.items()},
            "action_floors": {n: e.floor.state() for n, e in self.trained.items() if e.floor},
            "hindsight": {n: e.hindsight.state() for n, e in self.trained.items() if e.hindsight},
            "role_baselines": self.role_baselines.state(),
            **(extra or {}),
        }
        self.checkpoints.save(phase, step, write, meta, score=score)

    def save_start(self) -> None:
        """Keep the weights that reinforcement learning begins with."""
        for name, trained in self.trained.items():
            self.save_policy(trained, self.run.start(name))

    def save_policy(self, trained: TrainedPolicy, folder: Path) -> None:
        """Write a policy to a folder; afterwards all processes can read it."""
        self.group.from_first(lambda: trained.policy.save(folder))

    def new_weights(self, trained: TrainedPolicy) -> None:
        """Give a policy's new weights a new version, and the engine the policy."""
        trained.policy.version += 1
        self.engine.update_weights(trained.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """The point from which a run resumes: the phase, its finished steps, the checkpoint's folder.

    `score` is the validation score of the weights, if they were validated.
    """

    phase: str
    step: int
    score: float | None
    folder: Path
    meta: Mapping[str, Any]

    def restore(self, trained: TrainedPolicy) -> None:
        """Load the state of a trained policy that has begun the phase."""
        trained.load_optimizer(optimizer_file(self.folder, trained.name))
        floors = self.meta["action_floors"]
        if trained.floor is not None and trained.name in floors:
            trained.floor.restore(floors[trained.name])
        mixes = self.meta["hindsight"]
        if trained.hindsight is not None and trained.name in mixes:
            trained.hindsight.restore(mixes[trained.name])


def resume(session: Session, *, based_on: str = "") -> Resumed | None:
    """Bring a session back to its latest checkpoint; None if it has none and begins anew.

    Logs are cut to the checkpoint, newer checkpoints and episodes are deleted: what follows is
    written again, to the same numbers. `based_on` is a finished phase whose weights the session's
    policies were made from: at its checkpoint, too, a session begins anew, with the counts so far.

    Raises:
        RunError: if the checkpoint holds other policies than the session trains.
    """
    checkpoint = session.group.from_first(lambda: _go_back(session, based_on))
    if checkpoint is None:
        return None
    session.totals.update(checkpoint.meta["totals"])
    versions = checkpoint.meta["policy_versions"]
    if checkpoint.phase == based_on:
        for name, trained in session.trained.items():
            trained.policy.version = versions.get(name, max(versions.values()))
        return None
    for name, trained in session.trained.items():
        trained.policy.version = versions[name]
        trained.policy.load_weights(policy_folder(checkpoint.path, name))
        session.engine.update_weights(name)
    kept = checkpoint.path / ENGINE
    if kept.is_file():  # checkpoints of versions without drafts have none
        restore_engine(session, load(kept.read_bytes()))
    session.role_baselines.restore(checkpoint.meta.get("role_baselines", {}))
    learned = checkpoint.path / CURRICULUM
    if learned.is_file():
        session.curriculum.restore(json.loads(learned.read_text(encoding="utf-8")))
    if session.opponents is not None:
        session.opponents.restore(checkpoint.path)
    return Resumed(
        phase=checkpoint.phase,
        step=checkpoint.step,
        score=checkpoint.score,
        folder=checkpoint.path,
        meta=checkpoint.meta,
    )


def restore_engine(session: Session, states: Mapping[str, NDArray[Any]]) -> None:
    """Give the engine its state, or that of process 0 where there were fewer processes."""
    own = f"{session.group.rank}/"
    begin = own if any(name.startswith(own) for name in states) else "0/"
    session.engine.restore(
        {name.removeprefix(begin): a for name, a in states.items() if name.startswith(begin)}
    )


def _go_back(session: Session, based_on: str) -> Checkpoint | None:
    """Return the latest checkpoint, after cutting what was written since; process 0 does it."""
    latest = session.checkpoints.latest()
    if latest.note:
        session.progress.note(latest.note)
    checkpoint = latest.checkpoint
    if checkpoint is not None and checkpoint.phase != based_on:
        _check_team(session, checkpoint)
    session.checkpoints.discard_after(checkpoint)
    if checkpoint is None:
        session.metrics.truncate_to(0)
        session.episodes.cut_after(-1)
        return None
    session.metrics.truncate_to(checkpoint.meta["metrics_offset"])
    if checkpoint.phase == TRAIN:
        session.episodes.cut_after(checkpoint.step - 1)
    elif "env_steps" not in checkpoint.meta["totals"]:  # else training came before this phase
        session.episodes.cut_after(-1)
    return checkpoint


def _check_team(session: Session, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint of another team: a recipe that was edited after it was written."""
    saved, trained = sorted(checkpoint.meta["policy_versions"]), sorted(session.trained)
    if saved != trained:
        raise RunError(
            f"checkpoint '{checkpoint.path}' holds the trained policies {', '.join(saved)}, but "
            f"'{session.run.recipe}' trains {', '.join(trained)}: restore the recipe as it was, or "
            f"begin a new run with `turnwise train {session.run.recipe}`"
        )


def check_equal_weights(session: Session) -> None:
    """Raise if the weights of two processes differ in a bit: they would drift apart unseen.

    Raises:
        TrainingError: which names the policy and what may be the cause.
    """
    if session.group.is_alone:
        return
    own = {name: trained.policy.digest() for name, trained in session.trained.items()}
    found = session.group.gather(own)
    for name in own:
        if len({each[name] for each in found}) > 1:
            raise TrainingError(
                f"policy {name!r} has other weights in some of the {session.group.size} processes, "
                "though all take the same steps: an env or a reward function that changes the "
                "model, torch's settings or its random numbers in one process does that, and so "
                "does a mixture of processors; set processes = 1"
            )


def _summed(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of equally named numbers."""
    return {name: sum(each[name] for each in found) for name in found[0]}


def peak_megabytes() -> float:
    """Return the most memory that this process has held."""
    import resource  # POSIX only

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
