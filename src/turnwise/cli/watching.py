"""Episodes as coloured pictures: shown in the terminal, or written to a file.

Provides `animated`, `frames_of` and the command `render`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.text import Text

from turnwise.cli.options import Sets, console, look_at_run, one_sentence, say
from turnwise.envs import guarded
from turnwise.envs.base import Env
from turnwise.envs.frames import Frame
from turnwise.errors import IllegalActionError, unknown_name
from turnwise.seeding import generator, world_generator
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

SECONDS = 0.15
"""The seconds for which a picture is shown."""


def frames_of(
    env: Env[Any], task: Task, *, baseline: str | None, run: Path | None, seed: int
) -> Iterator[Frame]:
    """Return the pictures of an episode that a baseline or a run's best policy plays."""
    if run is not None:
        states = _of_run(env, task, run, seed)
    else:
        states = _of_baseline(env, task, baseline, seed)
    return (frame for state in states if (frame := env.frame(state)) is not None)


def _of_baseline(env: Env[Any], task: Task, baseline: str | None, seed: int) -> Iterator[Any]:
    known = env.baselines()
    if baseline is None or baseline not in known:
        raise unknown_name("baseline", baseline or "", known)
    state, turns = env.reset(task), 0
    yield state
    while turns < env.turn_cap():
        rng = generator(seed, "play", turns)
        try:
            step = env.step(state, env.acting(state)[0], known[baseline](state, rng), rng)
        except IllegalActionError:
            return
        state, turns = step.state, turns + 1
        yield state
        if step.terminated or step.truncated:
            return


def _of_run(env: Env[Any], task: Task, run: Path, seed: int) -> Iterator[Any]:
    """Play the actions of the policy's episode again, with equal draws."""
    from turnwise.app.run_scores import play_run

    episode = play_run(run, env, task, seed=seed)
    state, steps = env.reset(task), 0
    yield state
    for turn in sorted(episode.turns, key=lambda turn: turn.order):
        if turn.action is None:
            continue
        noise = world_generator(seed, "evaluation", 0, 0, steps, None)
        state, steps = env.step(state, turn.id.role, turn.action, noise).state, steps + 1
        yield state


def animated(frames: Iterator[Frame], seconds: float = SECONDS) -> None:
    """Show pictures in the terminal, one in the place of another."""
    with Live(console=console, auto_refresh=False) as live:
        for frame in frames:
            live.update(text_of(frame), refresh=True)
            time.sleep(seconds)


def text_of(frame: Frame) -> Text:
    """Return a picture as styled text, two columns of the terminal for each cell."""
    text = Text()
    for row in frame.cells:
        for cell in row:
            style = f"bold {_rgb(cell.colour)} on {_rgb(cell.behind)}"
            text.append(f"{cell.text:1} ", style=style)
        text.append("\n")
    return text.append(frame.caption)


def _rgb(colour: tuple[int, int, int]) -> str:
    return "rgb({},{},{})".format(*colour)


def render(
    target: Annotated[str, typer.Argument(help="A run folder, or an env with --baseline.")],
    out: Annotated[Path, typer.Option(help="The .gif or .mp4 file to write.")],
    episode: Annotated[int, typer.Option(min=0, help="The number of the test task.")] = 0,
    baseline: Annotated[
        str | None, typer.Option(help="The baseline that plays, where TARGET is an env.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Draws the tasks.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=0.01, help="Seconds for which a picture is shown.")
    ] = SECONDS,
    sets: Sets = None,
) -> None:
    """Write an episode of a run's best policy, or of a baseline, as a movie."""
    with one_sentence():
        from turnwise.cli.play import env_of_run, env_with
        from turnwise.report.movie import write_movie

        run = None if baseline is not None else Path(target)
        if run is not None:
            look_at_run(run, ())
            made = env_of_run(run, sets or [], timeout=60.0)
        else:
            made = env_with(target, sets or [], timeout=60.0)
        env = guarded(made, 60.0)
        task = GeneratedTasks(env, "test", seed).task(episode)
        frames = list(frames_of(env, task, baseline=baseline, run=run, seed=seed))
        write_movie(out, frames, seconds)
        say(f"{len(frames)} pictures of task {task.id}: {out}")
