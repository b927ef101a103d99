"""`turnwise eval`: what is evaluated, and the tables of scores."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.app.baseline_scores import BaselineScores, evaluate_baselines
from turnwise.cli.options import draw_table, look_at_run, say, tell
from turnwise.cli.play import options_of
from turnwise.envs import ENVS, IMPORTING, make_guarded
from turnwise.errors import ConfigError
from turnwise.recipe.schema import load_recipe, recipe_names
from turnwise.runs.against import rows_against, told_against
from turnwise.runs.error_texts import measured
from turnwise.utils.user_code import is_import_name

if TYPE_CHECKING:
    from turnwise.runs import RunScores


def baselines_of(env: str, *, tasks: int, seed: int, sets: Sequence[str]) -> BaselineScores:
    """Return the scores of an env's baselines."""
    if Path(env).is_dir():
        raise ConfigError(
            f"--baselines takes an env, but '{env}' is a folder: leave --baselines out, as a run "
            "is scored beside its baselines"
        )
    if env.endswith(".toml") or (env in recipe_names() and env not in ENVS):
        name = load_recipe(env, (), lambda text: None).env.name
        raise ConfigError(
            f"--baselines takes an env, but '{env}' is a recipe: give its env, {name!r}, and the "
            "env's options by --set"
        )
    made = make_guarded(env, options_of(sets), IMPORTING)
    return evaluate_baselines(made, tasks=tasks, seed=seed)


def scores_of(
    target: str,
    *,
    models: Sequence[str],
    policies: Sequence[str],
    tasks: int,
    seed: int,
    sets: Sequence[str],
) -> RunScores:
    """Return the scores of a run's policies, or of models in the roles of a recipe."""
    given = roles_of(models, "--model", "PATH") | roles_of(policies, "--policy", "RUN:POLICY")
    is_run, is_recipe = Path(target).is_dir(), target.endswith(".toml") or target in recipe_names()
    if models and policies:
        raise ConfigError(
            "--model plays a recipe and --policy changes a run: give one of them; --model "
            "ROLE=RUN:POLICY takes a run's policy, too"
        )
    if models and is_run:
        raise ConfigError(
            f"--model plays a recipe, but '{target}' is a folder: give a recipe such as "
            f"'{Path(target) / 'recipe.toml'}', or --policy ROLE=RUN:POLICY"
        )
    if policies and is_recipe:
        raise ConfigError(
            f"--policy changes who plays in a run, but '{target}' is a recipe: give --model "
            "ROLE=RUN:POLICY"
        )
    if models or (is_recipe and not is_run):
        recipe = load_recipe(target, sets, lambda text: None)
        from turnwise.app.run_scores import evaluate_models

        return evaluate_models(recipe, given, tasks=tasks, seed=seed)
    if not is_run:
        _say_what_it_is(target)
    look_at_run(Path(target), sets)
    from turnwise.app.run_scores import evaluate_run

    return evaluate_run(target, tasks=tasks, seed=seed, overrides=sets, policies=given)


def roles_of(pairs: Sequence[str], option: str, example: str) -> dict[str, str]:
    """Return role -> what follows, from "role=what" as `option` of a command takes it.

    Example:
        >>> roles_of(["scout=runs/a", "digger=gpt2"], "--model", "PATH")
        {'scout': 'runs/a', 'digger': 'gpt2'}
    """
    found: dict[str, str] = {}
    for pair in pairs:
        role, _, what = pair.partition("=")
        if not role or not what:
            raise ConfigError(f"{option} {pair!r}: expected ROLE={example}, give both")
        if role in found:
            raise ConfigError(f"{option} names the role {role!r} twice: give it once")
        found[role] = what
    return found


def _say_what_it_is(target: str) -> None:
    """Raise for a name that is an env's, or nearly a recipe's."""
    if target in ENVS or is_import_name(target):
        raise ConfigError(
            f"{target!r} is an env: add --baselines to score its baselines, or give a run folder "
            "or a recipe"
        )
    near = difflib.get_close_matches(target.lower(), recipe_names(), n=1, cutoff=0.7)
    if near and not Path(target).parent.name:
        raise ConfigError(
            f"there is no run folder and no recipe {target!r}: did you mean the recipe {near[0]!r}?"
        )


def draw_scores(scores: RunScores) -> None:
    """Print the table of scores: the policy among all baselines, best first."""
    partly = scores.seen_share is not None and 0 < scores.seen_share < 1
    known = "partly seen" if partly else "seen" if scores.seen else "unseen"
    notes = (f"{scores.described}.", scores.meaning_of_errors, scores.divided, scores.played_by)
    errors = scores.baselines_stderr
    found = scores.of_policy | {n: (value, errors[n]) for n, value in scores.baselines.items()}
    rows = [
        (n, score, scores.score_error_text(score, error)) for n, (score, error) in found.items()
    ]
    title = f"{scores.env}: {scores.tasks} {known} tasks, seed {scores.seed}"
    _draw_ranked(rows, title)
    say(" ".join(filter(None, notes)))
    if scores.opponents:
        title, *rows = rows_against(scores.opponents)
        draw_table(title, rows, title="the policy against each opponent", numbers=title[1:])
        say(told_against(scores.opponents))
    _draw_measures(scores.measured())
    if scores.exact:
        draw_exact(scores)


def draw_baselines(scores: BaselineScores) -> None:
    """Print the table of an env's baselines, best first."""
    rows = [(name, value, scores.error_text(name)) for name, value in scores.baselines.items()]
    title = f"{scores.env}: {scores.tasks} tasks of the {scores.split} split, seed {scores.seed}"
    _draw_ranked(rows, title)
    say(" ".join(scores.meaning))
    if scores.broken:
        tell(f"warning: {scores.told_of_broken}")
    _draw_measures(measured(scores.baselines_measures))


def _draw_ranked(rows: Sequence[tuple[str, float, str]], title: str) -> None:
    texts = [
        (name, f"{value:.3f}", error.removeprefix("± "))
        for name, value, error in sorted(rows, key=lambda row: -row[1])
    ]
    numbers = ("score", "standard error")
    draw_table(("policy", *numbers), texts, title=title, numbers=numbers, bold=_is_ours)


def _draw_measures(found: Mapping[str, Mapping[str, str]]) -> None:
    """Print what the env measures beside the score, if it does."""
    columns = list(dict.fromkeys(name for row in found.values() for name in row))
    if not columns:
        return
    draw_table(
        ("policy", *columns),
        [(name, *(row.get(column, "") for column in columns)) for name, row in found.items()],
        title="measured in final states: means and standard errors",
        numbers=columns,
        bold=_is_ours,
    )


def draw_exact(scores: RunScores) -> None:
    """Print what was computed without sampling."""
    columns = list(next(iter(scores.exact.values())))
    draw_table(
        ("policy", *columns),
        [
            (name, *(f"{row[column]:.3f}" if column in row else "" for column in columns))
            for name, row in scores.exact.items()
        ],
        title="computed, not sampled",
        numbers=columns,
        bold=_is_ours,
    )


def _is_ours(row: Sequence[str]) -> bool:
    return row[0].startswith(("trained", "models"))
