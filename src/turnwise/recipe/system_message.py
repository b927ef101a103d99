"""The system message by which a pretrained model is told how to answer in an env.

Provides `system_message`.
"""

from __future__ import annotations

from turnwise.agents import AgentConfig
from turnwise.envs.survey import Survey
from turnwise.recipe.history import MOST_LISTED, lists_actions


def system_message(shown: Survey, agent: AgentConfig, *, tools: bool) -> str:
    """Return the message: the legal actions and the reply format; empty where it has no place.

    Actions that are the same in all states are listed up to `MOST_LISTED` words.

    Args:
        shown: the survey of the env.
        agent: whose replies have a format.
        tools: whether the env offers tools.
    """
    first = shown.first
    if first.raw or (first.messages and first.messages[0].role == "system"):
        return ""
    example = "ACTION"
    if shown.free:
        what = example = "your answer"
    elif shown.varies or shown.legal_words > MOST_LISTED:
        what = "one of the legal actions" + (" listed" if lists_actions(shown) else "")
    else:
        what = "one of these actions: " + ", ".join(first.legal_actions)
        example = first.legal_actions[0]
    asked = agent.reply_format.ask(what, example)
    if tools:
        return f"Call tools as often as you need. When you know the answer, {asked}"
    return asked[0].upper() + asked[1:]
