"""`turnwise solve`: what it found and what that cost, from a base of a few steps."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import turnwise as tw
from turnwise.app import solve as module
from turnwise.app.solve import METHODS, solve
from turnwise.app.solve_base import base_of, digest_of
from turnwise.cli.main import app
from turnwise.envs.drawing.pictures import PICTURES
from turnwise.errors import ConfigError, Interrupted, RunError
from turnwise.recipe.schema import load_recipe
from turnwise.runs import read_episodes, read_metrics
from turnwise.types import Episode, EpisodeId, Sampling, Task, Trajectory, Turn, TurnId
from turnwise.utils.text import printable

from ..conftest import TINY

SMALL = (
    "trainer.tasks_per_iteration=2",
    "trainer.group_size=4",
    "agents.player.max_tokens=12",
    "engine.probe_tokens=64",
    "forest.probe_tokens=64",
    "policies.main.device=cpu",
    "policies.main.lora.rank=2",
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A finished run of the base, which knows which words there are."""
    run = tmp_path_factory.mktemp("base") / "run"
    steps = ("warmup.steps=150", "warmup.eval_every=150", "warmup.batch_size=32")
    rate = ("warmup.optimizer.lr=1e-2", "env.options.most_calls=1", "env.options.largest=3")
    recipe = load_recipe("arc-draw-base", [*TINY, *steps, *rate])
    assert tw.train(recipe, run=run).finished
    return run


def go(base, tmp_path, method="sample", *settings, task="9-vertical-lines", **given):
    given = {"budget": 16, "seed": 1, "run": tmp_path / "solve"} | given
    given = {"settings": [*SMALL, *settings]} | given
    return solve(task, method, base=base, **given)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_fails_tells_its_best_program_and_its_costs(base, tmp_path, method):
    many = () if method in ("sample", "hindsight") else ("trainer.minibatches=2",)
    found = go(base, tmp_path, method, *many, "agents.player.temperature=1.0", budget=23)
    assert (found.task, found.method, found.seed) == ("9-vertical-lines", method, 1)
    assert (found.solved, found.greedy_exact, found.generations) == (False, False, 16)
    files = sorted((tmp_path / "solve" / "episodes").glob("train-*"))
    played = [e for file in files for e in read_episodes(file).episodes]
    assert len(played) == 16
    best = max(played, key=lambda each: each.measures.get("pixels", 0.0))
    assert found.pixels == best.measures["pixels"] > 0
    assert found.program == best.turns[0].action
    (pair,) = found.shown
    assert (pair.name, pair.wanted) == ("pair 1", PICTURES["9-vertical-lines"])
    assert found.test_exact is None
    cells = ("".join(grid) for grid in (pair.drawn, pair.wanted))
    right = sum(a == b for a, b in zip(*cells, strict=True))
    assert found.pixels == pytest.approx(right / 81)
    assert found.sampled_tokens >= sum(len(e.turns[0].completion_ids) for e in played)
    assert (found.updates > 0) == (found.trained_tokens > 0) == (method != "sample")
    made = set()
    env = tw.make_env("arc-draw", picture="9-vertical-lines")
    for each in played:
        made.add(module._drawn(env, each))
    assert found.distinct == len(made - {()})
    assert found.base == digest_of(next((base / "checkpoints").rglob("model.safetensors")).parent)


def test_it_stops_at_the_first_exact_program(base, tmp_path, monkeypatch):
    easy = ("111", "000", "000")
    monkeypatch.setitem(PICTURES, "easy", easy)
    found = go(base, tmp_path, task="easy", budget=4096)
    assert found.solved
    assert found.pixels == 1.0
    assert [(pair.wanted, pair.drawn) for pair in found.shown] == [(easy, easy)]
    assert found.generations < 4096
    assert found.generations % 8 == 0
    again = tw.make_env("arc-draw", picture="easy")
    task = tw.tasks.GeneratedTasks(again, "test", 0).task(0)
    step = again.step(again.reset(task), "player", found.program, None)
    assert step.rewards["exact"] == 1.0


def test_an_interrupted_one_goes_on_and_a_finished_one_is_only_told(base, tmp_path, monkeypatch):
    first = go(base, tmp_path)
    assert go(base, tmp_path) == first
    assert go(None, tmp_path) == first
    with monkeypatch.context() as patched:
        patched.setattr(module, "_rank", lambda episode: (0.0, 0.0))
        (file, *_) = sorted((tmp_path / "solve" / "episodes").glob("train-*"))
        action = read_episodes(file).episodes[0].turns[0]
        assert go(base, tmp_path).program == (action.action or action.text), "the first of equals"
    last = read_metrics(first.run / "metrics.jsonl")[-1]
    assert first.seconds == round(last["time/total"], 1)
    for other, says in (
        ({"task": "12-squares"}, r"is a run with env\S* = "),
        ({"seed": 2}, r"is a run with seed = "),
        ({"budget": 24}, "begun with a budget of 16 programs, and this command asks for 24"),
    ):
        with pytest.raises(RunError, match=says):
            go(base, tmp_path, **other)
    with pytest.raises(RunError, match=r"a run with agents\.player\.temperature = 1\.0, "):
        go(base, tmp_path, "sample", "agents.player.temperature=0.5")
    shutil.copytree(base, tmp_path / "other")
    with pytest.raises(RunError, match=r"is a run with policies\.main\.model = "):
        go(tmp_path / "other", tmp_path)


class Stops:
    """Asks the run to stop after an iteration, and keeps what it says."""

    def __init__(self, after=1, by=signal.SIGTERM):
        self.after, self.by, self.notes = after, by, []

    def begin(self, phase, *, done, total):
        pass

    def advance(self, done, metrics):
        if done == self.after:
            signal.raise_signal(self.by)

    def note(self, text):
        self.notes.append(text)


def test_a_signal_stops_it_and_the_same_command_goes_on(base, tmp_path):
    whole = go(base, tmp_path, run=tmp_path / "whole")
    watcher = Stops()
    with pytest.raises(Interrupted, match=f"with --run {tmp_path / 'solve'} goes on"):
        go(base, tmp_path, progress=watcher)
    assert any("stopped by SIGTERM after saving" in note for note in watcher.notes)
    assert watcher.notes[0].startswith(f"base: {base}; exact in ")
    assert watcher.notes[0].endswith(" of its 8 test drawings")
    found = go(base, tmp_path)
    same = ("base", "program", "pixels", "generations", "distinct", "sampled_tokens")
    assert [getattr(found, each) for each in same] == [getattr(whole, each) for each in same]


def test_ctrl_c_tells_the_command_that_tells_what_was_found(base, tmp_path):
    said = r"stopped by SIGINT.* with `turnwise resume .*\nthe same .* with --run \S+ goes on"
    with pytest.raises(Interrupted, match=said):
        go(base, tmp_path, progress=Stops(by=signal.SIGINT))


def test_a_base_that_changes_or_goes_does_not_change_what_is_told(base, tmp_path):
    own = tmp_path / "base"
    shutil.copytree(base, own)
    (weights,) = (own / "checkpoints").glob("*-150/policies/main/model.safetensors")
    with pytest.raises(Interrupted):
        go(own, tmp_path, progress=Stops())
    before = weights.read_bytes()
    weights.write_bytes(before + b"x")
    with pytest.raises(RunError, match="began with other weights than"):
        go(None, tmp_path)
    weights.write_bytes(before)
    found = go(None, tmp_path)
    shutil.rmtree(own)
    assert go(None, tmp_path) == found
    (tmp_path / "solve" / "eval.json").unlink()
    with pytest.raises(RunError, match="began with the base '.*', which is gone"):
        go(None, tmp_path)


def test_a_kill_before_the_task_is_written_stops_no_later_command(base, tmp_path):
    file, run = tmp_path / "task.json", tmp_path / "solve"
    pair = {"input": [[0, 0], [0, 0]], "output": [[3, 0], [0, 0]]}
    file.write_text(json.dumps({"train": [pair]}))
    whole = go(base, tmp_path, task=str(file))
    recorded = {each: (run / each).read_bytes() for each in ("recipe.toml", "task.json")}
    (run / "task.json").unlink()
    with pytest.raises(ConfigError, match=r"path = 'task\.json': .*No such file"):
        go(base, tmp_path, task=str(file))  # what was recorded may be of another task
    shutil.rmtree(run)
    run.mkdir()
    (run / "recipe.toml").write_bytes(recorded["recipe.toml"])
    found = go(base, tmp_path, task=str(file))
    assert (found.program, found.generations) == (whole.program, whole.generations)
    assert (run / "task.json").read_bytes() == recorded["task.json"]
    assert (run / "base-hash.txt").read_text().strip() == whole.base


def test_a_task_file_that_changes_is_another_task(base, tmp_path):
    pair = {"input": [[0, 0], [0, 0]], "output": [[3, 0], [0, 0]]}
    file = tmp_path / "task.json"
    file.write_text(json.dumps({"train": [pair], "test": []}))
    with pytest.raises(Interrupted):
        go(base, tmp_path, task=str(file), progress=Stops())
    again = tmp_path / "again.json"
    shutil.copy(file, again)
    file.write_text(file.read_text().replace("3", "4"))
    with pytest.raises(RunError, match="is a run with another task: give another folder"):
        go(base, tmp_path, task=str(file))
    file.unlink()
    assert go(base, tmp_path, task=str(again)).shown[0].wanted == ("30", "00")


def test_a_base_of_another_env_is_refused_before_anything_is_loaded(tmp_path):
    run = tmp_path / "lake"
    run.mkdir()
    (run / "recipe.toml").write_text(load_recipe("frozen-lake").to_toml())
    for place in (run, f"{run}:main"):
        with pytest.raises(RunError, match="is a run of the env 'frozen-lake', which draws"):
            solve("12-squares", base=place)


def test_programs_that_cannot_be_read_at_first_are_told_once():
    watcher = Stops(after=0)
    watching = module._FirstPrograms(watcher)
    for done in (1, 2):
        watching.advance(done, {"rollout/failed_share": 1.0})
    (note,) = watcher.notes
    assert note.startswith("warning: 100% of the first programs cannot be read: the base has")
    for done, share in ((1, 0.5), (8, 1.0)):  # a good base, and a run that goes on
        watching = module._FirstPrograms(watcher)
        watching.advance(done, {"rollout/failed_share": share})
    assert len(watcher.notes) == 1


@pytest.mark.parametrize(
    "setting", ["optimizer.lr=1e-4", "loss.clip_low=0.1", "credit.std=none", "trainer.epochs=3"]
)
def test_a_run_of_other_options_does_not_go_on(tmp_path, setting):
    recipe = load_recipe("arc-draw-solve", ["preset=grpo"])
    module._check_same(recipe, recipe, tmp_path)
    other = load_recipe("arc-draw-solve", ["preset=grpo", setting])
    with pytest.raises(RunError, match=f"a run with {setting.partition('=')[0]} = "):
        module._check_same(other, recipe, tmp_path)


def test_a_task_of_arc_is_a_file(base, tmp_path):
    pair = {"input": [[0, 0], [0, 0]], "output": [[3, 3], [0, 0]]}
    file = tmp_path / "task.json"
    other = {"input": [[1, 0], [0, 0]], "output": [[7, 7], [7, 7]]}
    asked = {"input": [[0, 2], [0, 0]]}
    file.write_text(json.dumps({"train": [pair, pair], "test": [other, asked]}))
    found = go(base, tmp_path, task=str(file), budget=8)
    assert [each.name for each in found.shown] == ["pair 1", "pair 2", "test 1", "test 2"]
    wanted = [each.wanted for each in found.shown]
    assert wanted == [("33", "00"), ("33", "00"), ("77", "77"), None]
    assert [each.given for each in found.shown[2:]] == [("10", "00"), ("02", "00")]
    assert found.test_exact == (found.shown[2].drawn == ("77", "77"))
    env = tw.make_env("arc-draw", path=str(file), picture="random")
    for each in found.shown:
        assert env.drawn(found.program, [each.given]) == ((each.drawn,) if each.drawn else ())


def test_the_program_of_an_episode_is_its_last_reply_that_could_be_read():
    """With agents.player.invalid_reply = "continue" an episode has several replies."""
    identity = EpisodeId(iteration=0, visit=0, task="t", member=0)

    def told(*replies):
        turns = tuple(
            Turn(
                id=TurnId(episode=identity, role="player", turn=number),
                order=number,
                policy="main",
                policy_version=0,
                prompt_ids=(1,),
                completion_ids=(2,),
                logprobs=(0.0,),
                sampling=Sampling(),
                finish_reason="stop",
                text=text,
                action=text if text.startswith("draw") else None,
            )
            for number, text in enumerate(replies)
        )
        played = Trajectory(role="player", seat="player", turns=turns)
        task = Task(id="t", env="arc-draw", seed=0, data={})
        return module._program(
            Episode(
                id=identity,
                task=task,
                trajectories=(played,),
                terminated=True,
                truncated=False,
                score=0.0,
            )
        )

    assert told("no program", "draw_pixel(img, (0, 0), 1)") == "draw_pixel(img, (0, 0), 1)"
    assert told("no program", "none either") == "no program"
    assert told() == ""


def test_a_run_that_ends_before_its_first_program_says_so(base, tmp_path):
    over = ("trainer.minutes=1e-6", "evaluation.validate_start=true")
    with pytest.raises(
        RunError, match=r"before it sampled a program: leave evaluation\.target and"
    ):
        go(base, tmp_path, "sample", *over)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"task": "12-square"}, ConfigError, "did you mean '12-squares'.* or a .json file"),
        ({"task": "random"}, ConfigError, "unknown task 'random'"),
        ({"task": "a.json"}, ConfigError, r"^the task 'a.json' cannot be read \(no such file or"),
        ({"task": "a\0.json"}, ConfigError, r"cannot be read \(embedded null byte\)"),
        ({"settings": ["seed=2"]}, ConfigError, "budget and seed of `solve` decide seed: leave"),
        ({"settings": ["trainer={iterations=2}"]}, ConfigError, "decide trainer.iterations"),
        ({"settings": ["trainer.dynamic_sampling=true"]}, ConfigError, "budget .* decide"),
        ({"settings": ["preset=hybrid"]}, ConfigError, "method, .* decide preset: leave it out"),
        ({"settings": ["episodes=none"]}, ConfigError, "'episodes': .* decide episodes"),
        ({"method": "her"}, ConfigError, "unknown method 'her'"),
        ({"budget": 7}, ConfigError, "an iteration samples 8 programs"),
    ],
)
def test_wrong_arguments_are_refused(base, tmp_path, given, error, says):
    with pytest.raises(error, match=says):
        go(base, tmp_path, **given)
    assert not (tmp_path / "solve").exists()


def test_without_a_base_the_cure_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="`turnwise train arc-draw-base`, or give --base"):
        solve("12-squares")
    with pytest.raises(Exception, match="nowhere"):
        solve("12-squares", base=tmp_path / "nowhere")


def test_the_latest_run_of_the_base_is_the_base(base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for age, name in enumerate(("b", "c", "a")):
        (tmp_path / "runs").mkdir(exist_ok=True)
        run = tmp_path / "runs" / f"arc-draw-base-{name}"
        shutil.copytree(base, run)
        os.utime(run / "eval.json", (1e9 - age, 1e9 - age))
    found = base_of(None)
    assert (found.place, found.latest) == (str(Path("runs") / "arc-draw-base-b"), True)


def test_the_hash_of_a_base_is_of_all_its_weights(tmp_path):
    for name in ("1.safetensors", "2.safetensors"):
        (tmp_path / name).write_bytes(b"one")
    first = digest_of(tmp_path)
    (tmp_path / "2.safetensors").write_bytes(b"two")
    assert digest_of(tmp_path) != first


def test_the_command_prints_json_or_a_picture(base, tmp_path):
    words = ["solve", "12-squares", "--method", "sample", "--base", base, "--budget", 8]
    words += ["--run", tmp_path / "run", *(w for s in SMALL for w in ("--set", s))]
    told = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert set(found) == {
        "task", "method", "seed", "solved", "greedy_exact", "pixels", "generations", "distinct",
        "updates", "sampled_tokens", "trained_tokens", "seconds", "program", "base", "run",
        "test_exact",
    }  # fmt: skip
    assert (tmp_path / "run" / "drawing.png").read_bytes().startswith(b"\x89PNG")
    report = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert "![drawing](drawing.png)" in report
    written = (tmp_path / "run" / "program.txt").read_text(encoding="utf-8")
    assert written == f"{found['program']}\n"
    code = printable("".join(f"    {line}\n" for line in written.splitlines()))
    assert f"## Program\n\nThe first exact program or else the best one:\n\n{code}" in report
    command = next(line for line in report.splitlines() if line.startswith("turnwise solve"))
    again = CliRunner().invoke(app, [*shlex.split(command)[1:], "--json"])
    assert json.loads(again.stdout) == found
    shown = CliRunner().invoke(app, [*map(str, words)])
    assert "12-squares by sample: not solved" in " ".join(shown.stdout.split())


def test_a_program_cannot_control_the_terminal(tmp_path, capsys):
    from turnwise.cli.solve import draw_png, show

    pairs = [("pair 1", ("00",), ("01",), None), ("test 1", ("12",), None, ("34",))]
    shown = [dict(zip(("name", "given", "wanted", "drawn"), pair, strict=True)) for pair in pairs]
    found = module.Solved(
        task=r"$\foo$.json", method="sample", seed=0, solved=False, greedy_exact=False, pixels=0.5,
        generations=1, distinct=1, updates=0, sampled_tokens=1, trained_tokens=0, seconds=1.0,
        program="a # \x1b[2J\x07", base="", run=tmp_path, test_exact=False,
        shown=tuple(module.ShownPair(**each) for each in shown),
    )  # fmt: skip
    show(found)
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out and "\x07" not in out
    assert "\\x1b[2J\\x07" in out
    assert [line.rstrip() for line in out.splitlines()[:8]] == [
        *("pair 1: the program fails", "wanted    drawn", "0 1", ""),
        *("test 1", "given    drawn", "1 2      3 4", ""),
    ]
    assert "the test pairs are not right" in " ".join(out.split())
    draw_png(tmp_path / "drawing.png", found)
    assert (tmp_path / "drawing.png").is_file()
    show(replace(found, greedy_exact=True))
    told = " ".join(capsys.readouterr().out.split())
    assert "not solved: 50.0% of the cells are right in the best sample, but the greedy" in told
