"""Envs with tools: what calls lead to, and that no text of a model's does anything else."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.envs import (
    Observation,
    Step,
    ToolEnv,
    ToolResult,
    ToolState,
    call_text,
    check_env,
    tool,
)
from turnwise.envs.tools.calls import calls_in, read_call
from turnwise.errors import ConfigError, EnvError, IllegalActionError
from turnwise.types import Task


@dataclass(frozen=True, kw_only=True)
class Till(ToolState):
    money: int
    bought: tuple[str, ...] = ()
    done: bool = False


class Shop(ToolEnv[Till]):
    """Buy tea, and say how much money is left."""

    name = "shop"
    components = {"right": "agent", "spent": "process"}  # noqa: RUF012
    most_calls = 4

    @tool
    def price(self, state: Till, item: Literal["tea", "milk"], count: int = 1) -> int:
        """Say what something costs.

        Args:
            state: Not shown.
            item: What is bought.
            count: How many of it.
        """
        return {"tea": 3, "milk": 2}[item] * count

    @tool
    def buy(self, state: Till, item: Literal["tea", "milk"]) -> ToolResult:
        """Buy one.

        Args:
            state: Not shown.
            item: What is bought.
        """
        cost = self.price(state, item)
        if cost > state.money:
            raise IllegalActionError("too little money")
        after = replace(state, money=state.money - cost, bought=(*state.bought, item))
        return ToolResult(value="sold", state=after, rewards={"spent": float(cost)})

    @tool
    def leave(self, state: Till) -> ToolResult:
        """Leave the shop."""
        return ToolResult(value="bye", state=replace(state, done=True), terminated=True)

    @tool
    def toss(self, state: Till, noise: np.random.Generator) -> dict[str, bool]:
        """Toss a coin."""
        return {"heads": bool(noise.integers(2))}

    @tool
    def broken(self, state: Till) -> set:
        """Return what is no JSON."""
        return {1}

    def reset(self, task: Task) -> Till:
        return Till(money=10)

    def ask(self, state, role):
        return Observation(text="how much is left?", legal_actions=tuple(map(str, range(11))))

    def answer(self, state, role, action, noise):
        if state.done:
            raise EnvError("shop: closed")
        after = replace(state, done=True)
        right = {"right": float(action == str(state.money))}
        return Step(state=after, rewards=right, terminated=True, truncated=False)

    def score(self, state):
        return float(state.done)


def chance(seed=0):
    return np.random.default_rng(seed)


def start():
    env = Shop()
    return env, env.reset(Task(id="t", env="shop", seed=0, data={}))


def say(env, state, *actions):
    """Return the last step after actions in turn."""
    step = None
    for action in actions:
        step = env.step(state, "player", action, chance())
        state = step.state
    return step


def told(env, state, action):
    """Return the results that the role sees after `action`."""
    seen = env.observe(say(env, state, action).state, "player")
    assert {message.role for message in seen.messages} == {"tool"}
    return [message.content for message in seen.messages]


def test_a_call_is_a_turn_whose_result_is_the_next_message():
    env, state = start()
    first = env.observe(state, "player")
    assert (first.text, first.messages) == ("how much is left?", ())
    assert [schema.split('"name": "')[1].split('"')[0] for schema in first.tools] == [
        "price", "buy", "leave", "toss", "broken",
    ]  # fmt: skip
    step = say(env, state, call_text("price", item="tea", count=2))
    assert (step.terminated, step.truncated, dict(step.rewards)) == (False, False, {})
    seen = env.observe(step.state, "player")
    assert [(m.role, m.content) for m in seen.messages] == [("tool", "6")]
    assert seen.text.endswith('{"name": "price", "arguments": {"item": "tea", "count": 2}} -> 6')
    assert seen.legal_actions == first.legal_actions
    assert seen.tools == first.tools
    assert state == start()[1], "states are values"


def test_a_tool_changes_the_state_rewards_and_ends():
    env, state = start()
    step = say(env, state, call_text("buy", item="tea"))
    assert (step.state.money, step.rewards) == (7, {"spent": 3.0})
    step = say(env, step.state, "7")
    assert (step.terminated, step.rewards) == (True, {"right": 1.0})
    assert (step.state.fresh, len(step.state.told)) == (0, 1)
    over = say(env, state, call_text("leave") + call_text("buy", item="tea"))
    assert (over.terminated, over.state.money, len(over.state.told)) == (True, 10, 1)


def test_only_what_the_last_turn_was_told_is_new():
    env, state = start()
    price, leave = call_text("price", item="milk"), call_text("leave")
    step = say(env, state, price, leave + price + price)
    assert (step.terminated, step.state.fresh, len(step.state.told)) == (True, 1, 2)
    assert [m.content for m in env.observe(step.state, "player").messages] == ["bye"]
    step = say(env, state, price, price + leave)
    assert [m.content for m in env.observe(step.state, "player").messages] == ["2", "bye"]


def test_states_that_cannot_hold_calls_are_refused():
    class Numbers(Small):
        def reset(self, task):
            return 3

    env = Numbers()
    with pytest.raises(EnvError, match="shop: reset returned int: derive the states"):
        env.observe(env.reset(Task(id="t", env="shop", seed=0, data={})), "player")


def test_calls_of_one_turn_are_made_in_their_order():
    env, state = start()
    action = "\n".join([call_text("buy", item="tea")] * 4)
    assert told(env, state, action) == ["sold", "sold", "sold", "error: too little money"]
    step = say(env, state, action)
    assert (step.state.money, step.rewards, step.state.fresh) == (1, {"spent": 9.0}, 4)


def test_calls_end_where_the_budget_does():
    env, state = start()
    price = call_text("price", item="milk")
    assert told(env, state, price * 5) == ["2", "2", "2", "2", "error: no calls are left"]
    last = say(env, state, price * 3, price)
    assert (last.truncated, len(last.state.told)) == (False, 4)
    beyond = say(env, last.state, price)
    assert (beyond.truncated, beyond.terminated, beyond.rewards) == (True, False, {})
    assert say(env, last.state, "10").rewards == {"right": 1.0}


def test_chance_is_the_worlds():
    env, state = start()
    toss = call_text("toss")
    results = [env.step(state, "player", toss, chance(s)).state.told[0].result for s in range(20)]
    assert set(results) == {'{"heads": true}', '{"heads": false}'}
    assert results == [
        env.step(state, "player", toss, chance(s)).state.told[0].result for s in range(20)
    ]


def test_what_a_tool_may_not_return_is_the_envs_fault():
    env, state = start()
    with pytest.raises(EnvError, match="shop: the tool broken returned {1}"):
        say(env, state, call_text("broken"))


def test_most_calls_is_a_whole_number():
    env, _ = start()
    with pytest.raises(ConfigError, match=r"most_calls = '3': give a whole number from 0 on"):
        type("Few", (type(env),), {"most_calls": "3"})()


DEEP = "[" * 50_000 + "]" * 50_000


@pytest.mark.parametrize(
    ("inner", "error"),
    [
        ("", "'' is no JSON"),
        ("price", "'price' is no JSON"),
        ("price(item='tea')", 'is no JSON: write {"name": ..., '),
        ('__import__("os").system("true")', "is no JSON"),
        ("{'name': 'leave', 'arguments': {}}", "is no JSON"),
        ('{"name": "leave", "arguments": {}} and', "is no JSON"),
        ('{"name": "leave", "arguments": {}', "is no JSON"),
        ("null", "is no call"),
        ("[]", "is no call"),
        ('"leave"', "is no call"),
        ("NaN", "NaN is no JSON number"),
        ('{"name": "leave"}', "is no call"),
        ('{"name": "leave", "arguments": {}, "id": 3}', "is no call"),
        ('{"name": "leave", "arguments": []}', "must be text and the arguments an object"),
        ('{"name": 3, "arguments": {}}', "must be text and the arguments an object"),
        ('{"name": "leave", "name": "buy", "arguments": {}}', "a key stands twice"),
        ('{"name": "steal", "arguments": {}}', "there is no tool 'steal': price, buy, leave"),
        ('{"name": "__class__", "arguments": {}}', "there is no tool '__class__'"),
        ('{"name": "reset", "arguments": {}}', "there is no tool 'reset'"),
        ('{"name": "leave ", "arguments": {}}', "there is no tool 'leave '"),
        ('{"name": "price", "arguments": {}}', "price needs the argument 'item'"),
        ('{"name": "price", "arguments": {"item": "tea", "__init__": 0}}', "no argument"),
        ('{"name": "price", "arguments": {"item": "gold"}}', "item: Input should be 'tea' or"),
        ('{"name": "price", "arguments": {"item": ["tea"]}}', "item: Input should be 'tea' or"),
        ('{"name": "price", "arguments": {"item": "tea", "count": "2"}}', "a valid integer"),
        ('{"name": "price", "arguments": {"item": "tea", "count": NaN}}', "NaN is no JSON"),
        ('{"name": "price", "arguments": {"item": "tea", "count": -Infinity}}', "-Infinity is"),
        ('{"name": "price", "arguments": {"item": "tea", "count": 1e999}}', "no finite number"),
        (f'{{"name": "price", "arguments": {{"item": "tea", "count": {"9" * 5000}}}}}', "no JSON"),
        (f'{{"name": "price", "arguments": {{"item": {DEEP[:20]}}}}}', "is no JSON"),
        (f'{{"name": "price", "arguments": {{"item": {DEEP[40_000:60_000]}}}}}', "is no JSON"),
        (f'{{"name": "price", "arguments": {{"item": {DEEP}}}}}', "at most 100000 are read"),
        ('{"name": "\\ud800", "arguments": {}}', "half a character"),
        ('{"name": "price", "arguments": {"item": "\\udfff"}}', "half a character"),
        ('{"name": "pr\\u0131ce", "arguments": {}}', "there is no tool 'pr\u0131ce'"),
    ],
)
def test_a_wrong_call_is_told_and_does_nothing(inner, error):
    env, state = start()
    action = f"<tool_call>{inner}</tool_call>"
    step = say(env, state, action)
    (result,) = [told.result for told in step.state.told]
    assert result.startswith("error: ")
    assert error in result
    assert len(result) < 200
    assert replace(step.state, told=(), fresh=0) == state
    assert (step.rewards, step.terminated, step.truncated) == ({}, False, False)


@given(st.text(max_size=60) | st.text(alphabet='{}[]":, name_arguments01', max_size=60))
def test_any_text_of_a_call_is_read_or_refused(text):
    try:
        call = read_call(text)
    except IllegalActionError as refusal:
        assert str(refusal)
    else:
        assert isinstance(call.name, str)
    env, state = start()
    step = env.step(state, "player", f"<tool_call>{text}</tool_call>", chance())
    assert step.truncated or len(step.state.told) == len(calls_in(f"<tool_call>{text}</tool_call>"))


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3))
def test_a_call_that_is_written_is_read(arguments):
    (text,) = calls_in(call_text("any", **arguments)) if _plain(arguments) else ("",)
    if text:
        assert read_call(text).arguments == arguments


def _plain(arguments):
    """Whether no text in it closes the call or is half a character, which no tokenizer gives."""
    return not any("tool_call" in str(piece) for pair in arguments.items() for piece in pair)


def test_an_answer_that_is_no_legal_word_is_refused():
    env, state = start()
    with pytest.raises(IllegalActionError, match="'eleven' is none of 0, 1"):
        say(env, state, "eleven")


def test_an_env_without_tools_is_refused():
    class Bare(Shop):
        price = buy = leave = toss = broken = None

    with pytest.raises(ConfigError, match="Bare has no tools: mark a method with @tool"):
        Bare()


class Small(Shop):
    leave = broken = toss = None


def test_an_env_with_tools_keeps_the_contract():
    assert set(Small().tools) == {"price", "buy"}
    assert check_env(Small()).longest <= 6


def awkward():
    """Return a class whose tool has arguments of every type, with names that code uses too."""

    class Awkward(Small):
        @tool
        def weigh(
            self,
            s: Till,
            name: str,
            type: int,
            arguments: dict[str, list[float]],
            id: str | None,
            content: tuple[bool, str],
            role: Literal["a", 1],
            state: list[int],
            task: Colour,
            default: Any,
            function: bool | float,
            method: list,
            parameters: int | None,
            action: dict,
            hint: str,
            cls: str,
            text: str = "",
        ) -> str:
            """Weigh.

            Args:
                s: Not shown.
                name: A
                type: B
                arguments: C
                id: D
                content: E
                role: F
                state: G
                task: H
                default: I
                function: J
                method: K
                parameters: L
                action: M
                hint: N
                cls: O
                text: P
            """
            assert isinstance(task, Colour)
            return f"{name} {state}"

    return Awkward()


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def test_arguments_may_have_any_name():
    env = awkward()
    state = env.reset(Task(id="t", env="shop", seed=0, data={}))
    calls = [env.random_call(state, chance(seed)) for seed in range(60)]
    weighed = [call for call in calls if '"weigh"' in call]
    assert weighed
    for call in weighed:
        (told,) = say(env, state, call).state.told
        assert not told.result.startswith("error:"), told
    assert check_env(env)


def test_random_text_is_a_word_of_the_question():
    class Asked(Small):
        @tool
        def weigh(self, state: Till, name: str) -> str:
            """Weigh.

            Args:
                state: Not shown.
                name: What.
            """
            return name

    env = Asked()
    state = env.reset(Task(id="t", env="shop", seed=0, data={}))
    known = {
        *re.findall(r"\w+", env.ask(state, "player").text),
        *env.ask(state, "player").legal_actions,
    }
    said = [read_call(calls_in(env.random_call(state, chance(seed)))[0]) for seed in range(40)]
    given = {call.arguments["name"] for call in said if call.name == "weigh"}
    assert given and given <= known
    (told,) = say(env, state, call_text("weigh", name="tea")).state.told
    assert told.result == "tea"


def test_an_argument_called_noise_is_refused():
    class Loud(Small):
        @tool
        def shout(self, state: Till, noise: str) -> str:
            """Shout.

            Args:
                state: Not shown.
                noise: What to shout.
            """
            return noise

    with pytest.raises(ConfigError, match="'noise' of a type that models give.*call the argument"):
        Loud()
