"""Hindsight: imitate one's own episodes on the tasks that they solved.

    task --> rollout --> turns --> the tasks that were solved --> demonstrations --> policy
     ^                                                                                 |
     +--------------------------- new weights, new version ----------------------------+

An episode that missed its goal has reached another one. Told that this was the goal, it is a
demonstration, and its whole outcome teaches, where a reward is one number (hindsight experience
replay, Andrychowicz et al. 2017, arXiv:1707.01495; for programs, github.com/ironbar/arc25).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from turnwise.rollout import rollout_metrics
from turnwise.seeding import generator
from turnwise.trainers.config import HindsightConfig
from turnwise.trainers.failures import stop_if_unreadable
from turnwise.trainers.loop import (
    PHASE,
    begun,
    play_groups,
    reached,
    solved,
    time_share,
    validate,
)
from turnwise.trainers.plan import Plan
from turnwise.trainers.progress import TIME_SHARE
from turnwise.trainers.relabelling import (
    NEW,
    chosen,
    in_order,
    metrics_of,
    relabelled,
    rows_of_each,
)
from turnwise.trainers.replay import Replay, Shown
from turnwise.trainers.session import Resumed, Session
from turnwise.trainers.sft import imitate_rows
from turnwise.trainers.trained_policy import TrainedPolicy
from turnwise.trainers.validation import save
from turnwise.types import Episode, TrainingSample

SHOWN = "hindsight_shown"
"""The key of a checkpoint's meta that holds what was demonstrated (`Shown`)."""


def train_hindsight(session: Session, plan: Plan[HindsightConfig], resumed: Resumed | None) -> bool:
    """Play and imitate for `iterations`; return False if the run was asked to stop before that."""
    config = plan.trainer
    (trained,) = session.trained.values()
    steps = config.iterations * config.updates_per_batch
    trained.begin(plan.optimizer, steps, lr=trained.policy.config.lr)
    iteration, done = begun(session, plan, resumed)
    past = Shown(replay=Replay(count=config.replay))
    if resumed is not None and SHOWN in resumed.meta:
        past.restore(resumed.meta[SHOWN])
    session.progress.begin("training", done=iteration, total=config.iterations)
    session.take_sampling()  # what was sampled before is in the totals only
    none_new = _NoneNew(session, told=config.again or not config.passes)
    while iteration < config.iterations and not done:
        if session.asked_to_stop():
            return False
        began = time.perf_counter()
        played = play_groups(session, plan, session.curriculum.visits(iteration))
        stop_if_unreadable(session, plan.stop_if_failed, iteration, played)
        metrics = rollout_metrics(played) | session.runner.take_metrics() | session.take_sampling()
        metrics["time/rollout"] = time.perf_counter() - began
        shown, found = demonstrations(session, config, played, past, iteration)
        none_new.tell(iteration, found.get(NEW, 0.0), past.seen)
        metrics |= found
        metrics |= imitate(session, plan, trained, shown, iteration)
        metrics["time/update"] = time.perf_counter() - began - metrics["time/rollout"]
        session.episodes.write(iteration, played)
        session.curriculum.learn(played, {})
        iteration += 1
        share = time_share(session, plan, time.perf_counter() - began)
        ends = share >= 1 or iteration == config.iterations or solved(plan, played)
        if (found := validate(session, plan, iteration, ends=ends)) is not None:
            metrics |= found.metrics
        session.record(PHASE, iteration, metrics, began)
        session.progress.advance(iteration, metrics | {TIME_SHARE: share})
        done = ends or reached(plan, found and found.score)
        last = session.asked_to_stop() or done
        if found is not None or last or iteration % session.checkpoint_every == 0:
            save(session, PHASE, iteration, found, extra={SHOWN: past.state()})
    return True


class _NoneNew:
    """Tells once that an iteration reached known tasks alone."""

    def __init__(self, session: Session, told: bool) -> None:
        self._session, self._told = session, told

    def tell(self, iteration: int, new: float, seen: set[str]) -> None:
        """Tell it if an iteration has no new demonstrations, and an earlier one had."""
        if self._told or new or not seen:
            return
        self._told = True
        self._session.progress.note(
            f"iteration {iteration + 1} reached no task that was not demonstrated before: "
            "trainer.again = true demonstrates known ones again"
        )


def demonstrations(
    session: Session,
    config: HindsightConfig,
    played: Sequence[Episode],
    past: Shown,
    iteration: int,
) -> tuple[list[list[TrainingSample]], dict[str, float]]:
    """Return the rows of each demonstration that an iteration shows, in their order, and metrics.

    A demonstration that is longer than the policy's context has no rows, and one that the env
    cannot play.

    What is new is added to `past`. Process 0 makes the rows for all processes of the run, and it
    alone has demonstrations to replay: an env may break in one of them only.
    """
    if not config.passes:
        return [], {}

    def made() -> tuple[list[list[TrainingSample]], dict[str, float], set[str]]:
        (trained,) = session.trained.values()
        env, draws = session.runner.env, session.runner.draws("train")
        rng = generator(session.seed, "hindsight", iteration)
        found = relabelled(env, played)
        new = chosen(found, config, past.seen, rng)
        shown = in_order([*new, *past.replay.drawn(rng)], config, rng)
        past.replay.add(new)
        policy, of_step = trained.policy, draws.of_step
        rows = rows_of_each(shown, env, session.agents, policy, of_step)
        return rows, metrics_of(found, new), past.seen

    rows, metrics, known = session.group.from_first(made)
    past.seen |= known
    return rows, metrics


def imitate(
    session: Session,
    plan: Plan[HindsightConfig],
    trained: TrainedPolicy,
    shown: Sequence[Sequence[TrainingSample]],
    iteration: int,
) -> dict[str, float]:
    """Take supervised steps on the rows of demonstrations, in their order; return their metrics."""
    config = plan.trainer
    metrics = {"hindsight/too_long": float(sum(not rows for rows in shown))}
    shown = [rows for rows in shown if rows]
    metrics["hindsight/rows"] = float(sum(map(len, shown)))
    starts = range(0, len(shown), config.batch_size)
    losses: list[float] = []
    last: dict[str, float] = {}
    for number in range(config.passes):
        for batch, start in enumerate(starts):
            some = [row for rows in shown[start : start + config.batch_size] for row in rows]
            place = iteration * config.updates_per_batch + number * len(starts) + batch
            last = imitate_rows(session, trained, some, place)
            session.count(trained_tokens=last["forest/tokens_distinct"], optimizer_steps=1)
            losses.append(last["loss/ce"])
    if losses:
        session.new_weights(trained)
        metrics["loss/ce"] = sum(losses) / len(losses)
        metrics |= {key: last[key] for key in ("optim/grad_norm", "optim/lr") if key in last}
    return metrics
