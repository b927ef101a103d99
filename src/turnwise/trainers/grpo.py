"""Group-relative policy optimisation on played episodes: the whole algorithm, top to bottom.

    task --> rollout --> turns --> groups --> advantages --> samples --> forest --> loss --> policy
     ^                                                                                       |
     +----------------------------- new weights, new version -------------------------------+

A task is played `group_size` times, what answered the same question is compared, and what did
better becomes more likely. The scheme (grpo, rloo, gigpo, ...) is `turnwise.credit`'s, the loss
`turnwise.losses`'s; this file only says what follows what. Around it, called by name: refilling
(dynamic sampling), rehearsal of the warm-up, validation, checkpoints, stopping.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.agents import AgentConfig
from turnwise.credit import Credit, CreditConfig, assign_advantages
from turnwise.curriculum import Visit
from turnwise.errors import TrainingError
from turnwise.losses import LossConfig
from turnwise.noise import generator
from turnwise.policies import OptimizerConfig, Policy, PolicyOptimizer, make_optimizer
from turnwise.rollout import (
    FailedReplies,
    Play,
    ReplyWatch,
    failed_replies,
    rollout_metrics,
    samples_from_episodes,
    without_cut,
)
from turnwise.rollout.runner import CAPPED
from turnwise.trainers.config import GrpoConfig, RehearsalConfig
from turnwise.trainers.demonstrations import Rehearsal
from turnwise.trainers.penalties import RewardKl, reward_kl
from turnwise.trainers.session import Resumed, Session
from turnwise.trainers.sft import rows_for
from turnwise.trainers.update import Batch, check_hand_over, make_batch, optimise, score_column
from turnwise.trainers.validation import DecodingRule, Validation, save, validate_policy
from turnwise.types import Episode, Sample

PHASE = "train"
REFILLS = 2
LEAST_SHARE = 0.1
"""Share of mixed groups that a refill counts on at the least, when it decides how much to play."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What decides the loop: its own settings and those of the packages it calls."""

    trainer: GrpoConfig
    optimizer: OptimizerConfig
    credit: CreditConfig
    loss: LossConfig
    rehearsal: RehearsalConfig | None
    rehearsal_first: int
    validate_every: int
    validation_tasks: int
    exact: bool
    decoding: DecodingRule
    validate_start: bool
    target: float | None
    stop_if_failed: float | None = None


def train_grpo(session: Session, plan: Plan, resumed: Resumed | None) -> bool:
    """Play and update for `iterations`; return False if the run was asked to stop before that."""
    updates = plan.trainer.iterations * plan.trainer.updates_per_batch
    optimizer = make_optimizer(session.policy, plan.optimizer, max(updates, 1))
    reference = reference_policy(session, plan.loss)
    rehearsal = rehearsed_rows(session, plan)
    iteration, done, watch = 0, False, ReplyWatch()
    if resumed is not None:
        resumed.restore(optimizer)
        iteration, done = resumed.step, reached(plan, resumed.score)
    elif plan.validate_start:
        done = validate_start(session, plan, optimizer)
    session.progress.begin("training", done=iteration, total=plan.trainer.iterations)
    session.take_sampling()  # what was sampled before is in the totals only

    while iteration < plan.trainer.iterations and not done:
        if session.stop.requested:
            return False
        began = time.perf_counter()
        played = play_groups(session, plan, session.curriculum.visits(iteration))
        stop_if_unreadable(session, plan, iteration, played)
        if plan.trainer.dynamic_sampling:
            played = refill(session, plan, iteration, played)
        episodes = compared(plan, played)
        metrics = rollout_metrics(played) | session.runner.take_metrics() | session.take_sampling()
        if warning := session.runner.take_warning(metrics):
            session.progress.note(warning)
        if plan.trainer.dynamic_sampling:
            credit = assign_advantages(episodes, plan.credit)
            metrics |= credit.metrics
            episodes = mixed_only(plan, episodes, credit)
        metrics["rollout/left_out"] = float(len(played) - len(episodes))
        metrics["time/rollout"] = time.perf_counter() - began
        kl = kl_in_reward(session, plan, episodes, reference)
        credit = assign_advantages(episodes, plan.credit, penalties=kl and kl.penalties)
        metrics = dict(credit.metrics) | metrics  # dynamic sampling's are of all that was played
        samples = samples_of(plan, episodes, credit)
        if credit.has_signal:
            if rehearsal is not None and plan.rehearsal is not None:
                samples += rehearsal.batch(iteration, plan.rehearsal.rows)
            batch = batch_of(session, plan, samples, credit, reference, kl)
            metrics |= update(session, plan, optimizer, batch, iteration)
            session.new_weights()
        metrics["time/update"] = time.perf_counter() - began - metrics["time/rollout"]
        metrics["train/skipped"] = float(not credit.has_signal)
        metrics |= {} if kl is None else {"policy/ref_k1": kl.mean}
        session.episodes.write(iteration, played, credit=credit)

        iteration += 1
        if (found := validate(session, plan, iteration)) is not None:
            metrics |= found.metrics
        session.record(PHASE, iteration, metrics, began)
        session.progress.advance(iteration, metrics)
        tell_failures(session, watch.warning(played, iteration, metrics.get(CAPPED, 0.0)))
        done = reached(plan, found and found.score)
        last = done or iteration == plan.trainer.iterations or bool(session.stop.requested)
        if found is not None or last or iteration % session.checkpoint_every == 0:
            save(session, PHASE, iteration, optimizer, found)
    tell_failures(session, watch.verdict())
    return True


def reached(plan: Plan, score: float | None) -> bool:
    """Whether a validation score is the target at which training stops."""
    return plan.target is not None and score is not None and score >= plan.target


def play_groups(session: Session, plan: Plan, visits: Sequence[Visit]) -> list[Episode]:
    """Play every visit `group_size` times, all side by side.

    Raises:
        EnvError: if an iteration's episodes were all broken by the env; they are recorded.
    """
    plays = [
        Play(iteration=visit.iteration, visit=visit.number, task=visit.task, sample=sample)
        for visit in visits
        for sample in range(plan.trainer.group_size)
    ]
    episodes = session.runner.collect(plays, "train")
    if visits[0].number == 0:  # refills are judged with the iteration that they belong to
        stop_if_broken(session, visits[0].iteration, episodes)
    session.engine.end_iteration()
    session.count_engine()
    session.count(env_steps=rollout_metrics(episodes)["rollout/env_steps"])
    return episodes


def compared(plan: Plan, played: list[Episode]) -> list[Episode]:
    """Return the episodes that are compared: all, or those without a completion that was cut."""
    return without_cut(played) if plan.trainer.on_length == "exclude" else played


def stop_if_broken(session: Session, iteration: int, episodes: Sequence[Episode]) -> None:
    """Record an iteration of which nothing can be learnt because all of it broke, and raise."""
    problem = session.health.problem(episodes, f"iteration {iteration}")
    if problem is not None:
        session.episodes.write(iteration, episodes)
        raise problem


def tell_failures(session: Session, warning: str) -> None:
    """Pass a warning of failed replies on to whoever watches, if there is one."""
    if warning:
        session.progress.note(warning)


def stop_if_unreadable(
    session: Session, plan: Plan, iteration: int, episodes: Sequence[Episode]
) -> None:
    """Record a first iteration in which hardly a reply was an action, and raise.

    Raises:
        TrainingError: if more replies failed than the plan bears; it quotes two.
    """
    if iteration or plan.stop_if_failed is None:
        return
    found = failed_replies(episodes)
    if found.share > plan.stop_if_failed:
        session.episodes.write(0, episodes)
        raise TrainingError(
            f"{found.failed} of {found.replies} replies of the first iteration are no action. "
            f"{found.examples()}. {cure_of(found, session.agent)}; trainer.stop_if_failed = "
            "'never' trains all the same"
        )


def cure_of(found: FailedReplies, agent: AgentConfig) -> str:
    """Return what helps against replies that are no action."""
    where = f"agents.{agent.role}"
    if 2 * found.cut > found.failed:
        return (
            f"{found.cut} of them were cut: raise {where}.max_tokens = {agent.max_tokens}, or ask "
            f"for short replies in {where}.system"
        )
    how = (
        "to reply with the action alone"
        if agent.answer == "whole"
        else ("to end with <answer> ACTION </answer>")
    )
    return f"Tell the model in {where}.system {how}, or teach it by a [warmup]"


def refill(session: Session, plan: Plan, iteration: int, played: list[Episode]) -> list[Episode]:
    """Play fresh tasks until enough groups hold a difference, or the cap; return all that's played.

    Dynamic sampling (DAPO, arXiv:2503.14476). Refilling with the same task would weigh it by
    1 / P(mixed), so fresh tasks are drawn (docs/math.md 2).
    """
    wanted = visits = plan.trainer.tasks_per_iteration
    for _ in range(plan.trainer.max_refills or REFILLS):
        mixed = len(mixed_visits(assign_advantages(compared(plan, played), plan.credit)))
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
    return [episode for episode in episodes if not chosen or episode.visit in chosen]


def mixed_visits(credit: Credit) -> list[int]:
    """Return the visits whose episodes did not all earn the same, in order."""
    mixed = (group for group in credit.groups if not group.zero_variance and not group.singleton)
    return sorted({unit.turns[0].visit for group in mixed for unit in group.units})


def samples_of(plan: Plan, episodes: Sequence[Episode], credit: Credit) -> list[Sample]:
    """Return the training rows of the episodes that are compared."""
    return samples_from_episodes(
        episodes,
        credit.advantages,
        on_length=plan.trainer.on_length,
        entropy_span=plan.loss.entropy_span,
        reference=plan.loss.has_kl_loss,
    )


def batch_of(
    session: Session,
    plan: Plan,
    samples: Sequence[Sample],
    credit: Credit,
    reference: Policy | None,
    kl: RewardKl | None = None,
) -> Batch:
    """Fix weights, proximal and reference log-probabilities before any step (docs/math.md 3)."""
    scorer, proximal = session.scorer, None
    if kl is not None and kl.proximal is not None:
        proximal = kl.proximal_of(samples)
    elif recomputes(session, plan):
        proximal = score_column(session.policy.model, scorer, samples)
    in_loss = reference if plan.loss.has_kl_loss else None
    visits = {sample.turns[0].visit for sample in samples if sample.turns}
    return make_batch(
        samples,
        plan.loss,
        counted=credit.counted,
        proximal=proximal,
        reference=score_column(in_loss.model, scorer, samples) if in_loss else None,
        scale=min(plan.trainer.minibatches, len(visits)),
    )


def recomputes(session: Session, plan: Plan) -> bool:
    """Whether the trainer's log-probabilities at batch start replace the engine's (docs/math.md 3).

    They do below float32, for GSPO, and for truncated weights.
    """
    inexact = session.low_precision or plan.loss.kind == "gspo" or plan.loss.tis_cap is not None
    rule = plan.trainer.proximal
    return rule == "recompute" or (rule == "auto" and inexact)


def kl_in_reward(
    session: Session, plan: Plan, episodes: Sequence[Episode], reference: Policy | None
) -> RewardKl | None:
    """Return what each turn pays for its distance to the reference, where rewards hold it."""
    if plan.loss.kl != "reward_k1":
        return None
    assert reference is not None and plan.loss.kl_weight is not None, "LossConfig asks for both"
    return reward_kl(
        episodes,
        reference=reference.model,
        policy=session.policy.model if recomputes(session, plan) else None,
        scorer=session.scorer,
        weight=plan.loss.kl_weight,
    )


def update(
    session: Session, plan: Plan, optimizer: PolicyOptimizer, batch: Batch, iteration: int
) -> dict[str, float]:
    """Take the batch's optimizer steps; return the first one's metrics, and what differs later."""
    metrics: dict[str, float] = {}
    last: dict[str, float] = {}
    skipped = 0.0
    for epoch in range(plan.trainer.epochs):
        order = generator(session.seed, "minibatches", iteration, epoch)
        for rows in minibatches(batch.samples, plan.trainer.minibatches, order):
            with session.policy.dropout(False):
                last = optimise(
                    session.policy, optimizer, session.scorer, batch, plan.loss, rows=rows
                )
            session.count(trained_tokens=last["forest/tokens_distinct"], optimizer_steps=1)
            skipped += last["optim/skipped"]
            if not metrics:
                metrics = dict(last)
                if plan.trainer.mismatch == "stop":
                    check_hand_over(metrics, session.policy, low_precision=session.low_precision)
    for name in ("policy/clip_fraction", "policy/ratio_max", "optim/grad_norm", "optim/lr"):
        if name in last:
            metrics[name] = last[name]
    return metrics | {"optim/skipped": skipped}


def minibatches(
    samples: Sequence[Sample], count: int, order: np.random.Generator
) -> list[list[int]]:
    """Return the rows of each mini-batch: whole groups, in a random order of groups.

    Rehearsed rows, which are in no group, are shared out evenly.
    """
    if count == 1:
        return [list(range(len(samples)))]
    visits = sorted({sample.turns[0].visit for sample in samples if sample.turns})
    places = {visits[v]: i % count for i, v in enumerate(order.permutation(len(visits)))}
    count = min(count, len(visits))
    parts: list[list[int]] = [[] for _ in range(count)]
    for row, sample in enumerate(samples):
        place = places[sample.turns[0].visit] if sample.turns else row % count
        parts[place].append(row)
    return [part for part in parts if part]


def rehearsed_rows(session: Session, plan: Plan) -> Rehearsal | None:
    """Return the rows that every update rehearses, none of which the warm-up has shown."""
    if plan.rehearsal is None:
        return None
    data, states = plan.rehearsal.data, plan.rehearsal.states
    rows = rows_for(session, data, first=plan.rehearsal_first, states=states)
    return Rehearsal(
        rows=rows,
        spans=plan.rehearsal.spans,
        renderer=session.policy.renderer,
        final=plan.rehearsal.final,
        iterations=plan.trainer.iterations,
    )


def reference_policy(session: Session, loss: LossConfig) -> Policy | None:
    """Return the frozen start policy where the loss has a KL part (docs/math.md 3)."""
    if not loss.needs_reference:
        return None
    reference = session.policy.reference()
    reference.load_weights(session.start_folder)
    return reference


def validate(session: Session, plan: Plan, iteration: int) -> Validation | None:
    """Return the validation of the weights if one is due after `iteration` iterations."""
    due = iteration % plan.validate_every == 0 or iteration == plan.trainer.iterations
    if not due:
        return None
    tasks = session.validation.take(plan.validation_tasks)
    return validate_policy(
        session, tasks, exact=plan.exact, decoding=plan.decoding, iteration=iteration
    )


def validate_start(session: Session, plan: Plan, optimizer: PolicyOptimizer) -> bool:
    """Validate and save the weights that training begins with; return whether they are enough."""
    began = time.perf_counter()
    found = validate(session, plan, 0)
    assert found is not None, "0 is a multiple of every period"
    session.record(PHASE, 0, found.metrics, began)
    save(session, PHASE, 0, optimizer, found)
    return reached(plan, found.score)
