"""What a tool's action gives: its call and result as others see them, and the proposed moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from turnwise.envs.planning.library import (
    APPLY,
    MOST_READ,
    CallError,
    Rules,
    answer,
    split_moves,
)
from turnwise.envs.planning.programs import run_tool


class ToolResult(NamedTuple):
    """A call and its result, as they are shown, the moves that it proposes, and its success."""

    call: str
    result: str
    moves: Sequence[str]
    ran: bool


def answer_call(rules: Rules, position: Any, action: str, most: int) -> ToolResult:
    """Answer a call of one function, with at most `most` moves.

    Example:
        >>> from turnwise.envs.planning import sudoku_rules
        >>> board = "1..." + "3412" + "2143" + "4321"
        >>> answer_call(sudoku_rules, sudoku_rules.Position(board, board), "candidates r0c1", 1)
        ToolResult(call='candidates r0c1', result='one r0c1=2', moves=(), ran=True)
    """
    words = action.split() if len(action) <= MOST_READ else []
    try:
        result = answer(rules, position, words, most)
    except CallError:
        return ToolResult("failed", "no result", (), ran=False)
    moves = split_moves(rules, position, words[1:], most) if words[0] == APPLY else ()
    return ToolResult(" ".join(words), result, moves, ran=True)


def run_program(rules: Rules, position: Any, program: str, most: int) -> ToolResult:
    """Run a program; its proposal is the last line that it printed, if that is moves.

    Raises:
        SandboxError: if the sandbox itself fails.
    """
    printed = run_tool(rules, program, tuple(position), most)
    try:
        moves = split_moves(rules, position, printed.last.split(), most) if printed.ok else ()
    except CallError:
        moves = ()
    shown = "\n ".join(" ".join(line.split()) for line in printed.shown.split("\n"))
    called = "program" if printed.ok else "failed"
    return ToolResult(called, shown or "no result", moves, printed.ok)
