"""Runs with adapters on tiny bases."""

from pathlib import Path

import pytest
import torch

from turnwise.app import lifecycle
from turnwise.recipe.schema import load_recipe

TINY = str(Path(__file__).parent / "tiny.toml")


@pytest.fixture(scope="session")
def train(tmp_path_factory):
    """`train(*overrides)`: the folder of a finished run of `recipe`."""

    def run(*overrides, recipe=TINY):
        folder = tmp_path_factory.mktemp("run") / "run"
        outcome = lifecycle.train(load_recipe(recipe, overrides), run=folder)
        assert outcome.finished
        return folder

    return run


@pytest.fixture(scope="session")
def stacked(train):
    """A run with two adapters, one on top of the other."""
    return train()


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors are slower on two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
