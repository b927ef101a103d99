"""Tiny runs that must learn: a lake of eight cells around the goal, and a policy of two layers.

The lake has no best constant: of the four actions each is right as often as every other, so that
whoever does not look where it stands stays at chance.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from turnwise.app import build
from turnwise.envs import ENVS, FrozenLake, make_env
from turnwise.envs.frozen_lake.maps import ACTIONS, lake_of, move_start
from turnwise.recipe.schema import Recipe
from turnwise.rollout import Runner
from turnwise.runs import Run, StopSignal
from turnwise.seeding import generator
from turnwise.settings import parse
from turnwise.trainers import Silent, train_grpo, warm_up
from turnwise.types import Task, TaskVisit
from turnwise.workflows import WORKFLOWS, WorkflowConfig, make_workflow

RING = ("SFF", "FGF", "FFF")
NANO = {
    "hidden": 64, "layers": 2, "intermediate": 128, "heads": 2, "kv_heads": 1, "head_dim": 32,
    "init_std": 0.1,
}  # fmt: skip
RECIPE: dict[str, Any] = {
    "name": "learning",
    "env": {"name": "frozen-lake", "options": {"map": RING, "start": "random"}},
    "workflow": "once",
    "agents": {"player": {"max_tokens": 8}},
    "policies": {"main": {"model": "nano", "nano": NANO}},
    "warmup": {
        "steps": 100, "eval_every": 100, "batch_size": 32, "perception_tasks": 1,
        "optimizer": {"lr": 5e-3, "schedule": "linear", "warmup_steps": 10},
    },
    "trainer": {"iterations": 80, "tasks_per_iteration": 16, "group_size": 8},
    "optimizer": {"lr": 1e-3},
    "credit": {
        "scheme": "grpo", "rewards": {"expert": 1.0}, "segments": {"action": "return"},
        "std_floor": 0.1,
    },
    "evaluation": {"every": 10**6, "validation_tasks": 1, "test_tasks": 1},
    "checkpoint": {"every": 10**6},
    "episodes": {"keep": 0},
}  # fmt: skip


class Signposts(FrozenLake):
    """A lake that says where the goal is and what lies to the four sides, always in one order.

    Choosing is to find the good one of four words at fixed places: the least that reads a map.
    """

    name = "signposts"

    def observe(self, state, role):
        lake, here = state.lake, state.position
        goal = lake.letters.index("G")
        sides = [sign(lake, here, cell, goal) for cell in lake.moves[here]]
        description = " ".join([lake.name(goal), "goal", *sides])
        return replace(super().observe(state, role), description=description)

    def vocabulary(self):
        return (*super().vocabulary(), "near", "away", "off")


def sign(lake, here, cell, goal):
    """Return two words about the cell that a move leads to."""
    if cell == here:
        return "off edge"
    content = lake.content(cell)
    if content in ("ice", "start"):
        content = "near" if gap(lake, cell, goal) < gap(lake, here, goal) else "away"
    return f"{lake.name(cell)} {content}"


def gap(lake, one, other):
    """Return the distance of two cells as if there were no holes."""
    (row, column), (other_row, other_column) = (divmod(c, lake.columns) for c in (one, other))
    return abs(row - other_row) + abs(column - other_column)


async def once(agents, state):
    """Let the only agent act once: what it decides is all there is to learn."""
    (player,) = agents.values()
    return await player.act(state)


def merged(base, over):
    """Return nested dictionaries as one; `over` wins, and its None takes a key out."""
    result = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return {key: value for key, value in result.items() if value is not None}


def rows(env, path, count=512):
    """Write demonstrations that name the cell one stands on, with uniformly random actions."""
    lines = []
    for index in range(count):
        rng = generator(0, "rows", index)
        seen = env.observe(env.reset(Task(id="", env=env.name, seed=0, data=env.generate(rng))), "")
        action = seen.legal_actions[rng.integers(len(seen.legal_actions))]
        reply = f"<think> {seen.text.split()[-1]} </think> <answer> {action} </answer>"
        lines.append(json.dumps({"prompt": seen.text, "completion": reply}))
    path.write_text("\n".join(lines))
    return str(path)


@dataclass
class Learner:
    """Trains tiny recipes and scores what they have become; `folder` keeps what they start from."""

    folder: Path

    def start(self, seed, name="ring", **over):
        """Return the folder of weights that speak and see, made once for each name and seed."""
        folder = self.folder / f"{name}-{seed}"
        if not (folder / "start/main").is_dir():
            data = merged(RECIPE, {"seed": seed, **over})
            if "data" not in data["warmup"]:
                env = make_env("frozen-lake", **data["env"]["options"])
                data["warmup"] |= {"data": rows(env, self.folder / "rows.jsonl")}
            session = assembled(data, folder)
            assert warm_up(session, parse(Recipe, data, "start").warmup, None)
            session.save_start()
        return folder / "start/main"

    def load(self, start, seed, run, **over):
        """Return a session of `RECIPE` with `over` that begins with the weights `start`."""
        return assembled(recipe_from(start, seed, over), run)

    def train(self, start, seed, run, **over):
        """Return such a session after its training."""
        data = recipe_from(start, seed, over)
        session = assembled(data, run)
        assert train_grpo(session, build.plan_of(parse(Recipe, data, "learning")), None)
        return session

    @staticmethod
    def states(rows=RING):
        """Return one task for every cell of a map that one can stand on."""
        cells = [cell for cell, letter in enumerate("".join(rows)) if letter in "SF"]
        return [task_at(move_start(rows, cell), cell) for cell in cells]

    @staticmethod
    def constants(states):
        """Return the mean expert reward of always the same action, and of random ones."""
        env = make_env("frozen-lake")
        rng = np.random.default_rng(0)

        def reward(task, action):
            return env.step(env.reset(task), "player", action, rng).rewards["expert"]

        found = {action: np.mean([reward(task, action) for task in states]) for action in ACTIONS}
        return found | {"random": np.mean(list(found.values()))}

    @staticmethod
    def play(session, states, workflow, samples):
        """Return `samples` episodes from each of `states`, sampled as in training."""
        runner = Runner(
            env=session.eval_runner.env,
            workflow=make_workflow(WorkflowConfig(kind=workflow)),
            agents={"player": session.agents["player"]},
            renderers={session.policies["main"].name: session.policies["main"].renderer},
            engine=session.engine,
            seed=session.seed,
        )
        visits = [
            TaskVisit(iteration=10**6, visit=visit, task=task) for visit, task in enumerate(states)
        ]
        return runner.collect(visits, "evaluation", group_size=samples)

    def score(self, session, states, *, samples=16):
        """Return the mean expert reward of sampled actions over `states`, each met alone."""
        turns = [episode.turns[0] for episode in self.play(session, states, "once", samples)]
        return float(np.mean([turn.rewards.get("expert", 0.0) for turn in turns]))

    def success(self, session, states, *, samples=16):
        """Return the mean score of whole sampled episodes from `states`."""
        return float(np.mean([e.score for e in self.play(session, states, "turns", samples)]))


def task_at(rows, cell):
    limit = int(2 * lake_of(rows).distances[cell])
    data = {"map": list(rows), "slippery": False, "limit": limit}
    return Task(id=f"cell-{cell}", env="frozen-lake", seed=0, data=data)


def recipe_from(start, seed, over):
    model = {"main": {"model": str(start), "nano": None}}
    data = merged(RECIPE, {"seed": seed, "policies": model, "warmup": None})
    return merged(data, over)


def assembled(data, folder):
    recipe = parse(Recipe, data, "learning")
    run = Run.create(folder.parent, recipe.name, recipe.to_toml(), folder)
    return build.assemble(recipe, run, StopSignal(), Silent())


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def starts(tmp_path_factory):
    return tmp_path_factory.mktemp("starts")


@pytest.fixture
def learner(starts, monkeypatch):
    """Trains and scores; `once` and `signposts` are in the tables of names meanwhile."""
    monkeypatch.setitem(ENVS, Signposts.name, Signposts)
    monkeypatch.setitem(WORKFLOWS, "once", once)
    return Learner(starts)
