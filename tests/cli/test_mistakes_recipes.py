"""Recipes that cannot be read, or ask for what cannot be: a sentence, and nothing is begun."""

from __future__ import annotations

import pytest

from turnwise.envs.timeout import within
from turnwise.recipe.schema import load_recipe

FILES = {
    "a TOML error": (b"name = \n", "recipe 'x.toml' is not valid TOML: Invalid value (at line 1"),
    "a table twice": (b"[env]\n[env]\n", "is not valid TOML: Cannot declare ('env',) twice"),
    "no text": (b"name = '\xff'\n", "recipe 'x.toml' cannot be read (it is not UTF-8)"),
    "nothing": (b"", "'policies' is missing, add [policies.NAME]; 'credit' is"),
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
    "a key of no kind of policy": (
        "policies.main.zzz=3",
        "gradient_checkpointing, kind, lora, lr,",
    ),
    "a misspelt workflow": ("workflow=turn", "did you mean 'turns'"),
    "a word for an array": ("metrics.sinks=wandb", 'expected an array, such as ["wandb"]'),
    "words without quotes": ("stages=[warmup, trainer]", 'such as ["warmup", "trainer"]'),
    "a number for an array": ("optimizer.betas=0.9", "expected an array in brackets"),
    "a preset that is not there": (
        "preset=smokey",
        "did you mean 'smoke'? Known: fast, hindsight, smoke",
    ),
    "a misspelt policy": ("policies.mian.lr=1", "plays no role: did you mean policies.main?"),
    "an endpoint without its address": (
        "policies.main={kind='remote', model='x'}",
        "'policies.main.base_url' is missing (The endpoint's address up to `/chat/completions`",
    ),
    "an endpoint without a protocol": (
        "policies.main={kind='remote', model='x', base_url='host/v1'}",
        "policies.main.base_url: must begin with http:// or https://",
    ),
    "an endpoint with too much": (
        "policies.main={kind='remote', model='x', base_url='http://host/v1/chat/completions'}",
        "ends in /chat/completions, which is added: leave that part out",
    ),
    "a misspelt sink": ("metrics.sinks=['tensorbord']", "did you mean 'tensorboard'"),
    "no time for the env": ("env.timeout=0", "env.timeout = 0: input should be greater than 0"),
    "a reward that is not there": ("credit.rewards={gaol=1.0}", "did you mean 'goal'"),
    "a span that is not there": ("credit.segments={anser='return'}", "did you mean 'answer'"),
    "minibatches beyond the groups": ("trainer.minibatches=99", "exceeds tasks_per_iteration"),
    "refills without refilling": ("trainer.max_refills=3", "needs dynamic_sampling = true"),
    "a phase of no steps": ("trainer.iterations=0", "trains nothing: give iterations or"),
    "spans that are a number": ("credit.segments=3", "credit.segments = 3: input should be"),
    "brackets without an end": ("env.options.map=" + "[" * 3000, "map = '[[["),
    "a second value in a second line": ("trainer.iterations=3\nx=4", "iterations = '3\\nx=4'"),
    "text that is not UTF-8": ("name=\udcff", "a value is not UTF-8 text"),
    "a rate without an end": ("optimizer.lr=inf", "lr = inf: input should be a finite number"),
    "a moment that grows": ("optimizer.betas=[2, 3]", "betas.0 = 2: input should be less than 1"),
    "none of several kinds": (
        "trainer.stop_if_failed=2",
        "trainer.stop_if_failed = 2: input should be less than or equal to 1 or input should be",
    ),
    "a name in capitals": ("credit.scheme=GIGPO", "did you mean 'gigpo'"),
    "a key in capitals": ("TRAINER.ITERATIONS=3", "did you mean 'trainer'"),
    "a misspelt table": ("policy.main.model=pico", "unknown key 'policy', did you mean 'policies'"),
    "a place of TRL's": ("output_dir=x", "which is the run folder: --run DIR"),
    "a ratio of TRL's": ("warmup_ratio=0.1", "which is optimizer.warmup_steps"),
    "a name of TRL's without a like": ("top_p=0.9", "'top_p', not offered: the sampled tokens are"),
    "a seed that torch does not take": (f"seed={2**64}", "input should be less than 9223372036854"),
    "a name above the root": ("name=../../x", "'../../x' can begin no folder's name"),
    "an empty name": ("name=", "name = '' can begin no folder's name"),
    "rows of a warm-up that are not there": ("warmup.data=no.jsonl", "no file at 'no.jsonl'"),
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


def test_a_limit_of_ages_is_no_fault_of_the_env():
    long = load_recipe("frozen-lake", ["preset=smoke", "env.timeout=1e300"])
    assert long.env.timeout == 1e300
    assert within(1e300, max, 3, 4) == 4


def test_a_scheme_that_is_taken_out_takes_its_options_along():
    notes = []
    recipe = load_recipe("frozen-lake", ["credit.scheme=none"], notes.append)
    assert recipe.credit.scheme == "grpo"
    assert "left out the recipe's credit.gamma = 0.5" in notes[0]


def test_a_recipe_that_is_a_folder(turnwise, is_one_sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.toml").mkdir()
    is_one_sentence(turnwise("train", "x.toml"), "no recipe file at 'x.toml'")


def test_a_recipe_without_its_ending(turnwise, is_one_sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    is_one_sentence(turnwise("train", "mine"), "treasure, or a .toml file")
    (tmp_path / "mine.toml").write_text("")
    is_one_sentence(turnwise("train", "mine"), "unknown recipe 'mine': did you mean 'mine.toml'?")
    is_one_sentence(turnwise("train", "mine.toml", "--set", "preset=x"), "has no presets: leave it")
