"""Exact scores of a policy on envs with few states: computed from its probabilities, not played.

Provides `exact_measures`, `exact_score` and `exact_of`. Nothing is sampled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from turnwise.agents import AgentConfig
from turnwise.envs import Env, Exact
from turnwise.errors import ConfigError
from turnwise.evaluation import policy_probabilities
from turnwise.evaluation.continuations import continuations
from turnwise.policies import Policy
from turnwise.types import Task

GREEDY, SAMPLED = "trained, greedy", "trained, sampled"


def exact_measures(
    env: Env[Any],
    tasks: Sequence[Task],
    agents: Mapping[str, AgentConfig],
    policies: Mapping[str, Policy],
) -> dict[str, dict[str, float]]:
    """Return player -> measure -> value, the mean over tasks.

    The players are the policy, greedy and at the agent's temperature, and the env's own. The
    policy's have a measure `uncovered`: the probability, at most, that counts as no answer because
    it was not followed up.

    Raises:
        ConfigError: if the env cannot compute what a policy is worth.
    """
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    for task in tasks:
        exact = exact_of(env, task)
        for name in (GREEDY, SAMPLED):
            rows[name].append(measured(env, exact, agents, policies, greedy=name == GREEDY))
        for name, probabilities in exact.players.items():
            rows[name].append(dict(exact.measure(probabilities)))
    return {
        name: {measure: float(np.mean([row[measure] for row in table])) for measure in table[0]}
        for name, table in rows.items()
    }


def exact_score(
    env: Env[Any],
    tasks: Sequence[Task],
    agents: Mapping[str, AgentConfig],
    policies: Mapping[str, Policy],
) -> float:
    """Return the env's first measure of the policy at the agent's temperature, the mean over tasks.

    Raises:
        ConfigError: if the env cannot compute what a policy is worth.
    """
    found = [measured(env, exact_of(env, task), agents, policies, greedy=False) for task in tasks]
    return float(np.mean([next(iter(measures.values())) for measures in found]))


def exact_of(env: Env[Any], task: Task) -> Exact[Any]:
    """Return how `env` computes what a policy is worth; refuse where it cannot."""
    exact = env.exact(task)
    if exact is None:
        raise ConfigError(
            f"env {env.name!r} has too many states to compute scores: set evaluation.exact = 0 and "
            "evaluation.validation = 'played'"
        )
    return exact


def measured(
    env: Env[Any],
    exact: Exact[Any],
    agents: Mapping[str, AgentConfig],
    policies: Mapping[str, Policy],
    *,
    greedy: bool,
) -> dict[str, float]:
    """Return the exact measures of the deciding role's policy on one task, and `uncovered`."""
    agent = agents[exact.role]
    policy = policies[agent.policy]
    said = continuations(policy, agent.temperature)
    found = policy_probabilities(env, exact.decisions, agent, policy.renderer, said, greedy=greedy)
    return dict(exact.measure(found.probabilities)) | {"uncovered": found.uncovered}
