"""What process 0, the test, and its partner do together: each function is called in both."""

from __future__ import annotations

import os
from contextlib import contextmanager

import torch

from turnwise.app import build
from turnwise.app.program import run_program
from turnwise.errors import ConfigError
from turnwise.parallel.group import ProcessGroup
from turnwise.policies import PolicyOptimizer
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run, StopSignal, write_scores
from turnwise.trainers import Silent
from turnwise.trainers.exchange import sum_gradients


def exchange(group: ProcessGroup):
    """Return what each kind of exchange gives, with objects of several sizes."""
    large = torch.arange(5) + 10 * group.rank
    group.sum_(large)
    return {
        "small": group.gather(group.rank),
        "large": [len(each) for each in group.gather("x" * (3000 + 90_000 * group.rank))],
        "sent": len(group.broadcast("y" * 50_000 if group.leads else "")),
        "sum": large.tolist(),
        "first": group.from_first(os.getpid) == group.gather(os.getpid())[0],
        "together": group.together(lambda: group.rank),
    }


def fail(group: ProcessGroup, where: int, kind: str):
    """Raise in process `where` alone."""

    def call():
        if group.rank == where:
            raise ConfigError("give 3") if kind == "own" else KeyError("a bug")
        return group.rank

    return group.together(call) if where else group.from_first(call)


def send_what_cannot_be(group: ProcessGroup):
    return group.gather((lambda: 0) if group.rank else 0)


def add_up(group: ProcessGroup):
    """Sum gradients of two types, of which one is nowhere and others in one process only."""
    kinds = (torch.float64, torch.float32, torch.float64, torch.float32, torch.float64)
    weights = [torch.nn.Parameter(torch.zeros(2, 2, dtype=kind)) for kind in kinds]
    weights[0].grad = torch.full((2, 2), 1.0 + 1e-12 * group.rank, dtype=kinds[0])
    weights[1].grad = torch.arange(4.0).view(2, 2) * 10**group.rank
    weights[2 + group.rank].grad = torch.full((2, 2), 5.0, dtype=kinds[2 + group.rank])
    sum_gradients(weights, group)
    return [None if weight.grad is None else weight.grad.flatten().tolist() for weight in weights]


class Elsewhere:
    """What only the process that made it can read."""

    def __reduce__(self):
        return int, ("no number",)


def send_what_cannot_be_read(group: ProcessGroup):
    return group.gather(Elsewhere() if group.rank else 0)


def train(group: ProcessGroup, folder, recipe, overrides):
    """Go through a run; return the gradients of the first steps of every phase, flattened."""
    torch.set_num_threads(1)
    own, run, stop = load_recipe(str(recipe), overrides), Run(folder), StopSignal()
    gradients: list[torch.Tensor] = []

    def parts(recipe):
        if not group.leads:
            group.wait_for_first()
        session = build.assemble(recipe, run, stop, Silent(), writes=group.leads)
        if group.leads:
            group.wait_for_first()
        session.join(group)
        return session

    def finish(session, scores):
        if group.leads:
            write_scores(run.evaluation, scores)

    with noting(gradients):
        assert run_program(own, run, parts, stop, finish, resumed=False)
    return gradients


@contextmanager
def noting(gradients, most=4):
    """Keep the first gradients that optimizers are given."""
    real = PolicyOptimizer.step

    def step(self):
        if len(gradients) < most:
            found = [w.grad.flatten() for w in self._weights if w.grad is not None]
            gradients.append(torch.cat(found).clone())
        return real(self)

    PolicyOptimizer.step = step
    try:
        yield
    finally:
        PolicyOptimizer.step = real


def gather(group: ProcessGroup, value: object):
    """Wait for the other process; `value` has been sent with the duty."""
    group.gather(None)
