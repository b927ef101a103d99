"""Evaluation without training: models and runs' policies in the roles of a recipe or of a run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import turnwise as tw
from turnwise.app import lifecycle
from turnwise.app.loading import load_models, load_run
from turnwise.app.sources import policy_source
from turnwise.errors import ConfigError, ModelError, RunError, UnknownNameError
from turnwise.policies.sources import existing_source
from turnwise.recipe.schema import load_recipe
from turnwise.runs.checkpoints import Checkpoints

TEAM = '''
from dataclasses import dataclass, replace
import numpy as np
from turnwise import Env, IllegalActionError, Observation, Step

WORDS = ("LEFT", "RIGHT")

@dataclass(frozen=True)
class Pair:
    """Which word is asked for, and what was said so far."""
    wanted: int
    extra: int
    said: tuple = ()

class Team(Env):
    """The scout says the word that it reads, and the digger says it again."""
    name = "team"
    roles = ("scout", "digger")
    components = {"hit": "team"}

    def generate(self, rng):
        return {"wanted": int(rng.integers(2)), "extra": int(rng.integers(100))}

    def reset(self, task):
        return Pair(task.data["wanted"], task.data["extra"])

    def acting(self, state):
        return (self.roles[min(len(state.said), 1)],)

    def observe(self, state, role):
        shown = WORDS[state.wanted].lower() if role == "scout" else "".join(state.said[:1])
        text = f"{role} {state.extra} {shown} {len(state.said)}"
        return Observation(text=text, legal_actions=WORDS)

    def step(self, state, role, action, noise):
        if action not in WORDS:
            raise IllegalActionError("say LEFT or RIGHT")
        after = replace(state, said=(*state.said, action))
        over = len(after.said) == 2
        rewards = {"hit": self.score(after)}
        return Step(state=after, rewards=rewards, terminated=over, truncated=False)

    def score(self, state):
        return float(state.said == (WORDS[state.wanted],) * 2)

    def measures(self, state):
        return {"agreed": float(len(set(state.said)) == 1)}

    def vocabulary(self):
        return WORDS
'''
RECIPE = """
name = "team"
device = "cpu"
env = {{ name = "{file}:Team" }}
agents.scout = {{ policy = "{scout}", max_tokens = 8 }}
agents.digger = {{ policy = "{digger}", max_tokens = 8 }}
warmup = {{ steps = 60, eval_every = 60, batch_size = 16, optimizer = {{ lr = 1e-2 }} }}
trainer.iterations = 0
credit = {{ scheme = "grpo", rewards = {{ hit = 1.0 }} }}
evaluation.test_tasks = 4
engine.probe_tokens = 64
forest.probe_tokens = 64
"""
NANO = """
[policies.{name}]
model = "nano"
nano = {{ hidden = {hidden}, layers = 1, heads = 2, kv_heads = 1, intermediate = 32 }}
"""


def team_run(folder: Path, scout: str, digger: str, hidden: int = 32, hit: float | None = None):
    """A short run of a team whose roles are played by the policies of these names.

    With a weight of `hit` the return is the score.
    """
    file = folder / "team.py"
    by_return = 'name = "team"\n    scored_by = "return"'
    file.write_text(TEAM if hit is None else TEAM.replace('name = "team"', by_return))
    names = dict.fromkeys((scout, digger))
    text = RECIPE.format(file=file, scout=scout, digger=digger)
    text = text if hit is None else text.replace("hit = 1.0", f"hit = {hit}")
    recipe = folder / "team.toml"
    recipe.write_text(text + "".join(NANO.format(name=name, hidden=hidden) for name in names))
    return lifecycle.train(load_recipe(str(recipe)), run=folder / "run").run


@pytest.fixture(scope="session")
def pair(tmp_path_factory) -> Path:
    """Two policies that begin with one model."""
    return team_run(tmp_path_factory.mktemp("pair"), "eyes", "hands")


@pytest.fixture(scope="session")
def single(tmp_path_factory) -> Path:
    """One policy, another model, in both roles."""
    return team_run(tmp_path_factory.mktemp("single"), "both", "both", hidden=48)


def compared(scores):
    return scores.model_dump(exclude={"seconds", "players", "checkpoint", "paired"}) | {
        "baselines": {n: v for n, v in scores.baselines.items() if n != "warmup"},
        "baselines_stderr": {},
        "baselines_measures": {},
    }


def test_a_runs_own_policies_score_the_same_however_they_are_given(pair):
    own = tw.evaluate_run(pair, tasks=12)
    assert own.score_best is None
    assert own.players == {}
    assert own.measures["agreed"].episodes > 6, "most replies are words"
    asked = {"scout": f"{pair}:eyes", "digger": f"{pair}:hands"}
    given = tw.evaluate_run(pair, tasks=12, policies=asked)
    models = tw.evaluate_models(str(pair / "recipe.toml"), asked, tasks=12)
    assert given.players == models.players == asked
    assert compared(own) == compared(given) == compared(models)
    assert (own.checkpoint, models.checkpoint) == ("warmup 60", "")


def test_scores_measures_and_the_start_are_played_in_one_way(pair):
    """Nothing was trained after the start, so that it scores as the policies do."""
    greedy, sampled = (
        tw.evaluate_run(pair, tasks=16, overrides=[f"evaluation.decoding={way}"])
        for way in ("greedy", "sampled")
    )
    assert (greedy.decoding, sampled.decoding) == ("greedy", "sampled")
    assert greedy.score == greedy.score_greedy == sampled.score_greedy
    assert sampled.score == sampled.score_sampled == greedy.score_sampled
    assert greedy.score != sampled.score, "else nothing could be mistaken"
    assert greedy.measures["agreed"] != sampled.measures["agreed"]
    for found in (greedy, sampled):
        assert found.baselines["warmup"] == found.score
        assert found.paired["warmup"].difference == 0.0
        assert found.paired["random"].difference == pytest.approx(
            found.score - found.baselines["random"]
        )


def test_a_test_plays_the_baselines_that_are_named(pair):
    every, one, none = (
        tw.evaluate_run(pair, tasks=8, overrides=asked)
        for asked in ([], ['evaluation.baselines=["random"]'], ["evaluation.baselines=[]"])
    )
    assert set(none.baselines) == set(none.paired) == {"warmup"}
    assert set(one.baselines) == set(every.baselines) == {"random", "warmup"}
    assert one.paired["random"] == every.paired["random"]
    for found in (one, none):
        assert compared(found)["score"] == every.score
        assert "warmup" in str(found)
    with pytest.raises(ConfigError, match=r"evaluation.baselines 'randm': did you mean 'random'"):
        tw.evaluate_run(pair, tasks=8, overrides=['evaluation.baselines=["randm"]'])


def test_several_samples_of_a_task_have_a_mean_and_a_best(pair):
    one = tw.evaluate_run(pair, tasks=8)
    several = tw.evaluate_run(pair, tasks=8, overrides=["evaluation.samples=4"])
    assert several.samples == 4
    assert several.score_best is not None
    assert several.score_best >= max(several.score_sampled, one.score_sampled)
    assert several.score_greedy == one.score_greedy
    assert "best of 4 sampled" in str(several)
    assert several.as_metrics()["test/score_best"] == several.score_best


def test_another_runs_policy_plays_one_role(pair, single):
    loaded = load_run(pair, policies={"digger": str(single)})
    assert set(loaded.policies) == {"eyes", f"{single}:both"}
    loaded.use_checkpoint()
    before = {name: policy.digest() for name, policy in loaded.policies.items()}
    assert load_run(single).policies["both"].digest() != before[f"{single}:both"], "as it began"
    assert loaded.use_start()
    after = {name: policy.digest() for name, policy in loaded.policies.items()}
    assert after[f"{single}:both"] == before[f"{single}:both"], "the start is the run's own alone"
    scores = tw.evaluate_run(pair, tasks=8, policies={"digger": str(single)})
    assert scores.players == {"scout": f"{pair}:eyes", "digger": f"{single}:both"}
    assert scores.played_by == f"Played: scout by {pair}:eyes, digger by {single}:both."
    assert "warmup" in scores.baselines
    assert set(scores.measures) <= {"agreed"}


def test_one_policy_in_both_roles_is_loaded_once(pair, single):
    loaded = load_run(pair, policies={"scout": str(single), "digger": str(single)})
    assert set(loaded.policies) == {f"{single}:both"}
    assert not loaded.use_start()


def test_a_saved_model_plays_beside_a_run(pair, single):
    model = single / "models" / "both"
    loaded = load_models(
        load_recipe(str(pair / "recipe.toml")), {"scout": str(model), "digger": f"{pair}:hands"}
    )
    assert set(loaded.policies) == {f"model {model}", f"{pair}:hands"}
    assert loaded.players == {"scout": f"model {model}", "digger": f"{pair}:hands"}


def test_one_model_that_is_held_otherwise_is_another_policy(pair, single):
    model = str(single / "models" / "both")
    recipe = load_recipe(str(pair / "recipe.toml"), ["policies.hands.context=96"])
    loaded = load_models(recipe, {"scout": model, "digger": model})
    played = {role: agent.policy for role, agent in loaded.recipe.agents.items()}
    assert played == {"scout": f"model {model}", "digger": f"model {model} as digger"}
    assert loaded.policies[played["digger"]].context == 96
    assert loaded.policies[played["scout"]].context != 96


def test_policies_that_validated_in_different_ways_are_sampled(pair):
    name, checkpoint = f"{pair}:hands", policy_source(f"{pair}:hands").weights.parents[1]
    rule = ["evaluation.decoding=validated"]
    loaded = load_run(pair, overrides=rule, policies={"digger": name})
    assert loaded.checkpoint.path == checkpoint
    greedy = {name: replace(loaded.sources[name], decoding="greedy")}
    own = {"checkpoint": replace(loaded.checkpoint, meta={"decoding": "greedy"})}
    assert loaded.decoding == "sampled", "nothing was validated"
    assert replace(loaded, sources=greedy).decoding == "sampled"
    assert replace(loaded, **own).decoding == "sampled"
    assert replace(loaded, sources=greedy, **own).decoding == "greedy"


def test_weights_that_come_into_use_are_a_new_version(pair):
    """By their version the engine knows that what it has remembered belongs to others."""
    loaded = load_run(pair, policies={"digger": f"{pair}:hands"})
    other = loaded.policies[f"{pair}:hands"].version
    for version in (1, 2):
        assert loaded.use_start() if version == 2 else not loaded.use_checkpoint()
        assert loaded.policies["eyes"].version == version
        assert loaded.policies[f"{pair}:hands"].version == other


def test_a_frozen_policy_of_a_run_plays_with_the_weights_of_its_model(pair, tmp_path):
    frozen = shutil.copytree(pair, tmp_path / "frozen")
    recipe = load_recipe(str(frozen / "recipe.toml"), ["policies.eyes.trainable=false"])
    (frozen / "recipe.toml").write_text(recipe.to_toml())
    eyes, hands = (policy_source(f"{frozen}:{name}") for name in ("eyes", "hands"))
    assert eyes.weights is None
    assert hands.weights is not None and hands.weights.name == "hands"


def test_the_best_checkpoint_plays_and_as_it_validated(pair, tmp_path):
    run = shutil.copytree(pair, tmp_path / "validated")
    checkpoints = Checkpoints(run / "checkpoints", keep=5)
    weights = checkpoints.latest().checkpoint.path / "policies"

    def write(folder):
        shutil.copytree(weights, folder / "policies")

    for step, score in ((1, 0.9), (2, 0.1)):
        way = {"decoding": "greedy" if step == 1 else "sampled"}
        checkpoints.save("train", step, write, way, score=score)
    found = policy_source(f"{run}:hands")
    assert found.weights.parents[1].name.endswith("-train-1")
    assert found.decoding == "greedy"


def test_a_moved_run_plays(pair, tmp_path):
    moved = shutil.copytree(pair, tmp_path / "moved")
    there = load_run(moved, policies={"scout": f"{moved}:hands"})
    there.use_checkpoint()
    assert set(there.policies) == {"hands", f"{moved}:hands"}
    assert there.policies["hands"].digest() == there.policies[f"{moved}:hands"].digest()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"scuot": "{run}"}, UnknownNameError, "unknown role 'scuot': did you mean 'scout'"),
        ({"scout": "{run}"}, ConfigError, "has the policies eyes, hands: name one, as in"),
        ({"scout": "{run}:eye"}, UnknownNameError, "did you mean '{run}:eyes'"),
        ({"scout": "{run}x:eyes"}, RunError, "did you mean '{run}'"),
    ],
)
def test_a_policy_that_is_not_there_is_one_sentence(pair, given, error, words):
    asked = {role: place.format(run=pair) for role, place in given.items()}
    with pytest.raises(error) as refused:
        tw.evaluate_run(pair, policies=asked)
    assert words.format(run=pair) in str(refused.value)


def test_a_policy_of_a_run_is_no_model_of_a_recipe_and_its_folders_are_named(pair):
    with pytest.raises(ModelError) as refused:
        existing_source(f"{pair}:hands")
    assert "names a run's policy, as `turnwise eval` takes it" in str(refused.value)
    assert "/hands'" in str(refused.value) and "/eyes'" not in str(refused.value)


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        ("nano", ModelError, "is made on the spot and has learned nothing: give a model's"),
        ("{run}/modls", ModelError, "did you mean '{run}/models'"),
        ("{run}s", RunError, "did you mean '{run}'"),
        ("{run}/checkpoints", ModelError, "has no config.json: give '{run}/checkpoints/"),
        ("{run}/start", ModelError, "give '{run}/start/eyes' or '{run}/start/hands'"),
    ],
)
def test_a_model_that_is_not_there_is_one_sentence(pair, place, error, words):
    asked = {"digger": f"{pair}:hands", "scout": place.format(run=pair)}
    with pytest.raises(error) as refused:
        tw.evaluate_models(str(pair / "recipe.toml"), asked)
    assert words.format(run=pair) in str(refused.value)


def test_a_role_without_weights_is_one_sentence(pair):
    with pytest.raises(ConfigError, match="role 'digger' of recipe 'team' has no weights.*--model"):
        tw.evaluate_models(str(pair / "recipe.toml"), {"scout": f"{pair}:eyes"})


def test_baselines_need_no_model():
    lake = tw.make_env("frozen-lake")
    scores = tw.evaluate_baselines(lake, tasks=30, seed=2)
    assert (scores.tasks, scores.split, scores.broken) == (30, "test", 0)
    assert scores.baselines["optimal"] == 1.0
    assert set(scores.baselines) == set(scores.baselines_stderr) == set(lake.baselines())
    lake.baselines = dict
    with pytest.raises(ConfigError, match="has no baselines: write `baselines`"):
        tw.evaluate_baselines(lake)


def test_returns_are_the_scores_of_baselines_where_a_run_has_them(tmp_path):
    """The run's own baselines have the recipe's weights, and those alone have 1 or the given."""
    run = team_run(tmp_path, "both", "both", hit=2.0)
    trained = tw.evaluate_run(run, tasks=40)
    assert 0 < trained.baselines["random"] <= 2.0
    team = tw.make_env(f"{tmp_path}/team.py:Team")
    alone = tw.evaluate_baselines(team, tasks=40)
    twice = tw.evaluate_baselines(team, tasks=40, reward_weights={"hit": 2.0})
    assert trained.baselines["random"] == twice.baselines["random"] == 2 * alone.baselines["random"]
    assert (alone.reward_weights, twice.reward_weights) == ({"hit": 1.0}, {"hit": 2.0})
    assert "Scores are returns: sums of the rewards by weight (hit 2)." in str(twice)


def test_weights_that_no_score_has_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="reward_weights do not change the score of env 'frozen"):
        tw.evaluate_baselines(tw.make_env("frozen-lake"), tasks=2, reward_weights={"goal": 1.0})
    file = tmp_path / "team.py"
    file.write_text(TEAM.replace('name = "team"', 'name = "team"\n    scored_by = "return"'))
    with pytest.raises(ConfigError, match="unknown reward component 'hits': did you mean 'hit'"):
        tw.evaluate_baselines(tw.make_env(f"{file}:Team"), tasks=2, reward_weights={"hits": 1.0})


def test_baselines_are_printed_as_a_table():
    env = tw.make_env("frozen-lake", map=["SFF", "FFF", "FFG"])
    scores = tw.evaluate_baselines(env, tasks=30)
    assert repr(scores) == str(scores)
    head, columns, first, *_, errors = str(scores).splitlines()
    assert head == "frozen-lake: 30 tasks of the test split, 1 distinct problem, seed 0"
    assert columns.split() == ["baseline", "score", "steps", "falls"]
    assert first[columns.index("score") :].startswith("1.000 (all 30 equal"), (
        "a column begins at one place"
    )
    assert errors == "Errors are standard errors over episodes."
    means = [float(line.split()[1]) for line in str(scores).splitlines()[2:-1]]
    assert means == sorted(means, reverse=True) and len(means) == len(scores.baselines)
    broken = scores.model_copy(update={"broken": 3})
    assert str(broken).endswith(
        "the env broke 3 episodes, which count with score 0: `turnwise check` says where"
    )
