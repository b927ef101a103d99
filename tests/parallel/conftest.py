"""Two processes that do things together, and all that two runs must share."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from turnwise.parallel import ALONE
from turnwise.parallel.launch import Launcher
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run, read_metrics

HERE = Path(__file__).parent
APART = ("time/", "mem/", "engine/", "forest/", "total/prefilled", "total/trained", "total/sampled")
"""What differs with the number of processes: clocks, and what is computed once for all siblings."""


def apart(name):
    """Whether a metric is of those, with a policy's name before it or without."""
    return name.startswith(APART) or name.partition("/")[2].startswith(APART)


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Pair:
    """Process 0 of two; `pair("name", **arguments)` calls a function of duties.py in both."""

    def __init__(self):
        sys.path.insert(0, str(HERE))
        try:
            self._launcher = Launcher("partner", 2, lambda: "start the tests again")
        finally:
            sys.path.remove(str(HERE))
        self.group, self.duties = self._launcher.group, load("duties")

    def __call__(self, name, **arguments):
        self.group.broadcast((name, arguments))
        return getattr(self.duties, name)(self.group, **arguments)

    def close(self):
        self.group.broadcast(None)
        self._launcher.close(finished=True)


@pytest.fixture(scope="session")
def pair():
    both = Pair()
    yield both
    both.close()


@pytest.fixture
def twice(pair, tmp_path):
    """`twice(recipe, *overrides)`: a run in one process and in two; folders and gradients."""

    def make(recipe, *overrides):
        found = []
        for name in ("one", "two"):
            path = tmp_path / name
            toml = load_recipe(str(recipe), overrides).to_toml()
            run = Run.create(path, "twin", toml, path)
            given = {"folder": path, "recipe": recipe, "overrides": overrides}
            gradients = pair("train", **given) if name == "two" else alone(pair, given)
            found.append((run, gradients))
        return found

    return make


def alone(pair, given):
    return pair.duties.train(ALONE, **given)


@pytest.fixture(scope="session")
def furthest():
    """`furthest(one, two)`: metric -> the largest relative difference of two runs, and where."""

    def look(one, two):
        worst: dict[str, tuple[float, str]] = {}
        a, b = read_metrics(one.metrics), read_metrics(two.metrics)
        assert [(r["phase"], r["step"]) for r in a] == [(r["phase"], r["step"]) for r in b]
        for first, second in zip(a, b, strict=True):
            names = [n for n in first if n not in ("phase", "step") and not apart(n)]
            assert names == [n for n in names if n in second]
            for name in names:
                x, y = first[name], second[name]
                assert (x is None) == (y is None), name
                if x is not None:
                    gap = abs(x - y) / max(1.0, abs(x))
                    found = (gap, f"{first['phase']} {first['step']}")
                    worst[name] = max(worst.get(name, (0.0, "")), found)
        return worst

    return look


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors are slower on two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
