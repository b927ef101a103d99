"""Group-relative policy optimisation on played episodes: the whole algorithm, top to bottom.

    task --> rollout --> turns --> groups --> advantages --> samples --> forest --> loss --> policy
     ^                                                                                       |
     +----------------------------- new weights, new version -------------------------------+

A task is played `group_size` times, what answered the same question is compared, and what did
better becomes more likely. `turnwise.credit` provides the schemes (grpo, rloo, gigpo, ...) and
`turnwise.losses` the losses; this file is the loop. Each policy that is trained has a `Learner`:
one batch is made for each of them before any of them takes a step. Called by name around the loop:
refilling (dynamic sampling), rehearsal of the warm-up, validation, checkpoints, stopping.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from turnwise.credit import Credit, assign_advantages
from turnwise.formats import with_reply_components
from turnwise.rollout import (
    ReplyWatch,
    rollout_metrics,
    without_cut,
)
from turnwise.rollout.runner import CAPPED
from turnwise.seeding import generator
from turnwise.trainers.batches import batches_of, begin, kl_in_reward
from turnwise.trainers.failures import stop_if_broken, stop_if_unreadable
from turnwise.trainers.learner import Learner, by_policy
from turnwise.trainers.minibatches import minibatches
from turnwise.trainers.penalties import RewardKl, all_penalties
from turnwise.trainers.plan import Plan
from turnwise.trainers.session import Resumed, Session
from turnwise.trainers.update import Batch, check_weights, optimise
from turnwise.trainers.validation import Validation, save, validate_policy
from turnwise.types import Episode, TaskVisit

PHASE = "train"
REFILLS = 2
LEAST_SHARE = 0.1
"""Share of mixed groups that a refill counts on at the least, when it decides how much to play."""


def train_grpo(session: Session, plan: Plan, resumed: Resumed | None) -> bool:
    """Play and update for `iterations`; return False if the run was asked to stop before that."""
    learners = session.learners
    for learner in learners.values():
        begin(session, plan, learner)
    iteration, done, watch = 0, False, ReplyWatch()
    if resumed is not None:
        for learner in learners.values():
            resumed.restore(learner)
        iteration, done = resumed.step, reached(plan, resumed.score)
    elif plan.validate_start:
        done = validate_start(session, plan)
    session.progress.begin("training", done=iteration, total=plan.trainer.iterations)
    session.take_sampling()  # what was sampled before is in the totals only

    while iteration < plan.trainer.iterations and not done:
        if session.asked_to_stop():
            return False
        began = time.perf_counter()
        played = play_groups(session, plan, session.curriculum.visits(iteration))
        stop_if_unreadable(session, plan.stop_if_failed, iteration, played)
        if plan.trainer.dynamic_sampling:
            played = refill(session, plan, iteration, played)
        episodes = compared(plan, played)
        metrics = rollout_metrics(played) | session.runner.take_metrics() | session.take_sampling()
        session.note(session.runner.take_warning(metrics))
        if plan.trainer.dynamic_sampling:
            credit = credit_of(session, plan, episodes)
            metrics |= credit.metrics
            episodes = mixed_only(plan, episodes, credit)
        metrics["rollout/left_out"] = float(len(played) - len(episodes))
        metrics["time/rollout"] = time.perf_counter() - began
        kl = kl_in_reward(session, plan, episodes)
        credit = credit_of(session, plan, episodes, kl)
        if plan.trainer.dynamic_sampling:
            credit = of_mixed_groups(credit)
        metrics = dict(credit.metrics) | metrics  # dynamic sampling's are of all that was played
        batches = batches_of(session, plan, episodes, credit, kl, iteration)
        steps = {n: update(session, plan, learners[n], iteration, b) for n, b in batches.items()}
        metrics |= by_policy(steps, learners)
        metrics["time/update"] = time.perf_counter() - began - metrics["time/rollout"]
        metrics["train/skipped"] = float(not batches)
        metrics |= by_policy({n: {"policy/ref_k1": each.mean} for n, each in kl.items()}, learners)
        session.episodes.write(iteration, played, credit=credit)

        iteration += 1
        if (found := validate(session, plan, iteration)) is not None:
            metrics |= found.metrics
        session.record(PHASE, iteration, metrics, began)
        session.progress.advance(iteration, metrics)
        session.note(watch.warning(played, iteration, metrics.get(CAPPED, 0.0)))
        done = reached(plan, found and found.score)
        last = session.asked_to_stop() or done or iteration == plan.trainer.iterations
        if found is not None or last or iteration % session.checkpoint_every == 0:
            save(session, PHASE, iteration, found)
    session.note(watch.verdict())
    return True


def credit_of(
    session: Session,
    plan: Plan,
    episodes: Sequence[Episode],
    kl: Mapping[str, RewardKl] | None = None,
) -> Credit:
    """Return the advantages of episodes, less their penalties."""
    levels = with_reply_components(session.runner.env.components)
    team = [name for name, level in levels.items() if level == "team"]
    penalties = all_penalties(episodes, kl) if kl else None
    return assign_advantages(episodes, plan.credit, penalties=penalties, team=team)


def reached(plan: Plan, score: float | None) -> bool:
    """Whether a validation score is the target at which training stops."""
    return plan.target is not None and score is not None and score >= plan.target


def play_groups(session: Session, plan: Plan, visits: Sequence[TaskVisit]) -> list[Episode]:
    """Play every visit `group_size` times, all side by side.

    Raises:
        EnvError: if an iteration's episodes were all broken by the env; they are recorded.
    """
    episodes = session.runner.collect(visits, "train", group_size=plan.trainer.group_size)
    if visits[0].visit == 0:  # refills are judged with the iteration that they belong to
        stop_if_broken(session, visits[0].iteration, episodes)
    session.engine.end_iteration()
    session.count_engine()
    session.count(env_steps=rollout_metrics(episodes)["rollout/env_steps"])
    return episodes


def compared(plan: Plan, played: list[Episode]) -> list[Episode]:
    """Return the episodes that are compared: all, or those without a completion that was cut."""
    return without_cut(played) if plan.trainer.truncated_completions == "exclude" else played


def refill(session: Session, plan: Plan, iteration: int, played: list[Episode]) -> list[Episode]:
    """Play fresh tasks until enough groups hold a difference, or the cap; return all that's played.

    Dynamic sampling (DAPO, arXiv:2503.14476). Refilling with the same task would weigh it by
    1 / P(mixed), so fresh tasks are drawn (docs/math.md 2).
    """
    wanted = visits = plan.trainer.tasks_per_iteration
    for _ in range(plan.trainer.max_refills or REFILLS):
        mixed = len(mixed_visits(credit_of(session, plan, compared(plan, played))))
        if mixed >= wanted:
            break
        share = max(mixed / visits, LEAST_SHARE)
        count = min(math.ceil((wanted - mixed) / share), wanted)
        fresh = session.curriculum.visits(iteration, first=visits, count=count)
        played = played + play_groups(session, plan, fresh)
        visits += count
    return played


def mixed_only(plan: Plan, episodes: list[Episode], credit: Credit) -> list[Episode]:
    """Return the first groups that hold a difference, as many as are wanted; all if none does."""
    chosen = set(mixed_visits(credit)[: plan.trainer.tasks_per_iteration])
    return [episode for episode in episodes if not chosen or episode.id.visit in chosen]


def of_mixed_groups(credit: Credit) -> Credit:
    """Return the credit of the groups that hold a difference; the others are not trained.

    A visit has a group for each role, and for each question where units are turns.
    """
    mixed = (group for group in credit.groups if group.mixed)
    return credit.of({turn for group in mixed for unit in group.units for turn in unit.turns})


def mixed_visits(credit: Credit) -> list[int]:
    """Return the visits whose episodes did not all earn the same, in order."""
    mixed = (group for group in credit.groups if group.mixed)
    return sorted({unit.turns[0].episode.visit for group in mixed for unit in group.units})


def update(
    session: Session, plan: Plan, learner: Learner, iteration: int, batch: Batch
) -> dict[str, float]:
    """Take a batch's optimizer steps; return the first one's metrics, and what differs later."""
    metrics: dict[str, float] = {}
    last: dict[str, float] = {}
    skipped = 0.0
    for epoch in range(plan.trainer.epochs):
        order = generator(session.seed, "minibatches", iteration, epoch)
        for rows in minibatches(batch.parts, plan.trainer.minibatches, order):
            with learner.policy.dropout(False):
                last = optimise(
                    learner.policy,
                    learner.optimizer,
                    learner.scorer,
                    batch,
                    plan.loss,
                    rows=rows,
                    group=session.group,
                )
            session.count(trained_tokens=last["forest/tokens_distinct"], optimizer_steps=1)
            skipped += last["optim/skipped"]
            if not metrics:
                metrics = dict(last)
                if plan.trainer.mismatch == "stop":
                    check_weights(metrics, learner.policy, low_precision=learner.low_precision)
    session.new_weights(learner)
    for key in ("policy/clip_fraction", "policy/ratio_max", "optim/grad_norm", "optim/lr"):
        if key in last:
            metrics[key] = last[key]
    return metrics | {"optim/skipped": skipped}


def validate(session: Session, plan: Plan, iteration: int) -> Validation | None:
    """Return the validation of the weights if one is due after `iteration` iterations."""
    due = iteration % plan.validate_every == 0 or iteration == plan.trainer.iterations
    if not due:
        return None
    tasks = session.validation.take(plan.validation_tasks)
    return validate_policy(
        session, tasks, exact=plan.exact, decoding=plan.decoding, iteration=iteration
    )


def validate_start(session: Session, plan: Plan) -> bool:
    """Validate and save the weights that training begins with; return whether they are enough."""
    began = time.perf_counter()
    found = validate(session, plan, 0)
    assert found is not None, "0 is a multiple of every period"
    session.record(PHASE, 0, found.metrics, began)
    save(session, PHASE, 0, found)
    return reached(plan, found.score)
