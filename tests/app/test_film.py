"""The film of a run: an episode played again from what was recorded, and the size of a GIF."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from turnwise.app.film import film_of, write_film
from turnwise.envs import FrozenLake, FrozenLakeConfig, guarded
from turnwise.envs.frames import Cell, Frame
from turnwise.errors import BrokenEnvError
from turnwise.recipe.schema import load_recipe
from turnwise.report.movie import MOST_FRAMES, gif_of
from turnwise.report.report import write_report
from turnwise.rollout.draws import Draws
from turnwise.runs import EpisodeLog, Run
from turnwise.types import Episode, EpisodeId, Sampling, Trajectory, Turn, TurnId

SETS = ("preset=smoke", "env.options.tier=1", "env.options.seats=2", "env.options.ticks=9")


def played(recipe, member, actions):
    """An episode on the first training task in which each seat plays `actions`."""
    from turnwise.tasks import GeneratedTasks

    env = recipe.env.make("training")
    task = GeneratedTasks(env, "train", recipe.seed).task(0)
    name = EpisodeId(iteration=4, visit=0, task=task.id, member=member)
    draws = Draws(seed=recipe.seed, stream="train", common_noise=True)
    state, turns, number, over = env.reset(task), [], 0, False
    while not over:
        seat = env.acting(state)[0]
        action = actions[number % len(actions)]
        step = env.step(state, seat, action, draws.of_step(name, number))
        turns.append(
            Turn(
                id=TurnId(episode=name, role=seat, turn=number), order=number, policy="main",
                policy_version=0, prompt_ids=(1,), completion_ids=(2,), logprobs=(0.0,),
                sampling=Sampling(), finish_reason="stop", text=action, action=action,
            )
        )  # fmt: skip
        state, number, over = step.state, number + 1, step.terminated or step.truncated
    seats = (Trajectory(role="ant", seat=turns[0].id.role, turns=tuple(turns)),)
    score = env.score(state)
    return Episode(
        id=name, task=task, trajectories=seats, terminated=True, truncated=False, score=score
    )


@pytest.fixture
def run(tmp_path):
    """A run of ants with three recorded episodes of iteration 4."""
    recipe = load_recipe("ant-colony", SETS)
    run = Run.create(tmp_path, recipe.name, recipe.to_toml(), tmp_path / "run")
    moves = (["MOVE N"], ["MOVE N", "MOVE E\nSIGNAL FOOD"], ["MOVE W"])
    episodes = [played(recipe, member, actions) for member, actions in enumerate(moves)]
    EpisodeLog(run.episodes).write(4, episodes)
    return run


def opened(gif):
    return Image.open(io.BytesIO(gif))


def test_a_film_has_a_picture_for_each_tick(run):
    film = film_of(run)
    assert film is not None
    with opened(film.gif) as movie:
        assert movie.size == (24 * 7, 24 * 7 + 18)
        assert movie.n_frames > 3
    assert "iteration 4" in film.caption and "of the 3 recorded ones" in film.caption


def test_the_report_shows_the_film(run):
    text = write_report(run, film=write_film(run, pytest.fail))
    assert run.film.read_bytes() == film_of(run).gif
    assert "## An episode\n\nA training episode of iteration 4" in text
    assert text.count("](episode.gif)") == 1
    assert "An episode" not in write_report(run)


def test_an_episode_that_plays_differently_now_has_no_film(run):
    recipe = load_recipe(str(run.recipe))
    episode = replace(played(recipe, 0, ["MOVE N"]), score=0.875)
    EpisodeLog(run.episodes).write(5, [episode])
    notes = []
    assert write_film(run, notes.append) == "" and not run.film.exists()
    (note,) = notes
    assert "no film of an episode" in note and "whose score was 0.875" in note


def test_text_of_any_kind_is_drawn():
    cells = ((Cell("\ud800"), Cell("\x1b[2J"), Cell("\U0001f41c" * 10_000), Cell("")),)
    frame = Frame(cells=cells, caption="a\x00b\n" + "x" * 2_000_000)
    with opened(gif_of([frame, frame], 0.1)) as movie:
        assert movie.size[0] == 4 * 24


class Drawn(FrozenLake):
    """A lake of somebody whose pictures are what `cells` says."""

    cells: tuple = ()

    def frame(self, state):
        return Frame(cells=self.cells, caption="")


@pytest.mark.parametrize("cells", [(), ((),), ((Cell(),), ()), ((1, 2),), [[Cell()]], "picture"])
def test_what_is_no_picture_is_told_by_the_guard(cells):
    env = Drawn(FrozenLakeConfig())
    env.cells = cells
    lake = guarded(env, timeout=60)
    with pytest.raises(BrokenEnvError, match="frame.*a Frame whose rows have one length"):
        lake.frame(None)
    env.cells = ((Cell(), Cell()),)
    assert lake.frame(None).size == (1, 2)


def test_a_run_without_episodes_or_pictures_has_no_film(run, tmp_path):
    for file in run.episodes.iterdir():
        file.unlink()
    assert film_of(run) is None
    recipe = load_recipe("frozen-lake", ["preset=smoke"])
    lake = Run.create(tmp_path, recipe.name, recipe.to_toml(), tmp_path / "lake")
    assert write_film(lake, pytest.fail) == ""


def noisy(count, side=40):
    """Frames that no compression makes small."""
    rng = np.random.default_rng(0)
    return [
        Frame(
            cells=tuple(
                tuple(Cell(behind=tuple(map(int, rng.integers(0, 256, 3)))) for _ in range(side))
                for _ in range(side)
            ),
            caption=str(number),
        )
        for number in range(count)
    ]


def test_a_gif_is_bounded_in_pictures_and_in_bytes():
    frames = [Frame(cells=((Cell(str(n % 10)),),), caption=str(n)) for n in range(2 * MOST_FRAMES)]
    with opened(gif_of(frames, 0.1)) as movie:
        assert movie.n_frames == MOST_FRAMES
    whole = gif_of(noisy(12), 0.1)
    small = gif_of(noisy(12), 0.1, most_bytes=len(whole) // 2)
    assert len(small) <= len(whole) // 2
    with opened(small) as movie:
        assert 2 <= movie.n_frames < 12
