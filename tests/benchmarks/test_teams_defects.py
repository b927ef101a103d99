"""benchmarks/teams_defects.py: its rows are recipes, its table, and whole runs with each defect."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from types import SimpleNamespace

import pytest

from turnwise.app import lifecycle
from turnwise.recipe.schema import load_recipe

from ..conftest import load_benchmark

SMOKE = (
    *("preset=smoke", "env.options.hard=false", "env.options.rounds=4"),
    *("engine.probe_tokens=64", "forest.probe_tokens=64", "trainer.stop_if_failed=never"),
)
TAUGHT = (
    "warmup.steps=30", "warmup.eval_every=30", "warmup.batch_size=16", "warmup.optimizer.lr=1e-2",
    "policies.main.nano={hidden=32,layers=1,heads=2,kv_heads=1,head_dim=16,intermediate=64}",
)  # fmt: skip
"""A warm-up of seconds after which most replies are read."""


@pytest.fixture(scope="module")
def script():
    return load_benchmark("teams_defects")


def test_the_outcome_rows_of_the_teams_benchmark_pay_for_nothing_else():
    teams = load_benchmark("teams")
    for name in ("single-outcome", "team-outcome", "single-vine-outcome", "vine-outcome"):
        row = teams.ROWS[name]
        found = load_recipe("sokoban-two-policy", [f"preset={row.kind}", *row.settings])
        assert found.credit.rewards == {"solved": 1.0, "invalid": -1.0}, name


@pytest.fixture(scope="module")
def used():
    """The modules that the script imports."""
    import defect_counts
    import defect_run
    import defects

    return SimpleNamespace(counts=defect_counts, run=defect_run, defects=defects)


@pytest.mark.parametrize("env", ["plan-path", "sokoban"])
def test_rows_are_recipes_that_differ_from_the_clean_run_in_what_they_name(script, env):
    def recipe(name):
        given = ["preset=shared", "processes=1", *script.ROWS[name].settings]
        return load_recipe(f"{env}-two-policy", given).model_dump()

    clean, found = recipe("at-grpo"), {name: recipe(name) for name in script.ROWS}
    assert clean["topology"]["siblings"] == 6 and clean["credit"]["scheme"] == "at_grpo"
    for name, row in script.ROWS.items():
        beside = recipe(row.beside)
        differs = {key for key in beside if beside[key] != found[name][key]}
        expected = {
            "independent": {"topology", "credit", "trainer"}, "mixed-roles": {"credit"},
            "other-rewards": {"credit"}, "hot": {"agents"}, "other-temperature": {"trainer"},
            "failed-trained": {"trainer"},
        }  # fmt: skip
        assert differs == expected.get(name, set()), name
    assert found["independent"]["topology"]["kind"] == "independent"
    assert found["independent"]["credit"]["statistics"] == "role"
    assert found["mixed-roles"]["credit"]["statistics"] == "all"
    assert found["other-rewards"]["credit"]["rewards"] == {
        "solved": 2.0, "progress": 2.0, "call_useful": 1.0, "illegal": -0.2, "call_failed": -2.0,
        "invalid": -2.0, "move_useful": 0.0, "idle": 0.0, "call_idle": 0.0,
    }  # fmt: skip
    heats = {role: each["temperature"] for role, each in found["hot"]["agents"].items()}
    assert heats == {"tool": 1.5, "planner": 1.5}
    for name in ("other-temperature", "failed-trained"):
        assert found[name]["trainer"]["old_logprobs"] == "recompute"
        assert found[name]["trainer"]["mismatch"] == "ignore"


def test_every_defect_of_the_list_and_every_replaced_function_has_a_row(script, used):
    assert {row.number for row in script.ROWS.values()} == set(range(11))
    replaced = {name for row in script.ROWS.values() for name in row.replaced}
    assert replaced == set(used.defects.REPLACED)
    assert all(row.beside in script.ROWS for row in script.ROWS.values())


def line(name, seed, score, settings=()):
    totals = dict.fromkeys(("prefilled_tokens", "trained_tokens", "env_steps", "state_resets"), 1)
    totals |= {"sampled_tokens": 1000 * (seed + 1), "seconds": 2.0}
    kept = {"row": name, "env": "plan-path", "seed": seed, "settings": list(settings)}
    return kept | {"scores": {"score": score}, "totals": totals}


def test_the_table_pairs_a_defect_with_its_clean_run_by_seed(script):
    rows = [line("at-grpo", seed, score) for seed, score in ((0, 0.9), (1, 0.7), (2, 0.5))]
    rows += [line("one-reward", seed, score) for seed, score in ((0, 0.8), (1, 0.4), (3, 0.0))]
    rows += [line("hot", 0, 0.5, ["preset=smoke"])]
    _, _, clean, defect, hot = script.table(rows).splitlines()
    assert clean.split(" | ")[3:7] == ["3", "0.700 ± 0.115", "", ""]
    # 0.8 - 0.9 and 0.4 - 0.7; seed 3 has no clean run
    assert defect.split(" | ")[1:7] == [
        "one-reward", "2", "3", "0.400 ± 0.231", "at-grpo", "-0.200 ± 0.100",
    ]  # fmt: skip
    assert defect.split(" | ")[7] == "2,333"
    assert hot.split(" | ")[1:7] == ["hot preset=smoke", "", "1", "0.500", "", ""]


def test_a_defect_that_is_not_in_the_run_fails_it_and_counts_are_added(used, tmp_path, capsys):
    file = tmp_path / "counts.json"
    assert used.run.run(["dithering"], file, ["--version"]) == 1
    assert "was called 0 times" in capsys.readouterr().err
    file.write_text(json.dumps({"dithering": {"calls": 3, "differed": 2}}))
    assert used.run.run(["dithering"], file, ["--version"]) == 0
    assert used.run.run(["dithering"], file, ["no-such-command"]) == 2
    used.counts.CountFile(file).write({"dithering": {"calls": 1, "differed": 1}})
    assert used.counts.read_counts(file) == {"dithering": {"calls": 4, "differed": 3}}
    assert used.counts.unused({"dithering": {"calls": 4, "differed": 0}}, ["dithering"])


def test_a_row_that_a_kill_cut_off_does_not_take_the_next_one_with_it(tmp_path):
    result_rows, file = load_benchmark("result_rows"), tmp_path / "rows.jsonl"
    for number in range(2):
        result_rows.add_row(file, {"seed": number})
    with file.open("a") as out:
        out.write('{"seed": 2, "sco')
    for number in (2, 3):
        result_rows.add_row(file, {"seed": number})
    assert result_rows.kept_rows(file) == [{"seed": number} for number in range(4)]


@pytest.fixture(scope="module")
def warm(used, tmp_path_factory):
    """`warm(names)`: a warm-up with these defects, in which replies are learned."""
    made = {}

    def run(names):
        if names not in made:
            made[names] = tmp_path_factory.mktemp("warm") / "run"
            given = ["preset=shared", "processes=1", *SMOKE, *TAUGHT, "trainer.iterations=0"]
            with used.defects.defective(names):
                recipe = load_recipe("plan-path-two-policy", given)
                lifecycle.train(recipe, run=made[names])
        return made[names]

    return run


def replaced_rows():
    script = load_benchmark("teams_defects")
    return [name for name, row in script.ROWS.items() if row.replaced]


@pytest.mark.slow
@pytest.mark.parametrize("name", replaced_rows())
def test_the_smoke_preset_trains_with_each_replaced_function(script, used, warm, name, tmp_path):
    row = script.ROWS[name]
    given = [
        "preset=shared",
        "processes=1",
        *row.settings,
        *SMOKE,
        *script.begun_from(warm(row.warms), "shared"),
    ]
    words = script.words_of("plan-path", given)
    file, run = tmp_path / "counts.json", tmp_path / "run"
    assert used.run.run(row.replaced, file, [*words, "--run", str(run)]) == 0
    counts = used.counts.read_counts(file)
    assert set(counts) == set(row.replaced)
    assert all(each["calls"] >= each["differed"] > 0 for each in counts.values())
    found = script.measured(run)
    assert found["totals"]["trained_tokens"] > 0 and len(found["curve"]) >= 1


@pytest.mark.slow
def test_rows_are_written_once_and_a_run_goes_on(script, tmp_path, monkeypatch, capsys):
    """By commands of their own, as a user starts them, of a smaller model."""
    shipped = (files("turnwise") / "recipes" / "plan-path-two-policy.toml").read_text()
    small = re.sub(
        r"nano = \{ hidden = \d+, layers = \d", "nano = { hidden = 32, layers = 1", shipped
    )
    (tmp_path / "small.toml").write_text(small)
    monkeypatch.setitem(script.RECIPES, "plan-path", str(tmp_path / "small.toml"))
    file, runs = tmp_path / "rows.jsonl", tmp_path / "runs"
    result_rows = load_benchmark("result_rows")
    words = [str(file), "--envs", "plan-path", "--seeds", "0", "--runs", str(runs)]
    words += ["--rows", "dithering"]
    for setting in (*SMOKE, *TAUGHT[:4]):
        words += ["--set", setting]
    monkeypatch.setattr("sys.argv", ["teams_defects.py", *words])
    script.main()
    (row,) = result_rows.kept_rows(file)
    assert row["row"] == "dithering" and row["replaced"]["dithering"]["differed"] > 0
    assert "defect_run.py dithering" in row["command"] and row["commit"]
    assert capsys.readouterr().out.count("plan-path |") == 1
    script.main()  # nothing is left
    assert len(result_rows.kept_rows(file)) == 1
    file.write_text(json.dumps(row)[:40])
    (run,) = (p for p in runs.iterdir() if p.is_dir() and "dithering" in p.name)
    (run / "eval.json").unlink()  # killed before the test was written
    script.main()
    (again,) = result_rows.kept_rows(file)
    assert again["scores"]["score"] == row["scores"]["score"]
    assert again["curve"] == row["curve"]
    assert again["replaced"]["dithering"]["calls"] > row["replaced"]["dithering"]["calls"]
