"""The env `arc-draw`: rewards by hand, pictures, files, random drawings and baselines."""

from __future__ import annotations

import json
import os
from collections import Counter

import numpy as np
import pytest

import turnwise as tw
from turnwise.envs.drawing.generator import random_drawing
from turnwise.envs.drawing.interpreter import run_program
from turnwise.envs.drawing.painter import painted
from turnwise.envs.drawing.pictures import PICTURES
from turnwise.errors import ConfigError, EnvError, IllegalActionError

RNG = np.random.default_rng(0)


def state_of(env):
    task = tw.Task(id="t", env=env.name, seed=0, data=env.generate(np.random.default_rng(1)))
    return env.reset(task)


def drawn(env, *programs):
    state = state_of(env)
    return [env.step(state, "player", program, RNG) for program in programs]


@pytest.mark.parametrize("options", [{}, {"picture": "12-squares"}, {"spacing": "compact"}])
def test_it_keeps_the_contract(options):
    report = tw.check_env(tw.make_env("arc-draw", **options))
    assert report.name == "arc-draw"


def test_the_reward_is_the_share_of_right_cells():
    env = tw.make_env("arc-draw", picture="9-vertical-lines")
    nothing = "draw_pixel(img, (9, 9), 1)"
    lines = "\n".join(f"draw_vertical_line(img, {x}, {x + 1} )" for x in range(9))
    other_shape = "img = create_img((9, 8), 1)"
    fails = f"{lines}\ndraw_vertical_line(img, 9, 1)"
    steps = drawn(env, nothing, "draw_pixel(img, (0, 0), 1)", lines, other_shape, fails)
    assert [step.rewards["pixels"] for step in steps] == pytest.approx([0, 1 / 81, 1, 0, 0])
    assert [step.rewards["exact"] for step in steps] == [0, 0, 1, 0, 0]
    assert [env.score(step.state) for step in steps] == [0, 0, 1, 0, 0]
    assert [env.measures(step.state)["fails"] for step in steps] == [0, 0, 0, 0, 1]
    assert steps[-1].info["failure"] == "bounds (line 10)"
    assert all(step.terminated for step in steps)
    with pytest.raises(EnvError, match="reset the env"):
        env.step(steps[0].state, "player", nothing, RNG)
    with pytest.raises(IllegalActionError, match="no program: syntax"):
        drawn(env, "I would draw nine lines.")
    with pytest.raises(IllegalActionError, match="no program: length"):
        drawn(env, f"{nothing}\n" * 300)


@pytest.mark.parametrize("picture", PICTURES)
def test_pictures_are_painted_and_have_ten_colours_at_most(picture):
    env = tw.make_env("arc-draw", picture=picture)
    state = state_of(env)
    assert set(env.baselines()) == {"random", "optimal"}
    (step,) = drawn(env, env.baselines()["optimal"](state, RNG))
    assert step.rewards == {"pixels": 1.0, "exact": 1.0}
    target = PICTURES[picture]
    assert len({len(row) for row in target}) == 1
    assert set("".join(target)) <= set("0123456789")
    assert env.single_task
    assert env.tasks("train") == env.tasks("test")


@pytest.mark.parametrize("name", [name for name in PICTURES if name.endswith("-squares")][:9])
def test_squares_need_as_many_calls_as_there_are(name):
    """No two blocks that touch have one colour, so that each is a rectangle of its own."""
    target, count = PICTURES[name], int(name.partition("-")[0])
    blocks = [row[::2] for row in target[::2]]
    assert sum(map(len, blocks)) == count
    for r, row in enumerate(blocks):
        for c, color in enumerate(row):
            assert color != row[c + 1 : c + 2]
            assert r + 1 == len(blocks) or color != blocks[r + 1][c]


def test_random_drawings_are_those_of_the_published_generator():
    """By its distribution: sides, calls before pruning, and primitives."""
    rng = np.random.default_rng(0)
    drawings = [random_drawing(rng) for _ in range(2000)]
    sides = Counter(len(each.given) for each in drawings)
    assert set(sides) == set(range(3, 11))
    assert min(sides.values()) > 180
    calls = Counter(s.function for each in drawings for s in each.program.statements)
    assert set(calls) == {
        "draw_line",
        "draw_rectangle",
        "draw_horizontal_line",
        "draw_vertical_line",
        "draw_pixel",
    }
    lengths = Counter(len(each.program.statements) for each in drawings)
    assert set(lengths) == {1, 2, 3, 4, 5}
    for each in drawings:
        assert len(set("".join(each.given))) == 1
        assert each.given != each.made == run_program(each.program.text, each.given)


def test_drawings_are_split_by_what_they_show():
    env = tw.make_env("arc-draw")
    data = env.generate(np.random.default_rng(3))
    assert env.canonical(data) == env.canonical(data | {"program": "another"})


def test_a_target_of_another_shape_is_painted_on_a_new_grid():
    for spacing in ("spaced", "compact"):
        program = painted(("0",), ("012", "333"), spacing)
        assert run_program(program, ("0",)) == ("012", "333")
    assert run_program(painted(("12",), ("12",)), ("12",)) == ("12",)


def test_the_sandbox_runs_all_of_python_and_draws_alike():
    env = tw.make_env("arc-draw", picture="9-vertical-lines", runner="sandbox")
    loop = (
        "def task(img):\n"
        "    for x in range(9):\n"
        "        img = draw_vertical_line(img, x, x + 1)\n"
        "    return img"
    )
    calls = "\n".join(f"draw_vertical_line(img, {x}, {x + 1} )" for x in range(9))
    wrong = "def task(img):\n    return 7"
    outside = "def task(img):\n    return draw_vertical_line(img, 9, 1)"
    steps = drawn(env, loop, calls, wrong, outside)
    assert [step.rewards["exact"] for step in steps] == [1, 1, 0, 0]
    assert [step.info.get("failure", "") for step in steps] == [
        "",
        "",
        "result",
        "exception (line 2)",
    ]
    assert env.blocking
    assert env.runs_programs
    with pytest.raises(IllegalActionError, match="no program: syntax"):
        drawn(env, "I would draw nine lines.")


@pytest.fixture
def arc_file(tmp_path):
    """`arc_file(data)`: its path."""

    def write(data):
        path = tmp_path / "task.json"
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return str(path)

    return write


PAIRS = {
    "train": [
        {"input": [[0, 0], [0, 0]], "output": [[0, 0], [5, 5]]},
        {"input": [[1, 0], [0, 0]], "output": [[1, 0], [5, 5]]},
    ],
    "test": [{"input": [[2, 2], [2, 2]], "output": [[2, 2], [5, 5]]}],
}


def test_a_file_of_arc_is_a_task_of_several_pairs(arc_file):
    env = tw.make_env("arc-draw", path=arc_file(PAIRS))
    state = state_of(env)
    assert env.observe(state, "player").text.count("from") == 2
    right, memorised = drawn(env, "draw_horizontal_line(img, 1, 5)", "img = create_img((2, 2), 0)")
    assert right.rewards == {"pixels": 1.0, "exact": 1.0}
    assert env.measures(right.state)["test_exact"] == 1.0
    assert memorised.rewards["pixels"] == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert env.measures(memorised.state)["test_exact"] == 0.0


def test_pairs_count_alike_whatever_their_sizes(arc_file):
    small, large = {"input": [[0]], "output": [[1]]}, {"input": [[0, 0, 0]], "output": [[0, 0, 1]]}
    env = tw.make_env("arc-draw", path=arc_file({"train": [small, large]}))
    (step,) = drawn(env, "draw_pixel(img, (0, 0), 1)")
    assert step.rewards["pixels"] == pytest.approx((1 + 1 / 3) / 2)


def test_a_call_that_one_pair_needs_stays_in_the_demonstration(arc_file):
    env = tw.make_env("arc-draw", path=arc_file(PAIRS))
    task = tw.Task(id="t", env=env.name, seed=0, data=env.generate(RNG))
    program = "draw_pixel(img, (0, 0), 0)\ndraw_pixel(img, (1, 1), 3)"
    found = env.relabel(task, [program])
    assert found.actions == (program,)
    assert [after for _, after in found.data["pairs"]] == [["00", "03"], ["00", "03"]]


def test_a_loop_of_python_is_a_demonstration_as_it_is():
    env = tw.make_env("arc-draw", picture="9-vertical-lines", runner="sandbox")
    task = tw.Task(id="t", env=env.name, seed=0, data=env.generate(RNG))
    loop = (
        "def task(img):\n"
        "    for x in range(4):\n"
        "        img = draw_vertical_line(img, x, x + 1)\n"
        "    return img"
    )
    found = env.relabel(task, [loop])
    assert (found.actions, found.closeness) == ((loop,), pytest.approx(4 / 9))
    assert found.data["pairs"][0][1] == ["123400000"] * 9


@pytest.mark.parametrize("runner", ["interpreter", "sandbox"])
def test_a_program_that_fails_on_the_test_pairs_alone_loses_no_reward(arc_file, runner):
    """Row 2 is outside of the test grid: rewards and demonstrations know nothing of it."""
    pair = {"input": [[0], [0], [0]], "output": [[0], [0], [1]]}
    path = arc_file({"train": [pair], "test": [{"input": [[0]], "output": [[0]]}]})
    env = tw.make_env("arc-draw", path=path, runner=runner)
    program = "draw_horizontal_line(img, 2, 1)"
    (step,) = drawn(env, program)
    assert step.rewards == {"pixels": 1.0, "exact": 1.0}
    assert step.info == {}
    assert env.measures(step.state) == {"pixels": 1.0, "fails": 0.0, "test_exact": 0.0}
    task = tw.Task(id="t", env=env.name, seed=0, data=env.generate(RNG))
    found = env.relabel(task, [program])
    assert (found.actions, found.closeness) == ((program,), 1.0)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("no json", "Expecting value"),
        ("[" * 100_000, "task of ARC-AGI"),
        ({"test": []}, "'train' is missing"),
        ([], "no JSON object"),
        ({"00576224": {"train": [], "test": []}}, "it holds many tasks: write one of them"),
        ({"train": [{"input": [[0]]}]}, "train pair 1: 'output' is missing"),
        ({"train": [], "test": [{"output": [[0]]}]}, "'input' is missing"),
        ({"train": [], "test": []}, "no training pairs"),
        ({"train": [{"input": [[0]], "output": [[10]]}], "test": []}, "output: row 1 has the ce"),
        ({"train": [{"input": [[0]], "output": [[True]]}], "test": []}, "cell True, which is no w"),
        ({"train": [{"input": [[0], [0, 0]], "output": [[0]]}], "test": []}, "row 2 has another"),
        ({"train": [{"input": [], "output": [[0]]}], "test": []}, "1 to 30 rows"),
        ({"train": [{"input": [[0] * 31], "output": [[0]]}], "test": []}, "row 1 is no list"),
        ({"train": [{"input": "000", "output": [[0]]}], "test": []}, "1 to 30 rows"),
        ({"train": 7, "test": []}, "train is no list of objects: expected a task of ARC-AGI"),
        ({"train": [[[[0]], [[0]]]], "test": []}, "train is no list of objects"),
        ({"train": [{"input": [[0]], "output": [[0]]}], "test": None}, "test is no list of obj"),
        ("1" * 1_000_001, "more than 1000000 bytes"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_task_is_refused(arc_file, data, says):
    with pytest.raises(ConfigError, match=says):
        tw.make_env("arc-draw", path=arc_file(data))


def test_a_pipe_or_a_folder_is_no_task(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path / "pipe.json", tmp_path, "/dev/zero"):
        with pytest.raises(ConfigError, match="it is no regular file"):
            tw.make_env("arc-draw", path=str(path))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"picture": "16-square"}, "did you mean '16-squares'"),
        ({"picture": "rocket", "path": "x.json"}, "both give the task"),
        ({"picture": "rocket", "largest": 5}, "largest is for random drawings"),
        ({"smallest": 5, "largest": 4}, "below the smallest"),
        ({"path": "nowhere.json"}, "No such file"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        tw.make_env("arc-draw", **options)
