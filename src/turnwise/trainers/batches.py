"""Each learner's part of an iteration: its rows, their weights, and what they are compared with.

Provides `begin`, which prepares a learner for the loop, `kl_in_reward` and `batches_of`. All that a
loss divides by, and every log-probability it compares with, is fixed here, before any learner takes
a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.credit import Credit
from turnwise.losses import LossConfig
from turnwise.parallel import ALONE, ProcessGroup
from turnwise.policies import Policy
from turnwise.rollout import samples_from_episodes
from turnwise.trainers.action_floor import ActionFloor
from turnwise.trainers.learner import Learner
from turnwise.trainers.minibatches import parts_of
from turnwise.trainers.penalties import RewardKl, reward_kl
from turnwise.trainers.plan import Plan
from turnwise.trainers.session import Session
from turnwise.trainers.sft import rows_for
from turnwise.trainers.sft_mix import SftMix
from turnwise.trainers.update import Batch, make_batch, score_column
from turnwise.types import Episode, TrainingSample


def begin(session: Session, plan: Plan, learner: Learner) -> None:
    """Give a learner the optimizer, the reference and the rehearsed rows of this loop."""
    learner.begin(
        plan.optimizer,
        plan.trainer.iterations * plan.trainer.updates_per_batch,
        lr=learner.policy.config.lr,
    )
    learner.reference = reference_policy(session, learner.policy, plan.loss)
    learner.sft_mix = rehearsed_rows(session, plan, learner)
    share = None if plan.sft_mix is None else plan.sft_mix.action_floor
    learner.floor = None if share is None else ActionFloor(share=share)


def rehearsed_rows(session: Session, plan: Plan, learner: Learner) -> SftMix | None:
    """Return the rows that a learner's updates rehearse, none of which the warm-up has shown."""
    if plan.sft_mix is None:
        return None
    rows = rows_for(
        session,
        learner,
        plan.sft_mix.data,
        first=plan.sft_mix_first,
        states=plan.sft_mix.states,
    )
    return SftMix(
        rows=rows,
        spans=plan.sft_mix.spans,
        renderer=learner.policy.renderer,
        reply_format=learner.reply_format,
        final=plan.sft_mix.final,
        iterations=plan.trainer.iterations,
    )


def reference_policy(session: Session, policy: Policy, loss: LossConfig) -> Policy | None:
    """Return the frozen start policy where the loss has a KL part (docs/math.md 3)."""
    if not loss.needs_reference:
        return None
    reference = policy.reference()
    reference.load_weights(session.run.start(policy.name))
    return reference


def batches_of(
    session: Session,
    plan: Plan,
    episodes: Sequence[Episode],
    credit: Credit,
    kl: Mapping[str, RewardKl],
    iteration: int,
    least_done: float = 0.0,
) -> dict[str, Batch]:
    """Return the batch of every learner that has a signal, made before any of them steps.

    At least the share `least_done` of the training is over, where time ends it.
    """
    batches: dict[str, Batch] = {}
    for name, learner in session.learners.items():
        own = credit.of({t.id for e in episodes for t in e.turns if t.policy == name})
        if not own.has_signal:
            continue
        samples = samples_of(plan, episodes, own)
        if learner.sft_mix is not None and plan.sft_mix is not None:
            factor = 1.0 if learner.floor is None else learner.floor.factor
            samples += learner.sft_mix.batch(iteration, plan.sft_mix.rows, least_done, factor)
        batches[name] = batch_of(plan, learner, samples, own, kl.get(name), session.group)
    return batches


def samples_of(plan: Plan, episodes: Sequence[Episode], credit: Credit) -> list[TrainingSample]:
    """Return the training rows of the turns that have an advantage."""
    return samples_from_episodes(
        episodes,
        credit.advantages,
        truncated_completions=plan.trainer.truncated_completions,
        entropy_span=plan.loss.entropy_span,
        reference=plan.loss.has_kl_loss,
        ends=credit.ends,
    )


def batch_of(
    plan: Plan,
    learner: Learner,
    samples: Sequence[TrainingSample],
    credit: Credit,
    kl: RewardKl | None = None,
    group: ProcessGroup = ALONE,
) -> Batch:
    """Fix weights, proximal and reference log-probabilities before any step (docs/math.md 3)."""
    model, scorer, proximal = learner.policy.model, learner.scorer, None
    if kl is not None and kl.proximal is not None:
        proximal = kl.proximal_of(samples)
    elif recomputes(plan, learner):
        proximal = score_column(model, scorer, samples, group)
    in_loss = learner.reference if plan.loss.has_kl_loss else None
    parts = parts_of(samples, credit)
    return make_batch(
        samples,
        plan.loss,
        counted=credit.counted,
        proximal=proximal,
        reference=score_column(in_loss.model, scorer, samples, group) if in_loss else None,
        parts=parts,
        scale=min(plan.trainer.minibatches, len(set(parts) - {None})),
    )


def recomputes(plan: Plan, learner: Learner) -> bool:
    """Whether the trainer's log-probabilities at batch start replace the engine's (docs/math.md 3).

    They do below float32, and where the loss needs them (`LossConfig.needs_own_logprobs`).
    """
    inexact = learner.low_precision or plan.loss.needs_own_logprobs
    rule = plan.trainer.old_logprobs
    return rule == "recompute" or (rule == "auto" and inexact)


def kl_in_reward(session: Session, plan: Plan, episodes: Sequence[Episode]) -> dict[str, RewardKl]:
    """Return the price of each learner's distance to its reference, where rewards hold it."""
    if plan.loss.kl != "reward_k1":
        return {}
    assert plan.loss.kl_weight is not None, "LossConfig asks for it"
    found: dict[str, RewardKl] = {}
    for name, learner in session.learners.items():
        assert learner.reference is not None, "LossConfig asks for it"
        found[name] = reward_kl(
            episodes,
            name,
            reference=learner.reference.model,
            policy=learner.policy.model if recomputes(plan, learner) else None,
            scorer=learner.scorer,
            weight=plan.loss.kl_weight,
            group=session.group,
        )
    return found
