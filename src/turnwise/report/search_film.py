"""An episode of the policy that a search returned, as an animated GIF.

Provides `film_episode`. Frames are Gymnasium's own pictures, which need pygame for the small envs
and MuJoCo's renderer for its tasks.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import gymnasium
import numpy as np

from turnwise.runs.files import write_atomically
from turnwise.search.policies import Actor, Policy
from turnwise.search.problem import make_env
from turnwise.search.space import Params
from turnwise.search.tasks import SearchTask

FRAMES, WIDTH = 120, 320
"""The most frames of a film, and the width of its pictures."""
DURATION = 60
"""Milliseconds of a frame; five times as long on a grid."""


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
    if task.own_rules:
        return "the env draws no pictures"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = make_env(task, render_mode="rgb_array")
            frames = _frames(env, policy.actor(params), seed)
    except (gymnasium.error.Error, ImportError) as error:
        return f"the env cannot be drawn ({error})"
    write_atomically(path, _gif(frames, DURATION * (5 if task.grid is not None else 1)))
    return None


def _frames(env: gymnasium.Env, act: Actor, seed: int) -> list[np.ndarray]:
    """Return the pictures of an episode, at most `FRAMES` of them, evenly spaced."""
    seen, _ = env.reset(seed=seed)
    frames, over = [np.asarray(env.render())], False
    while not over:
        seen, _, terminated, truncated, _ = env.step(act(seen))
        frames.append(np.asarray(env.render()))
        over = terminated or truncated
    env.close()
    count = min(len(frames), FRAMES)
    return [frames[round(i * (len(frames) - 1) / max(count - 1, 1))] for i in range(count)]


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
