"""The options that every credit scheme has, checked when they are parsed.

Provides `CreditConfig`, the base of each scheme's own config class, `VisitCreditConfig`, the base
of schemes that compare the episodes of one visit, `fill_rewards` and `check_components`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from turnwise.errors import ConfigError, unknown_name
from turnwise.settings import Settings

RETURN = "return"
WHOLE = ""
INVALID = "invalid"
"""The component that is 1 for a reply that is no action (`formats.components`)."""
STD_FLOOR = 1e-4
StateKeyRule = Literal["env", "observation"]
Std = Literal["group", "batch_returns", "batch_advantages", "none"]
"""The divisor of an advantage: the std of its group's returns; that of all returns of its role
in the batch, before any baseline; that of all its role's advantages in the batch; or nothing."""


class CreditConfig(Settings):
    """The options of credit assignment; `scheme` chooses the compared units and the estimator.

    `scheme`: `reinforce` (Williams 1992), `reinforce++` (arXiv:2501.03262), `rloo`
    (arXiv:2402.14740), `grpo` (arXiv:2402.03300), `dr_grpo` (arXiv:2503.20783), `maxrl`
    (arXiv:2602.02710), `max_at_k` (arXiv:2505.15201), `gigpo` (arXiv:2505.10978), `gae`
    (arXiv:1506.02438) or `rae` (arXiv:2506.24119); of siblings `at_grpo` (arXiv:2510.11062),
    `leave_one_role_out` or `counterfactual` (arXiv:2603.06859). docs/math.md 2 has the formulas.
    """

    scheme: Any
    """The scheme's name in the table of schemes."""
    rewards: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    """Weight of each reward component in the return; the others do not count."""
    invalid_below_worst: bool = False
    """Whether an invalid reply has an advantage below all others of its batch, and the episode that
    it ended is compared with nothing. `rewards.invalid` has no place then."""
    state_key: StateKeyRule = "env"
    """The key by which turns in equal states are found: the env's (`Env.state_key`), or what the
    agent is shown, where that says all that matters and the env's key says more, such as the
    time. Schemes other than `gigpo` and `gae` use it for `rollout/state_dependence` alone."""
    least_advantage: float | None = Field(default=None, lt=0, allow_inf_nan=False)
    """Advantages of returns below this number are raised to it, after they are divided. A rare
    disaster is otherwise nearly all of the gradient. None is no bound."""
    std_floor: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Lower bound of every standard deviation divided by; None is 1e-4, the number that TRL adds to
    it."""
    segments: dict[str, str] = Field(default_factory=dict)
    """Span -> "return" or a reward component it answers for; empty: all tokens, the return."""
    normalise_by: Literal["sampled", "kept"] = "sampled"
    """Whether loss denominators count all units, or only those with an advantage: the latter is a
    hidden growing learning rate."""

    @property
    def divides_by(self) -> Std:
        """The divisor of advantages."""
        return "none"

    @property
    def floor(self) -> float:
        """The lower bound of every standard deviation divided by."""
        return STD_FLOOR if self.std_floor is None else self.std_floor

    @property
    def mixed_only(self) -> bool:
        """Whether groups of equal returns get no advantage at all, segments' included."""
        return False

    @property
    def weight_of_second(self) -> float:
        """The weight of the scheme's second comparison, where it has one."""
        return 0.0

    @property
    def pools_roles(self) -> bool:
        """Whether means and standard deviations are over all roles together."""
        return False

    @property
    def baseline_decay(self) -> float | None:
        """How much of the roles' running means an iteration keeps; None where there are none."""
        return None

    @property
    def lone_groups_teach(self) -> bool:
        """Whether a group of one episode may have advantages."""
        return False

    @model_validator(mode="after")
    def _check_floor(self) -> CreditConfig:
        if self.std_floor is not None and self.divides_by == "none" and not self.segment_components:
            raise ConfigError(
                f"std_floor = {self.std_floor} does not apply to scheme = {self.scheme!r} with std "
                "= 'none': leave std_floor out"
            )
        return self

    @model_validator(mode="after")
    def _check_invalid(self) -> CreditConfig:
        if self.invalid_below_worst and INVALID in self.rewards:
            raise ConfigError(
                f"rewards.{INVALID} = {self.rewards[INVALID]} does not go with "
                "invalid_below_worst = true, which makes an invalid reply the worst of all: leave "
                "one out"
            )
        return self

    @model_validator(mode="after")
    def _check_segments(self) -> CreditConfig:
        if not self.segments:
            return self
        if WHOLE in self.segments or WHOLE in self.segments.values():
            raise ConfigError(
                f"segments = {self.segments} has an empty name: expected span names, each with "
                f"{RETURN!r} or a reward component"
            )
        if RETURN not in self.segments.values():
            raise ConfigError(
                f"segments = {self.segments} gives the return's advantage to no span, so nothing "
                f"would be trained to earn it: give one the value {RETURN!r}"
            )
        return self

    @property
    def return_spans(self) -> set[str]:
        """The spans of `segments` that have the advantage of the return."""
        return {span for span, what in self.segments.items() if what == RETURN}

    @property
    def segment_components(self) -> tuple[str, ...]:
        """The reward components that some segment answers for by itself, sorted."""
        return tuple(sorted({name for name in self.segments.values() if name != RETURN}))

    def spans_of(self, component: str) -> tuple[str, ...]:
        """Return the segments that answer for a reward component by themselves, sorted."""
        return tuple(sorted(span for span, name in self.segments.items() if name == component))


class VisitCreditConfig(CreditConfig):
    """The options of schemes that compare the episodes of one visit of a task."""

    filter_zero_variance: bool = False
    """Zero every advantage, segments' too, of a group whose returns are all equal (ScaleRL,
    arXiv:2510.13786)."""

    @property
    def mixed_only(self) -> bool:
        """Whether groups of equal returns get no advantage at all, segments' included."""
        return self.filter_zero_variance


def fill_rewards(config: CreditConfig, components: Collection[str]) -> CreditConfig:
    """Return `config` with weight 1 for each of `components` if it weighs none itself.

    Example:
        >>> fill_rewards(CreditConfig(scheme="rloo"), ["goal"]).rewards
        {'goal': 1.0}
    """
    if config.rewards:
        return config
    return config.model_copy(update={"rewards": dict.fromkeys(components, 1.0)})


def check_components(config: CreditConfig, components: Collection[str]) -> None:
    """Raise unless every reward component that `config` names is one of `components`.

    Raises:
        ConfigError: if no component is weighed, one is unknown, or one has the reserved name.
    """
    if RETURN in components:
        raise ConfigError(f"{RETURN!r} is reserved and cannot name a reward component: rename it")
    if not config.rewards:
        raise ConfigError(
            "credit.rewards is empty, so every return would be 0: give weights to some of "
            f"{', '.join(sorted(components))}"
        )
    if not any(config.rewards.values()) and not config.invalid_below_worst:
        raise ConfigError(
            f"credit.rewards gives {', '.join(config.rewards)} the weight 0, so every return would "
            "be 0: give one of them another weight"
        )
    for name in (*config.rewards, *config.segment_components):
        if name not in components:
            raise unknown_name("reward component", name, components)
