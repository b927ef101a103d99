"""Group-relative policy optimisation on played episodes: the whole algorithm, top to bottom.

    task --> rollout --> turns --> groups --> advantages --> samples --> forest --> loss --> policy
     ^                                                                                       |
     +----------------------------- new weights, new version -------------------------------+

A task is played `group_size` times, the episodes of one task visit are compared, and the better
ones become more likely. `turnwise.credit` provides the schemes (grpo, rloo, gigpo, ...) and
`turnwise.losses` the losses; this file is the loop. There is a `TrainedPolicy` for each policy
that is trained: one batch is made for each of them before any of them takes a step. Called by name
around the loop: refilling (dynamic sampling), the SFT mix, validation, checkpoints, stopping.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from turnwise.credit import Credit, assign_advantages, assign_below_worst, score_metrics
from turnwise.credit.config import WHOLE
from turnwise.credit.siblings import rank_correlation
from turnwise.formats import with_reply_components
from turnwise.rollout import (
    ReplyWatch,
    rollout_metrics,
    sibling_metrics,
    state_dependence,
    without_cut,
)
from turnwise.rollout.runner import CAPPED
from turnwise.seeding import generator
from turnwise.trainers.batches import batches_of, begin, kl_in_reward
from turnwise.trainers.failures import stop_if_unreadable
from turnwise.trainers.findings import FindingsWatch
from turnwise.trainers.loop import (
    PHASE,
    begun,
    play_groups,
    reached,
    solved,
    time_share,
    training_share,
    validate,
)
from turnwise.trainers.minibatches import minibatches
from turnwise.trainers.movement import update_within_band
from turnwise.trainers.penalties import RewardKl, all_penalties
from turnwise.trainers.plan import Plan
from turnwise.trainers.progress import TIME_SHARE
from turnwise.trainers.role_gradients import role_gradients
from turnwise.trainers.session import Resumed, Session
from turnwise.trainers.trained_policy import TrainedPolicy, by_policy
from turnwise.trainers.update import Batch, check_weights, optimise
from turnwise.trainers.validation import save
from turnwise.types import Episode, TurnId

REFILLS = 2
LEAST_SHARE = 0.1
"""Share of mixed groups that a refill counts on at the least, when it decides how much to play."""


def train_grpo(session: Session, plan: Plan, resumed: Resumed | None) -> bool:
    """Play and update for `iterations`; return False if the run was asked to stop before that."""
    for trained in session.trained.values():
        begin(session, plan, trained)
    iteration, done = begun(session, plan, resumed)
    watch = ReplyWatch()
    findings = FindingsWatch(session, plan, iteration, time_share(session, plan))
    session.progress.begin("training", done=iteration, total=plan.trainer.iterations)
    session.take_sampling()  # what was sampled before is in the totals only
    while iteration < plan.trainer.iterations and not done:
        if session.asked_to_stop():
            return False
        began = time.perf_counter()
        played, episodes, metrics = play_iteration(session, plan, iteration)
        metrics["time/rollout"] = time.perf_counter() - began
        kl = kl_in_reward(session, plan, episodes)
        credit = credit_of(session, plan, episodes, kl)
        if plan.trainer.dynamic_sampling:
            credit = of_mixed_groups(credit)
        # dynamic sampling's metrics are of all that was played
        metrics = {**credit.metrics, **score_metrics(credit.groups, episodes), **metrics}
        session.role_baselines.learn(credit.groups, plan.credit)
        steps = update_all(session, plan, episodes, credit, kl, iteration)
        metrics |= by_policy(steps, session.trained)
        metrics["time/update"] = time.perf_counter() - began - metrics["time/rollout"]
        metrics["train/skipped"] = float(not steps)
        distances = {name: {"policy/ref_k1": each.mean} for name, each in kl.items()}
        metrics |= by_policy(distances, session.trained)
        session.episodes.write(iteration, played, credit=credit)
        session.curriculum.learn(played, by_return(session, plan, played, credit))
        iteration += 1
        share = time_share(session, plan, time.perf_counter() - began)
        ends = share >= 1 or iteration == plan.trainer.iterations or solved(plan, played)
        if (found := validate(session, plan, iteration, ends=ends)) is not None:
            metrics |= found.metrics
        session.record(PHASE, iteration, metrics, began)
        session.progress.advance(iteration, metrics | {TIME_SHARE: share})
        session.warn(watch.warning(played, iteration, metrics.get(CAPPED, 0.0)))
        ends = ends or (found is not None and time_share(session, plan) >= 1)  # validation counts
        done = ends or reached(plan, found and found.score)
        if not done:
            findings.tell(iteration, share)
        last = session.asked_to_stop() or done
        if found is not None or last or iteration % session.checkpoint_every == 0:
            save(session, PHASE, iteration, found)
    return True


def play_iteration(
    session: Session, plan: Plan, iteration: int
) -> tuple[list[Episode], list[Episode], dict[str, float]]:
    """Play an iteration; return its episodes, those that are trained, and the metrics."""
    played = play_groups(session, plan, session.curriculum.visits(iteration))
    stop_if_unreadable(session, plan.stop_if_failed, iteration, played)
    if plan.trainer.dynamic_sampling:
        played = refill(session, plan, iteration, played)
    episodes = compared(plan, played)
    metrics = rollout_metrics(played) | state_dependence(played)
    metrics |= sibling_metrics(played) | rank_correlation(played, plan.credit.rewards)
    metrics |= session.runner.take_metrics() | session.take_sampling()
    session.note(session.runner.take_warning(metrics))
    if plan.trainer.dynamic_sampling:
        credit = credit_of(session, plan, episodes)
        metrics |= {**credit.metrics, **score_metrics(credit.groups, episodes)}
        episodes = mixed_only(plan, episodes, credit)
    metrics["rollout/left_out"] = float(len(played) - len(episodes))
    return played, episodes, metrics


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
    assign = assign_below_worst if plan.credit.invalid_below_worst else assign_advantages
    baselines = session.role_baselines.values()
    return assign(episodes, plan.credit, penalties=penalties, team=team, baselines=baselines)


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


def update_all(
    session: Session,
    plan: Plan,
    episodes: Sequence[Episode],
    credit: Credit,
    kl: Mapping[str, RewardKl],
    iteration: int,
) -> dict[str, dict[str, float]]:
    """Update every trained policy that has a signal; return their metrics by policy name."""
    share, done = training_share(session, plan), iteration / plan.trainer.iterations
    for trained in session.trained.values():
        trained.optimizer.least_done = share
    batches = batches_of(session, plan, episodes, credit, kl, iteration, share)
    failed = {turn.id for each in episodes for turn in each.sampled if turn.error is not None}
    shares = role_shares(session, plan, batches)
    metrics = {
        name: update(session, plan, session.trained[name], iteration, batch, failed)
        for name, batch in batches.items()
    }
    for name in metrics:
        trained = session.trained[name]
        metrics[name] |= shares.get(name, {})
        if trained.hindsight is not None:
            metrics[name] |= trained.hindsight.metrics
        if trained.floor is not None:
            metrics[name] |= trained.floor.metrics_of(actions_of(episodes, name), max(done, share))
    return metrics


def role_shares(
    session: Session, plan: Plan, batches: Mapping[str, Batch]
) -> dict[str, dict[str, float]]:
    """Return each role's share of the gradient by policy, where they are measured."""
    if not plan.trainer.role_gradients:
        return {}
    roles = session.runner.env.seats
    return {
        name: role_gradients(session.trained[name], batch, plan.loss, roles, session.group)
        for name, batch in batches.items()
    }


def by_return(
    session: Session, plan: Plan, episodes: Sequence[Episode], credit: Credit
) -> dict[TurnId, float]:
    """Return the advantages by the return of the turns of all policies that are trained."""
    spans = plan.credit.return_spans | {WHOLE}
    return {
        turn.id: max(found)
        for turn in (turn for episode in episodes for turn in episode.turns)
        if turn.policy in session.trained
        and (found := [a for s, a in credit.advantages.get(turn.id, {}).items() if s in spans])
    }


def actions_of(episodes: Sequence[Episode], policy: str) -> list[str]:
    """Return the actions of a policy's turns, without those that failed."""
    turns = (turn for each in episodes for turn in each.turns if turn.policy == policy)
    return [turn.action for turn in turns if turn.action is not None and turn.error is None]


def update(
    session: Session,
    plan: Plan,
    trained: TrainedPolicy,
    iteration: int,
    batch: Batch,
    failed: Collection[TurnId] = (),
) -> dict[str, float]:
    """Take a batch's optimizer steps, again with another rate if that is "auto" and they err.

    `failed` are the turns whose replies could not be read.
    """
    take = partial(take_steps, session, plan, trained, iteration, batch)
    if trained.optimizer.is_auto:
        return update_within_band(session, trained, iteration, batch, failed, take)
    return take()


def take_steps(
    session: Session, plan: Plan, trained: TrainedPolicy, iteration: int, batch: Batch
) -> dict[str, float]:
    """Take a batch's optimizer steps; return the first one's metrics, and what differs later."""
    metrics, last, skipped = dict[str, float](), dict[str, float](), 0.0
    for epoch in range(plan.trainer.epochs):
        order = generator(session.seed, "minibatches", iteration, epoch)
        for rows in minibatches(batch.parts, plan.trainer.minibatches, order):
            with trained.policy.dropout(False):
                last = optimise(
                    trained.policy,
                    trained.optimizer,
                    trained.scorer,
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
                    check_weights(metrics, trained.policy, low_precision=trained.low_precision)
    session.new_weights(trained)
    for key in ("policy/clip_fraction", "policy/ratio_max", "optim/grad_norm", "optim/lr"):
        if key in last:
            metrics[key] = last[key]
    return metrics | {"optim/skipped": skipped}
