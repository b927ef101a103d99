"""The defaults of `turnwise.train` in an env: what games without a model decide, and what users."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import turnwise as tw
from turnwise.app.run_scores import evaluate_run
from turnwise.app.train import _env_wanted
from turnwise.envs import make_env
from turnwise.envs.survey import survey
from turnwise.errors import TrainingError
from turnwise.policies import NanoConfig, PolicyConfig, make_nano
from turnwise.recipe.env_defaults import env_recipe
from turnwise.recipe.from_python import policy_section
from turnwise.recipe.schema import load_recipe
from turnwise.runs import read_episodes
from turnwise.tasks import GeneratedTasks


@dataclass(frozen=True)
class Place:
    at: int = 5
    steps: int = 0


class Walk(tw.Env):
    """Ten cells in a row; what it pays is up to the subclass."""

    name = "walk"
    components = {"pay": "agent"}  # noqa: RUF012
    limit = 30

    def pay(self, at):
        return float(at == 9)

    def generate(self, rng):
        return {"at": int(rng.integers(1, 9)), "n": int(rng.integers(1000))}

    def reset(self, task):
        return Place(task.data["at"])

    def observe(self, state, role):
        return tw.Observation(text=f"cell {state.at}", legal_actions=self.words_at(state))

    def words_at(self, state) -> tuple[str, ...]:
        return ("left", "right")

    def step(self, state, role, action, noise):
        after = Place(state.at + (1 if action == "right" else -1), state.steps + 1)
        over = after.at in (0, 9)
        return tw.Step(state=after, rewards={"pay": self.pay(after.at)}, terminated=over,
                       truncated=not over and after.steps == self.limit)  # fmt: skip

    def score(self, state):
        return float(state.at == 9)


class Costly(Walk):
    """A step costs 1; a third action stays where one is, so that a game may last to its limit."""

    name = "costly"

    def pay(self, at):
        return -1.0

    def words_at(self, state) -> tuple[str, ...]:
        return ("left", "right", "stay")

    def step(self, state, role, action, noise):
        if action != "stay":
            return super().step(state, role, action, noise)
        after = Place(state.at, state.steps + 1)
        over = after.steps == self.limit
        return tw.Step(state=after, rewards={"pay": -1.0}, terminated=False, truncated=over)


class Rich(Walk):
    """Every step pays 3, and the left end costs 50."""

    name = "rich"

    def pay(self, at):
        return -50.0 if at == 0 else 3.0


class Endless(Walk):
    """It never ends, and costs a little; there are walls at both ends."""

    name = "endless"

    def step(self, state, role, action, noise):
        at = min(9, max(0, state.at + (1 if action == "right" else -1)))
        after = Place(at, state.steps + 1)
        return tw.Step(state=after, rewards={"pay": -0.1}, terminated=False, truncated=False)


class Walled(Walk):
    """Only steps that are possible are legal."""

    name = "walled"

    def words_at(self, state) -> tuple[str, ...]:
        return tuple(w for w in ("left", "right") if (w, state.at) not in {("left", 1)})


ENVS = [Walk, Costly, Rich, Endless, Walled]


def recipe_of(env: Any, settings: Any = None, model: Any = "nano"):
    """Return the recipe that `tw.train` would make."""
    given = dict.fromkeys(("rows", "reward", "eval_rows", "reward_weights"))
    wanted = _env_wanted(policy_section(model), env, {**given, "settings": settings})
    recipe, _ = wanted.tried(settings or {}, lambda text: None)
    return recipe


def paths(env, players, games=40):
    """Return the rewards of every turn of games of some players."""
    tasks = GeneratedTasks(env, "train", seed=5)
    found = []
    for number in range(games):
        rng, state, rewards = np.random.default_rng(number), env.reset(tasks.task(number)), []
        player, ended = players[number % len(players)], False
        for _ in range(100):
            step = env.step(state, "player", player(state, rng), rng)
            rewards.append(step.rewards["pay"])
            state = step.state
            ended = step.terminated or step.truncated
            if ended:
                break
        found.append((rewards, ended))
    return found


@pytest.mark.parametrize("kind", ENVS)
def test_an_invalid_reply_is_worth_less_than_any_honest_game(kind):
    env = kind()
    weight = recipe_of(kind).credit.rewards["invalid"]
    random = env.baselines()["random"]

    def holding(word):
        return lambda s, r: word if word in env.observe(s, "player").legal_actions else random(s, r)

    played = paths(env, [random, *map(holding, ("left", "right", "stay"))])
    worst = min(sum(rewards) for rewards, _ in played)
    for rewards, ended in played:
        for turns in range(len(rewards) if ended else len(rewards) + 1):
            assert sum(rewards[:turns]) + weight < worst


def test_cliff_walking_pays_wandering_more_than_nonsense():
    env = make_env("gymnasium", id="CliffWalking")
    weight = recipe_of(env).credit.rewards["invalid"]
    found = survey(env, GeneratedTasks(env, "train", seed=3).take(8), seed=3)
    wandered = [sum(sum(turn.values()) for turn in game.rewards) for game in found.games]
    assert min(wandered) < -100
    assert weight < min(wandered)


def test_the_weights_of_rewards_decide_what_an_invalid_reply_costs():
    once = recipe_of(Costly).credit.rewards["invalid"]
    twice = recipe_of(Costly, {"credit.rewards.pay": 2.0}).credit.rewards["invalid"]
    assert twice == pytest.approx(2 * once)
    own = recipe_of(Costly, {"credit.rewards.invalid": -3.0})
    assert own.credit.rewards == {"pay": 1.0, "invalid": -3.0}
    assert (
        "invalid"
        not in recipe_of(Walk, {"credit.scheme": "maxrl", "credit.std": None}).credit.rewards
    )


def test_a_nano_model_is_warmed_up_on_play_and_takes_small_steps():
    recipe = recipe_of(Walk)
    assert recipe.warmup is not None
    assert recipe.sft_mix is not None
    assert (recipe.warmup.states, recipe.sft_mix.states) == ("play", "play")
    assert (recipe.optimizer.lr, recipe.optimizer.warmup_steps) == (2e-4, 10)
    assert recipe.trainer.minibatches == 2
    assert recipe.warmup.stop_at_accuracy == 1.0  # a game fails by one reply
    assert recipe.evaluation.validate_start
    assert recipe.evaluation.decoding == "validated"
    assert not recipe.agents["player"].show_legal
    assert recipe_of(Walled).agents["player"].show_legal
    assert recipe_of("frozen-lake").credit.segments == {"answer": "return"}


def test_the_past_is_shown_where_it_fits_into_the_context():
    class Short(Walk):
        limit = 4

    assert recipe_of(Short).agents["player"].history == "full"
    assert recipe_of(Endless).agents["player"].history == "last_n"
    tiny = PolicyConfig(nano=NanoConfig(context=64))
    assert recipe_of(Endless, model=tiny).agents["player"].history == "observation"


SETTINGS = [
    {"trainer.iterations": 1},
    {"trainer.iterations": 3, "trainer.minibatches": 1},
    {"trainer.tasks_per_iteration": 1},
    {"warmup.steps": 2},
    {"warmup": None},
    {"warmup": None, "sft_mix": None},
    {"sft_mix": None},
    {"warmup.states": "first", "sft_mix.states": "first"},
    {"optimizer.lr": 1e-3, "optimizer.warmup_steps": 0, "optimizer.schedule": "constant"},
    {"trainer.minibatches": 4, "trainer.group_size": 3},
    {"agents.player.history": "observation", "agents.player.max_tokens": 9},
    {"agents.player.show_legal": True},
    {"credit.rewards.invalid": -7.0},
    {"policies.main.nano.init_std": 0.05},
    {"evaluation.decoding": "greedy", "evaluation.validate_start": False},
    {"evaluation.validation": "exact"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_default_gives_way_to_the_users_settings(settings):
    found = recipe_of(Walk, settings).model_dump()
    for key, value in settings.items():
        at = found
        for part in key.split("."):
            at = at[part]
        assert at == value


def test_a_policy_config_leaves_what_it_was_not_given_to_the_defaults():
    def nano(**given):
        model = PolicyConfig(nano=NanoConfig(hidden=64, **given))
        made = recipe_of(Walk, model=model).policies["main"].nano
        assert made is not None
        assert made.hidden == 64
        return made.init_std

    assert nano() == 0.12  # 1 / sqrt(64)
    assert nano(init_std=0.02) == 0.02


def test_rows_of_a_file_and_whole_replies_go_with_the_other_defaults(tmp_path):
    (tmp_path / "best.jsonl").write_text(json.dumps({"prompt": "cell 3", "completion": "right"}))
    settings = {"warmup.data": str(tmp_path / "best.jsonl"), "agents.player.reply": "whole"}
    recipe = recipe_of("frozen-lake", settings)
    assert recipe.warmup is not None
    assert recipe.sft_mix is not None
    assert (recipe.warmup.states, recipe.sft_mix.states) == (None, "play")
    assert (recipe.sft_mix.spans, recipe.credit.segments) == ({}, {})


def test_a_real_model_is_told_the_actions_and_how_to_answer():
    def told(env, settings=None):
        return recipe_of(env, settings, model="some/model").agents["player"]

    assert told(Walk).system == (
        "End your reply with one of these actions: left, right, between <answer> and </answer>, "
        "as in: <answer> left </answer>"
    )
    walled = told(Walled)
    assert walled.system.startswith("End your reply with one of the legal actions listed, between")
    assert walled.show_legal
    whole = told(Walk, {"agents.player.reply": "whole"}).system
    assert whole == "Reply with one of these actions: left, right, and with nothing else."
    assert told(Walk, {"agents.player.system": "Walk."}).system == "Walk."

    class Raw(Walk):
        def observe(self, state, role):
            return tw.Observation(
                text=f"cell {state.at}:", legal_actions=("left", "right"), raw=True
            )

    assert told(Raw).system == ""


FAST = {
    "trainer.iterations": 1,
    "trainer.group_size": 4,
    "trainer.tasks_per_iteration": 4,
    "agents.player.max_tokens": 4,
    "engine.probe_tokens": 64,
    "forest.probe_tokens": 64,
    "evaluation.test_tasks": 4,
    "evaluation.validation_tasks": 4,
}
TINY = NanoConfig(hidden=32, layers=1, heads=2, kv_heads=1, head_dim=16, intermediate=64)


def test_a_run_whose_first_replies_all_fail_stops_and_quotes_them(tmp_path):
    model = tmp_path / "model"
    make_nano(model, ["cell 1 left right"], (), TINY, 0)
    with pytest.raises(TrainingError) as caught:
        tw.train(model, env=Walk, settings=FAST, run=tmp_path / "run")
    said = str(caught.value)
    assert "16 of 16 replies of the first iteration are not actions" in said
    assert said.count("The model said") == 2
    assert "raise agents.player.max_tokens = 4" in said
    (file,) = (tmp_path / "run" / "episodes").iterdir()
    assert len(read_episodes(file).episodes) == 16
    on = {**FAST, "trainer.stop_if_failed": "never"}
    assert tw.train(model, env=Walk, settings=on, run=tmp_path / "on").finished


def test_a_warm_up_or_a_model_made_on_the_spot_may_begin_badly(tmp_path):
    fast = FAST | {"warmup.steps": 2, "warmup.eval_every": 1, "warmup.perception_tasks": 4}
    outcome = tw.train(PolicyConfig(nano=TINY), env=Walk, settings=fast, run=tmp_path / "a")
    assert outcome.finished
    assert load_recipe(str(outcome.run / "recipe.toml")).trainer.stop_if_failed == "auto"
    report = (outcome.run / "report.md").read_text()
    assert "of the episodes failed at the end, more than half since iteration 1" in report
    with pytest.raises(TrainingError, match="replies of the first iteration are not actions"):
        strict = {**fast, "trainer.stop_if_failed": 0.9}
        tw.train(PolicyConfig(nano=TINY), env=Walk, settings=strict, run=tmp_path / "b")


class Notes(tw.Silent):
    """Keeps the notes."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_failing_replies_are_told_while_the_run_goes_on_and_at_its_end(tmp_path):
    watcher = Notes()
    fast = FAST | {"trainer.iterations": 3, "warmup": None, "sft_mix": None}
    tw.train(PolicyConfig(nano=TINY), env=Walk, settings=fast, run=tmp_path / "a", progress=watcher)
    warnings = [note for note in watcher.notes if note.startswith("WARNING")]
    assert len(warnings) == 2
    assert "iteration 1: 100% of the episodes ended in a reply that is not a legal" in warnings[0]
    assert "The model said" in warnings[0]
    assert "100% of the episodes of the last iteration" in warnings[1]


@dataclass(frozen=True)
class Hidden:
    word: str
    tries: int = 0
    right: bool = False


class Blind(tw.Env):
    """Find a hidden word of four in four tries; nothing is ever said about it."""

    name = "blind"
    components = {"right": "agent"}  # noqa: RUF012
    all_words = ("ape", "bee", "cat", "dog")

    def generate(self, rng):
        return {"word": str(rng.choice(self.all_words)), "n": int(rng.integers(1000))}

    def reset(self, task):
        return Hidden(task.data["word"])

    def observe(self, state, role):
        return tw.Observation(text="which word ?", legal_actions=self.all_words)

    def step(self, state, role, action, noise):
        after = Hidden(state.word, state.tries + 1, action == state.word)
        over = after.right or after.tries == 4
        rewards = {"right": float(after.right)}
        return tw.Step(state=after, rewards=rewards, terminated=over, truncated=False)

    def score(self, state):
        return float(state.right)


def test_what_greedy_play_cannot_do_is_scored_as_sampled_and_said(tmp_path):
    """Whoever repeats a word is right in 1 of 4 games; random play is in 1 - (3 / 4)^4 = 0.68."""
    settings = FAST | {
        "agents.player.max_tokens": 8,
        "agents.player.history": "observation",
        "warmup.steps": 100,
        "warmup.perception_tasks": 8,
        "warmup.optimizer.lr": 1e-2,
        "evaluation.validation_tasks": 64,
        "evaluation.test_tasks": 200,
    }
    run, model = tmp_path / "run", PolicyConfig(nano=TINY)
    outcome = tw.train(model, env=Blind, settings=settings, run=run, progress=False)
    scores = outcome.scores
    assert scores is not None
    assert scores.decoding == "sampled"
    assert scores.score == scores.score_sampled > 0.45
    assert scores.score_greedy < 0.35
    assert scores.paired["random"].difference == pytest.approx(
        scores.score - scores.baselines["random"]
    )
    assert scores.baselines["warmup"] > 0.45  # the start, played the same way
    assert any("Played greedily the policy scores 0." in each for each in outcome.warnings)
    text = (run / "report.md").read_text()
    assert text.index("**trained, at training temperature**") < text.index("trained, greedy")
    greedy = evaluate_run(run, tasks=50, overrides=["evaluation.decoding=greedy"])
    assert (greedy.decoding, greedy.score) == ("greedy", greedy.score_greedy)


def test_env_recipe_leaves_what_it_is_given_alone():
    plain = {
        "name": "walk",
        "env": {"name": "frozen-lake"},
        "policies": {"main": {"model": "nano"}},
        "agents": {"player": {"role": "player"}},
        "credit": {"scheme": "grpo", "rewards": {"goal": 1.0}},
    }
    before = json.dumps(plain)
    assert env_recipe(plain, {})["credit"]["rewards"]["invalid"] < 0
    assert json.dumps(plain) == before
