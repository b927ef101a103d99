"""Training in one call: a model and rows with a reward, a model and an env, or a recipe.

Provides `train` and `resume` of the library. They make a recipe and a run folder, which the command
line can resume, with TRL's defaults where TRL has one (docs/from-trl.md). `turnwise.app.lifecycle`
runs them.
"""

from __future__ import annotations

import math
import re
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.app import lifecycle
from turnwise.app.lifecycle import RUNS, Outcome
from turnwise.app.progress_bar import watching
from turnwise.envs import IMPORTING, Env, find_env
from turnwise.envs.checks.declarations import check_names
from turnwise.envs.rows.env import Rows
from turnwise.envs.rows.reward_functions import load_functions
from turnwise.errors import ConfigError, RunError
from turnwise.policies import PolicyConfig, is_nano
from turnwise.recipe.env_defaults import env_recipe
from turnwise.recipe.from_python import (
    Data,
    Reward,
    Table,
    as_text,
    env_section,
    policy_section,
    reward_names,
    table_of,
    weights_of,
)
from turnwise.recipe.reasons import annotated, described, still_true
from turnwise.recipe.schema import Recipe, load_recipe, make_recipe
from turnwise.report import verdict
from turnwise.runs import Run, check_free
from turnwise.trainers import Progress
from turnwise.trainers.config import MOST_MINUTES
from turnwise.trainers.progress import WARNING
from turnwise.utils.console import without_markup
from turnwise.utils.user_code import SESSION, file_being_imported

FILES = {"path": "rows.jsonl", "eval_path": "eval_rows.jsonl"}
"""Option of the rows -> the file in the run folder that keeps them."""
PASSES = 3
"""The default number of passes over the rows."""
ITERATIONS, PER_MINUTE = 100, 500
"""The default number of iterations in an env. Where `trainer.minutes` is given and their number is
not, it is `PER_MINUTE` for each minute, which is more than there is time for."""
PROMPTS = 8
"""Prompts of one iteration by default, each answered `group_size` times."""
TRL_OPTIMIZER = {"lr": "auto", "betas": [0.9, 0.999], "schedule": "linear"}
TRL_LR = 1e-6
"""The rate at which "auto" begins for a model that is trained as it is."""
TRL_TOKENS = 512
NANO_LR, NANO_TOKENS = 3e-3, 64
"""For models made on the spot that rows train, whose weights are random and context is short."""


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
        >>> runs = tempfile.mkdtemp()
        >>> outcome = train("nano", rows, reward=brief, settings=tiny, root=runs, progress=False)
        >>> outcome.finished, outcome.scores.seen
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
    wanted = _rows_wanted(policy, given) if env is None else _env_wanted(policy, env, given)
    return _carry_out(wanted, given["settings"] or {}, folder, root, progress)


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
    said = [] if outcome.scores is None else [verdict(outcome.scores)]
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """A recipe as plain values; and the text of files beside it, by the env's option for each."""

    data: Data
    tables: Mapping[str, str]
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, str]:
        """File name -> text."""
        return {FILES[option]: text for option, text in self.tables.items()}

    def recipe(
        self, folder: Path, settings: Mapping[str, Any], note: Callable[[str], None]
    ) -> Recipe:
        """Return the recipe, its files in `folder`."""
        places = {option: str(folder / FILES[option]) for option in self.tables}
        env = {**self.data["env"], "options": self.data["env"].get("options", {}) | places}
        return make_recipe({**self.data, "env": env}, settings, note)

    def tried(self, settings: Mapping[str, Any], note: Callable[[str], None]) -> tuple[Recipe, int]:
        """Return the recipe, its files in a folder that is no more, and how many tasks it lists.

        What is wrong with it is found here, before a folder is made for the run.
        """
        with tempfile.TemporaryDirectory() as scratch:
            for name, text in self.files.items():
                Path(scratch, name).write_text(text, encoding="utf-8")
            recipe = self.recipe(Path(scratch), settings, note)
            return recipe, len(recipe.env.make("training").tasks("train") or ())

    def toml(self, recipe: Recipe) -> str:
        """Return `recipe` as TOML that stands beside its files."""
        names = {option: FILES[option] for option in self.tables}
        env = recipe.env.model_copy(update={"options": recipe.env.options | names})
        return recipe.model_copy(update={"env": env}).to_toml()


def _carry_out(
    wanted: _Wanted,
    settings: Mapping[str, Any],
    folder: Path | None,
    root: Path,
    progress: Progress,
) -> Outcome:
    """Make the run folder with all that belongs into it, and train."""
    recipe, _ = wanted.tried(settings, progress.note)
    reasons = still_true(wanted.reasons, wanted.data, recipe, settings)
    for line in described(recipe, reasons):
        progress.note(line)
    return lifecycle.train(
        recipe,
        run=folder,
        root=root,
        files=wanted.files,
        toml=annotated(wanted.toml(recipe), reasons),
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


def _defaults(name: str, policy: Data) -> Data:
    """Return what every recipe made here has: TRL's defaults, but for the rate."""
    nano = is_nano(policy["model"])
    return {
        "name": name,
        "policies": {"main": policy},
        "optimizer": {**TRL_OPTIMIZER, "lr_start": NANO_LR if nano else TRL_LR},
        "trainer": {"tasks_per_iteration": PROMPTS, "group_size": 8},
        "loss": {"clip_low": 0.2, "clip_high": 0.2, "aggregation": "token"},
        "credit": {"scheme": "grpo", "std": "group"},
    }


def _rows_wanted(policy: Data, given: Mapping[str, Any]) -> _Wanted:
    rows, reward = given["rows"], given["reward"]
    if rows is None or reward is None:
        raise ConfigError(
            f"got a model, {policy['model']!r}, and {'no rows' if rows is None else 'no reward'}: "
            "give rows and a reward, or an env; for a recipe, train(load_recipe('frozen-lake'))"
        )
    several = isinstance(reward, Sequence) and not isinstance(reward, str)
    names = reward_names(reward if several else [reward])
    tables = {"path": as_text(table_of(rows, "rows"))}
    if given["eval_rows"] is not None:
        tables["eval_path"] = as_text(table_of(given["eval_rows"], "eval_rows"))
    data = _defaults(Rows.name, policy)
    data["env"] = {"name": Rows.name, "options": {"reward": names}}
    tokens = NANO_TOKENS if is_nano(policy["model"]) else TRL_TOKENS
    data["agents"] = {"player": {"reply": "whole", "max_tokens": tokens}}
    data["credit"]["rewards"] = weights_of(list(load_functions(names)), given["reward_weights"])
    wanted = _Wanted(data=data, tables=tables)
    _, many = wanted.tried({}, lambda text: None)
    passes = math.ceil(PASSES * many / PROMPTS)
    data["trainer"]["iterations"] = _most_iterations(given["settings"], passes)
    return wanted


def _env_wanted(
    policy: Data, env: type[Env[Any]] | Env[Any] | str, given: Mapping[str, Any]
) -> _Wanted:
    for name in ("rows", "reward", "eval_rows"):
        if given[name] is not None:
            raise ConfigError(
                f"{name} does not go with env, which has rewards of its own: leave it"
            )
    choice = env_section(env)
    timeout = (given["settings"] or {}).get("env.timeout")
    if not isinstance(timeout, int | float) or timeout <= 0:
        timeout = IMPORTING  # a wrong one is refused when the recipe is parsed
    kind = find_env(choice["name"], timeout)
    check_names(kind)
    data = _defaults(re.sub(r"\W+", "-", kind.name), policy)
    data["env"] = choice
    tokens = {} if is_nano(policy["model"]) else {"max_tokens": TRL_TOKENS}
    data["agents"] = {role: {"role": role, "history": "full", **tokens} for role in kind.roles}
    data["trainer"]["iterations"] = _most_iterations(given["settings"], ITERATIONS)
    data["credit"]["rewards"] = weights_of(list(kind.components), given["reward_weights"])
    made = env_recipe(data, given["settings"] or {})
    return _Wanted(data=made.data, tables={}, reasons=made.reasons)


def _most_iterations(settings: Mapping[str, Any] | None, default: int) -> int:
    """Return the number of iterations: `default`, or more than fit where only the time is given."""
    given = settings or {}
    table = given.get("trainer")
    minutes = given.get(
        "trainer.minutes", table.get("minutes") if isinstance(table, Mapping) else None
    )
    if not isinstance(minutes, int | float) or not 0 < minutes <= MOST_MINUTES:
        return default  # a wrong number is refused when the recipe is parsed
    return max(default, math.ceil(PER_MINUTE * minutes))
