"""An episode of the policy that a search returned, as an animated GIF.

Provides `film_episode`. Frames are Gymnasium's own pictures, which need pygame for the small envs
and MuJoCo's renderer for its tasks.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium
import numpy as np

from turnwise.errors import ConfigError, EnvError, MissingDependencyError
from turnwise.runs.files import write_atomically
from turnwise.search.policies import Actor, Policy
from turnwise.search.problem import make_env
from turnwise.search.space import Params
from turnwise.search.tasks import SearchTask
from turnwise.utils.user_code import MISTAKES

MODE = "rgb_array"
DRIVER = "SDL_VIDEODRIVER"
FRAMES, WIDTH = 120, 320
"""The most frames of a film, and the width of its pictures."""
STEPS = 2_000
"""The most steps that are filmed: an env of the user's may have no limit."""
DURATION = 60
"""Milliseconds of a frame; five times as long on a grid."""
SCREENS = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of the environment by which MuJoCo finds what to draw on."""
WITHOUT_SCREEN = "; with no screen, set MUJOCO_GL=egl"


def film_episode(
    path: Path, task: SearchTask, policy: Policy, params: Params, seed: int
) -> str | None:
    """Write an episode as a GIF; return why there is none, or None.

    Args:
        path: of the GIF.
        task: the task.
        policy: what the parameters are of.
        params: of the policy.
        seed: of the episode.
    """
    env = make_env(task)
    env.close()
    if MODE not in env.metadata.get("render_modes", ()):
        return "the env draws no pictures"
    if _needs_screen(env):
        return "MuJoCo draws on a screen, and there is none: set MUJOCO_GL=egl"
    try:
        with warnings.catch_warnings(), _without_screen():
            warnings.simplefilter("ignore")
            env = make_env(task, render_mode=MODE)
            frames = _frames(env, policy.actor(params), seed)
    except (gymnasium.error.Error, ConfigError, MissingDependencyError, EnvError) as error:
        return f"the env cannot be drawn ({error})"
    write_atomically(path, _gif(frames, DURATION * (5 if task.grid is not None else 1)))
    return None


def _needs_screen(env: gymnasium.Env) -> bool:
    """Whether MuJoCo would draw an env on a screen that is not there.

    It must not be tried: the first time is an error, and a second one in a process ends it.
    """
    module = sys.modules.get("gymnasium.envs.mujoco.mujoco_env")
    drawn = module is not None and isinstance(env.unwrapped, module.MujocoEnv)
    return drawn and sys.platform == "linux" and not any(map(os.environ.get, SCREENS))


@contextmanager
def _without_screen() -> Iterator[None]:
    """Let pygame draw without a screen inside the block, or it complains where there is none."""
    before = os.environ.get(DRIVER)
    os.environ.setdefault(DRIVER, "dummy")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(DRIVER, None)


def _frames(env: gymnasium.Env, act: Actor, seed: int) -> list[np.ndarray]:
    """Return the pictures of an episode, at most `FRAMES` of them, evenly spaced."""
    seen, _ = env.reset(seed=seed)
    frames, over, step, every = [_picture(env)], False, 0, 1
    while not over and step < STEPS:
        seen, _, terminated, truncated, _ = env.step(act(seen))
        over, step = terminated or truncated, step + 1
        if step % every == 0 or over:
            frames.append(_picture(env))
        if len(frames) == 2 * FRAMES:  # memory holds no more
            frames, every = frames[::2], 2 * every
    env.close()
    count = min(len(frames), FRAMES)
    return [frames[round(i * (len(frames) - 1) / max(count - 1, 1))] for i in range(count)]


def _picture(env: gymnasium.Env) -> np.ndarray:
    """Return the env's picture.

    Raises:
        EnvError: if it is none.
    """
    try:
        picture = np.asarray(env.render())
    except _failures() as error:
        cure = "" if isinstance(error, MISTAKES) else WITHOUT_SCREEN
        raise EnvError(f"render raised {error!r}{cure}") from error
    if picture.ndim != 3 or picture.shape[2] != 3:
        raise EnvError("its picture is no array [height, width, 3]")
    return picture


def _failures() -> tuple[type[Exception], ...]:
    """Return what `render` may raise; MuJoCo's error, of a missing OpenGL, is no `RuntimeError`."""
    mujoco = sys.modules.get("mujoco")
    if mujoco is None or not hasattr(mujoco, "FatalError"):
        return MISTAKES
    return (*MISTAKES, mujoco.FatalError)


def _gif(frames: list[np.ndarray], duration: int) -> bytes:
    """Return pictures [height, width, 3] as the bytes of a GIF that repeats."""
    from PIL import Image

    pictures = []
    for frame in frames:
        picture = Image.fromarray(frame.astype(np.uint8))
        height = round(picture.height * WIDTH / picture.width)
        pictures.append(picture.resize((WIDTH, height)).quantize(64))
    buffer = io.BytesIO()
    pictures[0].save(
        buffer, format="GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0
    )
    return buffer.getvalue()
