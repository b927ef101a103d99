"""Demonstrations of random play: every turn of a game, with its past, always the same."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.errors import ConfigError
from turnwise.rollout.random_play import random_game
from turnwise.trainers.sft import rows_for


@pytest.fixture
def sources(make_recipe, make_session):
    """Rows of first states and of random play, and their session, on a lake with one start."""
    recipe = make_recipe("env.training.start=corner", "agents.player.history=full")
    session = make_session(recipe)
    trained = session.trained["main"]
    return {
        rule: rows_for(session, trained, "demonstrations", states=rule)
        for rule in ("first", "play")
    }


def test_rows_of_play_show_later_turns_with_their_past(sources):
    decode = sources["play"].sources[0].renderer.decode
    texts = {
        rule: [decode(row.token_ids.tolist()) for row in rows.batch(0, 64)]
        for rule, rows in sources.items()
    }
    replies = {rule: [t.count("</answer>") for t in found] for rule, found in texts.items()}
    assert set(replies["first"]) == {1}
    assert max(replies["play"]) > 1
    assert min(replies["play"]) == 1


def test_rows_of_play_are_a_function_of_their_number_and_fit_the_context(sources):
    rows = sources["play"]
    whole = [row.token_ids.tolist() for row in rows.batch(0, 24)]
    assert [row.token_ids.tolist() for row in rows.batch(2, 8)] == whole[16:]
    assert all(len(row) <= rows.sources[0].context for row in whole)
    for row in rows.batch(0, 24):  # the last reply alone is imitated
        assert np.flatnonzero(row.ce_weight)[-1] == len(row.token_ids) - 1
        assert not row.ce_weight[0]


def test_a_random_game_is_the_env_s_own(sources):
    (rows,) = sources["play"].sources
    rng = np.random.default_rng(3)
    game = random_game(rows.env, rows.tasks.task(0), rows.agent, rows.renderer, rng)
    assert len(game.states) == len(game.past)
    shown = [rows.env.observe(state, "player").text for state in game.states]
    assert [exchange.observation for exchange in game.past] == shown
    short = random_game(rows.env, rows.tasks.task(0), rows.agent, rows.renderer, rng, most=1)
    assert len(short.states) == 1


def test_states_do_not_go_with_a_file(make_recipe):
    with pytest.raises(ConfigError, match="states = 'play' chooses what demonstrations show"):
        make_recipe("warmup.data=rows.jsonl", "warmup.states=play")
