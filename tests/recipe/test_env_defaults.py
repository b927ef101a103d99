"""The defaults of `turnwise.train` in an env: what games without a model decide, and what users."""

from __future__ import annotations

import json
import time
import tomllib
from dataclasses import dataclass, replace
from typing import Any

import pytest
from transformers import Qwen3Config

import turnwise as tw
import turnwise.recipe.env_defaults
from turnwise.app.made_recipe import recipe_for_env
from turnwise.app.run_scores import evaluate_run
from turnwise.envs.survey import survey
from turnwise.errors import ConfigError, TrainingError
from turnwise.policies import NanoConfig, PolicyConfig, make_nano
from turnwise.recipe.env_defaults import env_recipe
from turnwise.recipe.from_python import policy_section
from turnwise.recipe.reasons import annotated, described, still_true
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


@pytest.fixture(autouse=True, scope="module")
def surveys_are_kept():
    """Play the games of a survey once for each env: they are a function of it and of the seed."""
    kept = {}

    def once(env, tasks, seed):
        place = type(env.unwrapped), env.unwrapped.config.model_dump_json(), len(tasks), seed
        if place not in kept:
            kept[place] = survey(env, tasks, seed)
        return kept[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turnwise.recipe.env_defaults, "survey", once)
        yield


def recipe_of(env: Any, settings: Any = None, model: Any = "nano", told: Any = None):
    """Return the recipe that `tw.train` would make; add what it says to the list `told`."""
    given = dict.fromkeys(("rows", "reward", "eval_rows", "reward_weights"))
    wanted = recipe_for_env(policy_section(model), env, {**given, "settings": settings})
    recipe, _ = wanted.tried(settings or {}, ([] if told is None else told).append)
    return recipe


@pytest.mark.parametrize("kind", ENVS)
def test_an_invalid_reply_is_worth_less_than_any_honest_reply(kind):
    credit = recipe_of(kind).credit
    assert credit.invalid_below_worst
    assert credit.rewards == {"pay": 1.0}


def test_whoever_weighs_invalid_replies_has_them_weighed():
    own = recipe_of(Costly, {"credit.rewards.invalid": -3.0}).credit
    assert own.rewards == {"pay": 1.0, "invalid": -3.0}
    assert not own.invalid_below_worst
    most = recipe_of(Walk, {"credit.scheme": "maxrl", "credit.std": None}).credit
    assert most.rewards == {"pay": 1.0}
    assert most.invalid_below_worst


def test_a_nano_model_is_warmed_up_on_play_and_takes_small_steps():
    recipe = recipe_of(Walk)
    assert recipe.warmup is not None
    assert recipe.sft_mix is not None
    assert (recipe.warmup.states, recipe.sft_mix.states) == ("play", "play")
    assert (recipe.optimizer.lr, recipe.optimizer.warmup_steps) == ("auto", 0)
    assert recipe.trainer.minibatches == 4
    assert recipe.sft_mix.spans == {"answer": 1.0, "action": 0.2}
    assert recipe.sft_mix.final == {"action": 0.0}
    assert recipe.warmup.outcomes  # nothing else is learned of states without descriptions
    assert recipe.warmup.stop_at_accuracy == "never"
    assert recipe.evaluation.validate_start
    assert recipe.evaluation.decoding == "validated"
    assert not recipe.agents["player"].show_legal
    told, walled = reasons_of(Walled)
    assert walled.agents["player"].show_legal
    assert told["agents.player.show_legal"] == "the legal actions change from state to state"
    lake = recipe_of("frozen-lake")
    assert lake.credit.segments == {"answer": "return"}
    assert lake.warmup is not None and lake.sft_mix is not None
    assert not lake.warmup.outcomes
    assert lake.warmup.stop_at_accuracy == 0.98
    assert lake.sft_mix.spans == {"think": 5.0, "answer": 1.0, "action": 0.2}


class Timed(Walk):
    """The key of a state also says the time."""

    name = "timed"

    def state_key(self, state, role):
        return f"{state.at} {state.steps}"


class Secret(Walk):
    """What is not seen decides which way is which; the key says it."""

    name = "secret"

    def generate(self, rng):
        return {**super().generate(rng), "turned": bool(rng.integers(2))}

    def reset(self, task):
        return (Place(task.data["at"]), task.data["turned"])

    def observe(self, state, role):
        return super().observe(state[0], role)

    def state_key(self, state, role):
        return f"{state}"

    def step(self, state, role, action, noise):
        real = {"left": "right", "right": "left"}[action] if state[1] else action
        found = super().step(state[0], role, real, noise)
        return replace(found, state=(found.state, state[1]))

    def score(self, state):
        return super().score(state[0])


class Short(Walk):
    """A game of at most three steps."""

    name = "short"
    limit = 3


def test_long_games_also_begin_in_later_states_and_are_played_in_parts():
    for kind in (Walk, Timed):
        made = env_made(kind)
        recipe = recipe_of(kind)
        assert recipe.curriculum.kind == "restarts"
        assert recipe.curriculum.explore == 10_000
        assert recipe.trainer.max_turns == 8
        assert (recipe.trainer.tasks_per_iteration, recipe.trainer.group_size) == (32, 4)
        player = recipe.agents["player"]
        assert (player.invalid_reply, player.invalid_limit) == ("continue", 3)
        assert recipe.credit.state_key == "observation"
        assert recipe.evaluation.validation_tasks == 64
        assert {
            "curriculum.kind",
            "curriculum.explore",
            "trainer.max_turns",
            "agents.player.invalid_reply",
            "credit.state_key",
        } <= set(made.reasons)


def env_made(kind):
    given = dict.fromkeys(("rows", "reward", "eval_rows", "reward_weights", "settings"))
    return recipe_for_env(policy_section("nano"), kind, given)


def test_short_games_are_played_whole_from_their_beginnings():
    recipe = recipe_of(Short)
    assert recipe.curriculum.kind == "uniform"
    assert recipe.trainer.max_turns is None
    assert recipe.trainer.group_size == 8
    assert recipe.agents["player"].invalid_reply == "end"
    assert recipe.evaluation.validation_tasks == 128


def test_the_key_of_the_env_is_kept_where_it_says_more_than_the_observation():
    recipe = recipe_of(Secret)
    assert recipe.credit.state_key == "env"
    assert recipe.trainer.max_turns == 16
    assert recipe.curriculum.kind == "restarts"


def test_games_that_cannot_be_played_again_begin_at_their_beginning():
    class Once(Walk):
        branching = "none"

    recipe = recipe_of(Once)
    assert recipe.curriculum.kind == "uniform"
    assert recipe.trainer.max_turns is None
    assert recipe.agents["player"].invalid_reply == "continue"


@pytest.mark.parametrize(
    "off",
    [
        {"curriculum.kind": "uniform"},
        {"curriculum.kind": "restarts", "curriculum.share": 0.0},
        {"curriculum.share": 0.0},
    ],
    ids=str,
)
def test_whoever_wants_no_later_beginnings_has_games_played_whole(off):
    recipe = recipe_of(Walk, off)
    assert recipe.trainer.max_turns is None
    assert recipe.trainer.group_size == 8
    assert recipe.evaluation.validation_tasks == 128
    assert recipe.agents["player"].invalid_reply == "continue"


def test_a_part_of_a_game_has_as_many_turns_of_each_seat():
    assert recipe_of(Walk).trainer.max_turns == 8
    assert recipe_of(Pair).trainer.max_turns == 16


def test_few_iterations_explore_no_longer_than_they_play():
    assert recipe_of(Walk, {"trainer.iterations": 2}).curriculum.explore == 2048


def test_whoever_wants_groups_of_a_size_has_no_more_episodes():
    recipe = recipe_of(Walk, {"trainer.group_size": 16})
    assert (recipe.trainer.tasks_per_iteration, recipe.trainer.group_size) == (8, 16)


def test_a_real_model_also_begins_long_games_in_later_states():
    recipe = recipe_of(Walk, model="some/model")
    assert recipe.curriculum.kind == "restarts"
    assert recipe.trainer.max_turns is None
    assert recipe.agents["player"].invalid_limit == 3


def test_updates_of_a_pretrained_model_hold_uniform_actions_and_nothing_else():
    mix = recipe_of(Walk, model="some/model").sft_mix
    assert mix is not None and (mix.spans, mix.final) == ({"action": 0.2}, {"action": 0.0})
    assert (mix.states, mix.action_floor) == ("play", 0.5)
    assert recipe_of(Walk, {"sft_mix": None}, model="some/model").sft_mix is None
    own = {"sft_mix.spans.action": 0.05, "sft_mix.rows": 4}
    mix = recipe_of(Walk, own, model="some/model").sft_mix
    assert mix is not None and (mix.spans, mix.rows) == ({"action": 0.05}, 4)


@pytest.mark.parametrize("settings", [{"sft_mix.final.action": 0.05}, {"sft_mix.rows": 4}])
def test_settings_of_the_mix_of_a_pretrained_model_keep_its_other_defaults(settings):
    mix = recipe_of(Walk, settings, model="some/model").sft_mix
    assert mix is not None and (mix.spans, mix.action_floor) == ({"action": 0.2}, 0.5)


@pytest.mark.parametrize(
    ("context", "shown", "tokens"), [(128, "observation", 64), (32_768, "full", 512)]
)
def test_prompts_and_replies_fit_into_the_context_of_a_pretrained_model(
    tmp_path, context, shown, tokens
):
    Qwen3Config(max_position_embeddings=context).save_pretrained(tmp_path)
    agent = recipe_of(Blind, model=str(tmp_path)).agents["player"]
    assert (agent.history, agent.max_tokens) == (shown, tokens)
    given = {"agents.player.max_tokens": 200}
    assert recipe_of(Blind, given, model=str(tmp_path)).agents["player"].max_tokens == 200
    asked = {"policies.main.context": 128}
    assert recipe_of(Blind, asked, model=str(tmp_path)).agents["player"].history == "observation"


@pytest.mark.parametrize("off", [None, 0.0])
def test_who_takes_the_actions_out_of_a_pretrained_models_mix_imitates_nothing(off):
    told: list[str] = []
    recipe = recipe_of(Walk, {"sft_mix.spans.action": off}, model="some/model", told=told)
    assert "no span of sft_mix.spans has a weight: left out sft_mix" in told
    assert recipe.sft_mix is None


@pytest.mark.parametrize("model", ["nano", "some/model"])
def test_who_wants_no_spans_is_told_that_whole_replies_are_imitated(model):
    told: list[str] = []
    mix = recipe_of(Walk, {"sft_mix.spans": None}, model=model, told=told).sft_mix
    assert "no sft_mix.spans: whole replies are imitated, with weight 1" in told
    assert mix is not None and (mix.spans, mix.final, mix.action_floor) == ({}, {}, None)


@pytest.mark.parametrize("model", ["nano", "some/model"])
def test_rows_of_the_users_own_are_imitated_whole(tmp_path, model):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "cell 0", "completion": "right"}\n')
    own = {"sft_mix": {"data": str(tmp_path / "rows.jsonl"), "rows": 2}}
    mix = recipe_of(Walk, own, model=model).sft_mix
    assert mix is not None and (mix.states, mix.spans, mix.action_floor) == (None, {}, None)


def test_a_pretrained_model_that_calls_tools_has_no_uniform_actions():
    assert recipe_of("treasure", model="some/model").sft_mix is None


def test_a_mix_named_none_is_told_how_it_is_left_out():
    with pytest.raises(ConfigError, match="expected a table, or None, which leaves it out"):
        recipe_of(Walk, {"sft_mix": "none"})


def test_a_pretrained_model_is_validated_at_the_start_and_in_both_ways():
    evaluation = recipe_of(Walk, model="some/model").evaluation
    assert (evaluation.decoding, evaluation.validate_start) == ("validated", True)
    own = {"evaluation.decoding": "greedy"}
    assert recipe_of(Walk, own, model="some/model").evaluation.decoding == "greedy"


def test_answers_that_may_be_any_text_have_no_uniform_ones():
    assert recipe_of(Free, model="some/model").sft_mix is None


def history_of(env, model: Any = "nano"):
    return recipe_of(env, model=model).agents["player"].history


def test_the_past_is_shown_where_it_helps_and_fits_into_the_context():
    class Long(Blind):
        most = 100

    tiny = PolicyConfig(nano=NanoConfig(context=64))
    assert history_of(Walk) == history_of(Endless) == "observation"
    assert history_of(Blind) == "full"
    assert history_of(Long) == "last_n"
    assert history_of(Long, model=tiny) == "observation"


def test_the_past_is_shown_where_nothing_can_be_told():
    """Every state is met in one game only."""

    class Numbered(Walk):
        def observe(self, state, role):
            return replace(super().observe(state, role), text=f"{state.steps} {state.at}")

        def step(self, state, role, action, noise):
            found = super().step(state, role, action, noise)
            return replace(found, state=Place(found.state.at, int(noise.integers(2**31))))

    assert survey_of(Numbered()).groups.hidden is None
    wide = PolicyConfig(nano=NanoConfig(context=16384))
    assert history_of(Numbered, model=wide) == "full"
    assert history_of(Numbered) == "observation"  # games are long


def survey_of(env, tasks=100):
    return survey(env, GeneratedTasks(env, "train", seed=0).take(tasks), seed=0)


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
    {"trainer.minibatches": 8, "trainer.group_size": 64},
    {"optimizer.lr": "auto", "optimizer.movement": 0.1, "optimizer.lr_start": 1e-5},
    {"policies.main.lr": 1e-3},
    {"warmup.states": "first"},
    {"warmup.outcomes": False},
    {"warmup.outcomes": True},
    {"sft_mix.final.action": 0.05},
    {"sft_mix.final": {"action": 0.05}},
    {"warmup.stop_at_accuracy": 0.5},
    {"sft_mix.spans.action": 1.0, "sft_mix.final.action": 0.5},
    {"credit.scheme": "rloo"},
    {"credit.gamma": 0.5, "credit.gae_lambda": 0.5},
    {"trainer.minutes": 5.0},
    {"agents.player.history": "observation", "agents.player.max_tokens": 9},
    {"agents.player.show_legal": True},
    {"credit.rewards.invalid": -7.0},
    {"policies.main.nano.init_std": 0.05},
    {"evaluation.decoding": "greedy", "evaluation.validate_start": False},
    {"evaluation.validation": "exact"},
    {"curriculum.kind": "uniform"},
    {"curriculum.share": 0.1, "curriculum.explore": 5},
    {"trainer.max_turns": 3},
    {"agents.player.invalid_reply": "end"},
    {"agents.player.invalid_limit": 1},
    {"credit.state_key": "env", "credit.least_advantage": -1.0},
    {"sft_mix.action_floor": 0.1},
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
    assert recipe.sft_mix.spans == {
        "answer": 1.0,
        "action": 0.2,
    }  # of a whole reply, all but its end
    assert recipe.credit.segments == {}


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

    class Fifty(Walk):
        names = ("left", "right", *(f"jump{n}" for n in range(48)))

        def observe(self, state, role):
            return tw.Observation(text=f"cell {state.at}", legal_actions=self.names)

        def random_action(self, state, role, rng):
            return str(rng.choice(["left", "right"]))

    assert told(Fifty).system.startswith(
        f"End your reply with one of these actions: {', '.join(Fifty.names)}, between"
    )


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
    assert "48 of 48 replies of the first iteration are not actions" in said  # three in a row
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
    assert "of the replies failed lately, more than half since iteration 1" in report
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
    warnings = [note for note in watcher.notes if note.startswith("warning: ")]
    assert "iteration 1: 100% of the episodes ended in a reply that is not a legal" in warnings[0]
    assert "The model said" in warnings[0]
    (finding,) = [note for note in warnings if "100% of the replies failed lately" in note]
    assert finding.endswith("Try `--set warmup.steps=400` in a new run.")


@dataclass(frozen=True)
class Hidden:
    word: str
    tries: int = 0
    right: bool = False


class Blind(tw.Env):
    """Find a hidden word of four in four tries; nothing is ever said about it."""

    name = "blind"
    most = 4
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
        over = after.right or after.tries == self.most
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
    assert any("Played greedily the policy scores 0." in each.sentence for each in outcome.findings)
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
    assert env_recipe(plain, {}).data["credit"]["invalid_below_worst"]
    assert json.dumps(plain) == before


def reasons_of(env, settings=None):
    """Return the reasons that are told, and the recipe."""
    given = dict.fromkeys(("rows", "reward", "eval_rows", "reward_weights"))
    wanted = recipe_for_env(policy_section("nano"), env, {**given, "settings": settings})
    recipe, _ = wanted.tried(settings or {}, lambda text: None)
    return still_true(wanted.reasons, wanted.data, recipe, settings or {}), recipe


WALK_REASONS = {
    "agents.player.history",
    "warmup.outcomes",
    "warmup.stop_at_accuracy",
    "sft_mix.final.action",
    "trainer.tasks_per_iteration",
    "credit.scheme",
    "credit.gamma",
    "credit.gae_lambda",
    "evaluation.every",
    "credit.invalid_below_worst",
    "agents.player.max_tokens",
    "agents.player.invalid_reply",
    "agents.player.invalid_limit",
    "credit.state_key",
    "curriculum.kind",
    "curriculum.explore",
    "trainer.max_turns",
    "trainer.group_size",
}


@pytest.mark.parametrize(
    ("settings", "dropped"),
    [
        ({}, set()),
        ({"agents.player.history": "full"}, {"agents.player.history"}),
        ({"agents.player.history": "observation"}, {"agents.player.history"}),  # the same value
        ({"agents": {"player": {"history": "observation"}}}, {"agents.player.history"}),
        ({"agents": {"player": {"max_tokens": 9}}}, {"agents.player.max_tokens"}),
        ({"credit.gamma": 0.5}, {"credit.gamma"}),
        ({"credit.rewards.invalid": -9.0}, {"credit.invalid_below_worst"}),
        (
            {"credit.scheme": "grpo"},
            {"credit.scheme", "credit.gamma", "credit.gae_lambda", "trainer.max_turns"},
        ),
        (
            {"curriculum.kind": "uniform"},  # games are played whole then
            {
                "curriculum.kind",
                "curriculum.explore",
                "trainer.max_turns",
                "trainer.group_size",
            },
        ),
        ({"curriculum": {"explore": 7}}, {"curriculum.explore"}),
        (
            {"agents.player.invalid_reply": "end"},
            {"agents.player.invalid_reply", "agents.player.invalid_limit"},
        ),
        ({"warmup.states": "first"}, {"warmup.outcomes", "warmup.stop_at_accuracy"}),
        ({"warmup.outcomes": False}, {"warmup.outcomes"}),
        ({"sft_mix": None}, {"sft_mix.final.action"}),
        ({"warmup": None}, {"warmup.outcomes", "warmup.stop_at_accuracy"}),
    ],
)
def test_a_setting_of_the_user_s_drops_its_reason(settings, dropped):
    reasons, recipe = reasons_of(Walk, settings)
    assert set(reasons) == WALK_REASONS - dropped
    lines = described(recipe, reasons)
    assert [line.partition(" = ")[0] for line in lines] == list(reasons)
    assert all(why in line for why, line in zip(reasons.values(), lines, strict=True))


def test_the_reasons_are_comments_of_a_recipe_that_is_the_same():
    reasons, recipe = reasons_of(Walk)
    lines = annotated(recipe.to_toml(), reasons).split("\n")
    assert sum("  # " in line for line in lines) == len(reasons) == len(WALK_REASONS)
    assert tomllib.loads("\n".join(lines)) == tomllib.loads(recipe.to_toml())
    (gamma,) = (line for line in lines if line.startswith("gamma = "))
    assert gamma == "gamma = 0.95  # the length of random episodes"


def test_a_value_that_looks_like_a_section_has_no_comment():
    reasons, recipe = reasons_of(Walk)
    odd = recipe.model_copy(
        update={
            "agents": {
                "player": recipe.agents["player"].model_copy(
                    update={"system": "[credit]\ngamma = 0.95\n[agents.player]\n"}
                )
            }
        }
    )
    text = annotated(odd.to_toml(), reasons)
    assert tomllib.loads(text) == tomllib.loads(odd.to_toml())


def test_a_run_tells_its_reasons_and_writes_them_down(tmp_path):
    watcher, run = Notes(), tmp_path / "run"
    fast = FAST | {"warmup.steps": 2, "warmup.eval_every": 1, "warmup.perception_tasks": 4}
    model = PolicyConfig(nano=TINY)
    tw.train(model, env=Walk, settings=fast, run=run, progress=watcher)
    kept = WALK_REASONS - FAST.keys() - {"agents.player.max_tokens"}
    for key in kept:
        assert sum(note.startswith(f"{key} = ") for note in watcher.notes) == 1
    own = [note for note in watcher.notes if note.startswith("trainer.")]
    assert [note.partition(" = ")[0] for note in own] == ["trainer.max_turns"]
    text = (run / "recipe.toml").read_text()
    assert sum("  # " in line for line in text.split("\n")) == len(kept)
    assert load_recipe(str(run / "recipe.toml")) == recipe_of(Walk, fast, model)


def test_options_of_the_env_may_be_settings():
    reasons, recipe = reasons_of("gymnasium", {"env.options.id": "CliffWalking"})
    assert "agents.player.history" in reasons
    assert recipe.env.options["id"] == "CliffWalking"


class Pair(Walk):
    """Two roles walk in turn."""

    name = "pair"
    roles = ("one", "two")

    def acting(self, state):
        return (self.roles[state.steps % 2],)


def test_roles_have_the_same_defaults_and_reasons_of_their_own():
    reasons, recipe = reasons_of(Pair)
    assert {agent.history for agent in recipe.agents.values()} == {"observation"}
    assert {"agents.one.history", "agents.two.history"} <= set(reasons)
    reasons, recipe = reasons_of(Pair, {"agents.one.history": "full"})
    assert recipe.agents["one"].history == "full"
    assert "agents.one.history" not in reasons
    assert "agents.two.history" in reasons


def test_spans_are_left_out_where_a_policy_replies_in_several_formats():
    reasons, recipe = reasons_of(Pair, {"agents.one.reply": "whole"})
    assert recipe.sft_mix is not None
    assert (recipe.sft_mix.rows, recipe.sft_mix.spans, recipe.sft_mix.final) == (32, {}, {})
    assert "sft_mix.final.action" not in reasons
    both = {"agents.one.reply": "whole", "agents.two.reply": "whole"}
    _, recipe = reasons_of(Pair, both)
    assert recipe.sft_mix is not None
    assert recipe.sft_mix.spans == {"answer": 1.0, "action": 0.2}


def test_an_env_with_tools_shows_results_and_no_outcomes():
    reasons, recipe = reasons_of("treasure")
    assert recipe.warmup is not None
    assert recipe.agents["player"].history == "full"
    assert reasons["agents.player.history"] == "results of calls are in the past"
    assert not recipe.warmup.outcomes


class Once(Walk):
    """Every game has one turn."""

    name = "once"
    limit = 1

    def step(self, state, role, action, noise):
        return replace(super().step(state, role, action, noise), terminated=True, truncated=False)


class Free(Once):
    """Any text is an answer."""

    name = "free"

    def observe(self, state, role):
        return tw.Observation(text=f"cell {state.at}", legal_actions=())

    def random_action(self, state, role, rng):
        return str(rng.choice(["left", "right", "a longer answer"]))


@pytest.mark.parametrize("kind", [Once, Free])
def test_an_env_of_one_turn_compares_episodes_and_shows_no_outcomes(kind):
    reasons, recipe = reasons_of(kind)
    assert recipe.warmup is not None
    assert recipe.credit.scheme == "grpo"
    assert reasons["credit.scheme"] == "an episode has one turn"
    assert not {"credit.gamma", "credit.gae_lambda", "warmup.outcomes"} & set(reasons)
    assert recipe.warmup.stop_at_accuracy == 1.0
    assert not recipe.warmup.outcomes
    assert recipe.trainer.tasks_per_iteration == 16  # 128 episodes


@pytest.mark.parametrize(("kind", "least"), [(Once, 0.9), (Free, 0.9), (Walk, 0.991)])
def test_a_warm_up_with_little_time_is_to_make_games_readable(kind, least):
    """Nine games of ten are to have no reply that cannot be read."""
    reasons, recipe = reasons_of(kind, {"trainer.minutes": 5.0})
    assert recipe.warmup is not None
    assert recipe.warmup.required_accuracy == pytest.approx(least, abs=0.002)
    assert "turns in the mean" in reasons["warmup.required_accuracy"]
    assert "warmup.required_accuracy" not in reasons_of(kind)[0]


@pytest.mark.parametrize(("group_size", "tasks"), [(8, 16), (4, 32), (16, 8), (64, 2)])
def test_an_iteration_has_about_as_many_turns_whatever_the_groups(group_size, tasks):
    """Parts of 8 turns: 128 episodes have 1024, in groups of 4 unless another size is given."""
    settings = {"trainer.group_size": group_size}
    trainer = recipe_of(Walk, settings).trainer
    assert trainer.tasks_per_iteration == tasks
    assert trainer.group_size == group_size
    assert trainer.minibatches <= tasks


def test_the_discount_follows_the_length_of_episodes():
    assert recipe_of(Blind).credit.gamma == 0.95
    assert recipe_of(Walk).credit.gamma == 0.95
    assert recipe_of(Endless).credit.gamma == 0.98  # 100 turns


class Told(Blind):
    """The key of a state says what the observation does not."""

    def state_key(self, state, role):
        return repr(state)


def test_values_of_states_count_more_where_their_keys_say_all_that_decides():
    found = {kind: reasons_of(kind) for kind in (Walk, Blind, Told)}
    trusts = {kind: recipe.credit.gae_lambda for kind, (_, recipe) in found.items()}
    assert trusts == {Walk: 0.3, Blind: 0.9, Told: 0.3}
    assert "may not say all that decides" in found[Blind][0]["credit.gae_lambda"]


def test_validation_plays_a_tenth_as_much_as_training():
    recipe = recipe_of(Walk, {"trainer.iterations": 1000})
    assert recipe.trainer.max_turns is not None
    episodes = recipe.trainer.tasks_per_iteration * recipe.trainer.group_size
    length = survey_of(Walk()).groups.length
    played = 2 * 64 * length / (recipe.evaluation.every * episodes * recipe.trainer.max_turns)
    assert 0.09 < played < 0.11
    short = recipe_of(Short, {"trainer.iterations": 1000})
    whole = short.trainer.tasks_per_iteration * short.trainer.group_size
    assert 0.09 < 2 * 128 / (short.evaluation.every * whole) < 0.11
    assert recipe_of(Walk, {"trainer.iterations": 50}).evaluation.every == 10  # at least five times
    assert recipe_of(Walk, {"evaluation.every": 3}).evaluation.every == 3


class Slow(Walk):
    """A step takes two milliseconds."""

    name = "slow"

    def step(self, state, role, action, noise):
        time.sleep(0.002)
        return super().step(state, role, action, noise)


def test_what_is_only_measured_has_few_games_where_steps_take_long():
    """About the 1,024 turns of an iteration, with at least 8 tasks."""
    reasons, slow = reasons_of(Slow)
    walk, length = recipe_of(Walk), survey_of(Walk()).groups.length
    assert walk.evaluation.validation_tasks == 64
    assert slow.evaluation.validation_tasks == pytest.approx(1024 / (2 * length), rel=0.3)
    assert reasons["evaluation.validation_tasks"] == "steps of the env take long"
    assert "evaluation.validation_tasks" not in reasons_of(Walk)[0]
    assert walk.warmup is not None and slow.warmup is not None
    asked = min(walk.warmup.perception_tasks, round(1024 / (length / 2)))
    assert slow.warmup.perception_tasks == pytest.approx(asked, rel=0.3)
    given = recipe_of(Slow, {"evaluation.validation_tasks": 100})
    assert given.evaluation.validation_tasks == 100

    class Slowest(Slow):
        limit = 100

        def words_at(self, state):
            return ("stay",)

        def step(self, state, role, action, noise):
            step = super().step(state, role, "left", noise)
            return replace(step, state=Place(5, state.steps + 1), terminated=False)

    assert recipe_of(Slowest).evaluation.validation_tasks == 8


def test_games_that_hardly_end_are_cut():
    class Ever(Endless):
        max_turns = 1_000_000

    reasons, recipe = reasons_of(Ever)
    assert recipe.env.max_turns == 1000
    assert reasons["env.max_turns"] == "a random episode has about 1e+06 turns, of at most 1000000"
    assert recipe_of(Ever, {"env.max_turns": 5000}).env.max_turns == 5000
    assert recipe_of(Ever, {"env": {"max_turns": 5000}}).env.max_turns == 5000
    assert recipe_of(Endless).env.max_turns is None
    assert recipe_of(Ever, model="some/model").env.max_turns == 1000


class Wordy(Blind):
    """What a turn shows has 60 words, and the legal actions change."""

    name = "wordy"
    most = 100

    def observe(self, state, role):
        seen = super().observe(state, role)
        words = seen.legal_actions[: 4 - state.tries % 2]
        return replace(seen, text=f"{seen.text} {'and so on ' * 20}", legal_actions=words)


def test_a_nano_model_has_room_for_the_whole_past_of_games_of_many_words():
    class Capped(Wordy):
        max_turns = 8

    assert history_of(Wordy) == "last_n"  # 30 turns are too many for 1,024 tokens
    recipe = recipe_of(Capped)
    nano = recipe.policies["main"].nano
    assert nano is not None
    assert recipe.agents["player"].history == "full"
    assert nano.context % 128 == 0
    assert 8 * 60 < nano.context <= 1024
    small = PolicyConfig(nano=NanoConfig(context=256))
    assert history_of(Capped, model=small) != "full"
    assert (
        recipe_of(Capped, {"policies.main.nano.context": 4096}).agents["player"].history == "full"
    )


def test_long_rows_are_fewer_in_a_step_of_the_warm_up():
    class Capped(Wordy):
        max_turns = 8

    short, long = recipe_of(Walk), recipe_of(Capped)
    assert short.warmup is not None and long.warmup is not None
    assert short.sft_mix is not None and long.sft_mix is not None
    assert (short.warmup.batch_size, short.sft_mix.rows) == (32, 32)
    assert 2 <= long.warmup.batch_size <= 10
    assert long.sft_mix.rows == 2 * long.warmup.batch_size
    assert long.warmup.perception_tasks == 32


class Crowd(Walk):
    """Observations hold a number of a thousand, so that hardly any recurs."""

    name = "crowd"
    limit = 90

    def reset(self, task):
        return Place(task.data["at"], task.data["n"])

    def observe(self, state, role):
        return replace(super().observe(state, role), text=f"cell {state.at} of {state.steps}")

    def step(self, state, role, action, noise):
        at = min(9, max(0, state.at + (1 if action == "right" else -1)))
        after = Place(at, (7 * state.steps + int(noise.integers(9))) % 1000)
        return tw.Step(state=after, rewards={"pay": float(at == 9)}, terminated=False,
                       truncated=False)  # fmt: skip


def test_episodes_are_cut_later_where_hardly_any_state_recurs():
    """What the state is worth in which an episode is cut is then not known."""
    assert recipe_of(Crowd).trainer.max_turns == 32

    class Brief(Crowd):
        max_turns = 60

    assert recipe_of(Brief).trainer.max_turns is None


@pytest.mark.parametrize(
    ("settings", "iterations"),
    [
        ({"trainer.minutes": 10}, 5000),
        ({"trainer": {"minutes": 2.5}}, 1250),
        ({"trainer.minutes": 0.01}, 100),
        ({"trainer.minutes": 10, "trainer.iterations": 7}, 7),
        ({}, 100),
    ],
)
def test_the_time_alone_ends_a_run_where_it_alone_is_given(settings, iterations):
    assert recipe_of(Short, settings).trainer.iterations == iterations


@pytest.mark.parametrize("minutes", ["ten", float("nan"), -1.0, True])
def test_wrong_minutes_are_refused_as_such(minutes):
    with pytest.raises(ConfigError, match=r"trainer\.minutes"):
        recipe_of(Short, {"trainer.minutes": minutes})


def test_options_that_another_choice_would_ignore_are_left_out_and_said(tmp_path):
    path, said = tmp_path / "walk.toml", []
    made = recipe_of(Walk, {"agents.player.history": "last_n", "agents.player.last_n": 5})
    path.write_text(made.to_toml())
    assert load_recipe(str(path)).agents["player"].kept_turns == 5
    full = load_recipe(str(path), ["agents.player.history=full"], said.append)
    assert full.agents["player"].last_n is None
    whole = load_recipe(str(path), ["curriculum.share=0"], said.append)
    assert (whole.curriculum.share, whole.curriculum.explore) == (0, 0)
    assert all(key in " ".join(said) for key in ("agents.player.last_n", "curriculum.explore"))
    with pytest.raises(ConfigError, match="explore = 10"):
        load_recipe(str(path), ["curriculum.share=0", "curriculum.explore=10"])
