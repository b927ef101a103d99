"""The choices of history and credit by what random games measured, without an env."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnwise.envs import Observation
from turnwise.envs.survey import Game, Survey
from turnwise.envs.survey_groups import Groups
from turnwise.recipe.env_credit import EnvCredit
from turnwise.recipe.history import MOST_LISTED, choose_history, lists_actions, tokens_of_a_turn

GROUPS = Groups(
    length=10.0,
    seats=1.0,
    recurring=0.5,
    past_helps=True,
    hidden=0.5,
    hidden_by_key=0.0,
    shows_past=False,
    finer_keys=True,
    known=0.9,
    known_by_key=0.9,
    repeats=True,
    seconds=1e-5,
)
SURVEY = Survey(
    first=Observation(text="cell 0", legal_actions=("a", "b")),
    legal_actions=("a", "b"),
    varies=False,
    free=False,
    described=False,
    cap=20,
    legal_words=2.0,
    games=(Game(words=(4,) * 10, reply=(1,) * 10), Game(words=(4,) * 4, reply=(1,) * 4)),
    groups=GROUPS,
)


def surveyed(**changes):
    return replace(SURVEY, groups=replace(GROUPS, **changes))


def credit(*, tools=False, **changes):
    reasons = {}

    def because(key, value, reason):
        reasons[key] = reason
        return value

    groups = replace(GROUPS, **changes)
    return EnvCredit(groups=groups, tools=tools).settings(because), reasons


@pytest.mark.parametrize(
    ("changes", "tools", "shown", "why"),
    [
        ({}, False, "full", "behave differently"),
        ({"hidden": None}, False, "full", "may hide what decides"),
        ({"hidden": 0.0}, False, "observation", "behave alike"),
        ({"hidden": 0.0}, True, "full", "results of calls"),
        ({"shows_past": True}, False, "observation", "holds the turns before it"),
        ({"hidden": None, "shows_past": True}, False, "observation", "holds the turns before it"),
        ({"shows_past": True}, True, "full", "results of calls"),
    ],
)
def test_the_history_follows_what_is_hidden(changes, tools, shown, why):
    found = choose_history(surveyed(**changes), tools=tools, context=10_000)
    assert (found.shown, found.context) == (shown, None)
    assert why in found.reason


def test_the_context_holds_a_game_twice_as_long_as_the_longest_random_one():
    """It has 10 turns of 4 words, and 16 tokens a turn: 1.1 * 20 * 20 + 64 = 504."""
    found = choose_history(SURVEY, tools=False, context=256, can_grow=True)
    assert (found.shown, found.context) == ("full", 512)
    capped = choose_history(replace(SURVEY, cap=12), tools=False, context=256, can_grow=True)
    assert capped.context == 384  # 1.1 * 12 * 20 + 64 = 328
    listed = choose_history(replace(SURVEY, varies=True), tools=False, context=256, can_grow=True)
    assert listed.context == 640  # 21 + 4 tokens a turn: 1.1 * 20 * 25 + 64 = 614
    assert choose_history(SURVEY, tools=False, context=256).shown == "last_n"
    none = choose_history(surveyed(past_helps=False), tools=False, context=256)
    assert none.shown == "observation"


def test_words_of_a_pretrained_model_are_several_tokens():
    """A game of 20 turns needs 1.1 * 20 * 20 + 64 = 504 tokens of one word each, and 945 of two."""
    for context, shown in ((944, "last_n"), (945, "full")):
        found = choose_history(SURVEY, tools=False, context=context, per_word=2.0)
        assert (found.shown, found.context) == (shown, None)
    assert (
        "945 tokens of the past do not fit into 944"
        in choose_history(SURVEY, tools=False, context=944, per_word=2.0).reason
    )


def test_actions_are_listed_where_they_differ_and_are_not_too_many():
    assert not lists_actions(SURVEY)
    many = replace(SURVEY, varies=True, legal_words=MOST_LISTED)
    assert lists_actions(many)
    assert tokens_of_a_turn(many) > MOST_LISTED
    more = replace(many, legal_words=MOST_LISTED + 1)
    assert not lists_actions(more)
    assert tokens_of_a_turn(more) == tokens_of_a_turn(SURVEY)


@pytest.mark.parametrize(
    ("changes", "tools", "key"),
    [
        ({}, False, None),
        ({"hidden": 0.0}, False, "observation"),
        ({"hidden": 0.0}, True, None),
        ({"hidden": None, "known_by_key": 0.1}, False, None),
        ({"hidden": 0.05}, False, None),  # the keys of the env recur as often
        ({"hidden": 0.05, "known_by_key": 0.1}, False, "observation"),
        ({"hidden": 0.2, "known_by_key": 0.1}, False, None),
        ({"hidden": 0.05, "known_by_key": 0.1}, True, None),
    ],
)
def test_the_state_key_is_the_observation_where_it_tells_the_state(changes, tools, key):
    assert credit(tools=tools, **changes)[0].get("state_key") == key


@pytest.mark.parametrize(
    ("changes", "trust"),
    [
        ({}, 0.3),
        ({"hidden_by_key": 0.02}, 0.9),
        ({"hidden_by_key": None}, 0.9),
        ({"finer_keys": False}, 0.9),
        ({"finer_keys": False, "shows_past": True}, 0.3),
        ({"finer_keys": False, "hidden": 0.0}, 0.3),
        ({"hidden": 0.05, "known_by_key": 0.1}, 0.9),
    ],
)
def test_values_of_states_are_trusted_where_their_keys_decide(changes, trust):
    assert credit(**changes)[0]["gae_lambda"] == trust


@pytest.mark.parametrize(
    ("length", "seats", "gamma"),
    [(4.0, 1.0, 0.95), (40.0, 1.0, 0.95), (80.0, 1.0, 0.975), (80.0, 4.0, 0.95), (1e6, 1.0, 0.99)],
)
def test_the_discount_follows_the_turns_of_one_seat(length, seats, gamma):
    assert credit(length=length, seats=seats)[0]["gamma"] == gamma


@pytest.mark.parametrize(
    ("changes", "segment"),
    [
        ({}, 16),
        ({"hidden": 0.0}, 8),
        ({"known_by_key": 0.2}, 32),
        ({"hidden": 0.0, "known": 0.2}, 32),
    ],
)
def test_parts_are_shorter_where_values_are_known(changes, segment):
    assert EnvCredit(groups=replace(GROUPS, **changes), tools=False).segment == segment
