"""A Gymnasium env in words, and a model made on the spot that learns to play it.

    python examples/05_a_gymnasium_env.py
    python examples/05_a_gymnasium_env.py seed=1 trainer.iterations=60   # with other settings

Any id with discrete or a few continuous actions goes there: see docs/gymnasium.md.
"""

from __future__ import annotations

import sys

import turnwise as tw
from turnwise.recipe.overrides import parse_override

SETTINGS = {
    "env.training.start": "anywhere",  # so that the goal is met before the way to it
    "env.training.steps": 12,
    "trainer": {"iterations": 40, "minibatches": 8},
    "optimizer.lr": 1e-3,  # a fixed large rate: the rows of the SFT mix keep the format
    "sft_mix": {"rows": 16, "spans": {"answer": 1.0, "action": 0.3}, "final": {"action": 0.0}},
    "credit": {"scheme": "gigpo", "gamma": 0.8, "state_weight": 4.0},
    "agents.player.max_tokens": 6,
    "evaluation": {"test_tasks": 50, "decoding": "greedy", "validate_start": False},
}


def main(*settings: str) -> None:
    lake = {"id": "FrozenLake-v1", "kwargs": {"is_slippery": False}}
    env = tw.make_env("gymnasium", **lake, clock=False)
    print(tw.check_env(env))
    model = tw.PolicyConfig(nano={"hidden": 64, "layers": 2, "init_std": 0.1})
    weights = {"gain": 1.0, "invalid": -1.0}
    chosen = {**SETTINGS, **dict(map(parse_override, settings))}
    outcome = tw.train(model, env=env, reward_weights=weights, settings=chosen)
    scores = outcome.scores
    run = str(outcome.run)
    assert scores is not None, f"stopped before the end: go on with tw.resume({run!r})"
    for name, score in {**scores.baselines, "trained": scores.score}.items():
        print(f"{name:>12}: arrives in {score:.0%} of its episodes")


if __name__ == "__main__":
    main(*sys.argv[1:])
