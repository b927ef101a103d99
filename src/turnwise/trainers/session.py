"""What a loop works with: the parts of one run, put together, and the run's memory of itself.

Owns `Session` (parts), and how its state is saved and restored. Knows nothing of recipes or of
what the loops do with the parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from turnwise.agents import AgentConfig
from turnwise.curriculum import UniformCurriculum
from turnwise.engines import LocalEngine
from turnwise.envs.base import Env
from turnwise.forest import Scorer
from turnwise.policies import Policy, PolicyOptimizer
from turnwise.rollout import Health, Runner
from turnwise.runs import Checkpoints, EpisodeLog, MetricsLog, Run, StopSignal
from turnwise.tasks import GeneratedTasks
from turnwise.trainers.progress import Progress

START = "start"


@dataclass(kw_only=True)
class Session:
    """The parts of one run with one policy.

    `runner` plays training episodes, `judge` evaluation episodes; both use the same engine.
    `validation` tasks are played by `judge`; `validation_states` are unseen tasks of the training
    env. `totals` count tokens, environment and optimizer steps over the whole run (docs/math.md 5).
    """

    seed: int
    run: Run
    policy: Policy
    agent: AgentConfig
    engine: LocalEngine
    scorer: Scorer
    runner: Runner
    judge: Runner
    warmup_env: Env[Any]
    warmup_tasks: GeneratedTasks
    curriculum: UniformCurriculum
    validation: GeneratedTasks
    validation_states: GeneratedTasks
    metrics: MetricsLog
    episodes: EpisodeLog
    checkpoints: Checkpoints
    checkpoint_every: int
    progress: Progress
    stop: StopSignal
    totals: dict[str, float] = field(default_factory=dict)
    sampling: dict[str, float] = field(default_factory=dict)
    health: Health = field(default_factory=Health)

    @property
    def start_folder(self) -> Path:
        """Where the weights at the start of reinforcement learning are kept."""
        return self.run.path / START

    def count(self, **amounts: float) -> None:
        """Add to the run's totals."""
        for name, amount in amounts.items():
            self.totals[name] = self.totals.get(name, 0.0) + amount

    @property
    def low_precision(self) -> bool:
        """Whether the policy computes below float32."""
        return next(self.policy.model.parameters()).dtype != torch.float32

    def count_engine(self) -> None:
        """Add what the engine did since the last call to the run's totals."""
        did = self.engine.metrics()
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
        clock = {"time/step": time.perf_counter() - began, "mem/peak_mb": _peak_megabytes()}
        self.count(seconds=clock["time/step"])
        totals = {f"total/{k}": v for k, v in self.totals.items() if k != "seconds"}
        clock["time/total"] = self.totals["seconds"]
        self.metrics.append(phase, step, {**metrics, **totals, **clock})

    def save(
        self,
        phase: str,
        step: int,
        optimizer: PolicyOptimizer,
        *,
        score: float | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a checkpoint after `step` steps of `phase`; a kill loses only what follows."""

        def write(folder: Path) -> None:
            self.policy.save(folder / "policy")
            with (folder / "optimizer.pt").open("wb") as file:  # its errors say why, torch's do not
                torch.save(optimizer.state_dict(), file)

        meta = {
            "totals": self.totals,
            "metrics_offset": self.metrics.sync(),
            "policy_version": self.policy.version,
            **(extra or {}),
        }
        self.checkpoints.save(phase, step, write, meta, score=score)

    def new_weights(self) -> None:
        """Hand the policy's new weights to the engine under a new version."""
        self.policy.version += 1
        self.engine.hand_over(self.policy.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """Where a run goes on: the phase, its finished steps, and how to restore its optimizer.

    `score` is the validation score of the weights, if they were validated.
    """

    phase: str
    step: int
    score: float | None
    restore: Callable[[PolicyOptimizer], None]
    meta: Mapping[str, Any]


def resume(session: Session, *, based_on: str = "") -> Resumed | None:
    """Bring a session back to its latest checkpoint; None if it has none and begins anew.

    Logs are cut to the checkpoint, newer checkpoints and episodes are deleted: what follows is
    written again, to the same numbers. `based_on` is a finished phase whose weights the session's
    policy was made from: at its checkpoint, too, a session begins anew, with the counts so far.
    """
    latest = session.checkpoints.latest()
    if latest.note:
        session.progress.note(latest.note)
    checkpoint = latest.checkpoint
    session.checkpoints.discard_after(checkpoint)
    if checkpoint is None:
        session.metrics.truncate_to(0)
        session.episodes.cut_after(-1)
        return None
    session.metrics.truncate_to(checkpoint.meta["metrics_offset"])
    session.episodes.cut_after(checkpoint.step - 1 if checkpoint.phase == "train" else -1)
    session.policy.version = checkpoint.meta["policy_version"]
    session.totals.update(checkpoint.meta["totals"])
    if checkpoint.phase == based_on:
        return None
    session.policy.load_weights(checkpoint.path / "policy")
    session.engine.hand_over(session.policy.name)

    def restore(optimizer: PolicyOptimizer) -> None:
        state = torch.load(checkpoint.path / "optimizer.pt", weights_only=True)
        optimizer.load_state_dict(state)

    return Resumed(
        phase=checkpoint.phase,
        step=checkpoint.step,
        score=checkpoint.score,
        restore=restore,
        meta=checkpoint.meta,
    )


def _peak_megabytes() -> float:
    import resource  # POSIX only

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
