"""An env with a tool: what a model is told of it, and a game with two calls and an answer.

python examples/06_tools.py
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

import turnwise as tw
from turnwise.envs import call_text

CUPS = ("red", "green", "blue")


@dataclass(frozen=True, kw_only=True)
class State(tw.ToolState):
    under: dict[str, str]
    asked: str
    right: bool = False


class Cups(tw.ToolEnv[State]):
    """What is under one of three cups? Only the tool can tell."""

    name = "cups"
    components = {"right": "agent"}  # noqa: RUF012
    most_calls = 2

    @tw.tool
    def lift(self, state: State, cup: Literal["red", "green", "blue"]) -> str:
        """Lift a cup.

        Args:
            state: What is under the cups; no model sees this argument.
            cup: The colour of the cup.

        Returns:
            What is under it.
        """
        return state.under[cup]

    def generate(self, rng):
        things = [str(rng.choice(["pea", "coin", "ring", "bean"])) for _ in CUPS]
        return {"under": dict(zip(CUPS, things, strict=True)), "asked": str(rng.choice(CUPS))}

    def reset(self, task):
        return State(under=task.data["under"], asked=task.data["asked"])

    def ask(self, state, role):
        known = state.told[-1].result if state.told else "closed"
        return tw.Observation(
            text=f"what is under the {state.asked} cup ?",
            legal_actions=("pea", "coin", "ring", "bean"),
            description=f"{state.asked} {known}",  # what it saw last: warm-up teaches to say it
        )

    def answer(self, state, role, action, noise):
        after = replace(state, right=action == state.under[state.asked])
        rewards = {"right": float(after.right)}
        return tw.Step(state=after, rewards=rewards, terminated=True, truncated=False)

    def score(self, state):
        return float(state.right)


def main() -> None:
    env = Cups()
    print("a chat template is given", json.dumps(env.tools["lift"].schema["function"]), "\n")
    print(tw.check_env(env), "\n")

    # one game, as a model's replies lead through it; train one with tw.train(model, env=Cups)
    under = {"red": "pea", "green": "ring", "blue": "coin"}
    state = env.reset(tw.Task(id="t", env="cups", seed=0, data={"under": under, "asked": "green"}))
    chance = np.random.default_rng(0)
    print(env.observe(state, "player").text)
    for action in (call_text("lift", cup="gold"), call_text("lift", cup="green"), "ring"):
        step = env.step(state, "player", action, chance)
        state = step.state
        print(action)
        for message in env.observe(state, "player").messages:
            print(f"{message.role}: {message.content}")
    print(f"score {env.score(state):g}")


if __name__ == "__main__":
    main()
