"""`check_workflow`: which topologies a workflow supports, and why not."""

from __future__ import annotations

import itertools

import pytest

import turnwise as tw
from turnwise.rollout.workflow_check import TURN_END, check_workflow
from turnwise.types import Message

QUESTION = [Message(role="user", content="a plan?")]


async def asks(agents, state):
    """Ask without a score."""
    await agents["speaker"].ask(QUESTION)
    return await agents["speaker"].act(state)


async def scores(agents, state):
    """Ask with one."""
    await agents["speaker"].ask(QUESTION, score=len)
    return await agents["speaker"].act(state)


async def fails_later(agents, state):
    """Break on the empty answer."""
    text = await agents["speaker"].ask(QUESTION, score=len)
    return text[10]


class Counts:
    """Depends on how often it is called."""

    def __init__(self):
        self.calls = itertools.count()

    async def __call__(self, agents, state):
        number = next(self.calls)
        question = [Message(role="user", content=f"{number}?")]
        await agents["speaker"].ask(question, score=len)
        return await agents["speaker"].act(state)


def refused(workflow, echo):
    found = check_workflow(workflow, echo()).topologies
    assert list(found) == ["independent", "spine", TURN_END, "vine"]
    return {name: why for name, why in found.items() if why}


def test_it_is_public():
    assert tw.check_workflow is check_workflow
    assert tw.check_workflow("turns", tw.make_env("relay")).env == "relay"


def test_a_workflow_that_scores_its_questions_supports_all(echo):
    assert refused("turns", echo) == {}
    assert refused(scores, echo) == {}
    assert refused(fails_later, echo) == {}


def test_plain_questions_have_no_siblings(echo):
    found = refused(asks, echo)
    assert set(found) == {"spine", TURN_END, "vine"}
    assert all("write ask(messages, score=function)" in why for why in found.values())


def test_a_workflow_that_is_not_repeated_cannot_be_played_on(echo):
    found = refused(Counts(), echo)
    assert set(found) == {TURN_END, "vine"}
    assert all("let it depend on nothing but what its agents return" in w for w in found.values())


def test_what_the_env_refuses_is_refused_too(echo):
    env = echo()
    env.reward_timing = "terminal"
    found = check_workflow("turns", env).topologies
    assert "use 'vine'" in found["spine"] and found["vine"] == ""


@pytest.mark.parametrize("name", ["turns", "nowhere.py:f"])
def test_an_unknown_workflow_is_refused(name, echo):
    if name == "turns":
        assert check_workflow(name, echo()).calls == 4
    else:
        with pytest.raises(tw.ConfigError):
            check_workflow(name, echo())
