"""A film of one episode that a run has recorded: its actions are played again, without a model.

Provides `film_of`, `noted_film` and `write_film`. Only envs that draw pictures (`Env.frame`) have
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from turnwise.envs.base import Env
from turnwise.errors import EnvError, IllegalActionError, TurnwiseError
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.report.movie import gif_of
from turnwise.rollout.draws import Draws
from turnwise.runs import Run
from turnwise.runs.episodes import episode_file, read_episodes, recorded_iterations
from turnwise.runs.files import write_atomically
from turnwise.tasks.openings import replayed
from turnwise.types import Episode
from turnwise.utils.text import as_code

SECONDS = 0.15
"""The seconds for which a picture is shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Film:
    """A GIF file, and a sentence on what it shows."""

    gif: bytes
    caption: str


def write_film(run: Run, note: Callable[[str], None]) -> str:
    """Write the film of a run into its folder and return its caption; empty if there is none."""
    film = noted_film(run, note)
    if film is None:
        return ""
    write_atomically(run.film, film.gif)
    return film.caption


def noted_film(run: Run, note: Callable[[str], None]) -> Film | None:
    """Return the film of a run, None if there is none.

    Args:
        run: the run.
        note: receives a sentence if the env cannot play the episode again.
    """
    try:
        return film_of(run)
    except TurnwiseError as error:
        note(f"there is no film of an episode: {error}")
        return None


def film_of(run: Run) -> Film | None:
    """Return the film of the median episode of the last recorded training iteration.

    None if no episode is recorded, the env draws no pictures, or the turns were chosen among
    siblings, whose random draws are others.

    Raises:
        TurnwiseError: if the recipe cannot be read, or the env plays the episode differently.
    """
    iterations = recorded_iterations(run.episodes)
    if not iterations:
        return None
    recipe = load_recipe(str(run.recipe), (), lambda text: None)
    found = read_episodes(episode_file(run.episodes, iterations[-1])).episodes
    episodes = [each for each in found if not each.broken and not each.left]
    if not episodes or recipe.topology.kind != "independent":
        return None
    env = recipe.env.make("training")
    episode = sorted(episodes, key=lambda each: (each.score, str(each.id)))[len(episodes) // 2]
    if env.frame(env.reset(episode.task)) is None:
        return None
    frames = [frame for state in _states(env, episode, recipe) if (frame := env.frame(state))]
    sizes = sorted({frame.size for frame in frames})
    if len(sizes) > 1:
        raise EnvError(
            f"{env.name} draws pictures of different sizes in one episode ({sizes[0]} and "
            f"{sizes[1]} cells): let `frame` draw as many rows and columns in every state"
        )
    caption = (
        f"A training episode of iteration {iterations[-1]}, task {as_code(episode.task.id)}, score "
        f"{episode.score:.3g}: the median of the {len(episodes)} recorded ones by score."
    )
    return Film(gif=gif_of(frames, SECONDS), caption=caption)


def _states(env: Env[Any], episode: Episode, recipe: Recipe) -> Iterator[Any]:
    """Yield the states of an episode, played again with the random draws of the run.

    Raises:
        EnvError: if the env refuses an action, or the final score is another.
    """
    common = recipe.trainer.noise == "common"
    draws = Draws(seed=recipe.seed, stream="train", common_noise=common)
    state = replayed(env, episode.task, episode.opening, draws.of_step)
    yield state
    acts = (turn for turn in episode.turns if turn.action is not None and turn.phase == "act")
    for number, turn in enumerate(sorted(acts, key=lambda turn: turn.order)):
        assert turn.action is not None, "filtered above"
        noise = draws.of_step(episode.id, number)
        try:
            state = env.step(state, turn.id.role, turn.action, noise).state
        except IllegalActionError as refusal:
            raise EnvError(_differs(episode, f"refuses the action {turn.action!r}")) from refusal
        yield state
    if env.scored_by == "score" and env.score(state) != episode.score:
        raise EnvError(_differs(episode, f"has the score {env.score(state):g} at its end"))


def _differs(episode: Episode, what: str) -> str:
    return (
        f"{episode.task.env} {what} in the recorded episode {episode.id}, whose score was "
        f"{episode.score:g}: let `step` depend on its arguments only, or restore the version of "
        "the env that the run was made with"
    )
