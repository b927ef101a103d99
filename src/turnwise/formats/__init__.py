"""Reply formats: how a model's reply holds a thought and an action.

Provides `ReplyFormat`, one class for each format, and the table `REPLY_FORMATS`. A format renders
demonstrations, parses replies, finds their parts, and says how to ask for it and which words its
markers need in a tokenizer. Agents choose one by name (`AgentConfig.reply`). `REPLY_COMPONENTS` are
the reward components that every reply has.
"""

from turnwise.formats.base import Answer, FindCalls, Parts, Range, ReplyFormat
from turnwise.formats.components import (
    REPLY_COMPONENTS,
    Reply,
    ReplyComponent,
    reply_rewards,
    with_reply_components,
)
from turnwise.formats.lines import Lines
from turnwise.formats.program import Program, fenced_blocks
from turnwise.formats.tags import Tags, pairs_in
from turnwise.formats.whole import Whole

REPLY_FORMATS: dict[str, ReplyFormat] = {
    "tags": Tags(),
    "lines": Lines(),
    "program": Program(),
    "whole": Whole(),
}

__all__ = [
    "REPLY_COMPONENTS",
    "REPLY_FORMATS",
    "Answer",
    "FindCalls",
    "Lines",
    "Parts",
    "Program",
    "Range",
    "Reply",
    "ReplyComponent",
    "ReplyFormat",
    "Tags",
    "Whole",
    "fenced_blocks",
    "pairs_in",
    "reply_rewards",
    "with_reply_components",
]
