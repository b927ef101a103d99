"""`check_env` plays the tasks that `relabel` returns with the actions that should solve them."""

from typing import ClassVar

import numpy as np
import pytest

import turnwise as tw
from turnwise.envs import Env, Observation, Relabelled, Step, check_env
from turnwise.errors import EnvError, IllegalActionError


class Walk(Env[tuple[int, int, int]]):
    """A walk along seven cells, four steps long, to a goal."""

    name = "walk"
    roles = ("player",)
    components: ClassVar = {"goal": "agent"}

    def generate(self, rng: np.random.Generator) -> dict[str, int]:
        return {"goal": int(rng.integers(-4, 5))}

    def reset(self, task):
        return 0, 0, task.data["goal"]

    def observe(self, state, role):
        at, steps, goal = state
        return Observation(
            text=f"at {at} step {steps} goal {goal}", legal_actions=("LEFT", "RIGHT")
        )

    def step(self, state, role, action, noise):
        if action not in ("LEFT", "RIGHT"):
            raise IllegalActionError("LEFT and RIGHT are legal")
        at, steps, goal = state
        if steps == 4:
            raise EnvError("the walk has ended")
        at += 1 if action == "RIGHT" else -1
        done = steps == 3
        rewards = {"goal": float(done and at == goal)}
        after = (at, steps + 1, goal)
        return Step(state=after, rewards=rewards, terminated=done, truncated=False)

    def score(self, state):
        return float(state[0] == state[2])

    def relabel(self, task, actions):
        end = sum(1 if action == "RIGHT" else -1 for action in actions)
        near = 1 / (1 + abs(task.data["goal"] - end))
        return Relabelled(data={"goal": end}, actions=tuple(actions), closeness=near)


def told(relabel):
    kind = type("Walk", (Walk,), {"relabel": relabel, "name": "walk"})
    with pytest.raises(EnvError) as error:
        check_env(kind())
    return str(error.value)


def test_a_right_relabel_and_none_pass():
    check_env(Walk())
    kind = type("Walk", (Walk,), {"relabel": lambda self, task, actions: None})
    check_env(kind())


@pytest.mark.parametrize("name", ["frozen-lake", "arc-draw"])
def test_the_envs_that_relabel_pass(name):
    check_env(tw.make_env(name), tasks=2)


def relabelled(**changed):
    fields = {"data": {"goal": 0}, "actions": ("LEFT",), "closeness": 0.5} | changed
    return lambda self, task, actions: Relabelled(**fields)


@pytest.mark.parametrize(
    ("relabel", "says"),
    [
        (lambda self, task, actions: task, "of type Task: return None or a Relabelled("),
        (lambda self, task, actions: task.missing, "'Task' object has no attribute 'missing'"),
        (lambda self, task, actions: task.data.clear(), "relabel changes the task's data: copy"),
        (
            relabelled(data={"goal": 9}),
            "do not solve: score 0: return a task in which they score 1",
        ),
        (
            relabelled(data=[3]),
            "relabel returns data = [3]: return the data of a task, of values",
        ),
        (
            relabelled(data={"goal": {0}}),
            "data = {'goal': {0}}: return the data of a task, of values",
        ),
        (relabelled(actions=["LEFT"]), "actions = ['LEFT']: return a tuple of texts"),
        (relabelled(actions=("\ud800",)), "return a tuple of text of valid Unicode"),
        (relabelled(closeness=1.5), "closeness = 1.5: return a number from 0 to 1"),
        (relabelled(closeness="near"), "closeness = 'near': return a number from 0 to 1"),
    ],
)
def test_a_wrong_relabel_is_refused(relabel, says):
    assert says in told(relabel)
