"""The `turnwise` command.

Provides arguments, tables and exit codes: 0 for success, 2 for an error that the user can correct,
130 for a run that a signal stopped after saving. All work is done by the library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.app.progress_bar import LiveProgress
from turnwise.cli.bench import bench
from turnwise.cli.listing import envs, recipes
from turnwise.cli.options import (
    HELP,
    STOPPED,
    AsJson,
    Sets,
    console,
    fail,
    one_sentence,
    print_json,
    problems,
    say,
    tell,
)
from turnwise.cli.publish import card, push
from turnwise.cli.sandbox import sandbox
from turnwise.cli.search import search
from turnwise.cli.solve import solve
from turnwise.cli.sweep import sweep
from turnwise.cli.watching import render

if TYPE_CHECKING:
    from turnwise.app.lifecycle import Outcome

app = typer.Typer(
    name="turnwise",
    help="Train language-model agents, alone or in teams, by playing.",
    no_args_is_help=True,
    context_settings=HELP,
    pretty_exceptions_show_locals=False,
)
app.add_typer(bench, name="bench")
app.add_typer(sandbox, name="sandbox")
app.command()(recipes)
app.command()(envs)
app.command()(search)
app.command()(solve)
app.command()(sweep)
app.command()(render)
app.command()(card)
app.command()(push)


def _say_version(asked: bool) -> None:
    if asked:
        from turnwise import __version__

        say(f"turnwise {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_say_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Train language-model agents, alone or in teams, by playing."""


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name, or a .toml file.")],
    sets: Sets = None,
    run: Annotated[Path | None, typer.Option(help="The run folder; must be new or empty.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a recipe, evaluate it on unseen tasks, and write the report."""
    with one_sentence():
        from turnwise.recipe.schema import load_recipe

        live = LiveProgress(problems if as_json else console)
        chosen = load_recipe(recipe, sets or [], live.note)
        from turnwise.app import lifecycle

        _carry_out(lambda: lifecycle.train(chosen, run=run, progress=live), live, as_json)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run from its latest checkpoint; with more iterations, a finished one, too."""
    with one_sentence():
        from turnwise.app import lifecycle

        live = LiveProgress(problems if as_json else console)
        _carry_out(lambda: lifecycle.resume(run, sets or [], progress=live), live, as_json)


def _carry_out(go: Callable[[], Outcome], live: LiveProgress, as_json: bool) -> None:
    """Train with a display, and print what came of it."""
    from turnwise.app.train import closing_lines
    from turnwise.cli.evaluation import draw_scores
    from turnwise.errors import Interrupted

    try:
        with live:
            outcome = go()
    except Interrupted as stopped:
        live.note(str(stopped))
        if as_json:
            run = None if stopped.run is None else str(stopped.run)
            print_json({"run": run, "finished": False, "scores": None, "findings": []})
        raise typer.Exit(STOPPED) from None
    if as_json:
        scores = outcome.scores.model_dump() if outcome.scores else None
        found = {"finished": outcome.finished, "scores": scores}
        told = [asdict(finding) for finding in outcome.findings]
        print_json({"run": str(outcome.run), **found, "findings": told})
    elif outcome.scores is not None:
        draw_scores(outcome.scores)
        for line in closing_lines(outcome):
            live.note(line)
    if not outcome.finished:
        raise typer.Exit(STOPPED)


@app.command("eval")
def evaluate(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN | RECIPE | ENV",
            help="A run folder; or a recipe's name or .toml file; or an env, with --baselines.",
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Who plays a role of RECIPE, as ROLE=PATH: a model's or adapter's directory, a "
            "hub name, a run folder or RUN:POLICY; may be repeated."
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Who plays a role of RUN in place of its own policy, as ROLE=RUN:POLICY; may be "
            "repeated."
        ),
    ] = None,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Score the baselines of ENV, without a model.")
    ] = False,
    tasks: Annotated[int, typer.Option(min=1, help="How many test tasks.")] = 500,
    seed: Annotated[int, typer.Option(help="Draws the tasks.")] = 0,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Score a run, models in the roles of a recipe, or an env's baselines, on unseen tasks."""
    from turnwise.cli import evaluation

    with one_sentence():
        if baselines:
            if model or policy:
                option = "--model" if model else "--policy"
                fail(f"--baselines plays without a model: leave {option} out")
            found = evaluation.baselines_of(target, tasks=tasks, seed=seed, sets=sets or [])
            draw = partial(evaluation.draw_baselines, found)
        else:
            found = evaluation.scores_of(
                target,
                models=model or [],
                policies=policy or [],
                tasks=tasks,
                seed=seed,
                sets=sets or [],
            )
            draw = partial(evaluation.draw_scores, found)
    if as_json:
        print_json(found.model_dump())
    else:
        draw()


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="The run folder, or the folder of a search.")],
) -> None:
    """Write the report and the pictures of a run, or of a search, again."""
    from turnwise.app.film import write_film
    from turnwise.report import write_report
    from turnwise.report.search import REPORT, write_search_report
    from turnwise.runs import Run
    from turnwise.search.folder import is_search

    with one_sentence():
        if is_search(run):
            write_search_report(run)
            say(f"report: {run / REPORT}")
            return
        folder = Run.open(run)
        write_report(folder, film=write_film(folder, tell))
    say(f"report: {folder.report}")


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="The data set's name, such as frozen-lake-q.")],
    out: Annotated[
        Path,
        typer.Option(
            help="The .csv or .jsonl file to write, or a folder for the Hugging Face hub; must not "
            "exist."
        ),
    ],
    rows: Annotated[int, typer.Option(min=1, help="How many rows.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seeds all randomness.")] = 0,
    sets: Sets = None,
) -> None:
    """Write a data set that turnwise makes by itself, such as expert values of a lake."""
    from turnwise.cli.datasets import write_dataset

    with one_sentence():
        said = write_dataset(name, out, rows=rows, seed=seed, sets=sets or [])
    say(said)


@app.command()
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ENV | RECIPE", help="An env, as file.py:Class too; or a recipe or .toml file."
        ),
    ],
    recipe: Annotated[
        bool, typer.Option("--recipe", help="Check the recipe where an env has its name, too.")
    ] = False,
    workflow: Annotated[
        str | None,
        typer.Option(help="The workflow that an env is played with, as file.py:name too."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds that one call of the env may take.")
    ] = 30.0,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Check an env against its contract, and measure an iteration of a recipe before a run."""
    from turnwise.cli.check import check_name, draw_found

    with one_sentence():
        found = check_name(name, recipe=recipe, timeout=timeout, sets=sets or [], workflow=workflow)
    if as_json:
        print_json(found)
    else:
        draw_found(found)


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where the model goes; must not exist.")],
    recipe: Annotated[str, typer.Option(help="The recipe whose env it will see.")] = "frozen-lake",
    size: Annotated[str, typer.Option(help="pico, nano, micro or small.")] = "nano",
    seed: Annotated[int, typer.Option(help="Decides the weights.")] = 0,
) -> None:
    """Make a nano model from nothing: a small Qwen3 and a tokenizer of the env's own words."""
    from turnwise.app import lifecycle
    from turnwise.recipe.schema import load_recipe

    with one_sentence():
        parameters = lifecycle.init_model(load_recipe(recipe, [f"seed={seed}"]), size, directory)
    say(f"{directory}: {parameters:,} parameters")


@app.command()
def play(
    env: Annotated[
        str | None, typer.Argument(help="The env's name; of --run, its own env without one.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Watch this baseline instead of playing yourself.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Watch a run's best policy play.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the task.")] = 0,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds that one call of the env may take.")
    ] = 60.0,
    sets: Sets = None,
) -> None:
    """Play an environment yourself, or watch a baseline or a trained policy."""
    from turnwise.cli.play import play_env

    with one_sentence():
        play_env(env, baseline=baseline, run=run, seed=seed, timeout=timeout, sets=sets or [])


@app.command()
def docs(
    name: Annotated[
        str | None, typer.Argument(help="The document; all are listed without.")
    ] = None,
) -> None:
    """Show a document, or list those there are."""
    from turnwise.utils.documents import document_names, read_document

    with one_sentence():
        if name is not None:
            say(read_document(name).rstrip())
            return
        for known, title in document_names().items():
            say(f"turnwise docs {known:<24} {title}")
