"""The reasons of a recipe's values: as comments of its TOML, and as lines for the user.

Provides `annotated`, `described`, `still_true` and `dotted_keys`. Reasons have dotted keys, such as
`agents.player.history`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.recipe.schema import Recipe


def annotated(toml: str, reasons: Mapping[str, str]) -> str:
    r"""Return TOML as `Recipe.to_toml` writes it, with a comment after each value with a reason.

    Example:
        >>> print(annotated("[credit]\ngamma = 0.95\n", {"credit.gamma": "short episodes"}))
        [credit]
        gamma = 0.95  # short episodes
        <BLANKLINE>
    """
    section, lines = "", []
    for line in toml.split("\n"):
        if line.startswith("["):
            section = line.strip("[]") + "."
        key, equals, _ = line.partition(" = ")
        reason = reasons.get(section + key) if equals else None
        lines.append(line if reason is None else f"{line}  # {reason}")
    return "\n".join(lines)


def described(recipe: Recipe, reasons: Mapping[str, str]) -> list[str]:
    """Return a line for each value of a recipe with a reason: key, value, reason."""
    values = recipe.model_dump(mode="json")
    return [f"{key} = {json.dumps(_at(values, key))}: {why}" for key, why in reasons.items()]


def still_true(
    reasons: Mapping[str, str],
    chosen: Mapping[str, Any],
    recipe: Recipe,
    settings: Mapping[str, Any],
) -> dict[str, str]:
    """Return the reasons of the values that the user neither gave nor changed.

    Args:
        reasons: key -> reason.
        chosen: the values that were chosen for these reasons, as nested tables.
        recipe: the recipe that is used.
        settings: what the user gave, under dotted keys or in tables.
    """
    used, given = recipe.model_dump(mode="json"), set(dotted_keys(settings))
    return {
        key: reason
        for key, reason in reasons.items()
        if key not in given and _at(chosen, key) == _at(used, key)
    }


def dotted_keys(settings: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Yield the dotted keys of all values in nested tables."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from dotted_keys(value, f"{where}{key}.")
        else:
            yield f"{where}{key}"


def _at(values: Mapping[str, Any], key: str) -> Any:
    """Return the value under a dotted key; None where there is none."""
    found: Any = values
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found
