"""The probability of each action under a policy, summed over the completions that lead to it.

Provides `policy_probabilities`. Completions are enumerated, the most probable first; nothing is
sampled.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from turnwise.agents import AgentConfig, prompt_for
from turnwise.engines.model_calls import RendererLike
from turnwise.envs import ActionProbabilities, Env
from turnwise.rollout.agent import action_of

Ids = tuple[int, ...]
Path = tuple[Ids, NDArray[np.float64]]
"""A continuation of n tokens, and the log-probabilities of what could stand at each, [n, V]."""
Continue = Callable[[Sequence[Ids], Sequence[int]], list[Path]]
"""From prefixes and the most tokens of each to their most probable continuations, token by token,
to an end token or that many, of which 0 leaves a prefix as it is."""
Beginning = tuple[float, str, Ids, Iterator[tuple[float, Ids]]]
"""-log of the probability of a completion's first tokens, the decision, the tokens, and the less
probable beginnings that differ in the last of them, in their order. No two have equal tokens."""
BATCH = 64
NEGLIGIBLE = 1e-7
"""Completions that begin less probably than this are not followed."""


class Speaker(RendererLike, Protocol):
    """The part of a renderer that tells where a completion ends."""

    stop_ids: frozenset[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyChances:
    """Decision -> action -> probability, and the most of any decision that was not followed up.

    What was not followed up, or is no action, is missing from a decision's sum.
    """

    probabilities: ActionProbabilities
    uncovered: float


def policy_probabilities(
    env: Env[Any],
    decisions: Mapping[str, Any],
    agent: AgentConfig,
    renderer: Speaker,
    continuations: Continue,
    *,
    greedy: bool = False,
    uncovered: float = 1e-3,
    most_paths: int = 4096,
) -> PolicyChances:
    """Return the probability of each action in each decision, by enumeration of completions.

    The most probable beginning not yet followed is continued token by token to its end; wherever
    another token could have stood, a new beginning is noted with its probability.

    Args:
        env: says what is seen and what is legal.
        decisions: states by name.
        agent: how the role is prompted; its `max_tokens` ends a completion.
        renderer: of the policy.
        continuations: the policy at the temperature wanted.
        greedy: count only what the most probable tokens say, with probability 1.
        uncovered: the probability of a decision that may stay unknown.
        most_paths: when to give up on that; `PolicyChances.uncovered` then says what is unknown.
    """
    seen = {name: env.observe(state, agent.role) for name, state in decisions.items()}
    prompts = {
        name: renderer.prompt_ids(prompt_for(agent, (), observation))
        for name, observation in seen.items()
    }
    found: dict[str, dict[str, float]] = {name: defaultdict(float) for name in decisions}
    unknown = dict.fromkeys(decisions, 1.0)
    heap: list[Beginning] = [(0.0, name, (), iter(())) for name in decisions]
    followed = 0
    while followed < most_paths:
        taken = _most_probable(heap, unknown, uncovered)
        if not taken:
            break
        followed += len(taken)
        ended = [bool(said) and said[-1] in renderer.stop_ids for _, _, said in taken]
        room = [
            0 if over else agent.max_tokens - len(said)
            for over, (_, _, said) in zip(ended, taken, strict=True)
        ]
        paths = continuations([prompts[name] + said for _, name, said in taken], room)
        for (cost, name, said), (tokens, rows) in zip(taken, paths, strict=True):
            if not greedy:
                cost = _branch(heap, cost, name, said, (tokens, rows))
            completion = said + tokens
            action = action_of(renderer.decode(completion), seen[name], agent, renderer)
            unknown[name] -= np.exp(-cost)
            if isinstance(action, str):
                found[name][action] += float(np.exp(-cost))
    probabilities = {name: dict(actions) for name, actions in found.items()}
    return PolicyChances(probabilities=probabilities, uncovered=max(0.0, *unknown.values()))


def _most_probable(
    heap: list[Beginning], unknown: Mapping[str, float], enough: float
) -> list[tuple[float, str, Ids]]:
    """Take the most probable beginnings, at most a batch, of decisions that are not yet known."""
    taken: list[tuple[float, str, Ids]] = []
    while heap and len(taken) < BATCH:
        cost, name, said, others = heapq.heappop(heap)
        if unknown[name] > enough:
            _note_first(heap, name, others)
            taken.append((cost, name, said))
    return taken


def _note_first(heap: list[Beginning], name: str, others: Iterator[tuple[float, Ids]]) -> None:
    """Put the first of `others` into the heap, and with it those that follow."""
    first = next(others, None)
    if first is not None:
        cost, said = first
        heapq.heappush(heap, (cost, name, said, others))


def _branch(heap: list[Beginning], cost: float, name: str, said: Ids, path: Path) -> float:
    """Note every other beginning along a path in `heap`; return -log of the path's probability."""
    tokens, rows = path
    for place, token in enumerate(tokens):
        row = rows[place]
        possible = np.flatnonzero(row - cost > np.log(NEGLIGIBLE))
        possible = possible[possible != token]
        possible = possible[np.argsort(-row[possible], kind="stable")]
        costs = (cost - row[possible]).tolist()
        prefix = (*said, *tokens[:place])
        _note_first(heap, name, _beginnings(prefix, costs, possible.tolist()))
        cost -= float(row[token])
    return cost


def _beginnings(
    prefix: Ids, costs: Sequence[float], tokens: Sequence[int]
) -> Iterator[tuple[float, Ids]]:
    for cost, token in zip(costs, tokens, strict=True):
        yield cost, (*prefix, token)
