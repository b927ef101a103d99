r"""The `tic-tac-toe` env: three in a row on a board of 3 x 3 cells.

Task: a game, which begins with the empty board, or after up to `opening` random plies. Openings
    are split by their position up to the 8 symmetries of the board.
What each role sees: the board. Its own stones are x, the other's o; a free cell shows its number.
    The description lists the cells that would complete a line of x, and of o.
Actions: the numbers of the free cells, 1 to 9 row by row.
Rewards: `win`, 1 for the winner, and `loss`, -1 for the loser (both agent); a draw has none.
End: three in a row, or a full board. The score of a seat is 1 for a win, 0.5 for a draw and 0 for a
    loss; the score of a game is that of `first`.
Measures: `draw`, whether the game was one; `plies`.
Baselines: random; minimax-1, which takes a win where there is one; minimax-2, which also blocks;
    perfect, which never loses. All choose at random among equally good moves.

Example:
    >>> from turnwise.types import Task
    >>> env = TicTacToe()
    >>> state = env.reset(Task(id="t", env=env.name, seed=0, data={"moves": ["5", "1", "6"]}))
    >>> seen = env.observe(state, "second")
    >>> seen.text, seen.description
    ('x 2 3\n4 o o\n7 8 9', 'x none o 4')
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> lost = env.step(env.step(state, "second", "2", rng).state, "first", "4", rng)
    >>> dict(lost.rewards), dict(lost.others["second"])
    ({'win': 1.0}, {'loss': -1.0})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from turnwise.envs.board_games.game import BoardGame
from turnwise.envs.board_games.rules import Rules


class TicTacToe(BoardGame):
    """Three in a row.

    Example:
        >>> TicTacToe().seats
        {'first': 'player', 'second': 'player'}
    """

    name: ClassVar[str] = "tic-tac-toe"
    rules: ClassVar[Rules] = Rules(rows=3, columns=3, line=3, falls=False)
    depths: ClassVar[Mapping[str, int]] = {"minimax-1": 1, "minimax-2": 2, "perfect": 9}
    opponents: tuple[str, ...] = ("minimax-1", "random", "minimax-2", "perfect")
