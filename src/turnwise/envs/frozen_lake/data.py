"""States of lakes as rows of a file: gymnasium's text of a state, with an expert's action values.

Provides the columns of expert data, `read_state` and `print_state`, and the generation of such rows
from episodes of the optimal policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from turnwise.envs.frozen_lake.maps import ACTIONS, MapRows, check_rows, lake_of
from turnwise.envs.frozen_lake.solver import action_values, slide
from turnwise.errors import DataError

VALUES = tuple(f"q_value_{action.lower()}" for action in ACTIONS)
COLUMNS = ("state", "state_str", "action", *VALUES)
"""The columns that are written. Reading ignores `state` and any further columns."""
_HERE = re.compile(r"\x1b\[41m([SFHG])\x1b\[0m")
_LAST = re.compile(r"\s*\((Left|Down|Right|Up)\)\s*")


def print_state(rows: MapRows, cell: int, last_action: int | None = None) -> str:
    r"""Return a state as gymnasium's `render_mode="ansi"` prints it, with bars between lines.

    Only the terminal's code for a red background marks the cell of the player.

    Example:
        >>> print_state(("SF", "HG"), 1, last_action=2)
        '  (Right)|S\x1b[41mF\x1b[0m|HG'
    """
    columns, letters = len(rows[0]), list("".join(rows))
    letters[cell] = f"\x1b[41m{letters[cell]}\x1b[0m"
    lines = ["".join(letters[i : i + columns]) for i in range(0, len(letters), columns)]
    head = [] if last_action is None else [f"  ({ACTIONS[last_action].capitalize()})"]
    return "|".join([*head, *lines])


def read_state(text: str) -> tuple[MapRows, int]:
    r"""Return the map and the player's cell of a printed state.

    Lines are separated by newlines or bars; blank lines and the last action, "(Left)", are allowed.

    Raises:
        DataError: if it is not one map with one marked cell, or the marked cell ends the episode.

    Example:
        >>> read_state("S\x1b[41mF\x1b[0m|HG")
        (('SF', 'HG'), 1)
    """
    lines = [line.strip(" ") for line in re.split(r"[|\n]", text)]
    lines = [line for line in lines if line and not _LAST.fullmatch(line)]
    plain = tuple(_HERE.sub(r"\1", line) for line in lines)
    marked = "".join(_HERE.sub("@", line) for line in lines)
    if not plain:
        raise DataError(f"state_str = {text!r} is empty: give a map as gymnasium prints it")
    check_rows(plain)
    if marked.count("@") != 1:
        raise DataError(
            f"state_str = {text!r} marks {marked.count('@')} cells as the player's: mark one by "
            r"\x1b[41m before it and \x1b[0m after it"
        )
    cell = marked.index("@")
    if "".join(plain)[cell] in "HG":
        raise DataError(f"state_str = {text!r} has ended: give states with something to decide")
    return plain, cell


def task_of_row(row: Mapping[str, Any], *, slippery: bool) -> dict[str, Any]:
    """Return the data of a task of one step: the state of the row and its action values.

    Raises:
        DataError: if a column is missing or has an invalid value.
    """
    for column in COLUMNS[1:]:
        if column not in row:
            raise DataError(
                f"no column {column!r} (columns: {', '.join(row) or 'none'}): expected "
                f"{', '.join(COLUMNS[1:])}"
            )
    rows, cell = read_state(str(row["state_str"]))
    expert = _number(row, "action")
    if expert not in range(len(ACTIONS)):
        raise DataError(f"action = {row['action']!r} is none of 0 (LEFT), 1, 2, 3 (UP)")
    return {
        "map": list(rows),
        "slippery": slippery,
        "limit": 1,
        "position": cell,
        "values": [_number(row, column) for column in VALUES],
        "expert": int(expert),
    }


def expert_rows(
    rows: MapRows, *, slippery: bool, steps: int, rng: np.random.Generator
) -> Iterator[dict[str, str]]:
    """Yield rows without end: the states of episodes of the optimal policy, in order.

    Its values are discounted by 0.99 and ignore the step limit; an episode ends after `steps`.
    """
    lake, table = lake_of(rows), action_values(rows, slippery)
    while True:
        cell, last = lake.start, None
        for _ in range(steps):
            action = int(table[cell].argmax())
            values = (repr(float(value)) for value in table[cell])
            yield {
                "state": str(cell),
                "state_str": print_state(rows, cell, last),
                "action": str(action),
                **dict(zip(VALUES, values, strict=True)),
            }
            uniform = rng.random()
            cell = lake.moves[cell][slide(action, uniform) if slippery else action]
            last = action
            if lake.letters[cell] in "HG":
                break


def _number(row: Mapping[str, Any], column: str) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        value = np.nan
    if not np.isfinite(value):
        raise DataError(f"{column} = {row[column]!r} is not a finite number")
    return value
