"""Train on what programs do: a reply becomes a program, is run in the sandbox, and judged by tests.

    python examples/07_programs.py
    python examples/07_programs.py seed=1 trainer.iterations=100   # with other settings

The model is made on the spot and knows nothing: it finds out which programs pass. With a real one,
give prompts that ask for a program and leave `before` and `after` out: replies are then whole
programs, or hold one in a fenced block.
"""

from __future__ import annotations

import sys

import turnwise as tw
from turnwise import rewards, sandbox
from turnwise.recipe.overrides import parse_override

WORDS = {"+": ("add", "plus", "sum"), "-": ("take", "minus", "less"), "*": ("times", "product")}
PAIRS = ((1, 2), (3, 3), (5, 2))
ROWS = [
    {
        "prompt": f"{word} {again} :",
        "before": "def f(x, y): return x ",
        "after": " y",
        "tests": [
            {"call": "f", "inputs": [x, y], "expected": {"+": x + y, "-": x - y, "*": x * y}[sign]}
            for x, y in PAIRS
        ],
    }
    for sign, words in WORDS.items()
    for word in words
    for again in "abcdef"
]


def main(*settings: str) -> None:
    tried = sandbox.run("def f(x): return x + 3", (4,), call="f")
    print(f"a program, run: {tried.value} after {tried.cpu_seconds:.3f} s")
    stuck = sandbox.run("while True: pass", (), sandbox.Limits(cpu=0.1))
    print(f"another: {stuck.failure}, {stuck.message}")

    outcome = tw.train(
        tw.PolicyConfig(nano={"hidden": 64, "layers": 2}),
        ROWS,
        reward=rewards.solves,
        settings={
            "trainer.iterations": 150,
            "trainer.group_size": 16,
            "agents.player.max_tokens": 1,
            **dict(map(parse_override, settings)),
        },
    )
    scores = outcome.scores
    run = str(outcome.run)
    assert scores is not None, f"stopped before the end: go on with tw.resume({run!r})"
    print(f"before training: {scores.baselines['warmup']:.2f}")
    print(f"after training:  {scores.score:.2f}, sampled {scores.score_sampled:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
