"""Methods that need no model: numeric search, and reinforcement learners, with the same budget.

Provides `METHODS`, the table of the command's `--method`. To add one, write a file with its class,
and add a line here and a test.
"""

from __future__ import annotations

from turnwise.envs.policy_search.optimisers import guided
from turnwise.search.methods.base import Learner, MakeMethod, Method, Proposer
from turnwise.search.methods.cem import CrossEntropy
from turnwise.search.methods.cma import CovarianceAdaptation
from turnwise.search.methods.evolution import COUNTED, Evolution
from turnwise.search.methods.hill import HillClimbing
from turnwise.search.methods.ppo import Ppo
from turnwise.search.methods.q_learning import QLearning
from turnwise.search.methods.random import RandomSearch

METHODS: dict[str, MakeMethod] = {
    "random": RandomSearch,
    "hill-climbing": HillClimbing,
    "evolution": Evolution,
    "guided": lambda problem, seed: Evolution(problem, seed, guided, COUNTED),
    "cem": CrossEntropy,
    "cma-es": CovarianceAdaptation,
    "q-learning": QLearning,
    "ppo": Ppo,
}

__all__ = ["METHODS", "Learner", "MakeMethod", "Method", "Proposer"]
