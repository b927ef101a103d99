"""`turnwise search`: its arguments, and how its result is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.app.progress_bar import LiveProgress
from turnwise.cli.options import (
    AsJson,
    Sets,
    console,
    draw_table,
    fail,
    one_sentence,
    print_json,
    problems,
    say,
    watched,
)

if TYPE_CHECKING:
    from turnwise.app.search import Found
    from turnwise.search.config import SearchConfig

SHOWN = 120
"""The most characters of the returned parameters that are printed."""


def search(
    task: Annotated[
        str | None, typer.Argument(help="A task such as frozen-lake, or a Gymnasium id.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible endpoint, with --model.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The name by which the endpoint knows the model.")
    ] = None,
    key_env: Annotated[
        str | None,
        typer.Option(help="The environment variable that holds the endpoint's key, if it has one."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="A run of the env policy-search, whose policy proposes.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="random, hill-climbing, evolution, guided, cem, cma-es, q-learning or ppo, in "
            "place of a model."
        ),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Evaluations of policies; 400 without.")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Episodes of an evaluation; 20 without.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seeds everything; 0 without.")] = None,
    sets: Sets = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="The folder of the search; an interrupted one goes on."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the search in this folder, as it was begun.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search for the parameters of a policy, by asking a model or by a numeric method."""
    given = {
        "endpoint.base_url": endpoint, "endpoint.model": model, "endpoint.api_key_env": key_env,
        "run": None if run is None else str(run), "method": method,
        "budget.iterations": iterations, "budget.episodes": episodes, "seed": seed,
    }  # fmt: skip
    given = {key: value for key, value in given.items() if value is not None}
    found = carry_out(task, given, sets or [], folder, resume, as_json)
    if as_json:
        print_json({"folder": str(found.folder), **asdict(found.result)})
    else:
        show(found)


def carry_out(
    task: str | None,
    given: dict[str, Any],
    sets: Sequence[str],
    folder: Path | None,
    resume: Path | None,
    as_json: bool,
) -> Found:
    """Begin a search, or go on with one, with a display; errors are one sentence."""
    with one_sentence():
        from turnwise.app.search import resume_search, search_policy

        live = LiveProgress(problems if as_json else console)
        if resume is not None:
            if task is not None or given or sets or folder is not None:
                fail("--resume goes on with a search as it was begun: leave all else out")
            with watched(live):
                return resume_search(resume, progress=live)
        config = config_of(task, given, sets)
        with watched(live):
            return search_policy(config, folder, progress=live)


def config_of(task: str | None, given: dict[str, Any], sets: Sequence[str]) -> SearchConfig:
    """Return the search that the arguments describe.

    Args:
        task: the task.
        given: settings that options gave, by their dotted keys.
        sets: further settings, as "key=value".

    Raises:
        ConfigError: if something is unknown or missing, or does not fit.
    """
    from turnwise.errors import ConfigError
    from turnwise.recipe.fit import merge, nest
    from turnwise.recipe.overrides import parse_override
    from turnwise.search.config import SearchConfig
    from turnwise.search.tasks import TASKS
    from turnwise.settings import parse

    if task is None:
        raise ConfigError(f"no task is given: name one of {', '.join(TASKS)}, or a Gymnasium id")
    data: dict[str, Any] = {"task": task}
    for key, value in given.items():
        data = merge(data, nest(key, value))
    for key, value in map(parse_override, sets):
        data = merge(data, nest(key, value))
    endpoint = data.get("endpoint")
    if isinstance(endpoint, dict) and "base_url" not in endpoint:
        raise ConfigError("a model is named without its endpoint: give --endpoint URL")
    if isinstance(endpoint, dict) and "model" not in endpoint:
        raise ConfigError("the endpoint needs --model, the name by which it knows the model")
    return parse(SearchConfig, data, "the search")


def show(found: Found) -> None:
    """Print what was found: scores with their errors, published scores beside them, the cost."""
    from turnwise.report.search import lost_iterations, score_rows
    from turnwise.search.tasks import find_task

    result = found.result
    rows = score_rows(find_task(result.task), result)
    draw_table(
        ("returned policy", "score", "episodes"), rows,
        title=f"{result.task} by {result.proposer}", numbers=("score",),
    )  # fmt: skip
    if lost := lost_iterations(result.evaluations, result.lost):
        say(f"warning: {lost}")
    spent = f"{result.policies:,} policies, {result.episodes:,} episodes, {result.seconds:,.0f} s"
    if result.calls:
        tokens = f"{result.prompt_tokens:,} + {result.completion_tokens:,} tokens"
        spent += (
            f"; {result.calls:,} calls ({result.failed_calls:,} failed, "
            f"{result.refused_replies:,} refused), {tokens}"
        )
        spent += f", cost {result.cost:.2f}" if result.cost else ""
    say(spent)
    if result.params is not None:
        text = ", ".join(map(str, result.params))
        say(f"parameters: {text if len(text) <= SHOWN else text[:SHOWN] + ' ...'}")
    say(f"folder: {found.folder}; report: {found.folder / 'report.md'}")
