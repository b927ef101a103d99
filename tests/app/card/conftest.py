"""A small run with two adapters on a base of its own, and its model card."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnwise.app import lifecycle
from turnwise.app.card.write import write_card
from turnwise.recipe.schema import load_recipe

TINY = Path(__file__).parents[2] / "adapters" / "tiny.toml"


@pytest.fixture(scope="session")
def lora_run(tmp_path_factory):
    """A finished run: a base that it trained, an adapter of imitation, one of reinforcement."""
    folder = tmp_path_factory.mktemp("card") / "run"
    recipe = load_recipe(str(TINY), ["agents.player.system=Cross the lake."])
    outcome = lifecycle.train(recipe, run=folder)
    assert outcome.finished
    return folder


@pytest.fixture(scope="session")
def lora_card(lora_run, tmp_path_factory):
    """Its card."""
    return write_card(lora_run, tmp_path_factory.mktemp("cards") / "lake", license="apache-2.0")


def snippets(card):
    """Return the code blocks of a card."""
    text = (card / "README.md").read_text(encoding="utf-8")
    return [part.split("```\n")[0] for part in text.split("```python\n")[1:]]


def run_code(code, folder, **environment):
    """Run code in a folder, in a Python that cannot import turnwise; return what it prints."""
    blocked = "import sys\nsys.modules['turnwise'] = None\n"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", blocked + code],
        cwd=folder,
        env=kept | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
