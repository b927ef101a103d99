"""Recipes that cannot be read, or ask for what cannot be: a sentence, and nothing is begun."""

from __future__ import annotations

import pytest

FILES = {
    "a TOML error": (b"name = \n", "recipe 'x.toml' is not valid TOML: Invalid value (at line 1"),
    "a table twice": (b"[env]\n[env]\n", "is not valid TOML: Cannot declare ('env',) twice"),
    "no text": (b"name = '\xff'\n", "recipe 'x.toml' cannot be read (it is not UTF-8)"),
    "nothing": (b"", "'env' is missing; 'policies' is missing; 'credit' is missing"),
    "presets that are no tables": (b"presets = 3\n", "write presets as tables: [presets.NAME]"),
    "a preset that is no table": (b"[presets]\nfast = 3\n", "write presets as tables"),
    "an import that is not there": (
        b"name = 'x'\n[env]\nname = 'own.py:Env'\n[policies.a]\n[credit]\n", "no file at",
    ),
}  # fmt: skip
SETS = {
    "a section that is a number": (
        "trainer=3",
        "trainer = 3: expected a table, such as {iterations = 3}",
    ),
    "a number that is a section": ("seed.x=3", "seed = {'x': 3}: input should be a valid integer"),
    "a number that is a truth": ("trainer.iterations=true", "input should be a valid integer"),
    "a number that is not one": ("trainer.iterations=nan", "input should be a valid integer"),
    "a number out of range": ("trainer.group_size=0", "greater than or equal to 1"),
    "a key without a name": ("=3", "must look like section.key=value"),
    "a key of blanks": ("a..b=3", "unknown key 'a', known: agents,"),
    "a misspelt section": ("trainr.iterations=3", "unknown key 'trainr', did you mean 'trainer'"),
    "a misspelt env": ("env.name=frozen-laek", "did you mean 'frozen-lake'"),
    "a misspelt option": ("env.options.sise=5", "env 'frozen-lake': unknown key 'sise', did you"),
    "a misspelt workflow": ("workflow=sole", "did you mean 'solo'"),
    "a misspelt sink": ("metrics.sinks=['tensorbord']", "did you mean 'tensorboard'"),
    "no time for the env": ("env.timeout=0", "env.timeout = 0: input should be greater than 0"),
    "a reward that is not there": ("credit.rewards={gaol=1.0}", "did you mean 'goal'"),
    "a span that is not there": ("credit.segments={anser='return'}", "did you mean 'answer'"),
    "minibatches beyond the groups": ("trainer.minibatches=99", "exceeds tasks_per_iteration"),
    "refills without refilling": ("trainer.max_refills=3", "needs dynamic_sampling = true"),
    "a phase of no steps": ("trainer.iterations=0", "trains nothing: give iterations or"),
    "a rate that rises too long": ("optimizer.warmup_steps=9999", "outlasts the"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_no_recipe(turnwise, is_one_sentence, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    content, words = FILES[case]
    (tmp_path / "x.toml").write_bytes(content)
    is_one_sentence(turnwise("train", "x.toml"), words)
    assert [path.name for path in tmp_path.iterdir()] == ["x.toml"]


@pytest.mark.parametrize("case", SETS)
def test_a_setting_that_cannot_be(turnwise, is_one_sentence, sets, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    override, words = SETS[case]
    more = ["warmup.steps=0"] if case == "a phase of no steps" else []
    is_one_sentence(turnwise("train", "frozen-lake", *sets(override, *more)), words)
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_that_is_a_folder(turnwise, is_one_sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").mkdir()
    is_one_sentence(turnwise("train", "x.toml"), "no recipe file at 'x.toml'")
