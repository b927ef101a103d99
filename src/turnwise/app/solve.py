"""One drawing, solved at test time: an adapter of a base learns until one program is exact.

Provides `solve`. It trains the recipe `arc-draw-solve`, of which a method is a preset, and tells
what that cost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.app import lifecycle
from turnwise.app.lifecycle import RUNS
from turnwise.app.sources import model_source
from turnwise.envs.drawing.env import ArcDraw
from turnwise.envs.drawing.interpreter import Grid
from turnwise.errors import ConfigError, IllegalActionError, RunError
from turnwise.policies import PolicyConfig
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.runs import (
    Run,
    episode_file,
    read_episodes,
    read_metrics,
    read_scores,
    recorded_iterations,
)
from turnwise.runs.metric_names import TRAIN
from turnwise.trainers.progress import Progress
from turnwise.types import Episode

METHODS = ("grpo", "hindsight", "hybrid", "sample")
RECIPE, BASE = "arc-draw-solve", "arc-draw-base"


@dataclass(frozen=True, kw_only=True, slots=True)
class Solved:
    """What a method found, and at which cost.

    `solved` says whether a sampled program was exact, and `greedy_exact` whether the most probable
    one is, after it. `program` is the first exact one, else the one with most right cells, whose
    share is `pixels`, and `drawn` are its grids beside the `wanted` ones. `generations` are the
    programs that were sampled, up to the end of the iteration, and `distinct` the different grids
    that they drew. `base` is a hash of the weights that it began with.
    """

    task: str
    method: str
    seed: int
    solved: bool
    greedy_exact: bool
    pixels: float
    generations: int
    distinct: int
    updates: int
    sampled_tokens: int
    trained_tokens: int
    seconds: float
    program: str
    base: str
    run: Path
    wanted: tuple[Grid, ...]
    drawn: tuple[Grid, ...]


def solve(
    task: str,
    method: str = "hybrid",
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
        base: a model's directory or a run; None is the latest run of `arc-draw-base` in `runs`.
        budget: the most programs that are sampled, in whole iterations.
        seed: of everything.
        settings: settings of the recipe, as "section.key=value".
        run: the run folder; None makes one in `runs`.
        progress: who watches.

    Raises:
        ConfigError: if there is no such task or method, or the budget is less than an iteration.
        RunError: if there is no base.
        Interrupted: if it was stopped; the run can be resumed.
    """
    if method not in METHODS:
        raise ConfigError(f"method {method!r}: expected one of {', '.join(METHODS)}")
    model = _base(base)
    chosen = [f"preset={method}", f"seed={seed}", "pretrain=none", f"policies.main.model={model}"]
    if task.endswith(".json"):
        chosen += [f"env.options.path={Path(task).resolve()}", "env.options.picture=random"]
    else:
        chosen.append(f"env.options.picture={task}")
    draft = load_recipe(RECIPE, [*chosen, *settings], lambda text: None)
    each = draft.trainer.tasks_per_iteration * draft.trainer.group_size
    if budget < each:
        raise ConfigError(
            f"budget = {budget}: an iteration samples {each} programs: give as many, or set "
            "trainer.tasks_per_iteration"
        )
    most = f"trainer.iterations={budget // each}"
    recipe = load_recipe(RECIPE, [*chosen, *settings, most], lambda text: None)
    if run is not None and (run / "recipe.toml").is_file():
        _check_same(recipe, run)
        outcome = lifecycle.resume(run, progress=progress)
    else:
        outcome = lifecycle.train(recipe, run=run, progress=progress)
    env = recipe.env.make("evaluation").unwrapped
    assert isinstance(env, ArcDraw), "the recipe is of arc-draw"
    found = _measured(Run.open(outcome.run), env)
    return Solved(task=task, method=method, seed=seed, base=digest_of(model), **found)


def digest_of(model: Path) -> str:
    """Return a hash of the weights in a model's directory.

    Raises:
        RunError: if there are none.
    """
    files = sorted(model.glob("*.safetensors"))
    if not files:
        raise RunError(f"'{model}' has no weights (*.safetensors): give a model's directory")
    whole = hashlib.blake2b(digest_size=8)
    for file in files:
        with file.open("rb") as opened:
            whole.update(hashlib.file_digest(opened, "blake2b").digest())
    return whole.hexdigest()


def _base(given: str | Path | None) -> Path:
    """Return the directory of the base's weights: given, or of the latest run of the base."""
    if given is None:
        runs = sorted(RUNS.glob(f"{BASE}-*/eval.json"), key=lambda path: path.stat().st_mtime)
        if not runs:
            raise RunError(
                f"there is no finished run of {BASE} in '{RUNS}': make one by `turnwise train "
                f"{BASE}`, or give --base"
            )
        given = runs[-1].parent
    source = model_source(str(given), PolicyConfig())
    return (source.weights or Path(source.config.model)).resolve()


def _check_same(recipe: Recipe, run: Path) -> None:
    """Refuse to go on with a run of something else."""
    known = load_recipe(str(run / "recipe.toml"), (), lambda text: None)
    for part in ("name", "seed", "env", "trainer", "optimizer", "credit", "loss"):
        if getattr(known, part) != getattr(recipe, part):
            raise RunError(
                f"'{run}' is a run with another {part} than this command asks for: give another "
                "folder by --run"
            )


def _measured(run: Run, env: ArcDraw) -> dict[str, Any]:
    """Return what a finished run found, and its costs, as fields of `Solved`."""
    records = [each for each in read_metrics(run.metrics) if each["phase"] == TRAIN]
    scores = read_scores(run.evaluation)
    assert records and scores is not None, "the run is finished"
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
    assert best is not None, "every iteration has episodes"
    state = env.reset(best.task)
    last = records[-1]
    return {
        "solved": best.score == 1.0,
        "greedy_exact": scores.by_decoding["greedy"][0] == 1.0,
        "pixels": best.measures.get("pixels", 0.0),
        "generations": played,
        "distinct": len(drawn - {()}),
        "updates": int(last.get("total/optimizer_steps", 0)),
        "sampled_tokens": int(last.get("total/sampled_tokens", 0)),
        "trained_tokens": int(last.get("total/trained_tokens", 0)),
        "seconds": round(float(last["time/total"]), 1),
        "program": _program(best),
        "run": run.path,
        "wanted": tuple(target for _, target in state.pairs),
        "drawn": _drawn(env, best),
    }


def _rank(episode: Episode) -> tuple[float, float]:
    """Return the order of episodes: exact ones first, then by their right cells."""
    return episode.score, episode.measures.get("pixels", 0.0)


def _program(episode: Episode) -> str:
    return next((turn.action or turn.text for turn in episode.turns), "")


def _drawn(env: ArcDraw, episode: Episode) -> tuple[Grid, ...]:
    """Return the grids that an episode's program draws; none if it fails."""
    state = env.reset(episode.task)
    try:
        after = env.step(state, "player", _program(episode), np.random.default_rng(0)).state
    except IllegalActionError:
        return ()
    return after.made or ()
