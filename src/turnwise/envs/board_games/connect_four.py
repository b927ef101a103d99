r"""The `connect-four` env: four in a row on a board of 6 rows and 7 columns, where stones fall.

Task: a game, which begins with the empty board, or after up to `opening` random plies. Openings
    are split by their position up to reflection.
What each role sees: the board. Its own stones are x, the other's o; a free cell is a dot, or the
    number of the column whose next stone falls there. The description lists the columns that would
    complete a line of x, and of o.
Actions: the numbers of the columns that are not full, 1 to 7.
Rewards: `win`, 1 for the winner, and `loss`, -1 for the loser (both agent); a draw has none.
End: four in a row, or a full board. The score of a seat is 1 for a win, 0.5 for a draw and 0 for a
    loss; the score of a game is that of `first`.
Measures: `draw`, whether the game was one; `plies`.
Baselines: random; minimax-1, which takes a win where there is one; minimax-2, which also blocks;
    minimax-4, alpha-beta to 4 plies. All choose at random among equally good moves. No baseline is
    perfect.

Example:
    >>> from turnwise.types import Task
    >>> env = ConnectFour()
    >>> state = env.reset(Task(id="t", env=env.name, seed=0, data={"moves": ["4", "4"]}))
    >>> env.observe(state, "first").text.splitlines()[3:]
    ['. . . 4 . . .', '. . . o . . .', '1 2 3 x 5 6 7']
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from turnwise.envs.board_games.game import BoardGame
from turnwise.envs.board_games.rules import Rules


class ConnectFour(BoardGame):
    """Four in a row, with stones that fall.

    Example:
        >>> ConnectFour().rules.actions
        7
    """

    name: ClassVar[str] = "connect-four"
    rules: ClassVar[Rules] = Rules(rows=6, columns=7, line=4, falls=True)
    depths: ClassVar[Mapping[str, int]] = {"minimax-1": 1, "minimax-2": 2, "minimax-4": 4}
    opponents: tuple[str, ...] = ("minimax-1", "random", "minimax-2", "minimax-4")
