"""What a sweep trains: a recipe, and the settings of each of its cells.

Provides `SweepConfig`, `Cell`, `load_sweep` and `parse_values`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import isfinite, prod
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from turnwise.errors import ConfigError
from turnwise.recipe.overrides import parse_override
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.settings import Settings, parse
from turnwise.utils.hashes import short_hash
from turnwise.utils.text import printable

MOST_CELLS = 10_000
"""The most cells of a sweep: more are a mistake in a grid."""
LONGEST_NAME = 80
"""The most bytes of the part of a cell's name that is readable."""
SEED = "seed"


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: the recipe with some settings, which are in their order."""

    settings: tuple[tuple[str, Any], ...]

    @cached_property
    def label(self) -> str:
        """The settings as text.

        Example:
            >>> Cell((("optimizer.lr", 0.001), ("seed", 2))).label
            'optimizer.lr=0.001 seed=2'
        """
        return " ".join(f"{key}={shown(value)}" for key, value in self.settings)

    @cached_property
    def name(self) -> str:
        """The name of its folder: readable, and different for different settings."""
        readable = re.sub(r"[^\w.=+-]+", "-", self.label).strip("-.")
        cut = readable.encode()[:LONGEST_NAME].decode(errors="ignore")
        return f"{cut or 'run'}-{short_hash(self.key)[:8]}"

    @cached_property
    def key(self) -> str:
        """The settings in one order, for comparison."""
        return key_of(dict(self.settings))

    @property
    def seedless(self) -> tuple[tuple[str, Any], ...]:
        """The settings without the seed: cells that are equal in them are repetitions."""
        return tuple(pair for pair in self.settings if pair[0] != SEED)

    @property
    def overrides(self) -> list[str]:
        """The settings as `--set` takes them."""
        return [as_override(key, value) for key, value in self.settings]


class SweepConfig(Settings):
    """A sweep: every combination of the values of `grid`, and each table of `cells`.

    Example:
        >>> sweep = SweepConfig(
        ...     name="rates", recipe="frozen-lake",
        ...     grid={"optimizer.lr": [1e-4, 1e-3], "seed": [0, 1]}, settings={"preset": "fast"},
        ... )
        >>> [cell.label for cell in sweep.all_cells][:2]
        ['optimizer.lr=0.0001 seed=0', 'optimizer.lr=0.0001 seed=1']
    """

    name: str
    """The sweep's name; its folder begins with it."""
    recipe: str
    """A shipped recipe's name, or a .toml file."""
    measure: str = "score"
    """What cells are compared by: a number of `eval.json`, such as `score` or `score_sampled`;
    or the last value of a metric, such as `total/episodes` or `validation/score`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of all cells, by dotted key."""
    grid: dict[str, list[Any]] = Field(default_factory=dict)
    """Dotted key -> its values; every combination is a cell."""
    cells: list[dict[str, Any]] = Field(default_factory=list)
    """More cells: the settings of each, by dotted key."""

    @model_validator(mode="after")
    def _check(self) -> SweepConfig:
        if not self.grid and not self.cells:
            raise ValueError("there is nothing to vary: give a grid, or cells")
        if not self.name.strip() or not self.name.isprintable() or set(self.name) & set("/\\"):
            raise ValueError(f"name = {self.name!r} can end no folder's name: give letters")
        if not self.measure.strip() or not self.measure.isprintable():
            raise ValueError(f"measure = {self.measure!r}: give a number's name, such as score")
        for key, values in self.grid.items():
            if not values:
                raise ValueError(f"grid.{key} has no values: give one, or leave it out")
        varied = [(key, value) for key, values in self.grid.items() for value in values]
        tables = [pair for table in (self.settings, *self.cells) for pair in table.items()]
        for key, value in [*varied, *tables]:
            refused = _refused(value)
            if refused:
                raise ValueError(f"{key} = {value!r:.80}: {refused}")
        for key in self.settings:
            if key in self.grid or any(key in cell for cell in self.cells):
                raise ValueError(f"{key} is in settings and is varied: leave one of them out")
        count = len(self.cells)
        if self.grid:
            count += prod(map(len, self.grid.values()))
        if count > MOST_CELLS:
            raise ValueError(f"the sweep has {count:,} cells, expected at most {MOST_CELLS:,}")
        keys = [cell.key for cell in self.all_cells]
        if len(set(keys)) < len(keys):
            raise ValueError("some cells have equal settings: leave the repetitions out")
        return self

    @property
    def all_cells(self) -> list[Cell]:
        """All cells: those of the grid, the last key varying fastest, then the other ones."""
        listed = [Cell(tuple(cell.items())) for cell in self.cells]
        if not self.grid:
            return listed
        combinations = product(*self.grid.values())
        return [
            Cell(tuple(zip(self.grid, values, strict=True))) for values in combinations
        ] + listed

    def overrides(self, cell: Cell) -> list[str]:
        """Return all settings of a cell, as `--set` takes them."""
        return [*(as_override(*pair) for pair in self.settings.items()), *cell.overrides]

    def load(self, cell: Cell) -> Recipe:
        """Return the recipe of a cell.

        Raises:
            ConfigError: if the recipe does not take its settings.
        """
        try:
            return load_recipe(self.recipe, self.overrides(cell), lambda text: None)
        except ConfigError as error:
            raise ConfigError(f"{cell.label or self.recipe}: {error}") from None


def load_sweep(path: Path) -> SweepConfig:
    """Return the sweep in a .toml file.

    Raises:
        ConfigError: if it cannot be read, or says something unknown.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = (error.strerror or "").lower()
        raise ConfigError(f"sweep '{path}' cannot be read ({why}): give a .toml file") from None
    except ValueError as error:  # TOML's, UTF-8's, or an integer of too many digits
        raise ConfigError(f"sweep '{path}' is not TOML: {error}") from None
    for section in ("settings", "grid"):
        if isinstance(data.get(section), Mapping):
            data[section] = flat(data[section])
    if isinstance(data.get("cells"), list):
        tables = [flat(cell) if isinstance(cell, Mapping) else cell for cell in data["cells"]]
        data["cells"] = tables
    data.setdefault("name", path.stem)
    found = parse(SweepConfig, data, f"sweep '{path}'")
    beside = path.parent / found.recipe
    if found.recipe.endswith(".toml") and not Path(found.recipe).is_file() and beside.is_file():
        return found.model_copy(update={"recipe": str(beside)})
    return found


def parse_values(text: str) -> tuple[str, list[Any]]:
    """Return the key and the values of "section.key=value,value".

    Values are TOML or plain text, as in `--set`; commas within brackets or quotes part nothing.

    Raises:
        ConfigError: if there is no key or no value.

    Example:
        >>> parse_values("optimizer.lr=1e-4,auto"), parse_values("seed=0,1")
        (('optimizer.lr', [0.0001, 'auto']), ('seed', [0, 1]))
        >>> parse_values("optimizer.betas=[0.9, 0.9],[0.9, 0.99]")
        ('optimizer.betas', [[0.9, 0.9], [0.9, 0.99]])
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise ConfigError(f"--over {text!r} must look like section.key=value,value")
    found = [parse_override(f"{key}={value}") for value in _parts(values)]
    return key.strip(), [value for _, value in found]


def as_override(key: str, value: Any) -> str:
    """Return a setting as "section.key=value", which `parse_override` reads.

    Example:
        >>> as_override("optimizer.lr", 0.001), as_override("device", "1e-3")
        ('optimizer.lr=0.001', 'device="1e-3"')
        >>> as_override("policies.main.nano", {"hidden": 32})
        'policies.main.nano={"hidden" = 32}'
    """
    return f"{key}=none" if value is None else f"{key}={_toml(value)}"


def _toml(value: Any) -> str:
    """Return a value as TOML, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(float(value))  # TOML has inf and nan, JSON does not
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _refused(value: Any, inside: bool = False) -> str:
    """Return why a sweep cannot set a value, which is written as TOML and as JSON; "" if it can."""
    if isinstance(value, str):
        whole = value.encode(errors="ignore").decode() == value
        return "" if whole else "it is not UTF-8 text: write it as such"
    if value is None and inside:
        return "None is no part of a list or table: leave it out"
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return "the keys of a table are text: write them as such"
        return next(filter(None, (_refused(each, True) for each in value.values())), "")
    if isinstance(value, list | tuple):
        return next(filter(None, (_refused(each, True) for each in value)), "")
    known = value is None or isinstance(value, bool | int | float)
    return "" if known else "expected text, a Python number, a list or a table: convert it"


def flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the leaves of nested tables by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found


def _parts(text: str) -> Sequence[str]:
    """Return the parts of a text between its commas, but for those in brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def shown(value: Any) -> str:
    r"""Return the value of a setting as text on one line.

    Example:
        >>> shown([1, 2]), shown("a b"), shown("a\nb\x1b[2J")
        ('[1, 2]', 'a b', 'a\\nb\\x1b[2J')
    """
    if not isinstance(value, str):
        return json.dumps(value)
    return printable(value).replace("\n", "\\n").replace("\t", "\\t")


def key_of(settings: Mapping[str, Any]) -> str:
    """Return settings in one order, equal for equal settings."""
    return json.dumps(finite(settings), sort_keys=True)


def finite(value: Any) -> Any:
    """Return a value with text in place of inf and nan, which JSON does not have.

    Example:
        >>> finite({"optimizer.max_grad_norm": float("inf"), "optimizer.betas": [0.9, 0.99]})
        {'optimizer.max_grad_norm': 'inf', 'optimizer.betas': [0.9, 0.99]}
    """
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return value if not isinstance(value, float) or isfinite(value) else str(value)
