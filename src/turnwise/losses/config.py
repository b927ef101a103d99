"""The options that every loss has, checked when they are parsed.

Provides `LossConfig`, the base of each loss's own config class. Imports no torch, nor do the files
of the losses: a recipe is read without it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from turnwise.errors import ConfigError
from turnwise.settings import Settings

Aggregation = Literal["token", "turn", "episode", "constant"]
Kl = Literal["none", "loss_k2", "loss_k3", "reward_k1"]


class LossConfig(Settings):
    """The loss `rl + ce + ref_kl - entropy bonus`; `kind` chooses the policy-gradient part `rl`."""

    kind: Any
    """The policy-gradient part: clipped token ratio (`clipped`; PPO, arXiv:1707.06347, eq. 7),
    sequence ratio (`gspo`; GSPO-token, arXiv:2507.18071, section 4.3), or clipped weight (`cispo`;
    arXiv:2506.13585)."""
    aggregation: Aggregation = "token"
    """The mean that the loss is. Equal weights for tokens (DAPO, arXiv:2503.14476, section 3.3),
    for turns, or for episodes (GRPO, arXiv:2402.03300, eq. 3), or a sum of tokens over
    `constant_length` (`constant`; Dr. GRPO, arXiv:2503.20783)."""
    constant_length: int | None = Field(default=None, ge=1)
    """constant: the length that every episode's sum of tokens is divided by."""
    kl: Kl = "none"
    """The place of the KL divergence from the reference. `loss_k2` and `loss_k3` are terms of the
    loss, with the gradient of KL(pi, ref) and of KL(ref, pi) (k3: GRPO, arXiv:2402.03300, eq. 4;
    both: Schulman 2020, http://joschu.net/blog/kl-approx.html). `reward_k1` subtracts `kl_weight`
    times the sum of log pi - log ref over a turn's tokens from the turn's reward, before returns
    are summed, compared and scaled, so that the KL of the whole episode enters the advantage of
    every token (RLOO, arXiv:2402.14740; arXiv:2512.21852). `none` uses no reference."""
    kl_weight: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The weight of the KL divergence; required with every `kl` except `none`."""
    tis_cap: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Cap of a token's importance weight old / behaviour, which corrects differences between the
    engine's and the trainer's probabilities (truncated importance sampling, Ionides 2008; V-trace,
    arXiv:1802.01561, section 4). None disables the weight."""
    entropy_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """The weight of the entropy bonus (Williams and Peng 1991; A3C, arXiv:1602.01783, section 4); 0
    disables it."""
    entropy_span: str | None = None
    """The span of a completion whose tokens get the bonus; None is the whole completion."""

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
        """Whether the reference enters the loss."""
        return self.kl in ("loss_k2", "loss_k3")

    @property
    def needs_reference(self) -> bool:
        """Whether the reference's log-probabilities enter the loss or the reward."""
        return self.kl != "none"

    @property
    def needs_own_logprobs(self) -> bool:
        """Whether the trainer's own log-probabilities at batch start are needed."""
        return self.tis_cap is not None
