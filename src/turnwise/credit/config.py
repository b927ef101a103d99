"""The options of credit assignment, checked when they are parsed.

Owns `CreditConfig`, `check_components` and `fill_rewards`. Options that mean nothing to the chosen
scheme are refused, never ignored. Knows nothing of episodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from turnwise.credit.schemes import SCHEMES, Std
from turnwise.errors import ConfigError, unknown_name
from turnwise.settings import Settings, fit_options

RETURN = "return"
WHOLE = ""
STD_FLOOR = 1e-4
SCHEME_OPTIONS = ("std", "std_floor", "gamma", "weight", "own_episode")


class CreditConfig(Settings):
    """How episodes become advantages.

    Example:
        >>> config = CreditConfig(scheme="grpo", rewards={"goal": 1.0})
        >>> config.std, config.std_floor
        ('batch_returns', 0.0001)
    """

    scheme: str = "grpo"
    """One of reinforce, reinforce++, rloo, grpo, dr_grpo, maxrl, gigpo."""
    rewards: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    """Weight of each reward component in the return; the others do not count."""
    std: Std | None = None
    """The standard deviation that advantages are divided by (ddof = 1), of one role: `group`, of
    the group's returns (GRPO); `batch_returns`, of all returns of the batch, so that differences
    between groups count (Lite PPO, arXiv:2508.08221; REINFORCE++); `batch_advantages`, of all
    advantages of the batch, which are centred by group first (ScaleRL, arXiv:2510.13786;
    REINFORCE++ with baseline); or `none`. None is the scheme's default."""
    std_floor: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Lower bound of every standard deviation divided by; None is 1e-4 where there is one."""
    gamma: float | None = Field(default=None, ge=0, le=1)
    """gigpo: discount of the return-to-go; None is the published 0.95."""
    weight: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """gigpo: weight of the turn-level part; None is 1."""
    own_episode: Literal["exclude", "include"] | None = None
    """gigpo: whether a state's baseline holds the episode's own visits; None leaves them out."""
    segments: dict[str, str] = Field(default_factory=dict)
    """Span -> "return" or a reward component it answers for; empty: all tokens, the return."""
    filter_zero_variance: bool = False
    """Zero every advantage, segments' too, of a group whose returns are all equal."""
    normalise_by: Literal["sampled", "kept"] = "sampled"
    """Whether loss denominators count all units, or only those with an advantage: the latter is a
    hidden growing learning rate."""

    @field_validator("scheme")
    @classmethod
    def _scheme_is_known(cls, name: str) -> str:
        if name not in SCHEMES:
            raise unknown_name("credit scheme", name, SCHEMES)
        return name

    @model_validator(mode="before")
    @classmethod
    def _fit_to_scheme(cls, given: Any) -> Any:
        """Fill in the scheme's own defaults; refuse what means nothing to it."""
        if not isinstance(given, Mapping):
            return given
        name = given.get("scheme", cls.model_fields["scheme"].default)
        if not isinstance(name, str) or name not in SCHEMES:
            return given  # the field's own check says what is wrong
        scheme = SCHEMES[name]
        std = given.get("std") or scheme.std[0]
        options: dict[str, Any] = {"std": scheme.std[0], **scheme.options}
        segments = given.get("segments")
        own = isinstance(segments, Mapping) and any(v != RETURN for v in segments.values())
        if std != "none" or own:
            options["std_floor"] = STD_FLOOR
        chosen = f"scheme = {name!r} with std = {std!r}"
        return fit_options(given, options=options, among=SCHEME_OPTIONS, chosen=chosen)

    @model_validator(mode="after")
    def _options_agree(self) -> CreditConfig:
        scheme = SCHEMES[self.scheme]
        if self.std not in scheme.std:
            raise ConfigError(
                f"std = {self.std!r} does not apply to scheme = {self.scheme!r}, whose formula "
                f"takes {' or '.join(scheme.std)}: leave std out, or use grpo"
            )
        if self.filter_zero_variance and not scheme.by_visit:
            raise ConfigError(
                f"filter_zero_variance does not apply to scheme = {self.scheme!r}: its one group "
                "is the whole batch; leave it out, or use a scheme with groups"
            )
        if self.scheme == "maxrl" and any(weight < 0 for weight in self.rewards.values()):
            raise ConfigError(
                f"maxrl needs returns of 0 or more, got the reward weights {self.rewards}: "
                "leave the negative ones out, or use grpo"
            )
        self._check_segments()
        return self

    def _check_segments(self) -> None:
        if not self.segments:
            return
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

    @property
    def segment_components(self) -> tuple[str, ...]:
        """The reward components that some segment answers for by itself, sorted."""
        return tuple(sorted({name for name in self.segments.values() if name != RETURN}))

    def spans_of(self, component: str) -> tuple[str, ...]:
        """Return the segments that answer for a reward component by themselves, sorted."""
        return tuple(sorted(span for span, name in self.segments.items() if name == component))


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
    for name in (*config.rewards, *config.segment_components):
        if name not in components:
            raise unknown_name("reward component", name, components)
