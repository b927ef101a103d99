"""The examples run as they stand, and what they print is true."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "00_grpo_in_one_file.py": ("iteration  10: reaches the goal from",),
    "01_play_an_env.py": ("score 1", "optimal  1.00 ± "),
    "02_rows_and_a_reward.py": ("after training:  +", "prompts that were held out"),
    "03_an_env_of_your_own.py": ("crossing keeps the contract: ", "crossings never seen"),
    "04_a_real_model.py": ("after training", "asked of a new lake, it says:"),
    "05_a_gymnasium_env.py": ("gymnasium keeps the contract: ", "optimal: arrives in 100%"),
    "07_programs.py": ("a program, run: 7", "another: cpu, more than 0.1 s", "after training:  "),
    "06_tools.py": (
        "cups keeps the contract: ",
        '"enum": ["red", "green", "blue"]',
        "tool: error: lift: cup: Input should be 'red', 'green' or 'blue'",
        "tool: ring",
        "score 1",
    ),
}


SHORT = {
    "00_grpo_in_one_file.py": ("10",),
    "05_a_gymnasium_env.py": ("warmup.steps=200",),
    "07_programs.py": ("trainer.iterations=100",),
}
"""Arguments with which an example trains for a shorter time."""


def run(name, folder, *arguments):
    """Run an example in a folder of its own; return what it prints."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run():
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(SAYS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name, tmp_path, small_model):
    real = (str(small_model("qwen3")), "preset=smoke") if name.startswith("04") else ()
    said = run(name, tmp_path, *SHORT.get(name, ()), *real)
    for words in SAYS[name]:
        assert words in said
    if name.startswith("02"):
        before, after = (float(line.split()[2].strip(",")) for line in said.splitlines()[:2])
        assert after - before > 0.5
    if name.startswith("07"):
        assert float(said.split("after training: ")[1].split(",")[0]) > 0.8
    if name.startswith("03"):
        shares = {line.split(":")[0].strip(): line for line in said.splitlines()[1:]}
        percent = {who: int(line.split("for ")[1].split("%")[0]) for who, line in shares.items()}
        assert percent["trained"] > percent["random"] + 30
    if name.startswith("05"):
        assert "trained: arrives in 100%" in said
        assert "warmup: arrives in 0%" in said
