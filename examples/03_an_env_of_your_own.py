"""An environment of your own, and a model trained in it a little.

    python examples/03_an_env_of_your_own.py

`turnwise check examples/03_an_env_of_your_own.py:Crossing` checks it; `turnwise play` plays it.
"""

from __future__ import annotations

from dataclasses import dataclass

import turnwise as tw
from turnwise.errors import IllegalActionError


@dataclass(frozen=True)
class State:
    light: str
    cars: int
    right: bool = False


class Crossing(tw.Env[State]):
    """Go when the light is green, wait when it is red; how many cars there are means nothing."""

    name = "crossing"
    components = {"right": "agent"}  # noqa: RUF012

    def generate(self, rng):
        return {"light": str(rng.choice(["red", "green"])), "cars": int(rng.integers(100))}

    def reset(self, task):
        return State(task.data["light"], task.data["cars"])

    def observe(self, state, role):
        text = f"light {state.light} cars {state.cars}"
        # warm-up teaches to write the description: to see what matters, not what to do about it
        return tw.Observation(text=text, legal_actions=("go", "wait"), description=state.light)

    def step(self, state, role, action, noise):
        if action not in ("go", "wait"):
            raise IllegalActionError(f"{action!r} is neither go nor wait")
        after = State(state.light, state.cars, (action == "go") == (state.light == "green"))
        rewards = {"right": float(after.right)}
        return tw.Step(state=after, rewards=rewards, terminated=True, truncated=False)

    def score(self, state):
        return float(state.right)


def main() -> None:
    print(tw.check_env(Crossing()))
    small = tw.PolicyConfig(nano={"hidden": 64, "layers": 2})
    # A fixed rate is enough for 20 iterations; the default, "auto", first has to find its rate
    settings = {"trainer.iterations": 20, "optimizer.lr": 1e-3}
    outcome = tw.train(small, env=Crossing, settings=settings)
    scores = outcome.scores
    run = str(outcome.run)
    assert scores is not None, f"stopped before the end: go on with tw.resume({run!r})"
    for name, score in {**scores.baselines, "trained": scores.score}.items():
        print(f"{name:>8}: right for {score:.0%} of {scores.tasks} crossings never seen")


if __name__ == "__main__":
    main()
