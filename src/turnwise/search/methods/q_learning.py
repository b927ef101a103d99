"""Tabular Q-learning (Watkins 1989) with exploration that decreases over the budget.

It learns from every step and so needs far fewer episodes than a search over policies does, but it
is for discrete observations only.
"""

from __future__ import annotations

import numpy as np

from turnwise.errors import ConfigError
from turnwise.search.methods.base import Record
from turnwise.search.policies import Actor, TablePolicy
from turnwise.search.problem import LONGEST, SEEDS, Problem
from turnwise.search.space import Params
from turnwise.seeding import generator

RATE_FIRST, RATE_LAST = 0.5, 0.02
"""The learning rate, which decreases in a straight line over the budget."""
DISCOUNT = 0.99
EXPLORED, EXPLORING = 0.8, 0.05
"""The share of the budget in which the share of random actions decreases from 1, and its end."""


class QLearning:
    """Learns the value of each action in each state.

    Raises:
        ConfigError: if the task's observations are not discrete.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        if not isinstance(problem.policy, TablePolicy):
            raise ConfigError(
                f"method 'q-learning' needs discrete observations, and those of task "
                f"{problem.task.name!r} are vectors: choose another method"
            )
        self._problem, self._policy, self._seed = problem, problem.policy, seed
        self._values = np.zeros((self._policy.states, self._policy.actions))

    def learn(self, episodes: int, each: int, record: Record) -> None:
        """Learn from a number of episodes."""
        seeds = generator(self._seed, "q-learning episodes").integers(SEEDS, size=episodes)
        rng = generator(self._seed, "q-learning")
        returns: list[float] = []
        for number, seed in enumerate(seeds):
            share = number / episodes
            exploring = max(EXPLORING, 1 - (1 - EXPLORING) * share / EXPLORED)
            rate = RATE_FIRST + (RATE_LAST - RATE_FIRST) * share
            returns.append(self._episode(int(seed), rng, exploring, rate))
            if len(returns) == each:
                if not record(self._greedy(), returns):
                    return
                returns = []

    def actor(self) -> Actor:
        """Return the greedy policy."""
        return self._policy.actor(self._greedy())

    def _greedy(self) -> Params:
        """Return the best action of each state; the first among equals."""
        return self._policy.params_of(tuple(int(v) for v in self._values.argmax(axis=1)))

    def _episode(
        self, seed: int, rng: np.random.Generator, exploring: float, rate: float
    ) -> float:  # fmt: skip
        """Play one episode, and learn from each step; return its return."""
        env, values, actions = self._problem.env, self._values, self._policy.actions
        first_state, first_action = self._policy.first_state, self._policy.first_action
        seen, _ = env.reset(seed=seed)
        state, total, over, steps = int(seen) - first_state, 0.0, False, 0
        while not over and steps < LONGEST:
            row = values[state]
            if rng.random() < exploring:
                action = int(rng.integers(actions))
            else:
                best = np.flatnonzero(row == row.max())
                action = int(best[rng.integers(len(best))])
            seen, reward, terminated, truncated, _ = env.step(action + first_action)
            after, gained = int(seen) - first_state, self._problem.checked(float(reward))
            later = 0.0 if terminated else DISCOUNT * float(values[after].max())
            row[action] += rate * (gained + later - row[action])
            state, over = after, terminated or truncated
            total += gained
            steps += 1
        return total
