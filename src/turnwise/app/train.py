"""Training in one call: a model and rows with a reward, a model and an env, or a recipe.

Provides `train` and `resume` of the library. They make a recipe and a run folder, which the command
line can resume, with TRL's defaults where TRL has one (docs/from-trl.md). `turnwise.app.lifecycle`
runs them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.app import lifecycle
from turnwise.app.lifecycle import RUNS, Outcome
from turnwise.app.made_recipe import MadeRecipe, recipe_for_env, recipe_for_rows
from turnwise.app.progress_bar import watching
from turnwise.envs import Env
from turnwise.envs.rows.env import Rows
from turnwise.errors import ConfigError, RunError
from turnwise.policies import PolicyConfig
from turnwise.recipe.from_python import (
    Reward,
    Table,
    env_section,
    policy_section,
    reward_names,
)
from turnwise.recipe.reasons import annotated, described, still_true
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.report import verdict
from turnwise.report.findings import Facts
from turnwise.runs import Run, check_free
from turnwise.trainers import Progress
from turnwise.trainers.progress import WARNING
from turnwise.utils.text import without_markup
from turnwise.utils.user_code import SESSION, file_being_imported


def train(
    model: Recipe | PolicyConfig | str | Path,
    rows: Table | None = None,
    *,
    reward: Reward | Sequence[Reward] | None = None,
    reward_weights: Sequence[float] | Mapping[str, float] | None = None,
    eval_rows: Table | None = None,
    env: type[Env[Any]] | Env[Any] | str | None = None,
    settings: Mapping[str, Any] | None = None,
    run: str | Path | None = None,
    root: str | Path = RUNS,
    progress: Progress | bool | None = None,
) -> Outcome:
    """Train a model on rows with a reward, or in an env, or a recipe; test it, write the report.

    Args:
        model: "nano", a model's directory or hub name, or a `PolicyConfig`; or a whole `Recipe`,
            with which only `run`, `root` and `progress` may be given.
        rows: dicts with a column `prompt`, text or a list of messages; any iterable of them, a
            `datasets.Dataset` too, or the path of a .jsonl or .csv file.
        reward: a function, its name "file.py:function", or several. Each is called as TRL calls
            it, with keyword arguments `prompts`, `completions`, `completion_ids`, the rows' other
            columns, `trainer_state`, `log_extra` and `log_metric`, and returns one number, or None,
            for each completion. It may be async.
        reward_weights: one weight a reward function in their order, or by name; 1 by default. With
            an env, by the name of its reward components.
        eval_rows: rows for validation and test; by default some of `rows` are held out.
        env: an env class, an instance, a name in `turnwise envs` or "file.py:Class".
        settings: settings of the recipe to replace, as {"trainer.iterations": 30}. With
            {"trainer.minutes": 10} alone the time ends the training, whatever it reaches.
        run: the run folder; None makes `root/<name>-<time>`.
        root: where new run folders go.
        progress: who watches; by default a display on the terminal or in the notebook, False is
            nobody.

    Returns:
        The run, its scores and its warnings; `finished` is False if SIGTERM or SIGUSR1 stopped it
        after saving.

    Raises:
        Interrupted: a KeyboardInterrupt, after saving, if Ctrl-C stopped it; `resume` goes on.
        TurnwiseError: for anything the user can mend; the message says how.

    Example:
        >>> rows = [{"prompt": f"{word} says"} for word in ("cat", "dog", "cow")]
        >>> def brief(completions, **kwargs):
        ...     return [-float(len(text)) for text in completions]
        >>> tiny = {"trainer.iterations": 1, "trainer.group_size": 2, "agents.player.max_tokens": 2}
        >>> from tempfile import mkdtemp
        >>> ended = train("nano", rows, reward=brief, settings=tiny, root=mkdtemp(), progress=False)
        >>> ended.finished, ended.scores.seen
        (True, True)
    """
    given = {"rows": rows, "reward": reward, "reward_weights": reward_weights}
    given |= {"eval_rows": eval_rows, "env": env, "settings": settings}
    _check_call(model, given)
    with watching(progress) as watcher:
        outcome = _train(model, given, None if run is None else Path(run), Path(root), watcher)
        _tell(outcome, watcher)
    return outcome


def _train(
    model: Recipe | PolicyConfig | str | Path,
    given: Mapping[str, Any],
    folder: Path | None,
    root: Path,
    progress: Progress,
) -> Outcome:
    """Train a recipe, or a model as `given` says."""
    if isinstance(model, Recipe):
        return lifecycle.train(model, run=folder, root=root, progress=progress)
    if folder is not None:
        check_free(folder)  # before the env is measured, which takes seconds
    policy, env = policy_section(model), given["env"]
    made = recipe_for_rows(policy, given) if env is None else recipe_for_env(policy, env, given)
    return _carry_out(made, given["settings"] or {}, folder, root, progress)


def resume(
    run: str | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    reward: Reward | Sequence[Reward] | None = None,
    env: type[Env[Any]] | Env[Any] | None = None,
    progress: Progress | bool | None = None,
) -> Outcome:
    """Go on with a run from its latest checkpoint, as `turnwise resume` does.

    Args:
        run: the run folder.
        settings: settings to change from here on, as {"trainer.iterations": 300}; a finished run
            with more iterations trains further.
        reward: the run's reward functions again, where they are in no file and this is another
            process.
        env: the run's env again, where it is in no file and this is another process.
        progress: as in `train`.

    Returns:
        As `train`.

    Raises:
        Interrupted: if Ctrl-C stopped it, after saving.
        TurnwiseError: for anything the user can mend; the message says how.
    """
    _check_import()
    folder = Run.open(Path(run))
    _hand_over_again(folder, reward, env)
    with watching(progress) as watcher:
        outcome = lifecycle.resume(folder.path, settings or {}, progress=watcher)
        _tell(outcome, watcher)
    return outcome


def _tell(outcome: Outcome, progress: Progress) -> None:
    """Say how a finished run went."""
    if outcome.scores is not None:
        for line in closing_lines(outcome):
            progress.note(line)


def closing_lines(outcome: Outcome) -> list[str]:
    """Return what is said at the end of a run: the verdict, the findings, where the report is."""
    said: list[str] = []
    if outcome.scores is not None:
        said.append(verdict(outcome.scores, Facts.of_run(Run.open(outcome.run))))
    said += [f"{WARNING}{without_markup(str(finding))}" for finding in outcome.findings]
    return [*said, f"report: {outcome.run / 'report.md'}"]


def _hand_over_again(folder: Run, reward: Any, env: Any) -> None:
    """Give a run its rewards or its env again, which must have the names that it knows them by."""
    known = tomllib.loads(folder.recipe.read_text(encoding="utf-8")).get("env", {})
    if reward is not None:
        several = isinstance(reward, Sequence) and not isinstance(reward, str)
        names = reward_names(reward if several else [reward])
        expected = known.get("options", {}).get("reward")
        if names != expected:
            raise RunError(
                f"the rewards of the run in '{folder.path}' are {expected}, got {names}: give the "
                "same ones, in the same order"
            )
    if env is not None:
        name = env_section(env)["name"]
        if name != known.get("name"):
            raise RunError(
                f"the env of the run in '{folder.path}' is {known.get('name')!r}, got {name!r}: "
                "give the same one"
            )


def _check_import() -> None:
    """Refuse to train while a file is imported for something that a recipe names in it."""
    importing = file_being_imported()
    if importing is not None:
        raise ConfigError(
            f"'{importing}' trains while it is imported for something that a recipe names in it: "
            'put the call under `if __name__ == "__main__":`'
        )


def _check_call(model: Any, given: Mapping[str, Any]) -> None:
    """Refuse calls that cannot be meant."""
    _check_import()
    extra = [name for name, value in given.items() if value is not None]
    if isinstance(model, Recipe) and extra:
        raise ConfigError(
            f"{extra[0]} does not go with a recipe, which says it all: change the recipe, or give "
            "a model instead"
        )
    settings = given["settings"]
    names = settings if isinstance(settings, Mapping) else ()
    if not isinstance(settings, Mapping | None) or not all(isinstance(n, str) for n in names):
        raise ConfigError(
            f"settings = {settings!r:.80}: expected a dict, such as {{'trainer.iterations': 30}}"
        )


def _carry_out(
    made: MadeRecipe,
    settings: Mapping[str, Any],
    folder: Path | None,
    root: Path,
    progress: Progress,
) -> Outcome:
    """Make the run folder with all that belongs into it, and train."""
    recipe, _ = made.tried(settings, progress.note)
    reasons = still_true(made.reasons, made.data, recipe, settings)
    for line in described(recipe, reasons):
        progress.note(line)
    return lifecycle.train(
        recipe,
        run=folder,
        root=root,
        files=made.files,
        toml=annotated(made.toml(recipe), reasons),
        announce=partial(_say_what_is_used, progress=progress),
        progress=progress,
    )


def _say_what_is_used(run: Run, progress: Progress) -> None:
    """Say how rows are divided, and what only this process knows."""
    recipe = load_recipe(str(run.recipe))
    world = recipe.env.make("evaluation").unwrapped
    names = [recipe.env.name]
    if isinstance(world, Rows):
        train, validation, test = (world.tasks(s) for s in ("train", "validation", "test"))
        same = ", the same" if list(validation) == list(test) else ""
        progress.note(
            f"rows: {len(train)} to train on, {len(validation)} for validation, {len(test)} for "
            f"the test{same}"
        )
        names += world.config.reward
    handed = [name.partition(":")[2] for name in names if name.startswith(f"{SESSION}:")]
    if handed:
        progress.note(
            f"{', '.join(handed)} is in no file that can be imported: the run can go on from "
            f"Python only, with turnwise.resume('{run.path}') in this process, or in another one "
            "with `reward` or `env` given again"
        )
