"""Supervised fine-tuning: the warm-up that teaches a policy to see and to speak the format.

Owns the supervised loop. It imitates rows, checks after each round how exactly unseen states are
described, and stops when that is enough. Knows nothing of rewards.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from turnwise.losses import LossConfig
from turnwise.noise import generator
from turnwise.policies import make_optimizer
from turnwise.rollout import exactness_of_seeing
from turnwise.rollout.seeing import Seen, StatesRule
from turnwise.trainers.config import DEMONSTRATIONS, SftConfig
from turnwise.trainers.demonstrations import Demonstrations, FileRows, Rows
from turnwise.trainers.session import Resumed, Session
from turnwise.trainers.update import make_batch, optimise

PHASE = "warmup"
IMITATION = LossConfig(aggregation="token")
SHOWN = ("loss/ce", "optim/grad_norm", "optim/lr", "optim/skipped")
"""What is recorded of a round's last step; a skipped one has no norm."""


def warm_up(
    session: Session,
    config: SftConfig,
    resumed: Resumed | None,
    *,
    phase: str = PHASE,
    first: int = 0,
) -> bool:
    """Imitate until it is enough; return False if the run was asked to stop before that.

    One round is `config.round` optimizer steps, a record of metrics and a checkpoint, all under the
    name `phase`. Rows before number `first` were shown by an earlier phase.
    """
    optimizer = make_optimizer(session.policy, config.optimizer, max(config.steps, 1))
    step, enough, last = 0, 0, config.steps
    if resumed is not None:
        resumed.restore(optimizer)
        step, enough = resumed.step, int(resumed.meta["enough"])
        last = min(last, int(resumed.meta.get("last", last)))
    rows = rows_for(session, config.data, first=first, states=config.states)
    session.progress.begin("warm-up" if phase == PHASE else phase, done=step, total=config.steps)
    while step < last:
        if session.stop.requested:
            return False
        began, end = time.perf_counter(), min(step + config.round, last)
        metrics: dict[str, float] = {}
        skipped = 0.0
        while step < end:
            samples = rows.batch(step, config.batch_size)
            batch = make_batch(samples, IMITATION)
            with drawn_dropout(session, step):
                metrics = optimise(session.policy, optimizer, session.scorer, batch, IMITATION)
            skipped += metrics["optim/skipped"]
            session.count(
                trained_tokens=metrics["forest/tokens_distinct"], warmup_optimizer_steps=1
            )
            step += 1
        session.new_weights()
        metrics = {name: metrics[name] for name in SHOWN if name in metrics}
        metrics["optim/skipped"] = skipped
        seen = seeing(session, config, step)
        if enough < 2:
            enough = enough + 1 if seen.share >= config.enough else 0
            if enough == 2 and step < last:
                last = min(step + config.cooldown, last)
                optimizer.end_in(last - step)
        session.record(phase, step, {**metrics, "warmup/seeing": seen.share}, began)
        shown = "warmup/seeing" if seen.described else "warmup/readable"
        session.progress.advance(step, {**metrics, shown: seen.share})
        ends = {"last": last} if enough == 2 else {}
        session.save(phase, step, optimizer, extra={"enough": enough, **ends})
        if step == last < config.steps:
            session.progress.note(_why_it_ends(phase, step, config, seen))
    return True


def _why_it_ends(phase: str, step: int, config: SftConfig, seen: Seen) -> str:
    right = "states are described exactly" if seen.described else "replies are right"
    return (
        f"the {'warm-up' if phase == PHASE else phase} ended after {step} of at most "
        f"{config.steps} steps: {right} ({seen.share:.0%} of those tried)"
    )


@contextmanager
def drawn_dropout(session: Session, step: int) -> Iterator[None]:
    """Let dropout act inside the block, drawn by (seed, step) alone: a resumed run drops the same.

    Dropout knows no generators, only torch's global one, which is as before after the block.
    """
    device = session.policy.device
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        session.policy.dropout(True),
    ):
        torch.manual_seed(int(generator(session.seed, "dropout", step).integers(2**63)))
        yield


def rows_for(
    session: Session, data: str, *, first: int = 0, states: StatesRule | None = None
) -> Rows:
    """Return the source of rows that `data` names, from row number `first` on."""
    policy = session.policy
    if data != DEMONSTRATIONS:
        return FileRows(
            Path(data),
            policy.renderer,
            policy.name,
            session.seed,
            context=policy.context,
            first=first,
        )
    return Demonstrations(
        env=session.warmup_env,
        tasks=session.warmup_tasks,
        agent=session.agent,
        renderer=policy.renderer,
        policy=policy.name,
        seed=session.seed,
        first=first,
        states=states or "first",
        context=policy.context,
    )


def seeing(session: Session, config: SftConfig, step: int) -> Seen:
    """Return how exactly states of the validation split are described."""
    tasks = session.validation_states.take(config.seeing_tasks)
    found = exactness_of_seeing(
        session.runner.env,
        tasks,
        session.agent,
        session.policy.renderer,
        session.engine,
        number=step,
        states=config.states or "first",
    )
    session.count_engine()
    session.engine.end_iteration()
    return found
