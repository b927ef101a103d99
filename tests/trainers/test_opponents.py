"""The opponents of training: who is drawn for a visit, and the pool of earlier versions."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from turnwise.engines.loop import RunLoop
from turnwise.envs import make_env
from turnwise.errors import ConfigError, UnknownNameError
from turnwise.policies import NanoConfig, PolicyConfig, load_policies
from turnwise.recipe.schema import load_recipe
from turnwise.trainers.opponents import Opponents, frozen_copies
from turnwise.trainers.opponents_config import OpponentsConfig
from turnwise.types import Task, TaskVisit

TINY = NanoConfig(hidden=16, layers=1, heads=2, kv_heads=1, head_dim=8, intermediate=16, context=64)
TASK = Task(id="t", env="tic-tac-toe", seed=0, data={"moves": []})
SEATS = {"first": "main", "second": "main"}


class Told:
    """An engine that notes which policies have new weights."""

    def __init__(self):
        self.loop, self.told = RunLoop(), []

    def update_weights(self, policy):
        self.told.append(policy)


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    """One trained policy, full, and one with an adapter, on models made on the spot."""
    words = make_env("tic-tac-toe").vocabulary()
    full = PolicyConfig(model="nano", nano=TINY, device="cpu")
    config = {"main": full, "other": full.model_copy(update={"lora": {"rank": 2}})}
    config["other"] = PolicyConfig(model="nano", nano=TINY, device="cpu", lora={"rank": 2})
    folder = tmp_path_factory.mktemp("models")
    return load_policies(config, directory=folder, transcripts=["x"], words=words)


def made(policies, names=("main",), seats=SEATS, seed=0, **config):
    own = {name: policies[name] for name in names}
    given = OpponentsConfig(**config)
    return Opponents(
        config=given,
        seed=seed,
        seats=seats,
        policies=own,
        copies=frozen_copies(own, given),
        engine=Told(),
    )


def visits(iteration, count):
    return [TaskVisit(iteration=iteration, visit=n, task=TASK) for n in range(count)]


def shift(policy):
    """Change the weights that training changes."""
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.add_(0.5)


def weights(policy):
    return [p.detach().clone() for p in policy.model.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_opponents_are_drawn_by_their_shares_and_the_policy_has_each_seat_in_turn(policies):
    shares = {"self": 0.5, "random": 0.3, "minimax-1": 0.2}
    found = made(policies, shares=shares).assigned(visits(3, 2000))
    names = Counter(next((p.name for p in v.players.values()), "self") for v in found)
    for name, share in shares.items():
        assert abs(names[name] / 2000 - share) < 0.04
    for visit in found:
        if visit.players:
            own = {"first", "second"} - set(visit.players)
            assert own == {("first", "second")[(3 + visit.visit) % 2]}


def test_draws_depend_on_seed_iteration_and_visit_alone(policies):
    config = {"shares": {"self": 1.0, "random": 1.0}}
    whole = made(policies, **config).assigned(visits(1, 50))
    again = made(policies, **config)
    parts = again.assigned(visits(1, 20)) + again.assigned(visits(1, 50)[20:])
    assert parts == whole
    assert made(policies, seed=1, **config).assigned(visits(1, 50)) != whole
    assert [v.players for v in made(policies, **config).assigned(visits(2, 50))] != [
        v.players for v in whole
    ]


@pytest.mark.parametrize("name", ["main", "other"])
def test_a_copy_keeps_the_weights_of_its_iteration(policies, name):
    policy, seats = policies[name], {"first": name, "second": name}
    found = made(policies, (name,), seats, shares={"pool": 1.0}, pool={"every": 2, "versions": 3})
    start = weights(policy)
    assert found.assigned(visits(0, 4))[0].players["second"].policy == f"{name}@0"
    for iteration in (1, 2):
        shift(policy)
        found.assigned(visits(iteration, 4))
    assert found.versions == {0: 0, 1: 2}
    assert same(weights(found.copies[f"{name}@0"]), start)
    assert same(weights(found.copies[f"{name}@1"]), weights(policy)) and not same(
        start, weights(policy)
    )
    assert found.engine.told == [f"{name}@0", f"{name}@1"]
    assert not found.copies[f"{name}@0"].trainable_parameters()


def test_the_oldest_version_makes_room(policies):
    found = made(policies, shares={"pool": 1.0}, pool={"every": 1, "versions": 2})
    for iteration in range(5):
        found.assigned(visits(iteration, 1))
        found.assigned(visits(iteration, 1))  # a refill adds nothing
    assert found.versions == {1: 3, 0: 4}
    assert [found.copies[f"main@{place}"].version for place in (0, 1)] == [5, 4]


@pytest.mark.parametrize(("latest", "share"), [(1.0, 1.0), (0.0, 0.25), (0.5, 0.625)])
def test_the_newest_version_plays_as_often_as_said(policies, latest, share):
    pool = {"every": 1, "versions": 4, "latest": latest}
    found = made(policies, shares={"pool": 1.0}, pool=pool)
    for iteration in range(4):
        found.assigned(visits(iteration, 1))
    drawn = found.assigned(visits(5, 2000))  # iteration 5 adds a version in place 0
    names = Counter(p.policy for v in drawn for p in v.players.values())
    assert abs(names["main@0"] / 2000 - share) < 0.04
    assert latest == 1.0 or len(names) == 4


def test_a_restored_pool_equals_the_saved_one(policies, tmp_path):
    config = {"shares": {"pool": 1.0}, "pool": {"every": 1, "versions": 2}}
    found = made(policies, **config)
    for iteration in range(3):
        shift(policies["main"])
        found.assigned(visits(iteration, 1))
    found.save(tmp_path)
    other = made(policies, **config)
    other.restore(tmp_path)
    assert list(other.versions.items()) == list(found.versions.items())
    for name, copy in found.copies.items():
        assert same(weights(other.copies[name]), weights(copy))
        assert other.copies[name].version == copy.version
    assert other.assigned(visits(2, 30)) == found.assigned(visits(2, 30))
    empty = made(policies, **config)
    (tmp_path / "none").mkdir()
    empty.restore(tmp_path / "none")
    assert not empty.versions


def test_seats_of_an_untrained_policy_have_no_copy(policies):
    seats = {"first": "main", "second": "server"}
    found = made(policies, seats=seats, shares={"pool": 1.0})
    players = [v.players for v in found.assigned(visits(0, 2))]
    assert players[0]["second"].policy == "server" and players[1]["first"].policy == "main@0"


def test_without_a_pool_there_are_no_copies(policies):
    own = {"main": policies["main"]}
    assert not frozen_copies(own, None)
    assert not frozen_copies(own, OpponentsConfig(shares={"random": 1.0}))
    assert not frozen_copies(own, OpponentsConfig(shares={"pool": 0.0, "self": 1.0}))
    assert len(frozen_copies(own, OpponentsConfig(shares={"pool": 1.0}))) == 5


@pytest.mark.parametrize(
    ("sets", "error", "message"),
    [
        (["opponents.shares.minimax=1.0"], UnknownNameError, "did you mean 'minimax-"),
        (['opponents.against=["optimal"]'], UnknownNameError, "unknown baseline 'optimal'"),
        (["opponents.against=[]"], ConfigError, "name one baseline or more"),
        (["opponents.shares.self=-1.0"], ConfigError, "0 or more each"),
        (["preset=self", "opponents.pool.versions=2"], ConfigError, "add a share for 'pool'"),
        (["opponents.pool.versions=0"], ConfigError, "greater than or equal to 1"),
        (['curriculum={kind="restarts"}'], ConfigError, "set curriculum.kind = 'uniform'"),
        (["policies.main.lora={merge_warmup=true}"], ConfigError, "merge_warmup = true changes"),
    ],
)
def test_what_cannot_work_is_refused_when_a_recipe_is_read(sets, error, message):
    with pytest.raises((error, ConfigError), match=message):
        load_recipe("tic-tac-toe", sets)


def test_an_env_of_one_seat_has_no_opponents():
    with pytest.raises(ConfigError, match="the one seat 'player'"):
        load_recipe("frozen-lake", ["opponents={shares={self=1.0}}"])


def test_scores_are_taken_against_the_opponents_of_the_env_or_of_the_recipe():
    recipe = load_recipe("tic-tac-toe")
    env = recipe.env.make("evaluation")
    assert recipe.scored_against(env) == ("minimax-1", "random", "minimax-2", "perfect")
    other = load_recipe("tic-tac-toe", ['opponents.against=["perfect"]'])
    assert other.scored_against(env) == ("perfect",)
    assert not load_recipe("relay").scored_against(load_recipe("relay").env.make("evaluation"))
