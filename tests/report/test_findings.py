"""What a run says that does not learn: each finding where it is due, and where it is not."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace

import numpy as np
import pytest

import turnwise as tw
from turnwise.app.build import plan_of
from turnwise.credit.schemes import SCHEMES
from turnwise.envs.past_helps import SURE, SeenTurn, past_excess
from turnwise.policies import NanoConfig, PolicyConfig
from turnwise.policies.auto_rate import Verdict, judge
from turnwise.recipe.schema import load_recipe, recipe_names
from turnwise.report.findings import Facts, Finding, find_causes, find_findings
from turnwise.report.findings.prompts import Shown, independent_turns
from turnwise.report.series import Series
from turnwise.runs import RunScores, read_metrics
from turnwise.trainers.findings import findings_are_due
from turnwise.types import (
    Episode,
    EpisodeId,
    Sampling,
    Task,
    Trajectory,
    Turn,
    TurnId,
    VisitId,
)

TINY = NanoConfig(hidden=32, layers=1, heads=2, kv_heads=1, head_dim=16, intermediate=64)
FAST = {
    "trainer.iterations": 4,
    "trainer.group_size": 8,
    "trainer.tasks_per_iteration": 8,
    "agents.player.max_tokens": 8,
    "engine.probe_tokens": 64,
    "forest.probe_tokens": 64,
    "evaluation.test_tasks": 4,
    "evaluation.validation_tasks": 4,
    "evaluation.every": 100,
    "checkpoint.every": 100,
    "warmup.steps": 100,
    "warmup.outcomes": False,
    "warmup.perception_tasks": 16,
    "warmup.eval_every": 50,
    "warmup.cooldown": 0,
    "warmup.optimizer.lr": 1e-2,
    "sft_mix": None,
    "optimizer.lr": 1e-4,
    "credit.rewards.invalid": 0.0,
    "agents.player.history": "observation",
    "agents.player.show_legal": False,
}


@dataclass(frozen=True)
class At:
    word: str
    step: int = 0
    last: str = ""
    right: bool = False


class Words(tw.Env):
    """One word of three; what is seen, when it ends and what it pays is up to the subclass."""

    name = "words"
    components = {"pay": "agent"}  # noqa: RUF012
    choices = ("ape", "bee", "cat")
    limit = 1

    def generate(self, rng):
        return {"word": str(rng.choice(self.choices)), "n": int(rng.integers(1000))}

    def reset(self, task):
        return At(task.data["word"])

    def observe(self, state, role):
        return tw.Observation(text=self.seen(state), legal_actions=self.choices)

    def seen(self, state):
        return f"say {state.word}"

    def step(self, state, role, action, noise):
        after = At(state.word, state.step + 1, action, action == state.word)
        rewards = {name: self.pay(name, after) for name in self.components}
        return tw.Step(state=after, rewards=rewards, terminated=self.over(after), truncated=False)

    def over(self, state):
        return state.right or state.step == self.limit

    def pay(self, name, state):
        return float(state.right)

    def score(self, state):
        return float(state.right)


class Constant(Words):
    """Every answer is worth the same, and its score is up to the subclass."""

    worth = 0.0

    def pay(self, name, state):
        return self.worth

    def score(self, state):
        return self.worth


class Bad(Constant):
    name = "bad"


class Good(Constant):
    name = "good"
    worth = 1.0


class Half(Constant):
    """All answers to one task are equally good, or for half of the tasks equally bad."""

    name = "half"

    def reset(self, task):
        return At("bee" if task.data["n"] % 2 else "cat")

    def seen(self, state):
        return "say a word"

    def step(self, state, role, action, noise):
        return replace(super().step(state, role, action, noise), state=At(state.word, 1))

    def pay(self, name, state):
        return float(state.word == "bee")

    def score(self, state):
        return float(state.word == "bee")


class One(Bad):
    """One state."""

    name = "one"

    def generate(self, rng):
        return {"word": "ape", "n": int(rng.integers(1000))}


class Certain(Bad):
    """One legal word, so that there is no entropy."""

    name = "certain"
    choices = ("ape",)


class Blind(Words):
    """Find a hidden word in four tries."""

    name = "blind"
    limit = 4

    def seen(self, state):
        return "which word ?"


class Closed(Blind):
    """The same in one try."""

    name = "closed"
    limit = 1


class Dither(Words):
    """The word ends the game, which has the score 1; every other turn is paid."""

    name = "dither"
    limit = 6

    def pay(self, name, state):
        return float(not state.right)


class DitherBesideGoal(Dither):
    """The same with a reward for the word, which is smaller."""

    name = "dither-beside-goal"
    components = {"goal": "agent", "stay": "agent"}  # noqa: RUF012

    def pay(self, name, state):
        return float(state.right) if name == "goal" else float(not state.right)


class Own(Bad):
    """The word that is seen is not legal."""

    name = "own"

    def observe(self, state, role):
        others = tuple(word for word in self.choices if word != state.word)
        return tw.Observation(text=self.seen(state), legal_actions=others)


class Drawn(Certain):
    """What is paid is drawn, so that groups differ."""

    name = "drawn"

    def step(self, state, role, action, noise):
        return replace(super().step(state, role, action, noise), rewards={"pay": noise.random()})


class DrawnGood(Drawn):
    name = "drawn-good"
    worth = 1.0


class Notes(tw.Silent):
    """Keeps the notes."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


class Told:
    """A finished run: its findings by name, what was said before its end, and its metrics."""

    def __init__(self, env, folder, settings=None):
        watcher = Notes()
        given = {**FAST, **(settings or {})}
        model = PolicyConfig(nano=TINY)
        self.outcome = tw.train(model, env=env, settings=given, run=folder, progress=watcher)
        self.found = {finding.name: finding for finding in self.outcome.findings}
        self.early = [n for n in watcher.notes if n.startswith("warning: after 3 iterations: ")]
        records = read_metrics(folder / "metrics.jsonl")
        self.records = [r for r in records if r["phase"] == "train" and r["step"]]

    def check(self, name, *words):
        """Check a finding, in the report too, and that its setting is accepted; return it."""
        finding = self.found[name]
        assert all(word in finding.sentence for word in words), finding.sentence
        assert str(finding) in (self.outcome.run / "report.md").read_text()
        if finding.setting:
            recipe = str(self.outcome.run / "recipe.toml")
            assert load_recipe(recipe, [finding.setting]) != load_recipe(recipe)
        return finding


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train an env with changed settings; equal runs are made once."""
    made: dict[str, Told] = {}

    def go(env, settings=None):
        key = f"{env.name} {settings}"
        if key not in made:
            made[key] = Told(env, tmp_path_factory.mktemp("runs") / "run", settings)
        return made[key]

    return go


def test_replies_that_nothing_has_taught(run):
    told = run(Words, {"warmup": None})
    found = told.check("failing", "100% of the episodes failed", "since iteration 1 ")
    assert found.setting == "warmup.steps=400"
    assert len(told.early) == 1
    assert "equal-groups" not in told.found  # which follows from it


def test_a_warm_up_that_is_too_short_is_not_a_reply_that_is_cut(run):
    told = run(Words, {"warmup.steps": 2, "warmup.optimizer.warmup_steps": 0})
    found = told.check("failing", "this one had 2 steps")
    assert found.setting == "warmup.steps=400"


@pytest.mark.parametrize(
    ("recipe", "ends"),
    [
        ({"pretrain": {"steps": 200}}, "Try `--set pretrain.steps=400` in a new run."),
        ({"warmup": {"steps": 150}}, "Try `--set warmup.steps=300` in a new run."),
        ({"pretrain": {"steps": 50}}, "Try `--set pretrain.steps=400` in a new run."),
        ({"policies": {"main": {"model": "a/b"}}}, "begin with a model that has learned it."),
    ],
)
def test_replies_are_taught_by_the_stage_that_the_recipe_has(recipe, ends):
    records = [{"phase": "train", "step": step, "rollout/failed_share": 1.0} for step in (1, 2, 3)]
    model = {"policies": {"main": {"model": "nano"}}}
    (found,) = find_causes(Facts(records=records, recipe=model | recipe))
    assert str(found).endswith(ends)


def test_a_setting_that_a_resumed_run_takes_needs_no_new_run():
    for setting in ("optimizer.lr=1e-4", "trainer.group_size=16", "loss.entropy_weight=0.1"):
        assert str(Finding(name="x", sentence="So.", setting=setting)).endswith(f"{setting}`.")


def test_replies_that_are_cut(run):
    told = run(Words, {"agents.player.max_tokens": 2})
    assert told.check("failing", "are cut").setting == "agents.player.max_tokens=4"


def test_a_rate_that_destroys_the_format(run):
    told = run(Words, {"optimizer.lr": 0.1})
    assert told.check("failing", "since iteration 2 ").setting == "optimizer.lr=0.01"


def test_a_solved_env_has_no_cause(run):
    told = run(Good)
    assert told.records[-1]["credit/mixed_share"] == 0
    assert not told.early
    assert set(told.found) == {"no-better-than-baseline"}


def test_groups_that_are_equally_bad(run):
    told = run(Bad)
    found = told.check("equal-groups", "equally bad", "since iteration 1)", "0 now")
    assert found.setting == "trainer.group_size=16"
    assert sum("equally bad" in note for note in told.early) == 1
    certain = run(Certain).check("equal-groups")
    assert certain.setting == "loss.entropy_weight=0.01"  # larger groups would be as equal


def test_groups_that_are_equally_good_are_not_called_bad(run):
    told = run(Half)
    found = told.check("equal-groups", "of them are equally good, with the score 1, the rest")
    assert "not solved" not in found.sentence
    start = f"{np.mean([r['rollout/score'] for r in told.records[:3]]):.3g} at the start"
    assert start in found.sentence
    assert any("equally good" in note and start in note for note in told.early)


def test_without_episodes_or_a_best_score_groups_are_just_equal():
    for score in (0.5, -3.0):
        records = played(**{"credit/mixed_share": 0.0, "rollout/score": score})
        (found,) = find_causes(Facts(records=records))
        assert "They are equally good or equally bad" in found.sentence


def test_a_resumed_run_does_not_say_it_again(run):
    told, watcher = run(Bad, {"seed": 1}), Notes()
    assert told.early
    tw.resume(told.outcome.run, {"trainer.iterations": 6}, progress=watcher)
    assert any("equally bad" in note for note in watcher.notes)  # at its end
    assert not [note for note in watcher.notes if note.startswith("warning: after")]


def test_a_policy_that_ignores_what_it_sees(run):
    many = {"trainer.tasks_per_iteration": 32, "optimizer.lr": 1e-9}
    told = run(Words, many)
    found = told.check("ignores-observation", "The score has not risen")
    assert found.setting == "trainer.iterations=8"  # of four nothing else can be told
    assert "--set trainer.tasks_per_iteration=64" in "".join(told.early)
    assert any("does not act on what it observes" in note for note in told.early)


CONSTANT = {"rollout/state_dependence": 0.0, "action/leave": 0.99, "policy/entropy": 0.001}


@pytest.mark.parametrize("worth", [1.0, 100.0])
def test_a_score_that_one_action_everywhere_has_raised(worth):
    """The score rises from that of random play to that of the best constant policy."""
    rising = {"rollout/score": lambda n: worth * min(0.1 + n / 50, 0.3)}
    told = names(**CONSTANT | rising)
    assert told[:2] == ["ignores-observation", "entropy"]
    records = played(**CONSTANT | rising)
    found = find_causes(Facts(records=records))[0]
    assert "99% of them are leave" in found.sentence
    assert "One action everywhere is all that has raised the score" in found.sentence
    assert found.setting == "loss.entropy_weight=0.01"
    for other in ({"action/leave": 0.6}, {"rollout/state_dependence": 0.3}):
        assert not {"ignores-observation", "entropy"} & set(names(**CONSTANT | rising | other))


def test_a_policy_that_does_the_same_everywhere_brings_no_episode_to_an_end():
    capped = {"rollout/capped_share": 0.8}
    assert names(**CONSTANT | capped) == ["ignores-observation", "endless"]
    assert names(**capped) == ["endless"]


@pytest.mark.parametrize(
    ("recipe", "steps", "setting"),
    [
        ({}, 29, "trainer.iterations=200"),
        ({"trainer": {"iterations": 25}}, 25, "trainer.iterations=50"),
        ({"trainer": {"minutes": 3}}, 10, "trainer.minutes=6"),
        ({"trainer": {"minutes": 3}}, 30, "trainer.tasks_per_iteration=32"),
    ],
)
def test_a_run_of_few_iterations_needs_more_of_them(recipe, steps, setting):
    records = played(steps, **{"rollout/state_dependence": 0.0, "rollout/episodes": 64.0})
    scores = RunScores(
        **{"env": "e", "tasks": 9, "seed": 0, "score": 0.1, "stderr": 0.1},
        **{"score_sampled": 0.1, "score_sampled_stderr": 0.1},
        **{"baselines": {}, "baselines_stderr": {}},
    )
    found = find_causes(Facts(records=records, recipe=recipe, scores=scores))[0]
    assert (found.name, found.setting) == ("ignores-observation", setting)
    (early,) = find_causes(Facts(records=records, recipe=recipe))
    assert early.setting == "trainer.tasks_per_iteration=32"


def test_without_groups_none_of_them_is_equal():
    equal = {"credit/mixed_share": 0.0}
    assert names(**equal) == ["equal-groups"]
    records = played(**equal)
    assert not find_causes(Facts(records=records, recipe={"credit": {"scheme": "gae"}}))


def test_a_policy_that_uses_what_it_sees_and_an_env_of_one_state(run):
    own = run(Own)
    assert own.records[-1]["rollout/state_dependence"] > 0.2
    one = run(One)
    assert "rollout/state_dependence" not in one.records[-1]
    for told in (own, one):
        assert "ignores-observation" not in told.found
        assert "equal-groups" in told.found  # it has learned nothing, for another reason


LONG = {"trainer.iterations": 5, "trainer.tasks_per_iteration": 16, "trainer.group_size": 4}


def test_a_past_that_prompts_leave_out(run):
    found = run(Blind, LONG).check("past-hidden", "depends on the turns before")
    assert found.setting == "agents.player.history=full"
    small = LONG | {"policies.main.nano.context": 24}
    assert run(Blind, small).check("past-hidden").setting == "agents.player.history=last_n"


def test_a_task_that_prompts_cannot_show(run):
    told = run(Closed)
    assert told.check("task-hidden", "differ in 'word'", "no setting helps").setting == ""
    assert any("differ in 'word'" in note for note in told.early)


def test_prompts_that_show_what_decides_the_reward(run):
    for told in (run(Words), run(Dither)):
        assert not {"past-hidden", "task-hidden"} & set(told.found)


DRAWN = {"trainer.noise": "independent"}
MIX = {"sft_mix": {"rows": 8, "spans": {"answer": 0.5, "action": 0.4}}}


def test_entropy_that_is_gone_before_the_score_rose(run):
    found = run(Drawn, DRAWN).check("entropy", "before the score rose")
    assert found.setting == "loss.entropy_weight=0.01"
    mixed = run(Drawn, DRAWN | MIX).check("entropy")
    assert mixed.setting == "sft_mix.spans.action=0.8"
    assert "entropy" not in run(DrawnGood, DRAWN).found
    assert "entropy" not in run(Words).found


MOVING = {"optimizer.lr": "auto", "trainer.iterations": 8}
STRICT = {"optimizer.movement": 0.02}
STIFF = {"optimizer.eps": 1e9, "trainer.iterations": 15}


def test_updates_that_are_undone(run, monkeypatch):
    """A real run in which the first try of every update is judged to have gone too far."""
    tries = []

    def strict(share, **known):
        tries.append(share)
        return Verdict(stands=False, factor=0.9) if len(tries) % 2 else judge(share, **known)

    monkeypatch.setattr("turnwise.policies.auto_rate.judge", strict)
    told = run(Words, MOVING | STRICT)
    found = told.check("undone-updates", "of the last 3 updates")
    assert found.setting == "trainer.tasks_per_iteration=16"


def test_updates_that_move_nothing(run):
    told = run(Words, MOVING | STIFF)
    found = told.check("too-small-updates", 'rate is the largest that "auto" allows')
    assert float(found.setting.removeprefix("optimizer.lr=")) > told.records[-1]["optim/lr"]


def test_updates_that_move_the_policy_as_wanted(run):
    assert not {"undone-updates", "too-small-updates"} & set(run(Words, MOVING).found)


def test_rewards_that_favour_longer_episodes(run):
    found = run(Dither).check("favours-longer", "credit/score_correlation", "turns, the others")
    assert found.setting == "env.max_turns=3"
    beside = run(DitherBesideGoal).check("favours-longer")
    assert beside.setting == "credit.rewards.stay=0.0"
    for told in (run(Words), run(Blind, LONG)):
        assert told.records[-1]["credit/score_correlation"] == pytest.approx(1)
        assert not {"favours-longer", "favours-other"} & set(told.found)


def played(steps=20, **changes):
    """Return the records of a run; a metric is a number or a function of the iteration."""
    values = {"rollout/score": 0.5} | changes
    return [
        {"phase": "train", "step": n}
        | {name: value(n) if callable(value) else value for name, value in values.items()}
        for n in range(1, steps + 1)
    ]


def names(**changes):
    return [finding.name for finding in find_causes(Facts(records=played(**changes)))]


def wobbling(low, high, every=2):
    return lambda n: high if n % every else low


TURNS = {"credit/best_turns": 5.0, "credit/other_turns": 2.0, "credit/return_mean": 1.0}
AUTO = {"policy/movement_wanted": 0.05, "optim/lr": 1e-3}
RISING = {"rollout/score": lambda n: n / 40}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"credit/mixed_share": 0.09}, ["equal-groups"]),
        ({"credit/mixed_share": 0.11}, []),
        ({"credit/mixed_share": 0.0, "rollout/score": 0.96}, []),
        ({"credit/mixed_share": 0.0, "rollout/score": 0.94}, ["equal-groups"]),
        ({"credit/mixed_share": 0.0, "rollout/score": -3.0}, ["equal-groups"]),
        ({"credit/mixed_share": 0.0, "rollout/score": lambda n: n - 30.0}, []),
        ({"rollout/state_dependence": 0.015}, ["ignores-observation"]),
        ({"rollout/state_dependence": -0.01}, ["ignores-observation"]),
        ({"rollout/state_dependence": 0.025}, []),
        ({"rollout/state_dependence": 0.0} | RISING, []),
        ({"rollout/state_dependence": 0.0, "credit/return_mean": lambda n: n}, []),
        ({"policy/entropy": 0.015}, ["entropy"]),
        ({"policy/entropy": 0.025}, []),
        ({"policy/entropy": 0.015} | RISING, []),
        ({"optim/undone": wobbling(1, 0)} | AUTO, ["undone-updates"]),
        ({"optim/undone": wobbling(1, 0, every=3)} | AUTO, []),
        ({"optim/lr_at_cap": 1.0, "policy/movement": 0.012} | AUTO, ["too-small-updates"]),
        ({"optim/lr_at_cap": 1.0, "policy/movement": 0.013} | AUTO, []),
        ({"optim/lr_at_cap": 0.0, "policy/movement": 0.001} | AUTO, []),
        ({"credit/score_correlation": -0.11} | TURNS, ["favours-longer"]),
        ({"credit/score_correlation": -0.09} | TURNS, []),
        (
            {"credit/score_correlation": -0.5} | TURNS | {"credit/other_turns": 6.0},
            ["favours-other"],
        ),
        (TURNS | {"credit/return_mean": lambda n: n}, ["favours-longer"]),
        (TURNS | {"credit/return_mean": lambda n: -n}, []),
        (TURNS | {"credit/return_mean": lambda n: n, "credit/other_turns": 4.5}, []),
        (TURNS | {"credit/return_mean": lambda n: n} | RISING, []),
        (TURNS | {"credit/return_mean": lambda n: n, "credit/score_correlation": 0.2}, []),
        ({"rollout/failed_share": 0.51, "policy/entropy": 0.0}, ["failing"]),
        ({"rollout/failed_share": 0.49, "policy/entropy": 0.0}, ["entropy"]),
    ],
)  # fmt: skip
def test_each_limit_has_two_sides(change, wanted):
    assert names(**change) == wanted


@pytest.mark.parametrize(
    ("score", "rivals", "wanted"),
    [
        (0.35, {"constant": 0.35, "random": 0.3}, "not clearly above that of 'constant', 0.350"),
        (0.35, {"always-left": 0.33, "random": 0.3}, "not clearly above that of 'always-left'"),
        (0.5, {"constant": 0.35, "random": 0.3}, ""),
        (0.5, {"random": 0.5}, ""),  # no constant is known, and the score has risen
    ],
)
def test_a_score_that_rose_to_a_constants_shows_no_use_of_what_is_seen(score, rivals, wanted):
    scores = RunScores(
        env="e", tasks=99, seed=0, score=score, stderr=0.02, score_sampled=score,
        score_sampled_stderr=0.02, baselines=rivals, baselines_stderr=dict.fromkeys(rivals, 0.02),
    )  # fmt: skip
    records = played(**{"rollout/state_dependence": 0.0} | RISING)
    found = find_causes(Facts(records=records, scores=scores))
    assert [each.name for each in found] == ["ignores-observation"] * bool(wanted)
    assert all(wanted in each.sentence for each in found)
    assert find_causes(Facts(records=records)) == []  # before the test


HEALTHY = {
    "rollout/score": [
        0.02, 0.03, 0.12, 0.15, 0.05, 0.07, 0.13, 0.14, 0.12, 0.19, 0.35, 0.21, 0.21, 0.2,
        0.31, 0.45, 0.39, 0.39, 0.48, 0.39,
    ],
    "credit/return_mean": [
        -0.32, -0.19, 0.4, 0.46, 0.23, 0.47, 0.46, 0.23, 0.42, 0.64, 1.28, 0.59, 0.73, 1.05,
        1.19, 1.54, 1.57, 1.73, 2.77, 1.89,
    ],
    "credit/return_std": [
        1.06, 1.3, 1.69, 2.01, 1.58, 1.76, 1.98, 1.61, 1.78, 1.99, 2.32, 1.87, 2.17, 2.42,
        2.27, 2.44, 3.09, 2.78, 2.98, 3.05,
    ],
    "rollout/state_dependence": [
        -0.007, 0.011, 0.006, -0.012, -0.006, -0.004, 0.002, 0.037, 0.032, 0.015, 0.025,
        0.007, -0.013, -0.002, 0.039, 0.09, 0.151, 0.148, 0.159, 0.235,
    ],
    "credit/score_correlation": [
        0.55, 0.54, 0.68, 0.77, 0.74, 0.54, 0.7, 0.73, 0.79, 0.73, 0.85, 0.79, 0.8, 0.84,
        0.88, 0.82, 0.93, 0.93, 0.94, 0.94,
    ],
    "credit/best_turns": [
        3.63, 2.98, 3.32, 3.28, 3.38, 5.26, 5.06, 2.91, 3.36, 3.88, 3.47, 2.91, 3.62, 4.13,
        3.74, 3.11, 5.23, 4.48, 5.45, 5.79,
    ],
    "credit/other_turns": [
        3.07, 3.02, 2.69, 2.79, 3.03, 3.49, 3.15, 2.51, 2.45, 2.24, 2.44, 2.38, 2.57, 2.79,
        2.54, 2.89, 3.27, 3.58, 2.73, 3.31,
    ],
    "credit/mixed_share": [
        0.96, 0.96, 0.96, 0.96, 0.88, 0.96, 0.71, 0.79, 0.88, 0.92, 0.88, 0.79, 0.92, 0.92,
        0.79, 0.75, 0.71, 0.88, 0.88, 0.54,
    ],
    "policy/entropy": [
        0.46, 0.43, 0.42, 0.35, 0.28, 0.25, 0.27, 0.25, 0.28, 0.28, 0.28, 0.28, 0.26, 0.27,
        0.26, 0.23, 0.18, 0.17, 0.17, 0.15,
    ],
    "rollout/failed_share": [
        0.21, 0.22, 0.2, 0.21, 0.08, 0.12, 0.08, 0.08, 0.08, 0.06, 0.08, 0.07, 0.05, 0.07,
        0.02, 0.04, 0.07, 0.06, 0.03, 0.02,
    ],
}  # fmt: skip
"""The iterations of `turnwise train frozen-lake --set preset=fast`."""


@pytest.mark.parametrize("iterations", range(3, 21))
def test_a_run_that_learns_has_no_cause_at_any_time(iterations):
    records = [
        {"phase": "train", "step": n + 1, "rollout/episodes": 192.0}
        | {name: values[n] for name, values in HEALTHY.items()}
        for n in range(iterations)
    ]
    assert find_causes(Facts(records=records)) == []


SICK = [
    {"credit/mixed_share": 0.0},
    {"credit/mixed_share": 0.05},
    {"rollout/state_dependence": 0.0},
    {"rollout/state_dependence": 0.0, "action/x": 0.9},
    {"policy/entropy": 0.0},
    {"optim/undone": 1.0, **AUTO},
    {"optim/lr_at_cap": 1.0, "policy/movement": 0.001, **AUTO},
    {"rollout/failed_share": 1.0, "reward/invalid": 1.0},
    {"rollout/failed_share": lambda n: float(n > 1), "reward/invalid": lambda n: float(n > 1)},
    {"rollout/cut_share": 1.0},
    {"rollout/capped_share": 1.0, "rollout/turns": 270.0, "rollout/episodes": 9.0},
    {"optim/skipped": 1.0},
]


def replied(number, length, paid, cut):
    """Return an episode of one reply."""
    one = EpisodeId(iteration=1, visit=number, task="t", member=0)
    turn = Turn(
        id=TurnId(episode=one, role="player", turn=0), order=0, policy="main", policy_version=0,
        prompt_ids=(1,), completion_ids=(5,) * length, logprobs=(-0.1,) * length,
        sampling=Sampling(temperature=1.0, max_tokens=64), text="x",
        finish_reason="length" if cut else "stop", rewards={"pay": paid},
    )  # fmt: skip
    return Episode(
        id=one, task=Task(id="t", env="e", seed=0, data={}), terminated=True, truncated=False,
        trajectories=(Trajectory(role="player", seat="player", turns=(turn,)),), score=paid,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("worth", "cost", "found"),
    [
        (lambda length: 0.0, 1.0, ["cut"]),  # a cut reply is a wrong one
        (lambda length: 0.01 * length, 1.0, ["cut"]),
        (lambda length: 0.0, 0.0, []),
        (lambda length: 0.01 * length, 0.0, []),
        (lambda length: -0.01 * length, 0.0, []),  # longer replies would earn even less
        (lambda length: -0.01 * length, 1.0, ["cut"]),
    ],
)
def test_longer_replies_are_advised_only_where_the_cut_is_what_costs(worth, cost, found):
    rng = np.random.default_rng(0)
    lengths = [int(rng.integers(1, 60)) for _ in range(60)] + [64] * 30
    episodes = [
        replied(n, length, worth(length) + rng.normal(0, 0.1) - cost * (length == 64), length == 64)
        for n, length in enumerate(lengths)
    ]
    records = played(**{"rollout/cut_share": 0.33})
    for recipe in ({}, {"credit": {"rewards": {"pay": 2.0}}}):
        causes = find_causes(Facts(records=records, recipe=recipe, episodes=episodes))
        assert [each.name for each in causes] == found
    only = find_causes(Facts(records=records, episodes=episodes[60:]))
    assert [each.name for each in only] == ["cut"]  # nothing to compare with


@pytest.mark.parametrize("name", recipe_names())
def test_the_settings_are_accepted_by_every_recipe(name, tmp_path):
    whole = load_recipe(name)
    path = tmp_path / "recipe.toml"
    path.write_text(whole.to_toml())
    plain = tomllib.loads(whole.to_toml())
    for change in SICK:
        found = find_causes(Facts(records=played(**change), recipe=plain))
        movement = {"undone-updates", "too-small-updates"}  # where the rate is "auto"
        if "credit/mixed_share" in change and SCHEMES[whole.credit.scheme].by_turn is not None:
            assert not found  # equal groups give a gradient, too
            continue
        assert found or (plain["optimizer"]["lr"] != "auto" and "policy/movement_wanted" in change)
        assert whole.optimizer.lr == "auto" or not movement & {each.name for each in found}
        for finding in found:
            assert load_recipe(str(path), [finding.setting]) != whole, finding


@pytest.mark.parametrize(
    ("recipe", "wanted", "movement", "setting"),
    [
        ({}, {"": 0.1}, 0.1, "optimizer.movement=0.025"),
        ({"trainer": {"minutes": 5}}, {"": lambda n: n / 1000}, 0.02, "optimizer.movement=0.005"),
        ({}, {"a/": 0.01, "b/": 0.04}, 0.04, "optimizer.movement=0.01"),
        ({}, {}, 0.005, "optimizer.movement=0.0013"),
        ({"optimizer": {"lr": 1e-3}}, {}, 0.005, "optimizer.lr=0.0005"),
    ],
)
def test_a_smaller_movement_is_one_of_the_wanted_movement(recipe, wanted, movement, setting):
    told = {f"{policy}policy/movement_wanted": value for policy, value in wanted.items()}
    told |= {f"{policy}optim/lr": 1e-3 for policy in wanted}
    facts = Facts(records=played(**{"optim/skipped": 1.0} | told), recipe=recipe)
    assert facts.movement == pytest.approx(movement)
    (found,) = find_causes(facts)
    assert (found.name, found.setting) == ("not-finite", setting)


def test_replies_that_fail_in_episodes_that_go_on():
    recipe = {"agents": {"player": {"invalid_reply": "continue"}}}
    records = played(**{"reward/invalid": 0.9, "rollout/capped_share": 1.0})
    (found,) = find_causes(Facts(records=records, recipe=recipe))
    assert found.name == "failing"
    assert "90% of the replies failed" in found.sentence
    (found,) = find_causes(Facts(records=records))
    assert found.name == "endless"


@pytest.mark.parametrize(("count", "wanted"), [(9, []), (10, ["circling"])])
def test_a_greedy_policy_that_goes_round_in_circles(count, wanted):
    scores = RunScores(
        env="e", tasks=200, seed=0, score=0.5, stderr=0.01, score_sampled=0.5,
        score_sampled_stderr=0.01, baselines={}, baselines_stderr={},
        circling={"tool": 2, "planner": count},
    )  # fmt: skip
    found = find_findings(Facts(records=played(**RISING), scores=scores))
    assert [finding.name for finding in found] == wanted
    for finding in found:
        assert "In 10 of 200 greedy test episodes planner saw one prompt again" in str(finding)
        assert finding.setting == "agents.planner.history=full"


@pytest.mark.parametrize(
    ("levels", "wanted"),
    [
        ((0.8, 1.0), "scores 0.800 ± 0.020 on 99 test tasks, below 1.000"),
        ((0.8, 0.9), "scores 0.800 ± 0.020 on 99 test tasks, below 0.900"),
        ((0.8, None), "scores 0.800 ± 0.020 on 99 test tasks, below 1.000"),
        ((0.9, 0.95), ""),
        ((None, 1.0), ""),
    ],
)
def test_steps_that_pay_most_and_lead_away_from_the_best_score(levels, wanted):
    level, best = levels
    scores = RunScores(
        env="e", tasks=200, seed=0, score=0.7, stderr=0.01, score_sampled=0.7,
        score_sampled_stderr=0.01, baselines={} if best is None else {"optimal": best},
        baselines_stderr={} if best is None else {"optimal": 0.02},
        myopic={} if level is None else {"score": level, "stderr": 0.02, "tasks": 99},
    )  # fmt: skip
    found = find_findings(Facts(records=played(**RISING), scores=scores))
    assert [finding.name for finding in found] == (["myopic"] if wanted else [])
    assert all(wanted in str(finding) for finding in found)


def shown(visits, hidden, steps=3):
    """Return turns of groups of 8 that share their draws; each turn is paid 0 or 1.

    `hidden`: what is paid is told at the start only, by one of 10 observations; else it is drawn.
    """
    rng = np.random.default_rng(0)
    for visit in range(visits):
        first, noise = visit % 10, rng.integers(2, size=steps)
        for member in range(8):
            past = [(str(first), "go")]
            for step in range(steps):
                action = str(rng.choice(["a", "b"]))
                paid = first % 2 if hidden else int(noise[step])
                turn = SeenTurn(game=8 * visit + member, observation="same", action=action,
                                  followed=(paid, False), past=tuple(past))  # fmt: skip
                past.append(("same", action))
                group = VisitId(iteration=0, visit=visit, task="t")
                yield Shown(visit=group, step=step, seen=turn, data={})


def test_draws_that_a_group_shares_are_not_taken_for_a_past_that_helps():
    noise, past = list(shown(40, hidden=False)), list(shown(40, hidden=True))

    def found(turns):
        value = past_excess([turn.seen for turn in turns], 0)
        assert value is not None
        return value

    assert found(noise) > SURE
    assert found(independent_turns(noise)) < SURE < found(independent_turns(past))
    taken = [(t.visit, t.seen.action) for t in independent_turns(noise)]
    assert len(taken) == len(set(taken))
    assert {turn.step for turn in independent_turns(noise)} == {0, 1, 2}


@pytest.mark.parametrize(
    ("iterations", "iteration", "share", "due"),
    [
        (100, 9, 0.0, False),
        (100, 10, 0.0, True),
        (101, 10, 0.0, False),
        (5, 2, 1.0, False),
        (5, 3, 0.0, True),
        (100, 3, 0.1, True),
        (100, 4, 0.09, False),
    ],
)
def test_findings_are_said_after_a_tenth(iterations, iteration, share, due):
    plan = plan_of(load_recipe("frozen-lake", [f"trainer.iterations={iterations}"]))
    assert findings_are_due(plan, iteration, share) == due


def test_a_trend_is_no_noise_and_noise_no_trend():
    def rise(*values, noise=0.0):
        found = Series(steps=np.arange(len(values)), values=np.array(values, dtype=float))
        return found.rise(noise)

    assert rise(0, 1, 2, 3) == (2.0, 0.0)
    difference, error = rise(0.5, 0.1, 0.9, 0.2, 0.6)
    assert 0 < difference < error
    assert rise(0.5) == (0.0, 0.0)
    assert rise(0, 1, 2, 3, noise=0.5) == (2.0, 0.5)
