"""Demonstrations that go on with what followed: rewards, and the next observation or the end."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

import turnwise as tw
from turnwise.agents import AgentConfig
from turnwise.app import build
from turnwise.envs import Treasure
from turnwise.errors import ConfigError, IllegalActionError
from turnwise.policies.nano import make_tokenizer
from turnwise.render import Renderer
from turnwise.rollout.random_play import MOST_TURNS, random_game
from turnwise.seeding import generator
from turnwise.tasks import GeneratedTasks
from turnwise.trainers import demonstrations, warm_up
from turnwise.trainers.batches import sft_mix_rows
from turnwise.trainers.demonstrations import Alternating, Demonstrations
from turnwise.trainers.sft import rows_for

ALL = 2.0
"""A share of rare outcomes by which every row is one where it can be."""
END = "<|im_end|>"
ASKED = "<|im_start|>assistant\n"
WITHOUT_THOUGHTS = """{% for message in messages %}\
{% if message['role'] == 'assistant' and not loop.last %}\
{{ '<|im_start|>assistant\n' + message['content'].split('</think>')[-1] + '<|im_end|>\n' }}\
{% else %}\
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}\
{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


@dataclass(frozen=True)
class At:
    cell: int
    turns: int = 0


class Walk(tw.Env):
    """Four cells in a row: a step costs 0.25, the right end pays 1, the left end nothing."""

    name = "walk"
    components = {"pay": "agent", "cost": "process"}  # noqa: RUF012
    description = ""
    limit: int | None = None

    def generate(self, rng):
        return {"cell": 1, "n": int(rng.integers(100000))}

    def reset(self, task):
        return At(task.data["cell"])

    def observe(self, state, role):
        return tw.Observation(
            text=f"cell {state.cell}",
            legal_actions=("left", "right"),
            description=self.description,
        )

    def step(self, state, role, action, noise):
        after = At(state.cell + (1 if action == "right" else -1), state.turns + 1)
        rewards = {"pay": float(after.cell == 3), "cost": -0.25}
        over = after.cell in (0, 3)
        cut = not over and after.turns == self.limit
        return tw.Step(state=after, rewards=rewards, terminated=over, truncated=cut)

    def score(self, state):
        return float(state.cell == 3)


class Endless(Walk):
    name = "endless"

    def step(self, state, role, action, noise):
        after = At(1 + state.turns % 2, state.turns + 1)
        return tw.Step(state=after, rewards={}, terminated=False, truncated=False)


class Thinking(Walk):
    name = "thinking"
    description = "seen"


class Raw(Walk):
    name = "raw"

    def observe(self, state, role):
        return replace(super().observe(state, role), raw=True)


class Team(Walk):
    """Two roles step in turn; what both are paid counts from one's turn to its next one."""

    name = "team"
    roles = ("one", "two")

    def acting(self, state):
        return (self.roles[state.turns % 2],)

    def observe(self, state, role):
        return replace(super().observe(state, role), text=f"{role} at {state.cell}")


@pytest.fixture(autouse=True)
def rare(monkeypatch):
    """`rare(share)`: that share of the rows is drawn by how rare its outcome is; here none is."""

    def share(value):
        monkeypatch.setattr(demonstrations, "RARE", value)

    share(0.0)
    return share


WORDS = [
    "cell 0 1 2 3 left right seen legal actions: <think> </think> <answer> </answer>",
    "reward pay cost 1 -0.25 -0.5 0.75 end one two at",
]


def renderer_of(env, template=None):
    seen = env.observe(env.reset(GeneratedTasks(env, "train", seed=0).task(0)), env.roles[0])
    tokenizer = make_tokenizer([*WORDS, seen.text, *seen.tools], env.vocabulary())
    if template is not None:
        tokenizer.chat_template = template
    return Renderer(tokenizer)


def source(env, *, template=None, agent=None, **options):
    """Return the demonstrations of random play in an env."""
    return Demonstrations(
        env=env,
        tasks=GeneratedTasks(env, "train", seed=0),
        agent=agent or AgentConfig(role=env.roles[0]),
        renderer=options.pop("renderer", None) or renderer_of(env, template),
        policy="main",
        seed=0,
        states="play",
        **{"outcomes": True} | options,
    )


def text(rows, row):
    """Return a row as text, special tokens included."""
    return rows.renderer.tokenizer.decode(row.token_ids, clean_up_tokenization_spaces=False)


def game_of(rows, index):
    """Return the game that a row is of, played anew."""
    rng, task = generator(rows.seed, "random game", index), rows.tasks.task(index)
    return random_game(rows.env, task, rows.agent, rows.renderer, rng)


def imitated(rows, row):
    """Return the text of the tokens that a row teaches, which are its last ones."""
    start = int(np.flatnonzero(row.ce_weight)[0])
    assert row.ce_weight[start:].all()
    return rows.renderer.tokenizer.decode(row.token_ids[start:], clean_up_tokenization_spaces=False)


def shown(observation):
    return f"<|im_start|>user\n{observation}{END}\n{ASKED}"


def test_a_row_is_the_prompt_the_reply_and_the_message_with_what_followed():
    rows = source(Walk())
    seen = set()
    for index in range(60):
        row = rows.row(index)
        prompt, _, said = text(rows, row).partition(ASKED)
        cell, word = int(prompt.split()[-1].partition("<")[0]), said.split()[1]
        after = cell + (1 if word == "right" else -1)
        rewards = ("reward pay 1\n" if after == 3 else "") + "reward cost -0.25\n"
        then = "end" if after in (0, 3) else f"cell {after}"
        reply = f"<answer> {word} </answer>{END}\n"
        assert text(rows, row) == shown(f"cell {cell}") + reply + shown(rewards + then)
        assert imitated(rows, row) == reply + shown(rewards + then)
        seen.add((cell, word))
    assert seen == {(1, "left"), (1, "right"), (2, "left"), (2, "right")}


def test_where_prompts_hold_the_whole_past_a_row_is_a_whole_game():
    rows = source(Walk(), agent=AgentConfig(history="full"))
    lengths = set()
    for index in range(20):
        game, row = game_of(rows, index), rows.row(index)
        talk = "".join(f"{shown(each.observation)}{each.reply}{END}\n" for each in game.past)
        won = (game.past[-1].observation, game.past[-1].reply.split()[1]) == ("cell 2", "right")
        told = ("reward pay 1\n" if won else "") + "reward cost -0.25\nend"
        assert text(rows, row) == talk + shown(told)
        assert shown("cell 1") + imitated(rows, row) == text(rows, row)
        lengths.add(len(game.past))
    assert len(lengths) > 2


@pytest.mark.parametrize("history", ["observation", "last_n", "full"])
def test_the_actions_of_the_rows_are_uniform_whatever_they_lead_to(history):
    """In the first cell `left` ends the game: a turn of each game, as it was played, would show it
    in two thirds of the rows, and the turns before it never."""
    rows = source(Walk(), agent=AgentConfig(history=history))
    counts = {"1": [0, 0], "2": [0, 0]}
    said = re.compile(rf"cell (\d){re.escape(END)}\n{re.escape(ASKED)}<answer> (\w+) ")
    for index in range(400):
        turns = said.findall(text(rows, rows.row(index)))
        for cell, word in turns if history == "full" else turns[-1:]:
            counts[cell][word == "right"] += 1
    for cell, (left, right) in counts.items():
        total = left + right
        assert total > 80
        assert abs(left - total / 2) < 4 * np.sqrt(total) / 2, (cell, left, right)


def test_a_row_begins_like_the_one_without_outcome():
    with_outcome, without = source(Walk()), source(Walk(), outcomes=False)
    for index in range(20):
        long, short = with_outcome.row(index), without.row(index)
        size = len(short.token_ids)
        assert long.token_ids[:size].tolist() == short.token_ids.tolist()
        assert long.ce_weight[:size].tolist() == short.ce_weight.tolist()
        assert len(long.token_ids) > size
        assert "reward" not in text(without, short)


class Corridor(Walk):
    """Ten cells, of which the last one pays, and the first one ends the game, too."""

    name = "corridor"

    def generate(self, rng):
        return {"cell": int(rng.integers(1, 9)), "n": int(rng.integers(100000))}

    def step(self, state, role, action, noise):
        after = At(state.cell + (1 if action == "right" else -1), state.turns + 1)
        rewards = {"pay": float(after.cell == 9)}
        return tw.Step(
            state=after, rewards=rewards, terminated=after.cell in (0, 9), truncated=after.turns > 9
        )


def test_rare_outcomes_are_drawn_more_often_and_what_led_to_them_is_not_imitated(rare):
    rows = source(Corridor(), renderer=renderer_of(Corridor()))
    paid, kept = {}, {}
    for share in (0.0, 0.5, ALL):
        rare(share)
        made = [rows.row(index) for index in range(200)]
        paid[share] = sum("pay 1" in text(rows, row) for row in made)
        kept[share] = sum("answer" in imitated(rows, row) for row in made)
    assert 0 < paid[0.0] < paid[0.5] < paid[ALL] and 2 * paid[0.0] < paid[ALL]
    assert kept[0.0] == 200 and 70 < kept[0.5] < 140
    assert kept[ALL] == sum(len(set(outcomes(rows, index))) < 2 for index in range(200))


def outcomes(rows, index):
    return demonstrations._outcomes(rows._game(index // rows._shared))


def test_a_row_of_a_rare_outcome_is_a_turn_of_its_game_as_it_was_played(rare):
    rare(ALL)
    rows = source(Walk())
    for index in range(60):
        game, row = game_of(rows, index // rows._shared), rows.row(index)
        said = text(rows, row)
        if "answer" in imitated(rows, row):
            assert len(game.states) == 1
            continue
        assert imitated(rows, row).startswith("\n<|im_start|>user\nreward")
        told = []
        for turn, past in enumerate(game.past):
            paid = "".join(f"reward {n} {v:.3g}\n" for n, v in game.rewards[turn].items() if v)
            last = turn + 1 == len(game.past)
            then = "end" if last else game.past[turn + 1].observation
            told.append(f"{shown(past.observation)}{past.reply}{END}\n{shown(paid + then)}")
        assert said in told


def test_where_all_outcomes_are_alike_none_is_rare(rare):
    rare(ALL)
    rows = source(Endless())
    assert all("answer" in imitated(rows, rows.row(index)) for index in range(20))


def test_a_game_that_was_left_has_no_outcome_at_its_last_turn():
    env = Endless()
    rows = source(env, agent=AgentConfig(history="full"))
    game = game_of(rows, 0)
    assert len(game.states) == MOST_TURNS and not game.ended
    whole = rows._whole(game)
    assert text(rows, whole).endswith(f"</answer>{END}")
    assert text(rows, whole).count("</answer>") == MOST_TURNS


class Refusing(Walk):
    name = "refusing"

    def step(self, state, role, action, noise):
        if action == "left":
            raise IllegalActionError("not to the left")
        return super().step(state, role, action, noise)


class Forward(Walk):
    name = "forward"
    branching = "none"


@pytest.mark.parametrize("history", ["observation", "full"])
def test_what_the_env_refuses_is_followed_by_nothing(history):
    rows = source(Refusing(), agent=AgentConfig(history=history))
    for index in range(20):
        said = text(rows, rows.row(index))
        refused = "left" in said.rpartition("<answer>")[2]
        assert said.endswith(f"</answer>{END}" if refused else ASKED)


def test_an_env_without_a_way_back_shows_outcomes_of_whole_games_alone():
    alone = source(Forward())
    assert all(text(alone, alone.row(n)).endswith(f"</answer>{END}") for n in range(8))
    whole = source(Forward(), agent=AgentConfig(history="full"))
    assert all(text(whole, whole.row(n)).endswith(f"end{END}\n{ASKED}") for n in range(8))


def test_a_limit_of_the_env_is_an_end():
    env = Walk()
    env.limit = 1
    rows = source(env)
    assert all("end<|im_end|>" in text(rows, rows.row(index)) for index in range(8))


@pytest.mark.parametrize("history", ["observation", "last_n", "full"])
def test_rows_have_no_more_tokens_than_the_context(history):
    agent = AgentConfig(history=history)
    whole = source(Endless(), agent=agent, outcomes=False)
    game, rng = game_of(whole, 0), np.random.default_rng(0)
    longest = len(whole._drawn(game, 2, rng).token_ids) + 1
    rows = source(Endless(), agent=agent, context=longest)
    lengths, told = [], set()
    for index in range(60):
        row = rows.row(index)
        lengths.append(len(row.token_ids))
        told.add(text(rows, row).endswith(ASKED))
    assert max(lengths) <= longest
    assert False in told, "the outcome is left out where it has no place"
    assert (True in told) == (history == "full"), "earlier turns have a place for it"


def test_a_template_that_rewrites_the_past_leaves_the_outcome_out():
    """Of thoughts alone: without any, the past stays as it was said."""
    for history in ("observation", "full"):
        agent = AgentConfig(history=history)
        thinking = source(Thinking(), template=WITHOUT_THOUGHTS, agent=agent)
        for index in range(8):
            row = thinking.row(index)
            assert imitated(thinking, row).count("<think>") == 1
            assert text(thinking, row).endswith(f"</answer>{END}")
        plain = source(Walk(), template=WITHOUT_THOUGHTS, agent=agent)
        assert all(text(plain, plain.row(n)).endswith(ASKED) for n in range(8))


@pytest.mark.parametrize("history", ["observation", "full"])
def test_raw_text_has_no_outcome(history):
    agent = AgentConfig(history=history)
    rows, without = source(Raw(), agent=agent), source(Raw(), agent=agent, outcomes=False)
    for index in range(8):
        row = rows.row(index)
        assert text(rows, row).endswith(f"</answer>{END}")
        assert "user" not in text(rows, row)
        if history == "observation":
            assert row.token_ids.tolist() == without.row(index).token_ids.tolist()


def test_what_followed_a_role_s_turn_is_what_it_sees_next_and_all_rewards_until_then():
    env = Team()
    renderer = renderer_of(env)
    one, two = (source(env, agent=AgentConfig(role=role), renderer=renderer) for role in env.roles)
    texts = [text(one, row) for row in Alternating(sources=[one, two]).batch(0, 80)]
    for number, said in enumerate(texts):
        own, other = (env.roles[number % 2], env.roles[1 - number % 2])
        assert f"{own} at" in said and f"{other} at" not in said
        assert "reward cost -0.5" in said or "reward cost -0.25" in said
        if "end" not in said:
            assert "reward cost -0.5" in said, "the other's step costs, too"
    assert any("reward cost -0.25" in said for said in texts)
    assert {"reward pay 1" in said for said in texts} == {True, False}


def test_all_answers_of_a_state_are_of_the_role_that_acts_there():
    env = Team()
    renderer = renderer_of(env)
    one, two = (
        source(env, agent=AgentConfig(role=role), renderer=renderer, outcomes=False, answers=4)
        for role in env.roles
    )
    texts = [text(one, row) for row in Alternating(sources=[one, two]).batch(0, 48)]
    for first in range(0, 48, 4):
        prompts = {said.partition("assistant")[0] for said in texts[first : first + 4]}
        assert len(prompts) == 1 and f"{env.roles[first // 4 % 2]} at" in prompts.pop()


@pytest.mark.parametrize("history", ["last_n", "full"])
def test_the_result_of_a_tool_is_shown_as_the_message_that_it_is(history):
    rows = source(
        Treasure(), agent=AgentConfig(history=history, last_n=9 if history == "last_n" else None)
    )
    texts = [text(rows, rows.row(index)) for index in range(40)]
    assert any("<|im_start|>tool\n" in imitated(rows, rows.row(index)) for index in range(40))
    ends = [said for said in texts if said.endswith(f"end{END}\n{ASKED}")]
    assert ends
    for said in ends:
        assert said.rpartition(ASKED)[0].rpartition("<|im_start|>")[2].startswith("user\n")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "states = 'play', or leave outcomes out"),
        (("states=first",), "but states = 'first': set states = 'play'"),
        (("data=rows.jsonl",), "data = 'rows.jsonl': leave outcomes out"),
    ],
)
def test_outcomes_of_what_is_not_played_are_refused(make_recipe, more, said):
    with pytest.raises(ConfigError, match=said):
        make_recipe("warmup.outcomes=true", *(f"warmup.{each}" for each in more))


def test_the_warm_up_learns_what_follows_and_the_sft_mix_does_not(make_recipe, make_session):
    recipe = make_recipe(
        "warmup.states=play",
        "warmup.outcomes=true",
        "warmup.stop_at_accuracy=never",
        "sft_mix={rows=2,states='play'}",
    )
    session = make_session(recipe)
    trained = session.trained["main"]
    assert warm_up(session, recipe.warmup, None)
    shows = {"states": "play", "first": 0}
    told = rows_for(session, trained, "demonstrations", outcomes=True, **shows).batch(0, 8)
    plain = rows_for(session, trained, "demonstrations", **shows).batch(0, 8)
    for long, short in zip(told, plain, strict=True):
        size = len(short.token_ids)
        assert len(long.token_ids) > size
        assert long.token_ids[:size].tolist() == short.token_ids.tolist()
    mixed = sft_mix_rows(session, build.plan_of(recipe), trained)
    assert mixed is not None
    first = recipe.warmup.steps * recipe.warmup.batch_size
    following = rows_for(session, trained, "demonstrations", states="play", first=first)
    assert [row.token_ids.tolist() for row in mixed.batch(0, 2)] == [
        row.token_ids.tolist() for row in following.batch(0, 2)
    ]
