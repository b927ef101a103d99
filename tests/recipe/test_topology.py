"""Topologies in recipes: what is refused when they are read, and what the message names."""

from __future__ import annotations

import pytest

from turnwise.envs import make_env
from turnwise.envs.relay import Relay
from turnwise.errors import ConfigError
from turnwise.recipe.schema import load_recipe
from turnwise.workflows.topologies import SpineConfig, VineConfig

SPINE = {"topology": "spine", "credit.scheme": "at_grpo"}
VINE = {"topology": "vine", "credit.scheme": "counterfactual"}
TERMINAL = """
from turnwise.envs.relay import Relay


class Late(Relay):
    name = "late"
    reward_timing = "terminal"


class Stuck(Relay):
    name = "stuck"
    branching = "none"
"""


def relay(**settings):
    return load_recipe("relay", {key.replace("__", "."): v for key, v in settings.items()})


def of(*settings):
    merged = {key: value for each in settings for key, value in each.items()}
    return load_recipe("relay", merged)


def test_a_string_is_the_kind_and_options_are_of_it():
    recipe = of(SPINE)
    assert isinstance(recipe.topology, SpineConfig)
    more = of(SPINE, {"topology": {"kind": "spine", "siblings": 8, "score": "turn_end"}})
    assert (more.topology.siblings, more.topology.score) == (8, "turn_end")
    assert isinstance(of(VINE).topology, VineConfig)
    assert load_recipe("relay").topology.kind == "independent"


def test_the_preset_of_the_team_recipe_compares_siblings():
    recipe = load_recipe("relay", ["preset=spine"])
    assert (recipe.topology.kind, recipe.topology.score) == ("spine", "turn_end")
    assert (recipe.credit.scheme, recipe.trainer.group_size) == ("at_grpo", 1)


def test_a_resolved_recipe_loads_to_an_equal_one(tmp_path):
    recipe = of(SPINE, {"topology": {"kind": "spine", "continuation": "epsilon-greedy"}})
    path = tmp_path / "again.toml"
    path.write_text(recipe.to_toml())
    assert load_recipe(str(path)) == recipe


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((SPINE, {"credit.scheme": "grpo"}), ["do not go on have not", "at_grpo"]),
        ((SPINE, {"credit.scheme": "gigpo"}), ["returns-to-go", "one of at_grpo"]),
        ((SPINE, {"credit.scheme": "gae"}), ["returns-to-go"]),
        ((SPINE, {"credit.scheme": "counterfactual"}), ["to 'vine'", "at_grpo"]),
        (({"credit.scheme": "at_grpo"},), ["'spine', 'vine'", "grpo"]),
        (({"credit.scheme": "counterfactual"},), ["topology.kind to 'vine'"]),
        ((SPINE, {"credit.scheme": "leave_one_role_out"}), ["topology.orders = 'cross'"]),
        ((VINE, {"credit.scheme": "rae"}), ["to 'independent'", "counterfactual"]),
        ((SPINE, {"topology": {"kind": "spine", "epsilon": 0.1}}), ["epsilon-greedy"]),
        ((SPINE, {"topology": {"kind": "spine", "share": 0.5}}), ["leave share out"]),
        ((SPINE, {"topology": {"kind": "spine", "siblings": 1}}), ["siblings"]),
        ((SPINE, {"topology": {"kind": "spine", "score": "turn_end", "orders": "cross"}}),
         ["leave one of them out"]),
        ((SPINE, {"topology": {"kind": "spine", "siblings": 65, "orders": "cross"}}),
         ["tables of 4225 entries"]),
        ((SPINE, {"topology": {"kind": "spin"}}), ["spine"]),
        ((SPINE, {"trainer.truncated_completions": "exclude"}), ["'mask' or 'train'"]),
        ((SPINE, {"credit.invalid_below_worst": True, "credit.rewards.invalid": None}),
         ["a weight below 0"]),
        ((SPINE, {"curriculum.kind": "restarts"}), ["'uniform'"]),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_and_what_works_is_named(settings, words):
    with pytest.raises(ConfigError) as refused:
        of(*settings)
    for word in words:
        assert word in str(refused.value)


def test_what_an_env_cannot_do_is_refused_and_what_works_is_named(tmp_path):
    path = tmp_path / "late.py"
    path.write_text(TERMINAL)
    late, stuck = {"env.name": f"{path}:Late"}, {"env.name": f"{path}:Stuck"}
    with pytest.raises(ConfigError, match=r"reward_timing = 'terminal'.*use 'vine'"):
        of(SPINE, late)
    assert of(VINE, late).topology.kind == "vine"
    for topology in (SPINE, VINE):
        with pytest.raises(ConfigError, match=r"branching = 'none'.*use 'independent'"):
            of(topology, stuck)


def test_a_cross_table_needs_seats():
    cross = {"topology": {"kind": "spine", "orders": "cross"}}
    with pytest.raises(ConfigError, match="has one seat"):
        load_recipe("frozen-lake", SPINE | cross)
    assert isinstance(make_env("relay"), Relay)
    assert of(SPINE, cross).topology.has_cross_tables


def test_a_spine_may_have_one_episode_of_each_visit():
    assert of(SPINE, {"trainer.group_size": 1}).trainer.group_size == 1
    with pytest.raises(ConfigError, match="nothing to compare"):
        load_recipe("relay", {"trainer.group_size": 1})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"opponents.shares": {"self": 0.5, "random": 0.5}}, ["lets random play", "'independent'"]),
        ({"opponents.shares": {"pool": 1.0}}, ["lets pool play", "leave [opponents] out"]),
    ],
)
def test_siblings_are_refused_beside_opponents(settings, words):
    for topology in (SPINE, VINE):
        with pytest.raises(ConfigError) as refused:
            of(topology, settings)
        for word in words:
            assert word in str(refused.value)
    assert of(settings).topology.kind == "independent"


@pytest.mark.parametrize("shares", [{"self": 1.0}, {"self": 1.0, "random": 0.0}])
def test_siblings_go_with_self_play(shares):
    assert of(SPINE, {"opponents.shares": shares}).topology.kind == "spine"


def test_siblings_are_refused_where_steps_reward_other_seats():
    alone = {"opponents": None, "credit.segments": None}
    with pytest.raises(ConfigError, match=r"reward other seats.*'independent'"):
        load_recipe("tic-tac-toe", VINE | alone)
