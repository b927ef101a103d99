"""PPO by Stable-Baselines3, with its own defaults, in the budget of a search.

Its policy is a small network, so it has no parameters in the space of the search.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from turnwise.errors import MissingDependencyError
from turnwise.search.methods.base import Record
from turnwise.search.policies import Actor
from turnwise.search.problem import SEEDS, Problem
from turnwise.seeding import generator

ENDLESS = 1 << 40
"""More steps than any budget of episodes has."""


class Ppo:
    """Learns a network by PPO.

    Raises:
        MissingDependencyError: if `stable-baselines3` is not installed.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem = problem
        number = int(generator(seed, "ppo").integers(SEEDS))
        self._model = _package().PPO("MlpPolicy", problem.env, seed=number, device="cpu")

    def learn(self, episodes: int, each: int, record: Record) -> None:
        """Learn from a number of episodes, each of which counts when it has ended."""
        returns: list[float] = []
        done = 0

        def after_step(local: dict[str, Any], _: dict[str, Any]) -> bool:
            nonlocal done
            for info in local["infos"]:
                if "episode" in info:
                    returns.append(float(info["episode"]["r"]))
                    done += 1
            if len(returns) >= each:
                goes_on = record(None, returns[:each])
                del returns[:each]
                return goes_on and done < episodes
            return True

        self._model.learn(total_timesteps=ENDLESS, callback=after_step)

    def actor(self) -> Actor:
        """Return the network's most probable action."""

        def act(seen: Any) -> Any:
            action = self._model.predict(np.asarray(seen), deterministic=True)[0]
            return action if action.shape else int(action)

        return act


def _package() -> Any:
    try:
        return importlib.import_module("stable_baselines3")
    except ImportError as error:
        raise MissingDependencyError(
            "the method 'ppo' needs stable-baselines3: pip install 'turnwise[ppo]'"
        ) from error
