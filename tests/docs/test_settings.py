"""The settings in the documents are accepted as they stand."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from turnwise.recipe.schema import make_recipe

DOCS = Path(__file__).parents[2] / "docs"
BASE = "frozen-lake-qwen3-0.6b"
"""A recipe without options that a paper's other scheme would not know."""


def blocks(name):
    """Return the TOML blocks of a document, each with the heading it stands under."""
    found, heading = [], ""
    for part in re.split(r"^(#+ .*)$", (DOCS / name).read_text(), flags=re.MULTILINE):
        if part.startswith("#"):
            heading = part.lstrip("# ")
        found += [(heading, text) for text in re.findall(r"```toml\n(.*?)```", part, re.DOTALL)]
    return found


def overlaid(base, over):
    """Return `base` with the sections of `over`; the credit section is taken whole."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = overlaid(base[key], value) if both and key != "credit" else value
    return merged


def covers(whole, part):
    """Return whether `whole` has all that `part` has, at every depth."""
    if not isinstance(part, dict):
        return whole == part
    return all(covers(whole[key], value) for key, value in part.items())


SETTINGS = blocks("published-settings.md")


def test_every_paper_has_its_block():
    assert len(SETTINGS) == len({heading for heading, _ in SETTINGS}) >= 14


@pytest.mark.parametrize("text", [text for _, text in SETTINGS], ids=[h for h, _ in SETTINGS])
def test_published_settings_are_accepted_over_a_shipped_recipe(text):
    shipped = (resources.files("turnwise") / "recipes" / f"{BASE}.toml").read_text()
    base, over = tomllib.loads(shipped), tomllib.loads(text)
    base["credit"] = {"scheme": "grpo", "rewards": base["credit"]["rewards"]}
    over.get("credit", {}).setdefault("rewards", base["credit"]["rewards"])
    base.pop("presets")
    recipe = make_recipe(overlaid(base, over))
    assert covers(recipe.model_dump(mode="json"), over)
