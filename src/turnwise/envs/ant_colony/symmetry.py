"""Maps that are one problem: those that rotations and reflections turn into each other.

Provides `canonical_map`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from turnwise.envs.ant_colony.view import FOOD, NEST


def canonical_map(data: Mapping[str, Any]) -> str:
    """Return the map of a task with its ants and units, equal for maps that are symmetric.

    Example:
        >>> data = {"rows": ["..."] * 3, "nest": [0, 0], "food": [[2, 0, 1]], "ants": 1}
        >>> turned = data | {"nest": [2, 2], "food": [[0, 2, 1]]}
        >>> canonical_map(data) == canonical_map(turned)
        True
    """
    cells = np.array([list(row) for row in data["rows"]])
    x, y = data["nest"]
    cells[y, x] = NEST
    for x, y, _ in data["food"]:
        cells[y, x] = FOOD
    turned = [np.rot90(each, turns) for each in (cells, cells.T) for turns in range(4)]
    least = min("".join(each.ravel().tolist()) for each in turned)
    units = sorted({units for _, _, units in data["food"]})
    return f"{len(cells)} {least} ants {data['ants']} units {units}"
