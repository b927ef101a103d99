"""Small PettingZoo envs: the tests name the functions and classes of this file."""

from __future__ import annotations

import itertools

import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import AgentSelector

ALL_PLAYS = itertools.count()


class Sum(ParallelEnv):
    """Three agents add numbers; each is paid its own, and leaves after as many rounds as its place.

    A round in which all chosen numbers are equal ends the game.
    """

    metadata = {"name": "sum_v0"}  # noqa: RUF012

    def __init__(self, rounds=4):
        self.possible_agents = ["adder_0", "adder_1", "watcher"]
        self.rounds = rounds

    def observation_space(self, agent):
        if agent == "watcher":
            return spaces.Discrete(100)
        return spaces.Dict({"total": spaces.Discrete(100), "action_mask": spaces.MultiBinary(3)})

    def action_space(self, agent):
        return spaces.Discrete(3)

    def seen(self):
        mask = np.array([1, 1, self.total % 2], dtype=np.int8)
        seen = {a: {"total": self.total, "action_mask": mask} for a in self.possible_agents[:2]}
        return {a: v for a, v in {**seen, "watcher": self.total}.items() if a in self.agents}

    def reset(self, seed=None, options=None):
        self.np_random = np.random.default_rng(seed)
        self.agents, self.round = self.possible_agents[:], 0
        self.total = int(self.np_random.integers(10))
        return self.seen(), {a: {"round": 0} for a in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.round += 1
        self.total += sum(actions.values()) + int(self.np_random.integers(2))
        equal = len(set(actions.values())) == 1 and len(actions) > 1
        leaves = {"adder_0": self.round == 1, "adder_1": equal, "watcher": equal}
        late = self.round >= self.rounds
        rewards = {a: float(v) for a, v in actions.items()}
        ended = {a: equal or leaves[a] for a in self.agents}
        cut = dict.fromkeys(self.agents, late)
        seen = self.seen()
        infos = {a: {"round": self.round} for a in self.agents}
        self.agents = [a for a in self.agents if not (ended[a] or cut[a])]
        return seen, rewards, ended, cut, infos


class Pot(AECEnv, EzPickle):
    """Two agents take 1 or 2 of a pot in turn. Who takes the last one pays the other."""

    metadata = {"name": "pot_v0", "is_parallelizable": False}  # noqa: RUF012

    def __init__(self, coins=6):
        EzPickle.__init__(self, coins)
        super().__init__()
        self.coins = coins
        self.possible_agents = ["left", "right"]

    def observation_space(self, agent):
        return spaces.Discrete(self.coins + 1)

    def action_space(self, agent):
        return spaces.Discrete(2, start=1)

    def observe(self, agent):
        return self.left_over

    def reset(self, seed=None, options=None):
        self.agents = self.possible_agents[:]
        self.left_over = self.coins
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {a: {} for a in self.agents}
        self._order = AgentSelector(self.agents)
        self.agent_selection = self._order.next()

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.left_over = max(0, self.left_over - action)
        self.rewards[agent] = 0.25 * action
        if self.left_over == 0:
            other = "right" if agent == "left" else "left"
            self.rewards[agent] -= 1.0
            self.rewards[other] += 1.0
            self.terminations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()
        self.agent_selection = self._order.next()


class Held(Sum):
    """An env that cannot be copied, as it holds a generator function."""

    def __init__(self):
        super().__init__()
        self.numbers = (n for n in range(3))


class Unseeded(Sum):
    """An env whose plays differ with one seed."""

    def reset(self, seed=None, options=None):
        return super().reset(seed=next(ALL_PLAYS))


class Crowd(Sum):
    """An env without agents."""

    def __init__(self):
        super().__init__()
        self.possible_agents = []


class Picture(Sum):
    """An env whose observations have no text."""

    def observation_space(self, agent):
        return spaces.Box(0, 255, (20, 20, 3), np.uint8)


def nothing():
    """Return no env."""
    return 3


def total_text(seen):
    """Return a text and a description."""
    total = seen["total"] if isinstance(seen, dict) else seen
    return f"total {total}", f"odd {total % 2}"


def broken_text(seen):
    """Raise for every observation."""
    raise KeyError("total")
