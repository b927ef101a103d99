"""Sampling topologies: which turns have siblings, and what an env must declare for it.

Provides the table `TOPOLOGIES`, the config classes, `AnyTopology`, which is the `[topology]`
section of a recipe, and `topologies_of`. `docs/math.md` 2 says what is compared in each.
`rollout.siblings` samples them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from turnwise.envs.base import Env, scores_batches
from turnwise.settings import Settings, one_of

ContinuationRule = Literal["greedy", "proportional", "epsilon-greedy"]
Horizon = Literal["step", "turn_end", "episode"]
"""How far a sibling is played before it is judged: its own step, the round, or the episode."""
EPSILON = 0.1
MOST_CELLS = 4096
"""The most cells of a cross table."""


class IndependentConfig(Settings):
    """Whole episodes of each task visit, which nothing joins.

    Example:
        >>> IndependentConfig().kind
        'independent'
    """

    kind: Literal["independent"] = "independent"
    """The topology."""


class SiblingsConfig(Settings):
    """The options of topologies whose turns have siblings: several replies to one prompt."""

    siblings: int = Field(default=4, ge=2)
    """The replies that are sampled at each turn; the episode goes on with one of them."""
    continuation: ContinuationRule = "greedy"
    """With which sibling the episode goes on: the one with the highest score; one drawn with
    probabilities proportional to the scores, from which the least is subtracted where it is
    negative; or with probability `epsilon` any of them, else the one with the highest."""
    epsilon: float | None = Field(default=None, ge=0, le=1)
    """The probability of any sibling, with `continuation = "epsilon-greedy"` only; None is 0.1
    there. With 1 the states that are played are those of the policy itself."""
    fresh_noise: bool = False
    """Whether the env step of the sibling that goes on is made again with other random draws. In a
    random env the best of several siblings is also the luckiest."""

    @model_validator(mode="after")
    def _check_epsilon(self) -> SiblingsConfig:
        if self.epsilon is not None and self.continuation != "epsilon-greedy":
            raise ValueError(
                f"epsilon = {self.epsilon} needs continuation = 'epsilon-greedy', got "
                f"{self.continuation!r}: set it, or leave epsilon out"
            )
        return self

    @property
    def chance_of_any(self) -> float:
        """The probability with which any sibling goes on, whatever its score."""
        if self.continuation != "epsilon-greedy":
            return 0.0
        return EPSILON if self.epsilon is None else self.epsilon

    @property
    def horizon(self) -> Horizon:
        """How far a sibling is played before it is judged."""
        raise NotImplementedError

    @property
    def trials(self) -> int:
        """How often what follows a sibling is played to judge it."""
        return 1

    @property
    def share_with_siblings(self) -> float:
        """The share of turns that have siblings."""
        return 1.0

    @property
    def has_cross_tables(self) -> bool:
        """Whether seats that act at the same time are judged by a table of their actions."""
        return False


class SpineConfig(SiblingsConfig):
    """Siblings at every turn; one of them goes on (AT-GRPO, arXiv:2510.11062, algorithm 1).

    Example:
        >>> SpineConfig(siblings=8).horizon
        'step'
    """

    kind: Literal["spine"] = "spine"
    """The topology."""
    score: Literal["step", "turn_end"] = "step"
    """What a sibling is judged by: the reward of its own step; or that and what the other roles'
    answers earn until the round ends, which are sampled for it. Under a reward that the last role's
    step brings, the siblings of other roles have equal scores with `step`."""
    orders: Literal["sequential", "cross"] = "sequential"
    """How seats that act at the same time are judged: one after the other, the second one beside
    the first one's sibling that went on; or by the table of all combinations of their siblings,
    which takes env steps and no tokens. A sibling's score is its mean over the table."""

    @model_validator(mode="after")
    def _check_orders(self) -> SpineConfig:
        if self.orders == "cross" and self.score == "turn_end":
            raise ValueError(
                "orders = 'cross' scores all actions of a moment together, and score = 'turn_end' "
                "plays the others' answers after each: leave one of them out"
            )
        return self

    @property
    def horizon(self) -> Horizon:
        """How far a sibling is played before it is judged."""
        return self.score

    @property
    def has_cross_tables(self) -> bool:
        """Whether seats that act at the same time are judged by a table of their actions."""
        return self.orders == "cross"


class VineConfig(SiblingsConfig):
    """A spine whose siblings are played on to the episode's end (VinePPO, arXiv:2410.01679).

    Example:
        >>> VineConfig(continuations=2).trials
        2
    """

    kind: Literal["vine"] = "vine"
    """The topology."""
    share: float = Field(default=1.0, gt=0, le=1)
    """The share of turns that have siblings, drawn at random; all siblings of such a turn are
    played on. At the other turns one reply is sampled, which is compared with nothing. The cost of
    an episode is siblings x continuations x the turns that are left, times this share."""
    continuations: int = Field(default=1, ge=1)
    """How often each sibling is played on to the end. The mean return-to-go is its score."""

    @property
    def horizon(self) -> Horizon:
        """How far a sibling is played before it is judged."""
        return "episode"

    @property
    def trials(self) -> int:
        """How often what follows a sibling is played to judge it."""
        return self.continuations

    @property
    def share_with_siblings(self) -> float:
        """The share of turns that have siblings."""
        return self.share


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """One way to sample what is compared.

    Attributes:
        config: the class of its options.
        samples: what is sampled.
        needs: what an env must declare.
        refusal: returns why an env's declarations do not allow it, "" if they do.
    """

    config: type[Settings]
    samples: str
    needs: str
    refusal: Callable[[Env[Any]], str]


def _branches(env: Env[Any]) -> str:
    if scores_batches(env):
        return (
            "its rewards are found for a whole batch of episodes, when siblings have been chosen: "
            "use 'independent', or let `step` return the rewards"
        )
    if env.branching != "none":
        return ""
    return (
        "branching = 'none', but siblings are steps from one state: declare 'pure', 'copy' or "
        "'replay' if the env can come back to a state, or use 'independent'"
    )


def _branches_and_pays_at_once(env: Env[Any]) -> str:
    refused = _branches(env)
    if refused or env.reward_timing != "terminal":
        return refused
    return (
        "reward_timing = 'terminal', so that siblings of a turn before the last all earn the same: "
        "use 'vine' or 'independent'"
    )


TOPOLOGIES: dict[str, Topology] = {
    "independent": Topology(
        config=IndependentConfig,
        samples="whole episodes of each task",
        needs="nothing",
        refusal=lambda env: "",
    ),
    "spine": Topology(
        config=SpineConfig,
        samples="siblings of every turn; the episode continues with one of them",
        needs="branching = pure, copy or replay; reward_timing = dense",
        refusal=_branches_and_pays_at_once,
    ),
    "vine": Topology(
        config=VineConfig,
        samples="a spine whose siblings are played to their end",
        needs="branching = pure, copy or replay",
        refusal=_branches,
    ),
}
"""Name -> topology."""
if TYPE_CHECKING:
    AnyTopology = IndependentConfig | SpineConfig | VineConfig
else:
    AnyTopology = one_of({n: each.config for n, each in TOPOLOGIES.items()}, default="independent")
    """The `[topology]` section of a recipe."""


def topologies_of(env: Env[Any]) -> dict[str, str]:
    """Return why an env's declarations do not allow each topology, "" where they do.

    Example:
        >>> from turnwise.envs import make_env
        >>> topologies_of(make_env("frozen-lake"))
        {'independent': '', 'spine': '', 'vine': ''}
    """
    return {name: topology.refusal(env) for name, topology in TOPOLOGIES.items()}
