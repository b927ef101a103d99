"""Settings that the documents name in their prose are settings of a recipe or of an env."""

from __future__ import annotations

import re

import pytest

from turnwise.envs import ENVS, find_env
from turnwise.recipe.schema import Recipe

from .conftest import BLOCK, PAGES, load_generator

TABLES = "agents|checkpoint|credit|engine|env|evaluation|forest|loss|metrics|optimizer|policies|"
TABLES += "pretrain|sft_mix|trainer|warmup"
SETTING = re.compile(rf"(?<![\w./])(?:{TABLES})\.[a-z_<][\w.<>]*\w")
FREE = {"env.options", "env.training", "env.warmup"}
"""Tables whose keys are options of the envs."""
OPEN = {"credit.rewards", "sft_mix.spans", "sft_mix.final", "credit.segments"}
"""Tables whose keys are names of rewards and spans."""


def keys():
    """Return every key of a recipe, with `*` for free names."""
    found = set()
    for section in load_generator().walk(Recipe, ""):
        key = re.sub(r"<\w+>", "*", section.key)
        found |= {key, *(f"{key}.{name}" for each in section.classes for name in each.model_fields)}
    options = {name for env in ENVS for name in find_env(env).config_class.model_fields}
    return found | {f"{table}.{name}" for table in FREE for name in options}


KEYS = keys()


def unknown(text):
    """Return the settings that `text` names and no recipe has."""
    found = []
    for code in re.findall(r"`([^`]+)`", BLOCK.sub("", text)):
        for name in SETTING.findall(code):
            key = re.sub(r"^(agents|policies)\.[\w<>]+", r"\1.*", name)
            known = key in KEYS or name.rsplit(".", 1)[0] in OPEN
            if (
                not known
                and not code.startswith("turnwise.")
                and not name.endswith((".py", ".md", ".jsonl"))
            ):
                found.append(name)
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_settings_exist(path):
    assert unknown(path.read_text(encoding="utf-8")) == []


def test_an_unknown_setting_is_seen():
    text = "`trainer.proximal` `trainer.group_size` `agents.<role>.system` `sft_mix.spans.answer`"
    assert unknown(f"{text} `env.options.sizes=4` `loss.kind`") == [
        "trainer.proximal",
        "env.options.sizes",
    ]
