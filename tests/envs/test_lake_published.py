"""The published Gemma task: its prompt's parts, its reward, its data, its constants' scores."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from turnwise.envs import FrozenLake, check_env, make_env
from turnwise.envs.frozen_lake.data import expert_rows, read_state
from turnwise.envs.frozen_lake.maps import ACTIONS
from turnwise.envs.frozen_lake.published import has_format, read_reply, reply_rewards
from turnwise.envs.frozen_lake.published_baselines import expert_visits, player_measures
from turnwise.envs.frozen_lake.published_prompt import EXAMPLES, STANDARD, prompt_text, reply
from turnwise.errors import ConfigError, DataError, EnvError
from turnwise.policies.nano import make_tokenizer
from turnwise.policies.presets import NanoConfig
from turnwise.seeding import generator
from turnwise.types import Task

NAME = "frozen-lake-published"
PUBLISHED = {"format": 0.5, "advantage": 0.5, "bonus": 0.5}


def state(cell=8, last=0, **options):
    env = make_env(NAME, **options)
    return env, env.reset(Task(id="t", env=NAME, seed=0, data={"cell": cell, "last": last}))


def text(**options):
    env, at = state(**options)
    return env.observe(at, "player").text


@cache
def q_values():
    """The optimal values of all cells, by value iteration."""
    letters, moves = "".join(STANDARD), ((0, -1), (1, 0), (0, 1), (-1, 0))
    table = np.zeros((16, 4))

    def land(cell, way):
        row, column = cell // 4 + moves[way][0], cell % 4 + moves[way][1]
        return row * 4 + column if 0 <= row < 4 and 0 <= column < 4 else cell

    for _ in range(1500):
        best = table.max(axis=1)
        for cell in (c for c, letter in enumerate(letters) if letter in "SF"):
            for action in range(4):
                ends = [land(cell, (action + turn) % 4) for turn in (-1, 0, 1)]
                table[cell, action] = sum((e == 15) + 0.99 * best[e] * (e != 15) for e in ends) / 3
    return table


def scaled(cell):
    values = q_values()[cell]
    return (values - values.min()) / (values.max() - values.min())


@pytest.mark.parametrize("prompt", ["published", "plain"])
@pytest.mark.parametrize("examples", ["wrong", "right", "none"])
def test_it_keeps_the_contract(prompt, examples):
    assert check_env(make_env(NAME, prompt=prompt, examples=examples), tasks=2).longest > 1
    single = make_env(NAME, prompt=prompt, examples=examples, visits="expert", steps=1)
    assert check_env(single, tasks=3).longest == 1


def test_the_published_prompt_has_its_parts_in_order():
    whole = text(keep=0)
    parts = ["System: ", "user: ", "S F F F", "RIGHT", "user: ", "F F S F", "DOWN", "user: ",
             "F F S H", "DOWN", "user: ", "(Left)|SFFF|FHFH|\x1b[41mF\x1b[0mFFH|HFFG",
             "<think>", "<answer>"]  # fmt: skip
    places, at = [], 0
    for part in parts:
        at = whole.index(part, at) + 1
        places.append(at)
    assert places == sorted(places)
    assert whole.endswith("\nmodel:")
    assert "slip" not in whole
    assert state()[0].observe(state()[1], "player").raw


def test_the_observation_contradicts_the_examples_as_published():
    whole = text(keep=0)
    assert whole.count("S F F F") == 1  # the start's example: in the others the S has moved
    assert "SFFF" in whole  # in the question it has not
    rows, cell = read_state(whole.splitlines()[-3])
    assert (rows, cell) == (STANDARD, 8)
    assert "(" not in text(last=None, keep=0).splitlines()[-3]


def test_the_plain_prompt_marks_the_player_alike_everywhere_and_tells_the_slips():
    whole = text(prompt="plain", keep=0)
    assert "\x1b" not in whole
    assert whole.count(" P ") + whole.count("\nP ") == 4 + 1  # the boards, and the legend
    assert whole.count("You stand on") == 4
    assert "You stand on r2c0" in whole
    assert "slippery" in whole
    assert not state(prompt="plain")[0].observe(state(prompt="plain")[1], "player").raw


@pytest.mark.parametrize(("rule", "worth"), [("wrong", [0.28, 0.20, 0.58]), ("right", [1, 1, 1])])
def test_the_examples_are_worth_what_was_measured(rule, worth):
    found = [scaled(cell)[answer] for cell, answer in EXAMPLES[rule]]
    assert found == pytest.approx(worth, abs=5e-3)
    whole = prompt_text(0, None, prompt="published", examples=rule)
    shown = [line for line in whole.splitlines() if line.startswith("assistant: ")]
    assert [read_reply(line) for line in shown] == [answer for _, answer in EXAMPLES[rule]]


def test_the_default_cut_leaves_what_the_published_one_left():
    whole, kept = text(keep=0), text()
    assert whole.endswith(kept)
    lost = whole.removesuffix(kept)
    assert (len(lost.split()), len(whole.split())) == (42, 197)
    assert lost.startswith("System: ")
    assert lost.count("user: ") == 1  # the head of the first example is gone, and only its head
    assert "RIGHT" in kept.splitlines()[4]
    for cell, last in ((0, None), (14, 3)):
        other = text(cell=cell, last=last)
        assert len(other.split()) == 155
        assert other.splitlines()[:20] == kept.splitlines()[:20]


def test_a_nano_model_reads_words_whole_and_spells_the_printed_boards():
    env, at = state(keep=0)
    tokenizer = make_tokenizer([], env.vocabulary(), NanoConfig(max_words=0))
    observed = env.observe(at, "player").text
    board = observed.splitlines()[-3]
    assert len(tokenizer.encode(board)) == len(board.encode())
    rest = [word for word in observed.split() if "\x1b" not in word]
    assert all(len(tokenizer.encode(f" {word}")) == 1 for word in rest)
    assert tokenizer.decode(tokenizer.encode(observed)) == observed


@pytest.mark.parametrize(
    ("said", "format_", "action"),
    [
        ("<think> so </think> <answer> DOWN </answer>", 1, 1),
        ("<answer>UP</answer>", 0, 3),
        ("<think></think><answer>go DOWN</answer>", 1, None),
        ("<think></think><answer>down</answer>", 1, None),
        ("<think> so <answer> LEFT </answer>", 0, 0),
        ("<answer>UP</answer> <think></think> <answer>LEFT</answer>", 1, 0),
        ("DOWN", 0, None),
        ("", 0, None),
    ],
)
def test_format_and_answer_are_read_apart(said, format_, action):
    assert (has_format(said), read_reply(said)) == (bool(format_), action)
    rewards = reply_rewards(8, said)
    assert rewards["format"] == format_
    worth = 0.0 if action is None else scaled(8)[action]
    assert rewards.get("advantage", 0.0) == pytest.approx(worth, abs=1e-6)
    assert rewards.get("gated", 0.0) == pytest.approx(worth * format_, abs=1e-6)
    published = sum(PUBLISHED[name] * rewards.get(name, 0.0) for name in PUBLISHED)
    capped = min(1.0, worth + 0.2 * (action == int(scaled(8).argmax()))) if worth else 0.0
    assert published == pytest.approx((format_ + capped) / 2, abs=1e-6)


@pytest.mark.parametrize("cell", [0, 1, 6, 8, 9, 14])
@pytest.mark.parametrize("action", range(4))
def test_every_component_of_every_answer(cell, action):
    rewards, worth = reply_rewards(cell, reply(action)), scaled(cell)
    values = q_values()[cell]
    assert rewards["value"] == pytest.approx(values[action], abs=1e-6)
    assert rewards["advantage"] == pytest.approx(worth[action], abs=1e-6)
    assert rewards["match"] == float(values[action] > values.max() - 1e-9)
    assert rewards["rank"] == pytest.approx(sum(values < values[action] - 1e-9) / 3)
    assert rewards["bonus"] == 0.0  # the cap leaves nothing of it: its action has advantage 1


def test_equally_good_actions_both_match():
    assert [reply_rewards(6, reply(action))["match"] for action in range(4)] == [1, 0, 1, 0]


def test_what_is_no_action_ends_the_episode_and_moves_nothing():
    env, at = state()
    step = env.step(at, "player", "<think></think> <answer>so</answer>", np.random.default_rng(0))
    assert (step.terminated, dict(step.rewards)) == (True, {"format": 1.0})
    assert step.state.lake == at.lake
    with pytest.raises(EnvError, match="over"):
        env.step(step.state, "player", reply(0), np.random.default_rng(0))


def test_play_slips_as_frozen_lake_does():
    lake = FrozenLake(make_env("frozen-lake", map=STANDARD, slippery=True, steps=100).config)
    env, at = state(cell=0, last=None)
    plain = lake.reset(Task(id="t", env="x", seed=0, data=lake.generate(generator(0))))
    one, other, turns = generator(1), generator(1), generator(2)
    while not at.ended:
        action = int(turns.integers(4))
        at = env.step(at, "player", reply(action), one).state
        plain = lake.step(plain, "player", ACTIONS[action], other).state
        assert (at.lake, at.last) == (plain, action)
    assert plain.ended


def test_training_states_are_those_of_expert_play():
    rows = expert_rows(STANDARD, slippery=True, steps=100, rng=np.random.default_rng(0))
    seen = [next(rows)["state_str"].strip() for _ in range(10_000)]
    assert (expert_visits() > 0).sum() == len(set(seen)) == 23
    env = make_env(NAME, visits="expert", steps=1)
    rng = np.random.default_rng(0)
    for cell, last in [(0, None), (0, 0), (4, 0), (8, 3), (14, 1)]:
        board = prompt_text(cell, last, prompt="published", examples="none").splitlines()[2]
        place = 4 if last is None else last
        assert seen.count(board) / 10_000 == pytest.approx(expert_visits()[cell, place], abs=0.03)
    drawn = [env.generate(rng)["cell"] for _ in range(2000)]
    assert np.isin(drawn, (0, 4, 8)).mean() == pytest.approx(0.70, abs=0.03)


def test_even_states_are_even():
    env, rng = make_env(NAME, visits="even", steps=1), np.random.default_rng(0)
    counts = np.bincount([env.generate(rng)["cell"] for _ in range(5500)], minlength=16)
    assert (counts > 0).sum() == 11
    assert abs(counts[counts > 0] - 500).max() < 5 * np.sqrt(500)


@pytest.mark.parametrize("prompt", ["published", "plain"])
def test_constants_have_the_published_scores(prompt):
    env, _ = state()
    env = make_env(NAME, prompt=prompt)
    exact = env.exact(Task(id="t", env=NAME, seed=0, data={"cell": 0, "last": None}))
    assert len(exact.decisions) == (11 if prompt == "plain" else 55)
    table = {name: exact.measure(probabilities) for name, probabilities in exact.players.items()}
    published = {name: round(row["published"], 3) for name, row in table.items()}
    assert published == {
        "random": 0.675, "always-left": 0.804, "always-down": 0.653, "always-right": 0.625,
        "always-up": 0.619, "stationary": 1.0,
    }  # fmt: skip
    even = {name: round(row["advantage"], 3) for name, row in table.items()}
    assert (even["always-down"], even["always-left"]) == (0.352, 0.421)
    assert table["stationary"]["success"] == pytest.approx(0.7402, abs=5e-5)
    assert table["always-down"]["down"] == pytest.approx(1.0)


def test_a_reply_without_thought_earns_no_format_in_the_exact_measures():
    env, _ = state()
    exact = env.exact(Task(id="t", env=NAME, seed=0, data={"cell": 0, "last": None}))
    bare = exact.measure({name: {"<answer> DOWN </answer>": 0.5} for name in exact.decisions})
    whole = exact.measure({name: {reply(1): 0.5} for name in exact.decisions})
    assert whole["published"] - bare["published"] == pytest.approx(0.25)
    assert bare["success"] == pytest.approx(whole["success"])
    assert bare["format"] == 0.0
    assert bare["down"] == pytest.approx(0.5)


def test_the_exact_success_is_that_of_play():
    rng = np.random.default_rng(0)
    player = rng.dirichlet(np.ones(4) * 0.3, size=(16, 5)) * 0.95
    expected = player_measures(player, player.sum(axis=2), 40)["success"]
    env, wins = make_env(NAME, steps=40), 0
    for number in range(1000):
        chance, at = generator(1, number), state(cell=0, last=None, steps=40)[1]
        while not at.ended:
            row = player[at.lake.position, 4 if at.last is None else at.last]
            action = chance.choice(5, p=[*row, 1 - row.sum()])
            said = reply(int(action)) if action < 4 else "nothing"
            at = env.step(at, "player", said, chance).state
        wins += at.lake.at_goal
    assert wins / 1000 == pytest.approx(expected, abs=4 * np.sqrt(0.25 / 1000))


@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ({}, [0.25, 0.25, 0.25, 0.25]),
        ({"habit": "forward"}, [0.05, 0.45, 0.45, 0.05]),
        ({"habit": "copied"}, [0.025, 0.625, 0.325, 0.025]),
        ({"habit": "copied", "examples": "right"}, [0.625, 0.025, 0.025, 0.325]),
    ],
)
def test_demonstrations_follow_the_habit(options, shares):
    env, at = state(**options)
    rng = np.random.default_rng(0)
    said = [env.random_action(at, "player", rng) for _ in range(4000)]
    assert all(has_format(one) for one in said)
    counts = np.bincount([read_reply(one) for one in said], minlength=4) / 4000
    assert counts == pytest.approx(shares, abs=5 * np.sqrt(0.25 / 4000))


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="copied"):
        make_env(NAME, habit="copied", examples="none")
    for data in ({"cell": 5, "last": None}, {"cell": 0, "last": 4}, {}):
        with pytest.raises(DataError, match="free cells|cells"):
            make_env(NAME).reset(Task(id="t", env=NAME, seed=0, data=data))


def test_a_base_that_reads_the_board_names_its_cell_before_it_answers():
    env, at = state(cell=6, thought="cell")
    said = env.random_action(at, "player", np.random.default_rng(0))
    assert said.startswith("<think> r1c2 </think> <answer> ") and read_reply(said) is not None
    assert env.observe(at, "player").description == "r1c2"
    blind, there = state(cell=6)
    assert "Onward." in blind.random_action(there, "player", np.random.default_rng(0))
    assert blind.observe(there, "player").description == ""
