"""`turnwise eval` of a run, of models in a recipe's roles, and of baselines."""

from __future__ import annotations

import json

import pytest


def scores(result):
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    return {name: found[name] for name in ("score", "score_sampled", "measures", "seed")}


def test_a_run_in_a_role_of_its_recipe_scores_as_the_run_does(turnwise, smoke_run):
    asked = ("--tasks", 6, "--seed", 3, "--json")
    own = turnwise("eval", smoke_run, *asked)
    policy = turnwise("eval", smoke_run, "--policy", f"player={smoke_run}:main", *asked)
    model = turnwise("eval", smoke_run / "recipe.toml", "--model", f"player={smoke_run}", *asked)
    assert scores(own) == scores(policy) == scores(model)
    assert json.loads(model.stdout)["players"] == {"player": f"{smoke_run}:main"}
    assert "warmup" in json.loads(own.stdout)["baselines"]
    assert "warmup" not in json.loads(model.stdout)["baselines"]


def test_a_model_directory_plays_and_the_table_says_so(turnwise, smoke_run):
    place = smoke_run / "models" / "main"
    result = turnwise("eval", "frozen-lake", "--model", f"player={place}", "--tasks", 3)
    assert result.exit_code == 0, result.output
    assert "models, greedy" in result.stdout
    assert "trained" not in result.stdout
    assert f"Played: player by model {place}." in result.stdout


def test_baselines_are_scored_without_a_model(turnwise):
    result = turnwise("eval", "frozen-lake", "--baselines", "--set", "size=5", "--tasks", 20)
    assert result.exit_code == 0, result.output
    for words in ("optimal", "1.000", "20 tasks of the test split", "falls", "over problems"):
        assert words in result.stdout
    printed = turnwise("eval", "frozen-lake", "--baselines", "--tasks", 20, "--json")
    found = json.loads(printed.stdout)
    assert (found["tasks"], found["baselines"]["optimal"], found["broken"]) == (20, 1.0, 0)
    assert found["baselines_measures"]["shortest-path"]["falls"]["mean"] == 0.0


def test_an_env_of_ones_own_has_baselines_too(turnwise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coin.py").write_text(
        "import turnwise as tw\n"
        "class Coin(tw.Env):\n"
        "    name, components = 'coin', {'heads': 'agent'}\n"
        "    def reset(self, task): return (task.data['seed'], '')\n"
        "    def observe(self, state, role):\n"
        "        return tw.Observation(text=str(state[0]), legal_actions=('H', 'T'))\n"
        "    def step(self, state, role, action, noise):\n"
        "        after = (state[0], action)\n"
        "        return tw.Step(state=after, rewards={}, terminated=True, truncated=False)\n"
        "    def score(self, state):\n"
        "        return 1 / 0 if state[0] % 5 == 0 else float(state[1] == 'H')\n"
    )
    result = turnwise("eval", "coin.py:Coin", "--baselines", "--tasks", 40, "--json")
    found = json.loads(result.stdout)
    assert 0 < found["baselines"]["random"] < 1
    assert found["broken"] > 0
    said = turnwise("eval", "coin.py:Coin", "--baselines", "--tasks", 40).stderr
    assert "`turnwise check` says where" in " ".join(said.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("frozen-lak",), "no recipe 'frozen-lak': did you mean the recipe 'frozen-lake'?"),
        (("frozen-lake",), "has no weights: its policy 'main' is 'nano'"),
        (("rows",), "'rows' is an env: add --baselines"),
        (("frozn-lake", "--baselines"), "unknown env 'frozn-lake': did you mean 'frozen-lake'"),
        (("lake", "--baselines"), "treasure, or file.py:Class for an env of your own"),
        (("taxi", "--baselines"), "'taxi' is a recipe: give its env, 'gymnasium', and the env's"),
        (("{run}/recipe.toml", "--baselines"), "is a recipe: give its env, 'frozen-lake'"),
        (("{run}", "--baselines"), "'{run}' is a folder: leave --baselines out"),
        (("frozen-lake", "--baselines", "--set", "sise=4"), "did you mean 'size'"),
        (("frozen-lake", "--baselines", "--model", "player=x"), "leave --model out"),
        (("frozen-lake", "--model", "plaier=x"), "unknown role 'plaier': did you mean 'player'"),
        (("frozen-lake", "--model", "player"), "--model 'player': expected ROLE=PATH"),
        (("frozen-lake", "--model", "player=a", "--model", "player=b"), "'player' twice: give it"),
        (("frozen-lake", "--model", "player={run}:mian"), "did you mean '{run}:main'"),
        (("frozen-lake", "--model", "player={run}k"), "did you mean '{run}'"),
        (("frozen-lake", "--policy", "player={run}"), "is a recipe: give --model"),
        (("{run}", "--model", "player={run}"), "is a folder: give a recipe such as"),
        (("{run}", "--policy", "player={run}/models/main"), "not of a run: give RUN:POLICY"),
        (("{run}", "--policy", "player={run}k"), "there is no run folder at '{run}k'"),
        (("{run}", "--policy", "player={run}", "--model", "player=x"), "give one of them"),
    ],
)
def test_a_mistake_is_one_sentence(turnwise, is_one_sentence, smoke_run, arguments, words):
    asked = [part.format(run=smoke_run) for part in arguments]
    is_one_sentence(turnwise("eval", *asked), words.format(run=smoke_run))


TOLL = """
import turnwise as tw

class Toll(tw.Env):
    name, components, scored_by = "toll", {"cost": "agent"}, "return"

    def reset(self, task):
        return 0

    def observe(self, state, role):
        return tw.Observation(text=f"gate {state}", legal_actions=("pay", "wait"))

    def step(self, state, role, action, noise):
        if state == 3:
            raise tw.EnvError("through")
        if action not in ("pay", "wait"):
            raise tw.IllegalActionError("pay or wait")
        after = state + 1
        return tw.Step(state=after, rewards={"cost": -2.0}, terminated=after == 3, truncated=False)

    def score(self, state):
        return 1.0
"""


def test_the_return_is_told_where_it_is_the_score(turnwise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toll.py").write_text(TOLL)
    scored = turnwise("eval", "toll.py:Toll", "--baselines", "--tasks", 5)
    assert scored.exit_code == 0, scored.output
    assert "-6.000" in scored.stdout
    assert "Scores are returns: sums of the rewards by weight (cost 1)." in scored.stdout
    played = turnwise("play", "toll.py:Toll", "--baseline", "random")
    assert "the end after 3 steps, return -6" in played.stdout
    assert turnwise("check", "toll.py:Toll").exit_code == 0
