"""Reward components of replies: their table decides names, levels and values."""

from __future__ import annotations

import pytest

from turnwise.envs.checks.declarations import check_names
from turnwise.envs.treasure import Treasure
from turnwise.errors import EnvError
from turnwise.formats import (
    REPLY_COMPONENTS,
    REPLY_FORMATS,
    Reply,
    reply_rewards,
    with_reply_components,
)


@pytest.mark.parametrize("name", ["tags", "lines", "program"])
def test_perception_is_read_through_the_format(name):
    reply_format = REPLY_FORMATS[name]
    others = ("left edge", "LEFT", "LEFT edge x", "")
    for thought, value in (("LEFT edge", 1.0), *((other, 0.0) for other in others)):
        text = reply_format.render(thought, "DOWN")
        reply = Reply(text=text, reply_format=reply_format, description="LEFT edge", valid=True)
        assert reply_rewards(reply) == {"invalid": 0.0, "perception": value}


def test_without_a_description_nothing_is_perceived():
    reply = Reply(text="", reply_format=REPLY_FORMATS["tags"], description="", valid=False)
    assert reply_rewards(reply) == {"invalid": 1.0}


def test_every_component_of_replies_is_declared_with_a_level_and_reserved():
    levels = with_reply_components({"goal": "agent"})
    assert levels == {"goal": "agent", "invalid": "process", "perception": "process"}
    for component in REPLY_COMPONENTS:

        class Own(Treasure):
            components = {component: "agent"}  # noqa: RUF012

        with pytest.raises(EnvError, match=f"component '{component}' is reserved"):
            check_names(Own)
