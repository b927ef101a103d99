"""Files that a recipe names, and the modules beside them."""

from __future__ import annotations

import importlib
import sys

import pytest

from turnwise.envs import find_env, make_env
from turnwise.envs.rows.reward_functions import load_functions
from turnwise.errors import ConfigError
from turnwise.utils import user_code
from turnwise.utils.user_code import import_name, is_function, load_object


@pytest.fixture(autouse=True)
def _forget():
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_a_file_imports_its_neighbours(tmp_path):
    write(tmp_path, tw_base="import tw_deep\nONE = tw_deep.ONE", tw_deep="ONE = 1")
    write(tmp_path, tw_env="from tw_base import ONE\ndef f():\n    import tw_base\n    return ONE")
    path = list(sys.path)
    assert load_object(f"{tmp_path}/tw_env.py:f")() == 1
    assert sys.path == path


def test_two_files_of_a_folder_share_their_neighbour(tmp_path):
    write(
        tmp_path, tw_base="ONE = []", tw_a="from tw_base import ONE", tw_b="from tw_base import ONE"
    )
    assert load_object(f"{tmp_path}/tw_a.py:ONE") is load_object(f"{tmp_path}/tw_b.py:ONE")


@pytest.mark.parametrize("between", [False, True])
def test_two_folders_with_a_module_of_one_name_are_refused(tmp_path, between):
    """Also where not the file itself, but its neighbour imports the name."""
    one = write(tmp_path / "one", tw_base="ONE = 1", tw_env="from tw_base import ONE")
    two = write(tmp_path / "two", tw_base="ONE = 2", tw_env="from tw_base import ONE")
    if between:
        write(two, tw_env="from tw_middle import ONE", tw_middle="from tw_base import ONE")
    assert load_object(f"{one}/tw_env.py:ONE") == 1
    with pytest.raises(ConfigError, match=r"module 'tw_base' is already .*: rename one of the two"):
        load_object(f"{two}/tw_env.py:ONE")
    assert load_object(f"{one}/tw_env.py:ONE") == 1


def test_a_failed_import_forgets_the_neighbours_so_that_a_mended_one_is_seen(tmp_path):
    write(tmp_path, tw_base="ONE = 1", tw_env="from tw_base import TWO")
    path = list(sys.path)
    with pytest.raises(ConfigError, match="cannot import name 'TWO'"):
        load_object(f"{tmp_path}/tw_env.py:TWO")
    assert sys.path == path and "tw_base" not in sys.modules
    write(tmp_path, tw_base="ONE = 1\nTWO = 2")
    assert load_object(f"{tmp_path}/tw_env.py:TWO") == 2


def test_a_module_that_is_nowhere_says_where_it_is_looked_for(tmp_path):
    write(tmp_path, tw_env="import tw_absent")
    with pytest.raises(ConfigError, match=r"'tw_absent' \(tw_env\.py:1\): install it, or put it"):
        load_object(f"{tmp_path}/tw_env.py:f")


def test_a_module_beside_a_script_is_named_by_its_file(tmp_path, monkeypatch):
    """Its module's name is known to the script alone: `turnwise resume` would not find it."""
    write(tmp_path, tw_world="class World: ...")
    with monkeypatch.context() as script:
        script.syspath_prepend(tmp_path)
        world = importlib.import_module("tw_world").World
        name = import_name(world)
        assert name == f"{tmp_path}/tw_world.py:World"
        assert load_object(name) is world  # not a second copy of the module
    del sys.modules["tw_world"]
    user_code._module_of_file.cache_clear()
    assert load_object(name).__name__ == "World"
    assert import_name(user_code.load_object) == "turnwise.utils.user_code:load_object"
    assert import_name(pytest.raises).startswith("_pytest")


def test_a_package_that_is_not_found_names_the_cure():
    with pytest.raises(ConfigError, match=r"No module named 'tw_none' .*: install it, or name the"):
        load_object("tw_none.worlds:World")


def test_a_misspelt_name_is_offered_what_is_wanted(tmp_path):
    text = (
        "from dataclasses import dataclass\nclass Workshop: pass\ndef shop_text(seen): return ''\n"
    )
    write(tmp_path, tw_shop=text)
    offers = {
        callable: "did you mean 'Workshop'.* Known: Workshop, shop_text$",
        is_function: "did you mean 'shop_text'.* Known: shop_text$",
    }
    for wanted, words in offers.items():
        with pytest.raises(ConfigError, match=words):
            load_object(f"{tmp_path}/tw_shop.py:shop", wanted)
    with pytest.raises(ConfigError, match="Known: none$"):
        load_object(f"{tmp_path}/tw_shop.py:shop", lambda thing: thing == 7)
    write(tmp_path, tw_all="from tw_shop import shop_text")
    with pytest.raises(ConfigError, match="Known: shop_text$"):
        load_object(f"{tmp_path}/tw_all.py:shop", is_function)


def test_what_is_wanted_is_known_of_envs_rewards_and_renderers(tmp_path):
    """A name that is nearly right, beside a nearer one of the other kind."""
    text = """import gymnasium, turnwise
class Shops(turnwise.Env): pass
class Shop2(gymnasium.Env): pass
class Shopping: pass
def shop_text(seen): return ''
def shoq(completions): return []
"""
    write(tmp_path, tw_kinds=text)
    name = f"{tmp_path}/tw_kinds.py:shop"
    cases = {
        r"Known: Shops$": lambda: find_env(name),
        r"Known: Shop2$": lambda: make_env("gymnasium", id=name),
        r"Known: shop_text, shoq$": lambda: make_env("gymnasium", id="FrozenLake", renderer=name),
        r"mean 'shoq'\? Known: shop_text, shoq$": lambda: load_functions([name]),
    }
    for words, make in cases.items():
        with pytest.raises(ConfigError, match=words):
            make()
