"""Measure how probable another line is, for a base, in a program that is right and not finished.

    python benchmarks/drawing_ends.py --base runs/base --tasks 9-vertical-lines 16-squares

A program has one call for each line or square of the picture. It is cut after k calls, in random
orders (`--orders`). The table holds the mean probability, over the orders, of a new line after k
calls: programs that a policy hardly ever samples are hardly ever reinforced.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from turnwise.app.solve_base import base_of, weights_of
from turnwise.envs.drawing.env import ArcDraw, ArcDrawConfig
from turnwise.envs.drawing.interpreter import Grid, run_program
from turnwise.envs.drawing.text import call_text
from turnwise.types import Task

SHOWN = (1, 3, 5, 6, 7, 8, 10, 12, 15, 20)
"""The numbers of calls of the table's columns."""


def calls_of(target: Grid) -> list[str]:
    """Return a call for each vertical line, or for each square of 2 x 2 cells, of a target."""
    if len(set(target)) == 1:
        found = [
            call_text("draw_vertical_line", {"x": x, "color": int(color)}, "spaced")
            for x, color in enumerate(target[0])
        ]
    else:
        found = [
            call_text(
                "draw_rectangle",
                {"point1": (y, x), "point2": (y + 1, x + 1), "color": int(target[y][x])},
                "spaced",
            )
            for y in range(0, len(target), 2)
            for x in range(0, len(target[0]), 2)
        ]
    empty = ("0" * len(target[0]),) * len(target)
    if run_program("\n".join(found), empty) != target:
        raise SystemExit(
            "--tasks: expected pictures of vertical lines, or of squares of 2 x 2 cells"
        )
    return found


def continued(model: Any, tokenizer: Any, task: str, orders: int) -> list[float]:
    """Return the mean probability of a new line after each number of calls, from 1."""
    env = ArcDraw(ArcDrawConfig(picture=task))
    only = env.tasks("test")
    assert only, "a picture is one task"
    state = env.reset(Task(id=task, env=env.name, seed=0, data=only[0]))
    asked = [{"role": "user", "content": env.observe(state, "player").text}]
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    (newline,) = tokenizer("\n", add_special_tokens=False)["input_ids"]
    calls, rng = calls_of(state.pairs[0][1]), np.random.default_rng(0)
    sums = np.zeros(len(calls) - 1)
    for _ in range(orders):
        order = [calls[place] for place in rng.permutation(len(calls))]
        for count in range(1, len(calls)):
            text = prompt + "\n".join(order[:count])
            ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
            with torch.no_grad():
                logits = model(input_ids=ids).logits[0, -1].float()
            sums[count - 1] += float(torch.softmax(logits, -1)[newline])
    return (sums / orders).tolist()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", type=Path, required=True, help="a run, or a model's directory")
    parser.add_argument("--tasks", nargs="+", default=["9-vertical-lines", "16-squares"])
    parser.add_argument("--orders", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    weights = weights_of(base_of(args.base))
    tokenizer = AutoTokenizer.from_pretrained(weights)
    model = AutoModelForCausalLM.from_pretrained(weights).eval()
    print("| calls | " + " | ".join(map(str, SHOWN)) + " |")
    print("|---" * (len(SHOWN) + 1) + "|")
    for task in args.tasks:
        found = continued(model, tokenizer, task, args.orders)
        cells = [f"{found[count - 1]:.2g}" if count <= len(found) else "" for count in SHOWN]
        print(f"| {task} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
