"""Every reply format: what it renders parses, where its parts are, and hostile text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.agents import AgentConfig
from turnwise.errors import ConfigError
from turnwise.formats import REPLY_FORMATS
from turnwise.policies.nano import make_tokenizer
from turnwise.render import Renderer
from turnwise.types import Failure

ACT_LINE = re.compile(r"^[ \t]*ACT[ \t]*:", re.MULTILINE | re.IGNORECASE | re.ASCII)
EVERY = pytest.mark.parametrize("name", list(REPLY_FORMATS))
WORD = st.text("abcXYZ019_.+-=()", min_size=1, max_size=8)
WORDS = st.lists(WORD, min_size=1, max_size=4).map(" ".join)
HOSTILE = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<answer>", "</answer>", "THINK:", "ACT:", "act :", "```python",
         "```", "`", "\n", " ", "UP", "x", "é", "<"]
    ),
    max_size=16,
).map("".join)  # fmt: skip


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    """A nano tokenizer that knows the markers of all formats and few other words."""
    markers = [word for each in REPLY_FORMATS.values() for word in each.markers]
    return Renderer(make_tokenizer([], [*markers, "UP", "ice"]))


@EVERY
@given(description=WORDS | st.just(""), action=WORDS, others=st.lists(WORDS, max_size=3))
def test_what_is_rendered_parses_to_its_action(name, description, action, others):
    reply_format = REPLY_FORMATS[name]
    text = reply_format.render(description, action)
    assert reply_format.parse(text, ()) == action
    assert reply_format.parse(text, (action, *others)) == action
    shouted = reply_format.render(description, action.swapcase())
    assert reply_format.parse(f"\n{shouted}\n ", (action,)) == action
    thought = description if reply_format.thinks else ""
    assert reply_format.thought(text) == thought


@EVERY
@settings(max_examples=50)
@given(description=WORDS | st.just(""), action=WORDS)
def test_spans_cover_what_was_rendered_through_a_nano_tokenizer(
    renderer, name, description, action
):
    reply_format = REPLY_FORMATS[name]
    text = reply_format.render(description, action)
    ids = renderer.completion_ids(text)
    spans = {span.name: span for span in renderer.spans(ids, reply_format)}
    said = {n: renderer.decode(ids[s.start : s.end]).strip() for n, s in spans.items()}
    assert said["action"] == action
    assert said["answer"] == reply_format.write_answer(action)
    assert spans["answer"].end == len(ids)
    if description and reply_format.thinks:
        assert said["think"] == reply_format.write_thought(description).strip()
        assert (spans["think"].start, spans["think"].end) == (0, spans["answer"].start)
    else:
        assert "think" not in spans and spans["answer"].start == 0


@EVERY
def test_markers_are_single_tokens(renderer, name):
    for marker in REPLY_FORMATS[name].markers:
        assert len(renderer.tokenizer.encode(marker)) == 1


@EVERY
@given(text=HOSTILE | st.text(), inside=st.booleans())
def test_no_text_breaks_a_format_and_parts_agree_with_the_parser(name, text, inside):
    reply_format = REPLY_FORMATS[name]
    found = reply_format.parse(text, ("UP",))
    assert found == "UP" or isinstance(found, Failure)
    assert isinstance(reply_format.thought(text), str)
    parts = reply_format.parts(text, inside_thought=inside)
    if parts.action is not None:
        assert parts.answer is not None
        assert parts.answer <= parts.action[0] < parts.action[1] <= len(text)
        if name == "lines":  # every line of whose action begins with a word
            said = ACT_LINE.sub("", text[slice(*parts.action)]).split("\n")
            assert reply_format.parse(text, ()) == "\n".join(filter(None, map(str.strip, said)))
        elif name != "whole":  # whose action is all of the reply
            assert reply_format.parse(text, ()) == text[slice(*parts.action)]
    elif name != "whole":
        assert isinstance(found, Failure)
    if parts.thought is not None:
        start, end = parts.thought
        assert 0 <= start < end <= (len(text) if parts.answer is None else parts.answer)


@EVERY
@pytest.mark.parametrize(
    "piece",
    ["<answer>", "<think>", "</think>", "ACT:", "ACT:\n", "ACT \n", "THINK:\n", "```\n", "```a`\n",
     "\n```", " ", "\n", "<answer> x </answer>"],
)  # fmt: skip
def test_a_megabyte_is_read_in_linear_time(name, piece):
    text, began = piece * (1_000_000 // len(piece)), time.process_time()
    reply_format = REPLY_FORMATS[name]
    reply_format.parse(text, ("UP", "DOWN"))
    reply_format.parts(text)
    reply_format.thought(text)
    assert time.process_time() - began < 5  # quadratic time is minutes


@EVERY
def test_the_sentence_that_asks_shows_a_reply_that_parses(name):
    """An example is shown, or nothing but the action is asked for."""
    reply_format = REPLY_FORMATS[name]
    asked = reply_format.ask("one of the actions", "UP")
    _, shows, example = asked.partition("as in:")
    assert reply_format.parse(example if shows else "UP", ("UP",)) == "UP"
    assert "one of the actions" in asked


def test_the_table_has_each_format_by_its_name():
    assert all(each.name == name for name, each in REPLY_FORMATS.items())
    assert AgentConfig(reply="lines").reply_format is REPLY_FORMATS["lines"]


@pytest.mark.parametrize(
    ("name", "reply", "found"),
    [
        ("lines", "ACT: UP\nACT: down", "DOWN"),
        ("lines", "  act : Down \nthat is all", "DOWN"),
        ("lines", "I would ACT: DOWN", "parse"),
        ("lines", "ACTION: DOWN", "parse"),
        ("lines", "ACT:\nDOWN", "illegal_action"),
        ("lines", "THINK: DOWN", "parse"),
        ("program", "```\nUP\n```\n```python\ndown\n```", "DOWN"),
        ("program", "down", "DOWN"),
        ("program", "<think> ```\nUP\n``` </think>\nDOWN", "DOWN"),
        ("program", "```python\nDOWN", "parse"),
        ("program", "```python\n```", "illegal_action"),
        ("whole", " down\n", "DOWN"),
        ("whole", "<answer> DOWN </answer>", "illegal_action"),
    ],
)
def test_the_last_answer_counts(name, reply, found):
    action = REPLY_FORMATS[name].parse(reply, ("UP", "DOWN"))
    assert (action.kind if isinstance(action, Failure) else action) == found


def test_a_program_keeps_its_indents():
    code = "    return x\n\n    # end"
    for text in (f"```python\n\n{code}\n\n```", f"\n{code}\n"):
        assert REPLY_FORMATS["program"].parse(text, ()) == code


def test_an_action_that_a_format_cannot_hold_is_refused():
    with pytest.raises(ConfigError, match="reply = 'program' holds"):
        REPLY_FORMATS["program"].render("", "x\n```\ny")


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("THINK: food\nACT: PICK_UP\nACT: SIGNAL FOOD", "PICK_UP\nSIGNAL FOOD"),
        ("ACT: a\n\n  act : b \nthe end", "a\nb"),
        ("ACT: a\nTHINK: no\nACT: b\nACT: c", "b\nc"),
        ("ACT: a\nACT:\nACT: c", "a\nc"),
        ("ACT:", ""),
    ],
)
def test_the_last_group_of_lines_is_the_action_where_any_text_may_be_one(reply, found):
    assert REPLY_FORMATS["lines"].parse(reply, ()) == found


def test_an_action_of_several_lines_is_written_in_as_many_lines():
    lines = REPLY_FORMATS["lines"]
    text = lines.render("food here", "PICK_UP\nSIGNAL FOOD\nFORGET 1")
    assert text == "THINK: food here\nACT: PICK_UP\nACT: SIGNAL FOOD\nACT: FORGET 1"
    assert lines.parse(text, ()) == "PICK_UP\nSIGNAL FOOD\nFORGET 1"
    parts = lines.parts(text)
    assert text[slice(*parts.action)].startswith("PICK_UP")
    assert text[slice(*parts.action)].endswith("FORGET 1")
    assert (parts.thought, parts.answer) == ((0, 17), 17)


def test_calls_of_tools_come_before_an_answer_that_no_marker_announces():
    """`whole` takes all of a reply as its answer, but a call in it is what the reply does."""
    text = "I look: [look] now"
    found = REPLY_FORMATS["whole"].parts(text, calls=lambda said: [((8, 14), (9, 13))])
    assert found.answer == 8
    assert text[slice(*found.action)] == "look"
    tagged = "[look] <answer> go </answer>"
    kept = REPLY_FORMATS["whole"].parts(tagged, calls=lambda said: [((0, 6), (1, 5))])
    assert tagged[slice(*kept.action)] == "go"
