"""The options of opponents: who plays the other seats where seats compete."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field, model_validator

from turnwise.errors import ConfigError, unknown_name
from turnwise.rollout.metrics import POOL, SELF
from turnwise.settings import Settings


class PoolConfig(Settings):
    """Earlier versions of the policies, which play as opponents."""

    every: int = Field(default=10, ge=1)
    """Iterations between two versions; the first one is the weights that training begins with."""
    versions: int = Field(default=5, ge=1)
    """The most versions; the oldest one makes room for a new one. Each holds a copy of all weights
    that are trained, so that adapters and nano models are cheap."""
    latest: float = Field(default=0.5, ge=0, le=1)
    """The probability that the newest version plays; else any of them does, each equally often."""


class OpponentsConfig(Settings):
    """Who plays against the policy. In each visit of training it has one seat, each in turn.

    The other seats are played by one opponent, which all episodes of the group meet and whose turns
    are not trained.
    """

    shares: dict[str, float] = Field(default_factory=lambda: {SELF: 1.0})
    """Opponent -> its share of the visits, in proportion: `self`, the policy as it is, which then
    plays and trains in all seats; `pool`, an earlier version; or a baseline of the env."""
    pool: PoolConfig | None = None
    """The pool of earlier versions; None is its defaults where `shares` names `pool`."""
    against: tuple[str, ...] | None = None
    """The baselines that scores are taken against, in validation and in the test; the first one
    decides the score. None is what the env names (`Env.opponents`)."""

    @model_validator(mode="after")
    def _check(self) -> OpponentsConfig:
        if not self.shares or min(self.shares.values()) < 0 or not sum(self.shares.values()):
            raise ConfigError(
                f"opponents.shares = {self.shares}: give one opponent or more, with a number of 0 "
                "or more each, not all of them 0"
            )
        if self.pool is not None and POOL not in self.shares:
            raise ConfigError(
                f"[opponents.pool] is not used, as opponents.shares names "
                f"{', '.join(self.shares)}: add a share for {POOL!r}, or leave it out"
            )
        if self.against is not None and not self.against:
            raise ConfigError(
                "opponents.against = []: name one baseline or more, or leave it out for those of "
                "the env"
            )
        return self

    @property
    def kept(self) -> PoolConfig | None:
        """The pool, if there is one."""
        return (self.pool or PoolConfig()) if self.shares.get(POOL, 0.0) > 0 else None

    @property
    def trains_alone(self) -> bool:
        """Whether all visits are self-play."""
        return all(name == SELF or not share for name, share in self.shares.items())

    def check_names(self, baselines: Collection[str]) -> None:
        """Refuse opponents that are no baselines of the env.

        Raises:
            UnknownNameError: which names the option.
        """
        known = list(baselines)
        for name in self.shares:
            if name not in (SELF, POOL, *known):
                raise unknown_name("opponent", name, [SELF, POOL, *known])
        for name in self.against or ():
            if name not in known:
                raise unknown_name("baseline", name, known)
