"""The prompts of an agent, and the replies that demonstrations teach."""

from __future__ import annotations

import pytest

from turnwise.agents import AgentConfig, Exchange, demonstration, messages_for, prompt_for
from turnwise.envs import Observation, call_text
from turnwise.formats import REPLY_FORMATS
from turnwise.types import Media, Prompt

PAST = [Exchange(observation=f"see {n}", reply=f"say {n}") for n in range(4)]


@pytest.mark.parametrize(
    ("options", "contents"),
    [
        ({"history": "observation"}, ["now"]),
        ({"history": "last_n", "last_n": 2}, ["see 2", "say 2", "see 3", "say 3", "now"]),
        ({"history": "last_n", "last_n": 9}, [f"{w} {n}" for n in range(4) for w in ("see", "say")]
         + ["now"]),
        ({"history": "full"}, [f"{w} {n}" for n in range(4) for w in ("see", "say")] + ["now"]),
    ],
)  # fmt: skip
def test_history_is_what_the_agent_says(options, contents):
    messages = messages_for(AgentConfig(**options), PAST, "now")
    assert [message.content for message in messages] == contents
    assert [message.role for message in messages] == ["user", "assistant"] * (
        len(contents) // 2
    ) + ["user"]


@pytest.mark.parametrize("history", ["full", "observation"])
def test_a_number_of_turns_that_another_history_ignores_is_refused(history):
    with pytest.raises(ValueError, match="last_n = 3 needs history = 'last_n'"):
        AgentConfig(history=history, last_n=3)
    assert AgentConfig(history="last_n").kept_turns == 2


def test_the_system_message_comes_first_whatever_the_history():
    for history in ("full", "last_n", "observation"):
        first, *_ = messages_for(AgentConfig(system="be brief", history=history), PAST, "now")
        assert (first.role, first.content) == ("system", "be brief")


def test_a_prompt_shows_the_media_of_the_turns_that_it_remembers():
    first, second = (Media(kind="image/png", data=data) for data in (b"1", b"2"))
    past = [Exchange(observation="see", reply="say", media=(first,))]
    seen = Observation(text="now", legal_actions=(), media=(second,))
    for history, media in (("full", (first, second)), ("observation", (second,))):
        assert prompt_for(AgentConfig(history=history), past, seen).media == media
    raw = Observation(text="now", legal_actions=(), raw=True, media=(second,))
    assert prompt_for(AgentConfig(), (), raw) == Prompt(text="now", media=(second,))


def test_a_call_of_a_tool_stands_in_a_demonstration_as_it_is():
    call = call_text("look", chest="amber")
    for name in REPLY_FORMATS:
        said = demonstration(AgentConfig(reply=name), "hm", call)
        assert said.endswith(call)
        assert ("hm" in said) == REPLY_FORMATS[name].thinks


def test_an_unknown_reply_format_is_refused():
    with pytest.raises(ValueError, match="'tagz'.*did you mean 'tags'"):
        AgentConfig(reply="tagz")
