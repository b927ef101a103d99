"""The batch of each trained policy: its rows, their weights, and what they are compared with.

Provides `begin`, which prepares a trained policy for the loop, `kl_in_reward` and `batches_of`. All
that a loss divides by, and every log-probability it compares with, is fixed here, before any policy
takes a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.credit import Credit
from turnwise.losses import LossConfig
from turnwise.parallel import ALONE, ProcessGroup
from turnwise.policies import Policy
from turnwise.rollout import samples_from_episodes
from turnwise.trainers.action_floor import ActionFloor
from turnwise.trainers.hindsight_mix import HindsightMix, with_own_means
from turnwise.trainers.minibatches import parts_of
from turnwise.trainers.penalties import RewardKl, reward_kl
from turnwise.trainers.plan import Plan
from turnwise.trainers.session import Session
from turnwise.trainers.sft import rows_for
from turnwise.trainers.sft_mix import SftMix
from turnwise.trainers.trained_policy import TrainedPolicy
from turnwise.trainers.update import Batch, make_batch, score_column
from turnwise.types import Episode, TrainingSample


def begin(session: Session, plan: Plan, trained: TrainedPolicy) -> None:
    """Give a trained policy the optimizer, the reference and the rows of the SFT mix."""
    trained.begin(
        plan.optimizer,
        plan.trainer.iterations * plan.trainer.updates_per_batch,
        lr=trained.policy.config.lr,
    )
    trained.reference = reference_policy(session, trained.policy, plan.loss)
    trained.sft_mix = sft_mix_rows(session, plan, trained)
    own = plan.trainer.hindsight
    trained.hindsight = None if own is None else HindsightMix(config=own)
    share = None if plan.sft_mix is None else plan.sft_mix.action_floor
    trained.floor = None if share is None else ActionFloor(share=share)


def sft_mix_rows(session: Session, plan: Plan, trained: TrainedPolicy) -> SftMix | None:
    """Return the rows of the SFT mix, none of which the warm-up has shown; None without one."""
    if plan.sft_mix is None:
        return None
    rows = rows_for(
        session,
        trained,
        plan.sft_mix.data,
        first=plan.sft_mix_first,
        states=plan.sft_mix.states,
        player=plan.sft_mix.player,
    )
    return SftMix(
        rows=rows,
        spans=plan.sft_mix.spans,
        renderer=trained.policy.renderer,
        reply_format=trained.reply_format,
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
    """Return the batch of every trained policy that has a signal, made before any of them steps.

    At least the share `least_done` of the training is over, where time ends it.
    """
    batches: dict[str, Batch] = {}
    for name, trained in session.trained.items():
        own = credit.of({t.id for e in episodes for t in e.sampled if t.policy == name})
        shown = mix.rows(session, name, episodes, iteration) if (mix := trained.hindsight) else []
        if not own.has_signal and not shown:
            continue
        if trained.sft_mix is not None and plan.sft_mix is not None:
            factor = 1.0 if trained.floor is None else trained.floor.factor
            taught = trained.sft_mix.batch(iteration, plan.sft_mix.rows, least_done, factor)
            shown = with_own_means(shown, taught)
        samples = samples_of(plan, episodes, own) + shown
        batches[name] = batch_of(plan, trained, samples, own, kl.get(name), session.group)
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
    trained: TrainedPolicy,
    samples: Sequence[TrainingSample],
    credit: Credit,
    kl: RewardKl | None = None,
    group: ProcessGroup = ALONE,
) -> Batch:
    """Fix weights, proximal and reference log-probabilities before any step (docs/math.md 3)."""
    model, scorer, proximal = trained.policy.model, trained.scorer, None
    if kl is not None and kl.proximal is not None:
        proximal = kl.proximal_of(samples)
    elif recomputes(plan, trained):
        proximal = score_column(model, scorer, samples, group)
    in_loss = trained.reference if plan.loss.has_kl_loss else None
    parts = parts_of(samples, credit)
    return make_batch(
        samples,
        plan.loss,
        counted=credit.counted,
        proximal=proximal,
        reference=score_column(in_loss.model, scorer, samples, group) if in_loss else None,
        parts=parts,
        scale=max(1, min(plan.trainer.minibatches, len(set(parts) - {None}))),
    )


def recomputes(plan: Plan, trained: TrainedPolicy) -> bool:
    """Whether the trainer's log-probabilities at batch start replace the engine's (docs/math.md 3).

    They do below float32, and where the loss needs them (`LossConfig.needs_own_logprobs`).
    """
    inexact = trained.low_precision or plan.loss.needs_own_logprobs
    rule = plan.trainer.old_logprobs
    return rule == "recompute" or (rule == "auto" and inexact)


def kl_in_reward(session: Session, plan: Plan, episodes: Sequence[Episode]) -> dict[str, RewardKl]:
    """Return the KL penalty of each trained policy, where it is part of the reward."""
    if plan.loss.kl != "reward_k1":
        return {}
    assert plan.loss.kl_weight is not None, "LossConfig asks for it"
    found: dict[str, RewardKl] = {}
    for name, trained in session.trained.items():
        assert trained.reference is not None, "LossConfig asks for it"
        found[name] = reward_kl(
            episodes,
            name,
            reference=trained.reference.model,
            policy=trained.policy.model if recomputes(plan, trained) else None,
            scorer=trained.scorer,
            weight=plan.loss.kl_weight,
            group=session.group,
        )
    return found
