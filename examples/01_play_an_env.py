"""Play an environment without a model: watch a baseline, then see what every baseline scores.

python examples/01_play_an_env.py
"""

from __future__ import annotations

import numpy as np

import turnwise as tw
from turnwise.envs import score_baselines
from turnwise.tasks import GeneratedTasks


def main() -> None:
    env = tw.make_env("frozen-lake", size=4)
    tasks = GeneratedTasks(env, "test", seed=0)

    state, chance = env.reset(tasks.task(0)), np.random.default_rng(0)
    print(env.observe(state, "player").text, "\n")  # what a model would read
    while True:
        action = env.baselines()["optimal"](state, chance)
        step = env.step(state, "player", action, chance)
        state = step.state
        print(f"{action}\n{env.render(state)}\n")
        if step.terminated or step.truncated:
            break
    print(f"score {env.score(state):g}\n")

    print("on 100 lakes that no training ever sees:")
    for name, found in score_baselines(env, tasks.take(100), seed=0).items():
        print(f"  {name:>12}  {found.mean:.2f} ± {found.stderr:.2f}")


if __name__ == "__main__":
    main()
