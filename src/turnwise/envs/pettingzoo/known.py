"""Words, texts and scores of envs of PettingZoo that turnwise knows.

Provides `KNOWN` and `RENDERERS`. A renderer makes a text, or a text and a description, from an
observation. Boards are written as those of the envs `tic-tac-toe` and `connect-four`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.envs.base import RewardTiming

Renderer = Callable[[Any], "str | tuple[str, str]"]
MOVES = ("ROCK", "PAPER", "SCISSORS", "SPOCK", "LIZARD")


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownEnv:
    """What is known of an env, with the options that it has by default."""

    actions: tuple[str, ...] = ()
    renderer: str = "plain"
    worst: float | None = None
    best: float | None = None
    steps: int | None = None
    opponents: tuple[str, ...] = ()
    reward_timing: RewardTiming = "dense"


def tictactoe_text(seen: Any) -> str:
    """Return the board: own stones x, the other's o, and a number for a free cell."""
    own, other = seen["observation"][:, :, 0], seen["observation"][:, :, 1]
    cells = np.arange(1, 10).reshape(3, 3).astype(str)
    board = np.where(own == 1, "x", np.where(other == 1, "o", cells))
    return "\n".join(" ".join(row) for row in board)


def connect_four_text(seen: Any) -> str:
    """Return the board; the next stone of a column falls to where its number is."""
    own, other = seen["observation"][:, :, 0], seen["observation"][:, :, 1]
    board = np.where(own == 1, "x", np.where(other == 1, "o", "."))
    for column in range(board.shape[1]):
        free = np.flatnonzero(board[:, column] == ".")
        if len(free):
            board[free[-1], column] = str(column + 1)
    return "\n".join(" ".join(row) for row in board)


def rps_text(seen: Any) -> str:
    """Return the other's last move."""
    move = int(seen)
    return f"other {MOVES[move]}" if move < 3 else "other none"


RENDERERS: Mapping[str, Renderer] = {
    "tictactoe": tictactoe_text,
    "connect_four": connect_four_text,
    "rps": rps_text,
}
_BOARD = {"worst": -1.0, "best": 1.0, "opponents": ("random",), "reward_timing": "terminal"}
KNOWN: Mapping[str, KnownEnv] = {
    "tictactoe_v3": KnownEnv(actions=tuple("123456789"), renderer="tictactoe", steps=9, **_BOARD),
    "connect_four_v3": KnownEnv(
        actions=tuple("1234567"), renderer="connect_four", steps=42, **_BOARD
    ),
    "rps_v2": KnownEnv(
        actions=MOVES[:3], renderer="rps", worst=-15.0, best=15.0, steps=30, opponents=("random",)
    ),
}
"""Module -> what is known of its env when it is made without `kwargs`."""
