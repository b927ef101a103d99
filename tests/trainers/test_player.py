"""Demonstrations of a baseline in place of uniformly random actions."""

from __future__ import annotations

import pytest

from turnwise.errors import ConfigError
from turnwise.recipe.schema import load_recipe
from turnwise.trainers.sft import rows_of

MOVES = {"LEFT": (0, -1), "DOWN": (1, 0), "RIGHT": (0, 1), "UP": (-1, 0)}


@pytest.fixture
def rows(make_recipe, make_session):
    """`rows(count, *settings)`: prompts and actions of demonstrations of the corner lake."""

    def make(count, *settings):
        recipe = make_recipe("env.training.start=corner", *settings)
        session = make_session(recipe)
        trained = session.trained["main"]
        decode = trained.policy.renderer.decode
        source = rows_of(session, trained, recipe.warmup, 0)
        for row in source.batch(0, count):
            said = row.ce_weight > 0
            text = decode(row.token_ids[said].tolist())
            agent = recipe.agents["player"]
            action = agent.reply_format.parse(text, tuple(MOVES))
            yield decode(row.token_ids[~said].tolist()), action

    return make


@pytest.mark.parametrize("states", ["first", "play"])
def test_rows_show_the_actions_of_the_player(rows, states):
    def actions(*settings):
        return {action for _, action in rows(40, f"warmup.states={states}", *settings)}

    assert actions("warmup.player=always-down") == {"DOWN"}
    assert actions() == set(MOVES)


def test_games_are_played_by_the_player(rows):
    """Always down ends in the first column, and random play anywhere."""
    lakes = ("env.warmup.solvable=true", "env.warmup.start=corner", "warmup.states=play")

    def columns(*settings):
        found = rows(60, *lakes, *settings)
        return {prompt.rpartition("you r")[2].partition("c")[2][0] for prompt, _ in found}

    assert columns("warmup.player=always-down") == {"0"}
    assert len(columns()) > 1


def test_a_disturbed_player_leaves_its_way_and_rows_still_show_what_it_does(rows):
    """Always down leaves the first column only by random moves, which no row shows."""
    lakes = ("env.warmup.solvable=true", "env.warmup.start=corner", "warmup.states=play")
    player = ("warmup.player=always-down", "warmup.player_noise=0.5")
    found = list(rows(60, *lakes, *player))
    assert {action for _, action in found} == {"DOWN"}
    columns = {prompt.rpartition("you r")[2].partition("c")[2][0] for prompt, _ in found}
    assert len(columns) > 1


def test_noise_needs_a_player():
    with pytest.raises(ConfigError, match="disturbs a player, and there is none"):
        load_recipe("frozen-lake", ["warmup.player_noise=0.1"])


def test_an_unknown_player_is_refused():
    with pytest.raises(ConfigError, match="unknown warmup.player 'optimum': did you mean 'opti"):
        load_recipe("frozen-lake", ["warmup.player=optimum"])
    with pytest.raises(ConfigError, match="player = 'optimal' chooses what demonstrations show"):
        load_recipe("frozen-lake", ["warmup.player=optimal", "warmup.data=rows.csv"])


@pytest.mark.parametrize("states", ["first", "play"])
def test_a_state_has_several_answers(rows, states):
    one = list(rows(40, f"warmup.states={states}"))
    several = list(rows(40, f"warmup.states={states}", "warmup.answers=8"))
    prompts = [prompt for prompt, _ in several]
    assert [prompts[i : i + 8] for i in range(0, 40, 8)] == [
        [prompts[i]] * 8 for i in range(0, 40, 8)
    ]
    assert len(set(prompts)) > 1 and len({prompt for prompt, _ in one}) > 5
    assert all(len({a for _, a in several[i : i + 8]}) > 1 for i in range(0, 40, 8))
    assert {action for _, action in several} == set(MOVES)


def test_several_answers_need_demonstrations_without_outcomes():
    for settings in (["warmup.outcomes=true", "warmup.states=play"], ["warmup.data=rows.csv"]):
        with pytest.raises(ConfigError, match="answers = 4 is for demonstrations without outcomes"):
            load_recipe("frozen-lake", ["warmup.answers=4", *settings])
