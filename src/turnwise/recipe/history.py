"""How much of a game's past the prompts of an env show, chosen from random games.

Provides `choose_history`, `History` and `smallest_context`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from turnwise.envs.survey import Survey
from turnwise.policies import PolicyConfig, is_nano, nano_preset

TURN_TOKENS = 16
"""Tokens of a turn that are neither the observation's nor the reply's words: template and tags."""
LINE, MOST_LISTED = 3, 300
"""Words of the line of legal actions besides them, and the words of the actions of a mean state
above which neither observations nor the system message list them."""
ROOM, SLACK, REPLY = 2, 1.1, 64
"""For the whole past, a model's context must hold a game of `ROOM` times the turns of the longest
random one, as far as the cap on turns allows, since a trained model plays longer games. It has a
tenth more for words that are several tokens, and `REPLY` tokens for the last reply."""
TOKENS_PER_WORD = 2.0
"""About the most tokens of a word for a pretrained model; a nano model has one for each word."""
WIDE, STEP = 1024, 128
"""The most tokens that the context of a nano model is enlarged to, and what it is a multiple of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What prompts show, the reason, and the context that a nano model needs for it.

    `context` is None where the model's own is enough.
    """

    shown: Literal["full", "last_n", "observation"]
    reason: str
    context: int | None = None


def smallest_context(policies: Iterable[PolicyConfig]) -> int | None:
    """Return the smallest context of models, in tokens; None where none is known."""
    found = (_context_of(policy) for policy in policies)
    return min((context for context in found if context is not None), default=None)


def _context_of(policy: PolicyConfig) -> int | None:
    if is_nano(policy.model):
        return (policy.nano or nano_preset(policy.model)).context
    from turnwise.policies.loading import known_context  # which imports torch

    return policy.context or known_context(policy.model)


def tokens_of_a_turn(found: Survey) -> int:
    """Return the tokens of a turn that are neither the observation's nor the reply's words.

    They are those of the template, and the line of legal actions where these change.
    """
    return TURN_TOKENS + (math.ceil(found.legal_words) + LINE if lists_actions(found) else 0)


def lists_actions(found: Survey) -> bool:
    """Return whether observations list the legal actions: they differ, and are not too many."""
    return found.varies and found.legal_words <= MOST_LISTED


def choose_history(
    found: Survey,
    *,
    tools: bool,
    context: int | None,
    can_grow: bool = False,
    per_word: float = 1.0,
) -> History:
    """Return how much of the past the prompts show.

    All of it, unless states with equal observations behave alike, or observations hold the past.

    Args:
        found: the survey of the env.
        tools: whether results of tools are observations.
        context: the tokens of the smallest model; None where it is not known.
        can_grow: whether a nano model may be made with a larger context.
        per_word: the tokens of a word.
    """
    groups = found.groups
    if groups.hidden == 0 and not tools:
        return History(shown="observation", reason="states with equal observations behave alike")
    if groups.shows_past and not tools:
        return History(shown="observation", reason="each observation holds the turns before it")
    why = "states with equal observations behave differently"
    why = why if groups.hidden else "observations may hide what decides"
    why = "results of calls are in the past" if tools else why
    turn = tokens_of_a_turn(found)
    needed = math.ceil(per_word * SLACK * found.longest(turn, ROOM)) + REPLY
    if context is None or tools or needed <= context:
        return History(shown="full", reason=why)
    if can_grow and needed <= WIDE:
        return History(shown="full", reason=why, context=STEP * math.ceil(needed / STEP))
    most = max(context, WIDE) if can_grow else context
    why = f"{why}, but {needed} tokens of the past do not fit into {most}"
    if groups.past_helps and 4 * per_word * found.widest(turn) <= context:
        return History(shown="last_n", reason=why)
    return History(shown="observation", reason=why)
