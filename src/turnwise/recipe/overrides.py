"""Settings over a recipe: how "section.key=value" is read, and which values of the recipe it drops.

Provides `compose`, which puts settings over a recipe's values. What the user sets always counts.
Values of the recipe that mean nothing beside it are left out or capped, and each is reported:
`credit.scheme=grpo` over a recipe for gigpo drops gigpo's `gamma` and `state_weight`. Two settings
of the user's that contradict each other are left as they are: the recipe's own checks refuse them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from turnwise.errors import ConfigError
from turnwise.recipe.fit import Data, Fit, merge, nest, value_at
from turnwise.recipe.fitting_rules import RULES


def parse_override(override: str) -> tuple[str, Any]:
    """Return the key and the value of "section.key=value"; values are TOML, or else plain text.

    The value `none` is None: it takes the key out, so that its default holds again (`none_values`
    has the exceptions).

    Example:
        >>> parse_override("env.options.size=6"), parse_override("device=cuda")
        (('env.options.size', 6), ('device', 'cuda'))
    """
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"override {override!r} must look like section.key=value")
    if text.strip() == "none":
        return key.strip(), None
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # an integer of too many digits is a ValueError, too
        table = {}
    # more than one key: a line break in the text, after which another value stands
    return key.strip(), table["value"] if list(table) == ["value"] else text.strip()


def with_preset(
    data: Mapping[str, Any], preset: Mapping[str, Any], name: str, before: Sequence[str] = ()
) -> Data:
    """Return a recipe's plain values with those of a preset over them.

    The keys in the preset's `without`, dotted paths, are taken out first.

    Args:
        data: the values.
        preset: those of the preset.
        name: of the preset, for messages.
        before: the presets whose values are in `data` already, for messages.

    Raises:
        ConfigError: if `without` is no list of keys, or the recipe lacks one of them.

    Example:
        >>> data = {"policies": {"main": {"model": "nano"}}}
        >>> with_preset(data, {"without": ["policies.main"], "seed": 1}, "other")
        {'policies': {}, 'seed': 1}
    """
    keys = preset.get("without", [])
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ConfigError(
            f"presets.{name}.without = {keys!r}: expected a list of keys, such as ['policies.main']"
        )
    kept: Data = dict(data)
    for key in keys:
        if value_at(kept, key) is None:
            if before:
                raise ConfigError(
                    f"preset = {name!r} after preset = {before[-1]!r}: they do not go together, as "
                    f"both replace {key!r}: choose one of them"
                )
            raise ConfigError(f"presets.{name}.without: the recipe has no {key!r}: leave it out")
        kept = merge(kept, nest(key, None))
    return merge(kept, {key: value for key, value in preset.items() if key != "without"})


def compose(
    base: Mapping[str, Any], settings: Sequence[tuple[str, Any]], note: Callable[[str], None]
) -> Data:
    """Return a recipe's plain values with settings over them.

    Args:
        base: the recipe's own values.
        settings: ("section.key", value) in order; None takes the key out.
        note: told, in one sentence each, what of the recipe gave way.
    """
    merged: Data = dict(base)
    for key, value in settings:
        if value == {} and value_at(merged, key):
            note(f"{key} = {{}} changes nothing, as tables are merged; {key} = none removes it")
        merged = merge(merged, nest(key, value))
    if not settings:
        return merged
    given = {leaf for key, value in settings for leaf in _leaves(nest(key, value))}
    fit = Fit(dict(base), merged, given)
    for rule in RULES:
        rule(fit)
    for sentence in fit.notes:
        note(sentence)
    return fit.merged


def _leaves(value: Any, where: str = "") -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _leaves(below, f"{where}.{key}" if where else key)
    else:
        yield where
