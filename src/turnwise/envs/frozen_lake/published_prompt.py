"""The prompt of the published Gemma run on the standard lake, and a corrected form of each part.

Provides the prompt's parts (task, worked examples, board, question), their truncation from the
left, and the replies of demonstrations. Lengths are counted in words.
"""

from __future__ import annotations

import re
from typing import Literal

from turnwise.envs.frozen_lake.data import print_state
from turnwise.envs.frozen_lake.maps import ACTIONS, MapRows, cut, lake_of

PromptRule = Literal["published", "plain"]
ExampleRule = Literal["wrong", "right", "none"]

STANDARD: MapRows = ("SFFF", "FHFH", "FFFH", "HFFG")
"""Gymnasium's 4x4 map, the only one of the published run."""
EXAMPLES: dict[ExampleRule, tuple[tuple[int, int], ...]] = {
    "wrong": ((0, 2), (2, 1), (10, 1)),
    "right": ((0, 0), (2, 3), (10, 0)),
    "none": (),
}
"""The worked examples, (cell, answer). On slippery ice the values of the published answers,
"wrong", are 0.28, 0.20 and 0.58 of those of the best answers, "right"."""
_TASK = (
    "You are a master of the frozen lake. Think about the board before you act. "
    "S is the start, F is ice, H is a hole, G is the goal."
)
_SLIPS = (
    "P is where you stand. The ice is slippery: one time in three you go where you want to, "
    "otherwise to the left or to the right of it, as often."
)
_BOARD = "This is the lake:"
_ASK = "What is the move?"
_QUESTION = (
    "Which action has the best chance to come to the goal safely? Take one of LEFT, DOWN, RIGHT, "
    "UP. Write your thoughts between <think> and </think> and the action between <answer> and "
    "</answer>."
)
_WAYS = ("left", "down", "right", "up")
_THOUGHT = "Onward."
_WORD = re.compile(r"\S+")


def prompt_text(
    cell: int, last_action: int | None, *, prompt: PromptRule, examples: ExampleRule
) -> str:
    r"""Return the whole prompt of a state.

    "published": raw lines of "System:", "user:" and "assistant:". In the examples an S among spaced
    letters marks the player. In the question the S stays on its cell, and a terminal's colour code
    marks the player, after a line with the last action. "plain": the same parts for a chat
    template. A P always marks the player, the cell is named, and the slips are described.

    Example:
        >>> prompt_text(0, 2, prompt="published", examples="none").splitlines()[2]
        '(Right)|\x1b[41mS\x1b[0mFFF|FHFH|FFFH|HFFG'
        >>> prompt_text(1, 2, prompt="plain", examples="none").splitlines()[2:4]
        ['S P F F', 'F H F H']
    """
    if prompt == "plain":
        shown = [f"{_BOARD}\n{_marked(at, 'P')}\n{_ASK} {reply(a)}" for at, a in EXAMPLES[examples]]
        asked = f"{_BOARD}\n{_marked(cell, 'P')}\n{_QUESTION}"
        return "\n".join([f"{_TASK} {_SLIPS}", *shown, asked])
    shown = [
        f"user: {_BOARD}\n{_marked(at, 'S')}\n{_ASK}\nassistant: {_worked(answer)}"
        for at, answer in EXAMPLES[examples]
    ]
    board = print_state(STANDARD, cell, last_action).strip()
    asked = f"user: {_BOARD}\n{board}\n{_QUESTION}\nmodel:"
    return "\n".join([f"System: {_TASK}", *shown, asked])


def cut_left(text: str, words: int) -> str:
    """Return the last `words` words of a text, like a token limit that keeps the tail.

    With 0 words there is no limit.

    Example:
        >>> cut_left("one two three four", 2), cut_left("one two", 0)
        ('three four', 'one two')
    """
    starts = [found.start() for found in _WORD.finditer(text)]
    return text[starts[-words] :] if 0 < words < len(starts) else text


def reply(action: int, thought: str = _THOUGHT) -> str:
    """Return a reply in the published format.

    Example:
        >>> reply(1)
        '<think> Onward. </think> <answer> DOWN </answer>'
    """
    return f"<think> {thought} </think> <answer> {ACTIONS[action]} </answer>"


def prompt_words() -> tuple[str, ...]:
    """Return every word of all prompts and replies but for the printed boards, which are spelt."""
    whole = [prompt_text(0, None, prompt="plain", examples=e) for e in EXAMPLES]
    whole += [prompt_text(0, None, prompt="published", examples=e) for e in EXAMPLES]
    words = {word for text in whole for word in text.split() if "\x1b" not in word}
    cells = {lake_of(STANDARD).name(cell) for cell in range(len("".join(STANDARD)))}
    return tuple(sorted(words | cells | set(ACTIONS)))


def _worked(answer: int) -> str:
    """Return the reply of a published example, whose thought leads to its answer."""
    return reply(answer, f"The goal is far. {_WAYS[answer]} is ice, so {_WAYS[answer]} is safe.")


def _marked(cell: int, letter: str) -> str:
    """Return the map with spaced letters and the player's cell marked by `letter`.

    With P, the S stays on its cell and the player's cell is named.
    """
    lake = lake_of(STANDARD)
    letters = list(lake.letters if letter == "P" else lake.letters.replace("S", "F"))
    letters[cell] = letter
    rows = "\n".join(" ".join(row) for row in cut("".join(letters), lake.columns))
    return f"{rows}\nYou stand on {lake.name(cell)}" if letter == "P" else rows
