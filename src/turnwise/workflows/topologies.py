"""Sampling topologies: which turns have siblings, and what an env must declare for it.

Provides `TOPOLOGIES` and `topologies_of`. `docs/math.md` 2 says what is compared in each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turnwise.envs.base import Env


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """One way to sample what is compared.

    Attributes:
        samples: what is sampled.
        needs: what an env must declare.
        refusal: returns why an env's declarations do not allow it, "" if they do.
        offered: whether recipes can ask for it.
    """

    samples: str
    needs: str
    refusal: Callable[[Env[Any]], str]
    offered: bool


def _branches(env: Env[Any]) -> str:
    if env.branching != "none":
        return ""
    return (
        "branching = 'none', but siblings are steps from one state: declare 'pure', 'copy' or "
        "'replay' if the env can come back to a state"
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
        samples="whole episodes of each task",
        needs="nothing",
        refusal=lambda env: "",
        offered=True,
    ),
    "spine": Topology(
        samples="siblings of every turn; the episode continues with one of them",
        needs="branching = pure, copy or replay; reward_timing = dense",
        refusal=_branches_and_pays_at_once,
        offered=False,
    ),
    "vine": Topology(
        samples="a spine, some of whose siblings are played to their end",
        needs="branching = pure, copy or replay",
        refusal=_branches,
        offered=False,
    ),
}
"""Name -> topology."""


def topologies_of(env: Env[Any]) -> dict[str, str]:
    """Return why an env's declarations do not allow each topology, "" where they do.

    Example:
        >>> from turnwise.envs import make_env
        >>> topologies_of(make_env("frozen-lake"))
        {'independent': '', 'spine': '', 'vine': ''}
    """
    return {name: topology.refusal(env) for name, topology in TOPOLOGIES.items()}
