"""The options of the loss, checked when they are parsed.

Owns `LossConfig`. Options that mean nothing to the chosen loss are refused, never ignored. Knows
nothing of rows or tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from turnwise.errors import ConfigError
from turnwise.settings import Settings, fit_options

Kind = Literal["clipped", "gspo", "cispo"]
Aggregation = Literal["token", "turn", "episode", "constant"]
Kl = Literal["none", "loss_k2", "loss_k3", "reward_k1"]

OPTIONS: dict[str, dict[str, float | None]] = {
    "clipped": {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": None},
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4},
    "cispo": {"cispo_cap": 5.0},
}


class LossConfig(Settings):
    """The loss `rl + ce + ref_kl - entropy bonus`.

    Example:
        >>> LossConfig().clip_high, LossConfig(kind="gspo").clip_high
        (0.28, 0.0004)
    """

    kind: Kind = "clipped"
    """The policy-gradient part: clipped token ratio, sequence ratio (GSPO), or CISPO."""
    clip_low: float | None = Field(default=None, gt=0, le=1)
    """clipped, gspo: how far the ratio may fall below 1; None is the kind's published value."""
    clip_high: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """clipped, gspo: how far the ratio may rise above 1; None is the kind's published value."""
    dual_clip: float | None = Field(default=None, gt=1, allow_inf_nan=False)
    """clipped: bound of the ratio where the advantage is negative; None is no bound."""
    cispo_cap: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """cispo: upper bound of the ratio, as a weight; None is 5."""
    aggregation: Aggregation = "token"
    """What counts equally: each token, turn or episode; or tokens over `constant_length`."""
    constant_length: int | None = Field(default=None, ge=1)
    """constant: the length that every episode's sum of tokens is divided by."""
    kl: Kl = "none"
    """How the distance to the reference enters. `loss_k2` and `loss_k3` are parts of the loss, with
    the gradient of KL(pi, ref) and of KL(ref, pi). `reward_k1` takes `kl_weight` times the sum of
    log pi - log ref of a turn's tokens off the turn's reward, before returns are summed, compared
    and scaled, so that every token answers for all the KL of its episode (RLOO, arXiv:2402.14740;
    arXiv:2512.21852). `none` has no reference."""
    kl_weight: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The weight of that distance; to be given with every `kl` but none."""
    tis_cap: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Cap of the truncated importance weight proximal / behaviour; None is no such weight."""
    entropy_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """The weight of the entropy bonus; 0 is none."""
    entropy_span: str | None = None
    """The span of a completion whose tokens get the bonus; None is all of them."""

    @model_validator(mode="before")
    @classmethod
    def _fit_to_kind(cls, given: Any) -> Any:
        """Fill in the kind's own defaults; refuse what means nothing to it."""
        if not isinstance(given, Mapping):
            return given
        kind = given.get("kind", cls.model_fields["kind"].default)
        if not isinstance(kind, str) or kind not in OPTIONS:
            return given  # the field's own check says what is wrong
        among = tuple(dict.fromkeys(name for options in OPTIONS.values() for name in options))
        return fit_options(given, options=OPTIONS[kind], among=among, chosen=f"kind = {kind!r}")

    @model_validator(mode="after")
    def _options_agree(self) -> LossConfig:
        if (self.aggregation == "constant") != (self.constant_length is not None):
            raise ConfigError(
                f"aggregation = {self.aggregation!r} with constant_length = "
                f"{self.constant_length}: give constant_length with aggregation = 'constant', and "
                "only there"
            )
        if (self.kl == "none") != (self.kl_weight is None):
            raise ConfigError(
                f"kl = {self.kl!r} with kl_weight = {self.kl_weight}: give a weight with loss_k2, "
                "loss_k3 and reward_k1, and only there"
            )
        if self.entropy_span is not None and self.entropy_weight == 0:
            raise ConfigError(
                f"entropy_span = {self.entropy_span!r} without a bonus: give entropy_weight, or "
                "leave it out"
            )
        return self

    @property
    def has_kl_loss(self) -> bool:
        """Whether the reference enters as a part of the loss."""
        return self.kl in ("loss_k2", "loss_k3")

    @property
    def needs_reference(self) -> bool:
        """Whether the reference's log-probabilities enter, in the loss or in the reward."""
        return self.kl != "none"
