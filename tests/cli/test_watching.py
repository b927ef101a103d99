"""Episodes as pictures: what a frame of the ant colony shows, and the movie of a baseline."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.cli.watching import frames_of, text_of
from turnwise.envs import make_env
from turnwise.envs.frames import WHITE
from turnwise.tasks import GeneratedTasks

RNG = np.random.default_rng(0)


def frames(name="oracle", **options):
    env = make_env("ant-colony", **options)
    task = GeneratedTasks(env, "test", 0).task(0)
    return list(frames_of(env, task, baseline=name, run=None, seed=0))


def test_a_frame_shows_ants_food_the_nest_and_scents_as_colours():
    env = make_env("ant-colony", tier=2)
    state = env.reset(GeneratedTasks(env, "test", 0).task(0))
    first = env.frame(state)
    assert first.size == (10, 10) and "tick 0 of 60 home 0 of 8" in first.caption
    marks = [cell.text for row in first.cells for cell in row if cell.text]
    assert sorted(marks) == ["2", "2", "2", "2", "a"]  # the nest is below the ants
    grounds = {cell.behind for row in first.cells for cell in row}
    assert len(grounds) == 2 and WHITE in grounds
    state = env.step(state, env.acting(state)[0], "SIGNAL FOOD", RNG).state
    assert env.frame(state) is None  # within a tick
    state = env.step(state, env.acting(state)[0], "", RNG).state
    (green,) = {c.behind for row in env.frame(state).cells for c in row if c.text == "a"}
    assert green[1] > green[0] and green[1] > green[2]


def test_there_is_a_picture_for_each_tick():
    found = frames("heuristic", tier=2, ticks=15)
    assert len(found) == 16
    text = text_of(found[-1])
    assert text.plain.splitlines()[-1] == found[-1].caption
    assert len(text.plain.splitlines()[0].rstrip("\n")) == 20


def test_render_writes_an_episode_of_a_baseline(tmp_path):
    out = tmp_path / "colony.gif"
    command = ["render", "ant-colony", "--baseline", "oracle", "--set", "tier=0", "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    with Image.open(out) as movie:
        assert movie.n_frames == len(frames(tier=0)) > 10
        assert movie.size == (120, 138)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ant-colony", "--baseline", "oracl"], "did you mean"),
        (["relay", "--baseline", "optimal"], "draws none"),
        (["ant-colony", "--baseline", "oracle", "--out", "x.png"], ".gif or .mp4"),
        (["runs/none"], "runs/none"),
    ],
)
def test_what_cannot_be_rendered_is_refused_in_a_sentence(arguments, said):
    given = arguments if "--out" in arguments else [*arguments, "--out", "x.gif"]
    done = CliRunner().invoke(app, ["render", *given])
    assert done.exit_code == 2 and said in done.output.replace("\n", " ")
