"""One drawing, solved at test time: an adapter of a base learns until one program is exact.

Provides `solve`. It trains the recipe `arc-draw-solve`, of which a method is a preset, and tells
what that cost. The task and the hash of the base are kept in the run folder, so that a run goes on
with what it began with, and tells what it found when both are gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.app import lifecycle
from turnwise.app.resume import differences
from turnwise.app.solve_base import BASE, base_of, digest_of, weights_of
from turnwise.envs.drawing.env import ArcDraw
from turnwise.envs.drawing.interpreter import Grid
from turnwise.envs.drawing.pictures import PICTURES
from turnwise.errors import (
    ConfigError,
    Interrupted,
    RunError,
    unknown_name,
)
from turnwise.recipe.fit import value_at
from turnwise.recipe.overrides import parse_override
from turnwise.recipe.reasons import dotted_keys
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.runs import (
    Run,
    episode_file,
    read_episodes,
    read_metrics,
    read_scores,
    recorded_iterations,
)
from turnwise.runs.files import write_atomically
from turnwise.runs.metric_names import FAILED, TRAIN
from turnwise.trainers.progress import WARNING, Progress, Silent
from turnwise.types import Episode

METHODS = ("grpo", "hindsight", "hybrid", "sample")
RECIPE = "arc-draw-solve"
TASK, BASE_HASH = "task.json", "base-hash.txt"
"""The files in the run folder that hold a task of ARC-AGI and the hash of the base."""
DECIDED = (
    *("env.name", "env.options.path", "env.options.picture", "env.training", "episodes", "name"),
    *("policies.main.model", "preset", "pretrain", "seed", "stages", "trainer.iterations"),
    *("trainer.dynamic_sampling", "trainer.kind"),
)
"""Settings that follow from the arguments, or that the answer is read by."""
ITERATIONS = "trainer.iterations"
MEASURED = ("threads", "processes")
"""Settings that a run may have chosen by itself."""
UNREADABLE = 0.9
"""The share of first programs that cannot be read from which a base has not learned to draw."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownPair:
    """A grid, the wanted one if it is known, and what the program makes of it if it runs."""

    name: str
    given: Grid
    wanted: Grid | None
    drawn: Grid | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Solved:
    """What a method found, and at which cost.

    `solved` says whether a sampled program was exact, and `greedy_exact` whether the most probable
    one is, after it. `program` is the first exact one, else the one with most right cells, whose
    share is `pixels`. `test_exact` says whether it is right on the test pairs of a file, None
    without answers to them. `shown` are the pairs and the test pairs. `generations` are the
    programs that were sampled, up to the end of the iteration, and `distinct` the different grids
    that they drew. `base` is a hash of the weights that it began with.
    """

    task: str
    method: str
    seed: int
    solved: bool
    greedy_exact: bool
    pixels: float
    test_exact: bool | None
    generations: int
    distinct: int
    updates: int
    sampled_tokens: int
    trained_tokens: int
    seconds: float
    program: str
    base: str
    run: Path
    shown: tuple[ShownPair, ...]


def solve(
    task: str,
    method: str = "hindsight",
    *,
    base: str | Path | None = None,
    budget: int = 4096,
    seed: int = 0,
    settings: Sequence[str] = (),
    run: Path | None = None,
    progress: Progress | None = None,
) -> Solved:
    """Adapt a fresh adapter to one drawing, and stop at the first exact program.

    Args:
        task: a picture of `arc-draw`, or a JSON file of a task of ARC-AGI.
        method: a preset of the recipe `arc-draw-solve`.
        base: a model's directory or a run; None is the latest run of `arc-draw-base` in `runs`,
            or what the run in `run` began with.
        budget: the most programs that are sampled, in whole iterations.
        seed: of everything.
        settings: settings of the recipe, as "section.key=value".
        run: the run folder; None makes one in `runs`. An interrupted run goes on, and of a finished
            one is told what it found.
        progress: who watches.

    Raises:
        ConfigError: if there is no such task or method, or the budget is less than an iteration.
        RunError: if there is no base, or the run in `run` is of something else.
        Interrupted: if it was stopped; the run can be resumed.
    """
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    _check_settings(settings)
    given = [f"preset={method}", f"seed={seed}", "pretrain=none", *_options(task), *settings]
    given.append(_iterations(_recipe(given), budget))
    env = _recipe(given).env.make("evaluation").unwrapped
    assert isinstance(env, ArcDraw), "the recipe is of arc-draw"
    watcher = _FirstPrograms(progress or Silent())
    if run is not None and (run / "recipe.toml").is_file():
        _complete(Run(run), task)
        digest = _went_on(given, run, base, watcher)
    else:
        chosen = base_of(base)
        model = weights_of(chosen)
        digest = digest_of(model)
        watcher.note(chosen.described)
        recipe = _recipe([*given, _model(model)])
        run = _ended(lambda: _begun(recipe, run, task, digest, watcher))
    found = _measured(Run.open(run), env)
    return Solved(task=task, method=method, seed=seed, base=digest, **found)


def _check_settings(settings: Sequence[str]) -> None:
    """Refuse settings that would contradict the arguments."""
    for key in dotted_keys(dict(map(parse_override, settings))):
        for fixed in DECIDED:
            if f"{key}.".startswith(f"{fixed}.") or fixed.startswith(f"{key}."):
                raise ConfigError(
                    f"setting {key!r}: task, method, base, budget and seed of `solve` decide "
                    f"{fixed}: leave it out"
                )


def _options(task: str) -> list[str]:
    """Return the settings of the env that a task means."""
    if not task.endswith(".json"):
        if task not in PICTURES:
            raise unknown_name("task", task, PICTURES, "a .json file of a task of ARC-AGI")
        return [f"env.options.picture={task}"]
    path = Path(task)
    try:
        if path.is_file() or not path.exists():  # the env refuses others; a pipe would wait
            with path.open("rb"):
                pass
    except (OSError, ValueError) as error:  # a ValueError for what no path can hold
        said = (str(error) if isinstance(error, ValueError) else error.strerror or "").lower()
        raise ConfigError(
            f"the task {task!r} cannot be read ({said}): give a JSON file of a task of ARC-AGI"
        ) from None
    return [f"env.options.path={path.resolve()}", "env.options.picture=random"]


def _recipe(settings: Sequence[str], name: str = RECIPE) -> Recipe:
    return load_recipe(name, settings, lambda text: None)


def _each(recipe: Recipe) -> int:
    """Return the programs that an iteration samples."""
    return recipe.trainer.tasks_per_iteration * recipe.trainer.group_size


def _iterations(draft: Recipe, budget: int) -> str:
    """Return the setting that spends the budget."""
    each = _each(draft)
    if budget < each:
        raise ConfigError(
            f"budget = {budget}: an iteration samples {each} programs: give as many, or lower "
            "trainer.tasks_per_iteration and trainer.group_size, whose product that is"
        )
    return f"{ITERATIONS}={budget // each}"


def _model(weights: Path) -> str:
    """Return the setting of the base."""
    return f"policies.main.model={weights}"


def _begun(
    recipe: Recipe, run: Path | None, task: str, digest: str, watcher: Progress
) -> lifecycle.Outcome:
    """Train in a new run folder, which holds the task and the hash of the base."""
    files, toml = {BASE_HASH: f"{digest}\n"}, None
    if "path" in recipe.env.options:
        files[TASK] = _task_file(task)
        env = recipe.env.model_copy(update={"options": recipe.env.options | {"path": TASK}})
        toml = recipe.model_copy(update={"env": env}).to_toml()
    return lifecycle.train(recipe, run=run, files=files, toml=toml, progress=watcher)


def _task_file(task: str) -> str:
    """Return what the run folder keeps of a task's file."""
    return json.dumps(json.loads(Path(task).read_bytes()))


def _complete(run: Run, task: str) -> None:
    """Write the task of a run that was killed between its recipe and its task."""
    if task.endswith(".json") and run.is_empty and not (run.path / TASK).exists():
        write_atomically(run.path / TASK, _task_file(task))


def _went_on(given: Sequence[str], run: Path, base: str | Path | None, watcher: Progress) -> str:
    """Go on with the run in `run` if it is not finished; return the hash of its base.

    Args:
        given: the settings of this command, without the base.
        run: the run folder.
        base: as for `solve`.
        watcher: who watches.

    Raises:
        RunError: if it is a run of something else, or its base is gone.
    """
    known = _recipe((), str(run / "recipe.toml"))
    main = known.weights.get("main")
    began = Path(main.model if main else "")
    model = began if base is None else weights_of(base_of(base))
    _check_same(_recipe([*given, _model(model)]), known, run)
    kept = run / BASE_HASH
    if Run(run).evaluation.is_file():
        return kept.read_text(encoding="utf-8").strip() if kept.is_file() else digest_of(began)
    if not began.is_dir():
        raise RunError(
            f"'{run}' began with the base '{began}', which is gone: bring it back, or give another "
            "folder by --run"
        )
    digest = digest_of(began)
    if kept.is_file() and kept.read_text(encoding="utf-8").strip() != digest:
        raise RunError(
            f"'{run}' began with other weights than '{began}' has now: give another folder by --run"
        )
    if not kept.is_file():
        write_atomically(kept, f"{digest}\n")
    watcher.note(f"base: {began}")
    _ended(lambda: lifecycle.resume(run, progress=watcher))
    return digest


def _check_same(recipe: Recipe, known: Recipe, run: Path) -> None:
    """Refuse to go on with a run of something else."""
    ours, theirs = recipe.model_dump(), known.model_dump()
    for each in (ours, theirs):
        each["env"]["options"].pop("path", None)  # the run has a file of its own
    keys = [key for key in differences(theirs, ours) if key not in MEASURED]
    keys.sort(key=lambda key: key == ITERATIONS)  # which other settings decide, too
    if keys and keys[0] == ITERATIONS:
        begun, asked = (each.trainer.iterations * _each(each) for each in (known, recipe))
        raise RunError(
            f"'{run}' was begun with a budget of {begun} programs, and this command asks for "
            f"{asked}: give --budget {begun}, or another folder by --run"
        )
    if keys:
        key = keys[0]
        raise RunError(
            f"'{run}' is a run with {key} = {value_at(theirs, key)!r}, and this command asks for "
            f"{value_at(ours, key)!r}: give another folder by --run, or the same arguments"
        )
    tasks = [each.env.make("evaluation").tasks("test") for each in (recipe, known)]
    if tasks[0] != tasks[1]:
        raise RunError(f"'{run}' is a run with another task: give another folder by --run")


def _ended(train: Callable[[], lifecycle.Outcome]) -> Path:
    """Train, and return the folder of the finished run.

    Raises:
        Interrupted: if a signal stopped it.
    """
    said = "the same `turnwise solve` with --run {} goes on, too, and tells what was found"
    try:
        outcome = train()
    except Interrupted as stopped:  # Ctrl-C; other signals end in an outcome that is not finished
        if stopped.run is None:
            raise
        raise Interrupted(f"{stopped}\n{said.format(stopped.run)}", stopped.run) from None
    if not outcome.finished:
        raise Interrupted(said.format(outcome.run), outcome.run)
    return outcome.run


class _FirstPrograms:
    """Passes progress on, and warns if hardly one of the first programs can be read."""

    def __init__(self, watcher: Progress) -> None:
        self._watcher, self._told = watcher, False
        self.begin, self.note = watcher.begin, watcher.note

    def advance(self, done: int, metrics: Mapping[str, float]) -> None:
        """Pass a step on; the first iteration tells how well the base writes programs."""
        self._watcher.advance(done, metrics)
        if FAILED not in metrics or self._told:
            return
        self._told = True
        if done == 1 and metrics[FAILED] >= UNREADABLE:
            self.note(
                f"{WARNING}{metrics[FAILED]:.0%} of the first programs cannot be read: the base "
                f"has not learned to write any: give a finished run of {BASE} by --base"
            )


def _measured(run: Run, env: ArcDraw) -> dict[str, Any]:
    """Return what a finished run found, and its costs, as fields of `Solved`."""
    records = [each for each in read_metrics(run.metrics) if each["phase"] == TRAIN]
    scores = read_scores(run.evaluation)
    assert scores is not None, "the run is finished"
    best: Episode | None = None
    drawn: set[tuple[Grid, ...]] = set()
    played = 0
    for iteration in recorded_iterations(run.episodes):
        recorded = read_episodes(episode_file(run.episodes, iteration))
        played += recorded.played
        for episode in recorded.episodes:
            grids = _drawn(env, episode)
            drawn.add(grids)
            if best is None or _rank(episode) > _rank(best):
                best = episode
    if best is None or not records:
        raise RunError(
            f"'{run.path}' ended before it sampled a program: leave evaluation.target and "
            "trainer.minutes out, or raise them"
        )
    has_tests, last = bool(env.reset(best.task).tests), records[-1]
    return {
        "solved": best.score == 1.0,
        "greedy_exact": scores.by_decoding["greedy"][0] == 1.0,
        "pixels": best.measures.get("pixels", 0.0),
        "test_exact": best.measures.get("test_exact", 0.0) == 1.0 if has_tests else None,
        "generations": played,
        "distinct": len(drawn - {()}),
        "updates": int(last.get("total/optimizer_steps", 0)),
        "sampled_tokens": int(last.get("total/sampled_tokens", 0)),
        "trained_tokens": int(last.get("total/trained_tokens", 0)),
        "seconds": round(float(last["time/total"]), 1),
        "program": _program(best),
        "run": run.path,
        "shown": _shown(env, best),
    }


def _shown(env: ArcDraw, episode: Episode) -> tuple[ShownPair, ...]:
    """Return all pairs of an episode's task, with what its program makes of each."""
    state, program = env.reset(episode.task), _program(episode)

    def shown(name: str, given: Grid, wanted: Grid | None) -> ShownPair:
        drawn = next(iter(env.drawn(program, [given])), None)
        return ShownPair(name=name, given=given, wanted=wanted, drawn=drawn)

    pairs = [shown(f"pair {at}", *pair) for at, pair in enumerate(state.pairs, start=1)]
    tests = [shown(f"test {at}", *pair) for at, pair in enumerate(state.tests, start=1)]
    asked = episode.task.data.get("asked", ())
    asked = enumerate(map(tuple, asked), start=len(tests) + 1)
    return (*pairs, *tests, *(shown(f"test {at}", grid, None) for at, grid in asked))


def _rank(episode: Episode) -> tuple[float, float]:
    """Return the order of episodes: exact ones first, then by their right cells."""
    return episode.score, episode.measures.get("pixels", 0.0)


def _program(episode: Episode) -> str:
    """Return the last program of an episode; where none could be read, its first reply."""
    programs = [turn.action for turn in episode.turns if turn.action]
    return programs[-1] if programs else next((turn.text for turn in episode.turns), "")


def _drawn(env: ArcDraw, episode: Episode) -> tuple[Grid, ...]:
    """Return the grids that an episode's program draws; none if it fails."""
    return env.drawn(_program(episode), env.reset(episode.task).given)
