"""The options of the loops: the supervised warm-up, the SFT mix, and the policy gradient."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from turnwise.evaluation.perception import StatesRule
from turnwise.policies import SftOptimizerConfig
from turnwise.rollout.runner import NoiseRule
from turnwise.rollout.samples import LengthRule
from turnwise.settings import Settings

DEMONSTRATIONS = "demonstrations"
MOST_MINUTES = 1_000_000_000
"""The most minutes that a run can be given: sums and products of them stay exact."""


def _check_player(data: str, player: str | None) -> None:
    """Refuse a player of rows that are no demonstrations."""
    if player is not None and data != DEMONSTRATIONS:
        raise ValueError(
            f"player = {player!r} chooses what demonstrations show, but data = {data!r}: leave "
            "player out"
        )


def _check_states(data: str, states: StatesRule | None) -> None:
    """Refuse a choice of states where rows come from a file."""
    if states is not None and data != DEMONSTRATIONS:
        raise ValueError(
            f"states = {states!r} chooses what demonstrations show, but data = {data!r}: leave "
            "states out"
        )


class SftConfig(Settings):
    """Supervised fine-tuning: on demonstrations that the env generates, or on a file of rows."""

    data: str = "demonstrations"
    """`demonstrations` (true descriptions, uniformly random actions) or a .jsonl or .csv file. A
    row of a file with a column `role` is shown to the policy of that role only."""
    states: StatesRule | None = None
    """The states that demonstrations show: those that tasks begin in (`first`; None is this), which
    is enough where tasks begin anywhere, or every turn of games of random actions (`play`)."""
    player: str | None = None
    """The baseline of the env whose actions demonstrations show, and by which games are played;
    None is uniformly random actions."""
    player_noise: float = Field(default=0.0, ge=0, lt=1)
    """The share of turns in which a uniformly random action is played in place of the player's.
    Demonstrations show what the player does in the states that follow, not the random actions."""
    answers: int = Field(default=1, ge=1)
    """The rows that a state has, each with an action of its own. Rows of a state are computed with
    one pass over their prompt, so that long prompts with short answers cost less."""
    outcomes: bool = False
    """Whether demonstrations of `play` go on with what followed in the game: the rewards, and the
    next observation or the end. Earlier turns that the prompt holds are then imitated, too. Where
    a row is one turn, half of the rows are drawn by how rare what followed is; their replies are
    not imitated."""
    steps: int = Field(default=600, ge=0)
    """The most optimizer steps; 0 skips the phase."""
    batch_size: int = Field(default=64, ge=1)
    """Rows in one optimizer step."""
    eval_every: int = Field(default=25, ge=1)
    """Steps between two logged records, checks of perception and checkpoints."""
    perception_tasks: int = Field(default=128, ge=1)
    """Unseen states on which the exactness of perception is measured after each round, by replies
    sampled at the training temperature."""
    stop_at_accuracy: Annotated[float, Field(gt=0, le=1)] | Literal["never"] = 0.98
    """Stop once this share of descriptions of unseen states is exact, in two rounds running."""
    required_accuracy: float | None = Field(default=None, gt=0, le=1)
    """For the warm-up of a run that `trainer.minutes` limit: it takes about a quarter of them, or
    up to half while a smaller share of descriptions (or of readable replies) than this is right.
    None is 0.9."""
    cooldown: int = Field(default=0, ge=0)
    """Optimizer steps after `stop_at_accuracy` is reached, or the phase's time is over, in which
    the rate decreases linearly to 0. `steps` limits them, too."""
    optimizer: SftOptimizerConfig = SftOptimizerConfig()
    """The phase's own optimizer."""

    @model_validator(mode="after")
    def _check(self) -> SftConfig:
        _check_states(self.data, self.states)
        _check_player(self.data, self.player)
        if self.player_noise and self.player is None:
            raise ValueError(
                f"player_noise = {self.player_noise} disturbs a player, and there is none: set "
                "player, or leave player_noise out"
            )
        if self.answers > 1 and (self.outcomes or self.data != DEMONSTRATIONS):
            given = "outcomes = true" if self.outcomes else f"data = {self.data!r}"
            raise ValueError(
                f"answers = {self.answers} is for demonstrations without outcomes, but {given}: "
                "leave answers out"
            )
        if self.outcomes and self.data != DEMONSTRATIONS:
            raise ValueError(
                f"outcomes = true adds to demonstrations, but data = {self.data!r}: leave outcomes "
                "out"
            )
        if self.outcomes and self.states != "play":
            raise ValueError(
                "outcomes = true shows what followed in games of random actions, but states = "
                f"{self.states or 'first'!r}: set states = 'play', or leave outcomes out"
            )
        return self


class SftMixConfig(Settings):
    """Supervised rows in every policy-gradient update, so that what was taught is not forgotten.

    Adds `sum(weight * cross-entropy) / tokens` to the loss, over the tokens of the rows' replies
    whose weight is not 0, whatever `loss.aggregation` (PPO-ptx, Ouyang et al. 2022,
    arXiv:2203.02155, eq. 2). Demonstrations have uniform actions: on them it is also a
    log barrier, which gives up no action (Agarwal et al. 2021, arXiv:1908.00261).
    """

    data: str = "demonstrations"
    """`demonstrations` or a .jsonl or .csv file, as in `warmup.data`."""
    states: StatesRule | None = None
    """The states that demonstrations show, as in `warmup.states`."""
    player: str | None = None
    """The baseline of the env whose actions demonstrations show, as in `warmup.player`; None is
    uniformly random actions."""
    rows: int = Field(default=32, ge=1)
    """Fresh rows in each iteration, shared out among its mini-batches."""
    spans: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Span of the reply -> weight of its tokens, in other spans 0; empty: the whole reply, 1. The
    weighted cross-entropy is divided by the number of tokens with a weight, so that a span weighs
    more where it is the only one."""
    final: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Span -> weight in the last iteration, reached in a straight line from that in `spans`; a log
    barrier that fades lets the policy become certain. Spans that are not named keep theirs."""
    action_floor: float | None = Field(default=None, gt=0, lt=1)
    """While some action is rarer than this share of its frequency in the first iteration, the
    weight of the span `action` is multiplied by 1.5 in each iteration, up to 20 times the weight of
    `spans` and `final`; otherwise the factor falls back to 1. Only actions with at least a tenth of
    the first iteration's valid replies count. The share decreases linearly to 0 at 80 % of the
    training. None is no floor."""

    @model_validator(mode="after")
    def _check(self) -> SftMixConfig:
        _check_states(self.data, self.states)
        _check_player(self.data, self.player)
        unknown = sorted(set(self.final) - set(self.spans))
        if unknown:
            raise ValueError(
                f"final has {unknown[0]!r}, which is not in spans: give its first weight there"
            )
        if self.action_floor is not None and not self.spans.get("action"):
            raise ValueError(
                f"action_floor = {self.action_floor} lets the weight of uniform actions grow: "
                "give spans.action a weight, or leave action_floor out"
            )
        return self


class LoopConfig(Settings):
    """What all loops of play and update have in common."""

    iterations: int = Field(default=100, ge=0)
    """Iterations of play and update."""
    minutes: float | None = Field(default=None, gt=0, le=MOST_MINUTES, allow_inf_nan=False)
    """Training ends after `iterations`, or earlier, after the iteration in which the run has taken
    so many minutes, its warm-up included. Where `turnwise.train` is given the minutes and not the
    iterations, the time alone ends it. The warm-up takes about a quarter of them, or up to half
    while fewer replies are right than `warmup.required_accuracy`. What changes over the iterations
    (`optimizer.schedule`, `sft_mix.final`) follows the time since the first iteration where that is
    further, so that two such runs differ."""
    stop_at_score: float | None = Field(default=None, allow_inf_nan=False)
    """Training ends after the iteration in which an episode of training had this score."""
    tasks_per_iteration: int = Field(default=16, ge=1)
    """Task visits, each one group, in an iteration."""
    group_size: int = Field(default=8, ge=1)
    """Episodes of one visit."""
    max_turns: int | None = Field(default=None, ge=1)
    """The most turns of a training episode, all roles' together; None is the env's own limit. A
    longer episode is cut, and its return is bootstrapped from the value of the state in which it
    was cut. Only `credit.scheme = "gae"` can do that; other schemes are refused."""
    noise: NoiseRule = "common"
    """Whether a group's episodes share the world's random draws (`common`, common random numbers)
    or not (`independent`)."""
    stop_if_failed: Annotated[float, Field(ge=0, le=1)] | Literal["auto", "never"] = "auto"
    """Stop after the first iteration if more than this share of its replies was no legal action.
    "auto" is 0.9 for a model that is trained as it is, and "never" after a warm-up or for a model
    made on the spot."""

    @property
    def updates_per_batch(self) -> int:
        """Optimizer steps that an iteration takes, at the most."""
        return 1


class HindsightMixConfig(Settings):
    """Supervised rows of the model's own episodes in every policy-gradient update.

    They add `weight` times their mean cross-entropy by token to the loss, whatever the SFT mix adds
    beside them.
    """

    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """The weight of the tokens of a demonstration's reply."""
    most: int | None = Field(default=None, ge=1)
    """The most demonstrations of an iteration, those closest to the tasks that were asked; None is
    all different ones."""
    again: bool = False
    """Whether a task that an earlier iteration demonstrated is demonstrated again."""
    replay: int = Field(default=0, ge=0)
    """Demonstrations of earlier iterations, drawn at random, that each update imitates too. The
    latest 4,096 are kept."""
    replay_solved: int = Field(default=0, ge=0)
    """The same of episodes that solved the task that they were asked."""


class GrpoConfig(LoopConfig):
    """Policy gradients on played episodes; the scheme and the loss have sections of their own."""

    kind: Literal["grpo"] = "grpo"
    """The trainer."""
    truncated_completions: LengthRule = "train"
    """Completions cut at max_tokens: trained as they are, with what their answer earned if they
    have one; without loss, but in the baseline (`mask`; DAPO's overlong filtering,
    arXiv:2503.14476, section 3.4); or their episodes left out (`exclude`)."""
    minibatches: int = Field(default=1, ge=1)
    """Into how many optimizer steps an iteration's groups are divided (PPO, arXiv:1707.06347,
    algorithm 1); a group stays whole."""
    epochs: int = Field(default=1, ge=1)
    """The number of passes over each iteration's batch (PPO, arXiv:1707.06347, algorithm 1)."""
    dynamic_sampling: bool = False
    """Refill an iteration with fresh tasks until it has `tasks_per_iteration` mixed groups (DAPO,
    arXiv:2503.14476, section 3.2)."""
    max_refills: int | None = Field(default=None, ge=1, le=16)
    """The cap on refills of one iteration, with `dynamic_sampling` only; None is 2 there."""
    old_logprobs: Literal["auto", "behaviour", "recompute"] = "auto"
    """The source of the ratio's denominator: the engine's own log-probabilities, or one pass of
    the trainer at batch start (the proximal policy of arXiv:2110.00641). `auto` recomputes
    below fp32 and for GSPO."""
    mismatch: Literal["stop", "ignore"] = "stop"
    """The action if the sampler's log-probabilities differ too much from the trainer's."""
    hindsight: HindsightMixConfig | None = None
    """Supervised rows of the iteration's own episodes on the tasks that they solved
    (`Env.relabel`), beside the policy gradient; None is none."""
    role_gradients: bool = False
    """Whether the norm of each role's gradient is measured, where several roles train one policy:
    `optim/grad_share/ROLE`. It takes one more forward and backward pass an iteration."""

    @model_validator(mode="after")
    def _check(self) -> GrpoConfig:
        if self.max_refills is not None and not self.dynamic_sampling:
            raise ValueError(
                f"max_refills = {self.max_refills} needs dynamic_sampling = true, got false: set "
                "it, or leave max_refills out"
            )
        if self.minibatches > self.tasks_per_iteration:
            raise ValueError(
                f"minibatches = {self.minibatches} exceeds tasks_per_iteration = "
                f"{self.tasks_per_iteration}: a group stays in one mini-batch; lower minibatches"
            )
        return self

    @property
    def updates_per_batch(self) -> int:
        """Optimizer steps an iteration takes; with 1 the ratio is 1 and clipping does nothing."""
        return self.minibatches * self.epochs


class HindsightConfig(LoopConfig):
    """Imitation of the model's own episodes, on the tasks that they solved (arXiv:1707.01495).

    Each iteration plays, gives every episode a task that its actions solve (`Env.relabel`), and
    takes supervised steps on these demonstrations. Of episodes that solved one task the shortest is
    kept.
    """

    kind: Literal["hindsight"] = "hindsight"
    """The trainer."""
    relabel: Literal["achieved", "shuffled", "none"] = "achieved"
    """The task that a demonstration shows: the one that the episode solved; as a control, that of
    another episode of the iteration, drawn at random; or none of these but the task that was
    played, for the closest episodes alone (`best_share`)."""
    best_share: float | None = Field(default=None, gt=0, le=1)
    """With `relabel = "none"` the share of the iteration's different episodes that is imitated, the
    closest to its task; None is 0.25."""
    again: bool = False
    """Whether a task that an earlier iteration demonstrated is demonstrated again."""
    replay: int = Field(default=0, ge=0)
    """Demonstrations of earlier iterations, drawn at random, that each iteration shows again among
    its own. The latest 4,096 are kept."""
    order: Literal["closeness", "random"] = "closeness"
    """The order of an iteration's demonstrations: the closest to the task that was asked last, or
    at random."""
    batch_size: int = Field(default=8, ge=1)
    """Demonstrations in one optimizer step."""
    passes: int = Field(default=1, ge=0)
    """Passes over the demonstrations of an iteration; 0 imitates nothing: sampling alone, with
    which training is compared."""

    @model_validator(mode="after")
    def _check(self) -> HindsightConfig:
        if self.best_share is not None and self.relabel != "none":
            raise ValueError(
                f"best_share = {self.best_share} is for relabel = 'none', got "
                f"{self.relabel!r}: leave it out"
            )
        if self.replay and not self.passes:
            raise ValueError(
                f"replay = {self.replay} with passes = 0, which shows no demonstration: leave "
                "replay out, or raise passes"
            )
        return self

    @property
    def updates_per_batch(self) -> int:
        """Optimizer steps that an iteration takes, at the most: if each episode demonstrates."""
        episodes = self.tasks_per_iteration * self.group_size
        return self.passes * math.ceil((episodes + self.replay) / self.batch_size)
