"""The contracts of methods: a proposer names the next policy, a learner learns while it plays.

Provides `Proposer`, `Learner`, `unknown_draw` and `searched`. What a proposer
proposes is a function of the seed and of the history alone, so a search that was killed goes on
with the same policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from turnwise.search.history import History, HistoryLog, Try
from turnwise.search.policies import Actor
from turnwise.search.problem import Problem
from turnwise.search.space import Params, ParamSpace

DRAWS = 50
"""Draws until a policy that was tried already is changed instead."""
Record = Callable[[Params | None, Sequence[float]], bool]
"""Takes a learner's policy, if it has parameters, and the returns of the episodes that it has
learned from since the last call; returns whether to go on."""


class Proposer(Protocol):
    """Names the policy that is tried next.

    Attributes:
        warms_up: whether random policies with one episode each come before its first proposal.
    """

    warms_up: bool

    def propose(self, log: HistoryLog, slot: int) -> Params | None:
        """Return a policy that was not tried yet, or None if none was found for this slot."""
        ...


@runtime_checkable
class Learner(Protocol):
    """Learns by its own rule; its episodes are the budget."""

    def learn(self, episodes: int, each: int, record: Record) -> None:
        """Learn from a number of episodes; call `record` after every `each` of them."""
        ...

    def actor(self) -> Actor:
        """Return what it has learned, as a function from an observation to an action."""
        ...


Method = Proposer | Learner
MakeMethod = Callable[[Problem, int], Method]
"""From the task and a seed to a method."""


def searched(history: History) -> list[Try]:
    """Return what was proposed so far, in order: all tries but those of the warm-up."""
    return [each for each in history.tries if each.source == "search"]


def unknown_draw(
    history: History,
    space: ParamSpace,
    rng: np.random.Generator,
    draw: Callable[[], Params],
) -> Params:
    """Return a draw that was not tried yet; after some draws in vain, change one until it is new.

    Args:
        history: what was tried.
        space: of the parameters.
        rng: chooses the changes.
        draw: draws parameters.
    """
    params = draw()
    for _ in range(DRAWS):
        if not history.knows(params):
            return params
        params = draw()
    while history.knows(params):
        changed = list(params)
        changed[rng.integers(space.count)] = int(rng.integers(space.low, space.high + 1))
        params = tuple(changed)
    return params
