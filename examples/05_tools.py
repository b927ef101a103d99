"""An env with a tool, and a model that learns to call it before it answers.

    python examples/05_tools.py

The model is made on the spot; "Qwen/Qwen3-0.6B" sees the same tools through its own chat template.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Literal

import turnwise as tw

CUPS = ("red", "green", "blue")
SETTINGS = {
    "trainer.iterations": 40,
    "optimizer.lr": 5e-4,
    "rehearsal": {"rows": 16, "spans": {"think": 5.0, "answer": 1.0}, "final": {"answer": 0.0}},
    "evaluation.target": 1.0,
}


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
            legal=("pea", "coin", "ring", "bean"),
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
    print("the chat template is given", json.dumps(env.tools["lift"].schema["function"]), "\n")
    print(tw.check_env(env), "\n")
    small = tw.PolicyConfig(nano={"hidden": 64, "layers": 2})
    outcome = tw.train(small, env=Cups, settings=SETTINGS)
    scores = outcome.scores
    assert scores is not None, "stopped before the end: call again with resume_run=True"
    for name, score in {**scores.baselines, "trained": scores.score}.items():
        print(f"{name:>8}: right for {score:.0%} of {scores.tasks} games never seen")
    episode = tw.play_run(outcome.run, env, tw.Task(id="t", env="cups", seed=0, data={
        "under": {"red": "pea", "green": "ring", "blue": "coin"}, "asked": "green"}))  # fmt: skip
    for turn in episode.turns:
        print("\nsays:", turn.text)


if __name__ == "__main__":
    main()
