"""Supervised fine-tuning: the warm-up that teaches policies to describe states and to answer.

Provides `warm_up`, the supervised loop. It imitates rows, measures after each round how exactly
unseen states are described, and stops when that is enough.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from turnwise.evaluation import perception_accuracy
from turnwise.evaluation.perception import Seen, StatesRule
from turnwise.losses import make_loss
from turnwise.seeding import generator
from turnwise.trainers.config import DEMONSTRATIONS, SftConfig
from turnwise.trainers.demonstrations import Alternating, Demonstrations
from turnwise.trainers.rows import FileRows, RowSource
from turnwise.trainers.session import Resumed, Session
from turnwise.trainers.trained_policy import TrainedPolicy, by_policy
from turnwise.trainers.update import make_batch, optimise
from turnwise.types import TrainingSample

PHASE = "warmup"
PART, MOST_PART, LATEST = 0.25, 0.5, 0.6
"""The share of a run's time after which its warm-up ends; it goes on up to `MOST_PART` while too
few replies are right, since reinforcement does not teach a format."""
EXACT_ROUNDS = 2
"""Rounds in a row that reach `config.stop_at_accuracy`; then the phase ends."""
REQUIRED = 0.9
"""The default of `config.required_accuracy`."""
IMITATION = make_loss(aggregation="token")
SHOWN = ("loss/ce", "optim/grad_norm", "optim/lr", "optim/skipped")
"""The metrics recorded of a round's last step; a skipped step has no norm."""


def warm_up(
    session: Session,
    config: SftConfig,
    resumed: Resumed | None,
    *,
    phase: str = PHASE,
    first: int = 0,
    minutes: float | None = None,
) -> bool:
    """Imitate until it is enough; return False if the run was asked to stop before that.

    One round is `config.eval_every` optimizer steps, a record of metrics and a checkpoint, all
    under the name `phase`. Rows before number `first` were shown by an earlier phase. It ends
    early, after a round, where it has taken `PART` of the `minutes` of the whole run, its cooldown
    included, and `config.required_accuracy` is reached, or else `MOST_PART`; the cooldown has fewer
    steps where there is no time for them, and ends at `LATEST`.
    """
    for trained in session.trained.values():
        trained.begin(config.optimizer, config.steps)
    step, exact, last, ends = 0, 0, config.steps, False
    if resumed is not None:
        for trained in session.trained.values():
            resumed.restore(trained)
        step, exact = resumed.step, int(resumed.meta["exact_rounds"])
        ends = "last" in resumed.meta
        last = min(last, int(resumed.meta.get("last", last)))
    rows = {name: rows_of(session, each, config, first) for name, each in session.trained.items()}
    session.progress.begin("warm-up" if phase == PHASE else phase, done=step, total=config.steps)
    while step < last:
        if session.asked_to_stop():
            return False
        began = time.perf_counter()
        end = min((step // config.eval_every + 1) * config.eval_every, last)
        over = partial(_is_over, session, began, minutes, LATEST if ends else MOST_PART)
        step, found = imitate_round(session, rows, range(step, end), config.batch_size, over)
        if step < end and session.asked_to_stop():  # before the round has been measured
            session.count(seconds=time.perf_counter() - began)
            session.save(phase, step, extra=_progress(exact, last, ends=ends))
            return False
        last = step if ends and step < end else last
        for trained in session.trained.values():
            session.new_weights(trained)
        seen = {n: perception(session, each, config, step) for n, each in session.trained.items()}
        least = min(seen.values(), key=lambda each: each.share)
        if not ends:
            left = [steps_left(session, step, began, minutes, part) for part in (PART, MOST_PART)]
            exact = exact + 1 if _is_exact(config, least.share) else 0
            ends = exact == EXACT_ROUNDS or _is_time(config, least.share, left, step)
            if ends and step < last:
                last = min(step + min(config.cooldown, max(1, left[1])), last)
                for trained in session.trained.values():
                    trained.optimizer.end_in(last - step)
        shares = {name: each.metrics for name, each in seen.items()}
        metrics = by_policy(found, session.trained)
        session.record(phase, step, metrics | by_policy(shares, session.trained), began)
        session.progress.advance(step, {**metrics, **least.metrics})
        session.save(phase, step, extra=_progress(exact, last, ends=ends))
        if step == last < config.steps:
            session.progress.note(_why_it_ends(phase, step, config, least, exact))
    return True


def rows_of(session: Session, trained: TrainedPolicy, config: SftConfig, first: int) -> RowSource:
    """Return the source of a policy's rows in a supervised phase, from row number `first` on."""
    return rows_for(
        session,
        trained,
        config.data,
        first=first,
        states=config.states,
        outcomes=config.outcomes,
        player=config.player,
        player_noise=config.player_noise,
        answers=config.answers,
    )


def steps_left(
    session: Session, step: int, began: float, minutes: float | None, part: float
) -> int:
    """Return for how many more steps there is time, after `step` of them and a round since `began`.

    All that the run did so far counts as time of the steps; `part` of its minutes is for them.
    """
    if minutes is None:
        return sys.maxsize
    seconds = session.totals.get("seconds", 0.0) + time.perf_counter() - began
    left = (part * 60 * minutes - seconds) / (seconds / step)
    return session.group.broadcast(max(0, math.floor(left)))


def _is_exact(config: SftConfig, share: float) -> bool:
    """Whether a round after which `share` of the replies were right may be one of the last."""
    return config.stop_at_accuracy != "never" and share >= config.stop_at_accuracy


def _is_time(config: SftConfig, share: float, left: list[int], step: int) -> bool:
    """Whether there is time for the cooldown alone.

    `left` are the steps for which there is time in `PART` of the run's minutes, which counts while
    enough replies are right, and in `MOST_PART` of them.
    """
    quarter, half = left
    cooldown = min(config.cooldown, step)
    required = REQUIRED if config.required_accuracy is None else config.required_accuracy
    return half <= cooldown or (quarter <= cooldown and share >= required)


def _progress(exact: int, last: int, *, ends: bool) -> dict[str, int]:
    """Return what a checkpoint says of the phase: its exact rounds, and its last step if known."""
    return {"exact_rounds": exact, **({"last": last} if ends else {})}


def _is_over(session: Session, began: float, minutes: float | None, part: float) -> bool:
    """Return whether a round since `began` ends early: `part` is over, or the run is to stop."""
    seconds = session.totals.get("seconds", 0.0) + time.perf_counter() - began
    late = minutes is not None and seconds >= part * 60 * minutes
    return session.group.broadcast(late or bool(session.stop.requested))


def imitate_round(
    session: Session,
    rows: Mapping[str, RowSource],
    steps: range,
    count: int,
    over: Callable[[], bool],
) -> tuple[int, dict[str, dict[str, float]]]:
    """Take the steps of a round, in each of them one step of every trained policy.

    It ends early where `over` says so after a step.

    Returns:
        The number of steps of the phase so far, and policy name -> metrics of its last step, with
        all skipped steps of the round counted.
    """
    done = steps.start
    found: dict[str, dict[str, float]] = {}
    skipped = dict.fromkeys(session.trained, 0.0)
    for step in steps:
        for name, trained in session.trained.items():
            found[name] = imitate(session, trained, rows[name], step, count)
            skipped[name] += found[name]["optim/skipped"]
        done = step + 1
        if over():
            break
    for name in found:
        found[name] = {key: found[name][key] for key in SHOWN if key in found[name]}
        found[name]["optim/skipped"] = skipped[name]
    return done, found


def imitate(
    session: Session, trained: TrainedPolicy, rows: RowSource, step: int, count: int
) -> dict[str, float]:
    """Take one supervised step of a trained policy on `count` rows; return its metrics."""
    metrics = imitate_rows(session, trained, rows.batch(step, count), step)
    session.count(trained_tokens=metrics["forest/tokens_distinct"], warmup_optimizer_steps=1)
    return metrics


def imitate_rows(
    session: Session, trained: TrainedPolicy, rows: Sequence[TrainingSample], step: int
) -> dict[str, float]:
    """Take one supervised step of a trained policy on rows; return its metrics.

    The dropout of each `step` has draws of its own.
    """
    batch = make_batch(rows, IMITATION)
    with drawn_dropout(session.seed, trained, step, session.group.rank):
        return optimise(
            trained.policy,
            trained.optimizer,
            trained.scorer,
            batch,
            IMITATION,
            group=session.group,
        )


def _why_it_ends(phase: str, step: int, config: SftConfig, seen: Seen, exact: int) -> str:
    if exact < EXACT_ROUNDS:
        return f"the warm-up ended after {step} of at most {config.steps} steps: time is limited"
    right = "states are described exactly" if seen.described else "replies are right"
    return (
        f"the {'warm-up' if phase == PHASE else phase} ended after {step} of at most "
        f"{config.steps} steps: {right} ({seen.share:.0%} of those tried)"
    )


@contextmanager
def drawn_dropout(seed: int, trained: TrainedPolicy, step: int, rank: int = 0) -> Iterator[None]:
    """Let dropout act inside the block, drawn by (seed, step) alone: a resumed run drops the same.

    Each process of a run draws for its own rows, so that it differs with their number.

    Dropout reads torch's global generator only, which is as before after the block.
    """
    device = trained.policy.device
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        trained.policy.dropout(True),
    ):
        place = (step, rank) if rank else (step,)
        torch.manual_seed(int(generator(seed, "dropout", *place).integers(2**63)))
        yield


def rows_for(
    session: Session,
    trained: TrainedPolicy,
    data: str,
    *,
    first: int = 0,
    states: StatesRule | None = None,
    outcomes: bool = False,
    player: str | None = None,
    player_noise: float = 0.0,
    answers: int = 1,
) -> RowSource:
    """Return the source of a trained policy's rows that `data` names, from row number `first` on.

    Demonstrations of a policy with several roles come from its roles in turn. They show the actions
    of the env's baseline `player`, or uniform ones. With `player_noise` the player is disturbed.
    A state has so many `answers`.
    """
    policy = trained.policy
    if data != DEMONSTRATIONS:
        return FileRows(
            Path(data),
            policy.renderer,
            policy.name,
            session.seed,
            context=policy.context,
            first=first,
            roles={role: role in trained.agents for role in session.agents},
        )
    by_role = [
        Demonstrations(
            env=session.warmup_env,
            tasks=session.warmup_tasks,
            agent=agent,
            renderer=policy.renderer,
            policy=policy.name,
            seed=session.seed,
            states=states or "first",
            context=policy.context,
            outcomes=outcomes,
            beginning=session.beginning,
            player=session.warmup_env.baselines()[player] if player else None,
            player_noise=player_noise,
            answers=answers,
        )
        for agent in trained.agents.values()
    ]
    return Alternating(sources=by_role, first=first, group=lambda: session.group)


def perception(session: Session, trained: TrainedPolicy, config: SftConfig, step: int) -> Seen:
    """Return how exactly a trained policy describes states of the validation split.

    Of several roles it is the one that describes them worst.
    """
    tasks = session.validation_states.take(config.perception_tasks)
    found = [
        perception_accuracy(
            session.runner.env,
            tasks,
            agent,
            trained.policy.renderer,
            session.engine,
            number=step,
            states=config.states or "first",
            group=session.group,
        )
        for agent in trained.agents.values()
    ]
    session.count_engine()
    session.engine.end_iteration()
    return min(found, key=lambda seen: seen.share)
