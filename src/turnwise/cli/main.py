"""The `turnwise` command: a thin face on `turnwise.api`.

Owns arguments, tables and exit codes: 0 for done, 2 for a mistake that the user can mend, 130 for a
run that a signal stopped after saving. Does nothing that the library cannot do without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.cli.bench import bench
from turnwise.cli.options import (
    HELP,
    STOPPED,
    console,
    draw_table,
    look_at_run,
    one_sentence,
    print_json,
    print_styled,
    problems,
    say,
)
from turnwise.cli.sandbox import sandbox
from turnwise.live import LiveProgress

if TYPE_CHECKING:
    from turnwise.api import Outcome
    from turnwise.runs import RunScores

app = typer.Typer(
    name="turnwise",
    help="Train language-model agents, alone or in teams, by playing.",
    no_args_is_help=True,
    context_settings=HELP,
    pretty_exceptions_show_locals=False,
)
app.add_typer(bench, name="bench")
app.add_typer(sandbox, name="sandbox")

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a setting, as section.key=value; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


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
        from turnwise.recipe import load_recipe

        live = LiveProgress(problems if as_json else console)
        chosen = load_recipe(recipe, sets or [], live.note)
        from turnwise import api

        _carry_out(lambda: api.train(chosen, run=run, progress=live), live, as_json)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run from its latest checkpoint; with more iterations, a finished one, too."""
    with one_sentence():
        from turnwise import api

        live = LiveProgress(problems if as_json else console)
        _carry_out(lambda: api.resume(run, sets or [], progress=live), live, as_json)


def _carry_out(go: Callable[[], Outcome], live: LiveProgress, as_json: bool) -> None:
    """Train with a display, and print what came of it."""
    from turnwise.errors import Interrupted
    from turnwise.front import closing_lines

    try:
        with live:
            outcome = go()
    except Interrupted as stopped:
        live.note(str(stopped))
        if as_json:
            run = None if stopped.run is None else str(stopped.run)
            print_json({"run": run, "finished": False, "scores": None, "warnings": []})
        raise typer.Exit(STOPPED) from None
    if as_json:
        scores = outcome.scores.model_dump() if outcome.scores else None
        found = {"finished": outcome.finished, "scores": scores}
        print_json({"run": str(outcome.run), **found, "warnings": list(outcome.warnings)})
    elif outcome.scores is not None:
        draw_scores(outcome.scores)
        for line in closing_lines(outcome):
            live.note(line)
    if not outcome.finished:
        raise typer.Exit(STOPPED)


@app.command("eval")
def evaluate(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    tasks: Annotated[int, typer.Option(min=1, help="How many test tasks.")] = 500,
    seed: Annotated[int, typer.Option(help="Draws the tasks.")] = 0,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Score a run's best checkpoint and every baseline on tasks of the test split."""
    with one_sentence():
        look_at_run(run, sets or [])
        from turnwise.scoring import evaluate_run

        scores = evaluate_run(run, tasks=tasks, seed=seed, overrides=sets or [])
    if as_json:
        print_json(scores.model_dump())
    else:
        draw_scores(scores)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
) -> None:
    """Write a run's report and curve again."""
    from turnwise.runs import Run, write_report

    with one_sentence():
        folder = Run.open(run)
        write_report(folder)
    say(f"report: {folder.report}")


@app.command()
def recipes(as_json: AsJson = False) -> None:
    """List the shipped recipes."""
    from turnwise.recipe import recipe_names, recipe_summary

    with one_sentence():
        found = [recipe_summary(name) for name in recipe_names()]
    if as_json:
        print_json({"recipes": found})
        return
    draw_table(
        ("recipe", "env", "model", "scheme", "iterations", "presets"),
        [
            (
                item["name"],
                item["env"],
                ", ".join(item["models"].values()),
                item["scheme"],
                str(item["iterations"]),
                ", ".join(item["presets"]),
            )
            for item in found
        ],
    )


@app.command()
def envs(as_json: AsJson = False) -> None:
    """List the environments, with their options."""
    from turnwise.envs import ENVS

    found = [
        {
            "name": name,
            "roles": list(env.roles),
            "rewards": dict(env.components),
            "reward_timing": env.reward_timing,
            "branching": env.branching,
            "options": {
                key: {
                    "default": field.get_default(call_default_factory=True),
                    "help": field.description,
                }
                for key, field in env.config_class.model_fields.items()
            },
        }
        for name, env in ENVS.items()
    ]
    if as_json:
        print_json({"envs": found})
        return
    for item in found:
        rewards = ", ".join(item["rewards"])
        print_styled(f"[bold]{item['name']}[/]  roles: {', '.join(item['roles'])}; {rewards}")
        draw_table(
            ("option", "default", "meaning"),
            [
                (key, str(option["default"]), " ".join((option["help"] or "").split()))
                for key, option in item["options"].items()
            ],
            wraps="meaning",
        )


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="The data set's name: frozen-lake-q.")],
    out: Annotated[Path, typer.Option(help="The .csv file to write; must not exist.")],
    rows: Annotated[int, typer.Option(min=1, help="How many rows.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Decides all chance.")] = 0,
    sets: Sets = None,
) -> None:
    """Write a data set that turnwise makes by itself, such as expert values of a lake."""
    from turnwise.cli.datasets import write_dataset

    with one_sentence():
        said = write_dataset(name, out, rows=rows, seed=seed, sets=sets or [])
    say(said)


@app.command()
def check(
    env: Annotated[str, typer.Argument(help="The env's name.")],
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds that one call of the env may take.")
    ] = 30.0,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Check an env against its contract and measure what its calls cost."""
    from dataclasses import asdict

    from turnwise.cli.play import env_with
    from turnwise.envs import check_env

    with one_sentence():
        made = env_with(env, sets or [], timeout=timeout)
        found = check_env(
            made, timeout=timeout, say=lambda what: problems.print(f"checking: {what}")
        )
    if as_json:
        print_json(asdict(found))
        return
    say(f"{env}: keeps the contract")
    for note in found.notes:
        problems.print(f"warning: {note}.")
    draw_table(
        ("call", "microseconds"), [(name, f"{cost:.1f}") for name, cost in found.costs.items()]
    )


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where the model goes; must not exist.")],
    recipe: Annotated[str, typer.Option(help="The recipe whose env it will see.")] = "frozen-lake",
    size: Annotated[str, typer.Option(help="pico, nano, micro or small.")] = "nano",
    seed: Annotated[int, typer.Option(help="Decides the weights.")] = 0,
) -> None:
    """Make a nano model from nothing: a small Qwen3 and a tokenizer of the env's own words."""
    from turnwise import api
    from turnwise.recipe import load_recipe

    with one_sentence():
        parameters = api.init_model(load_recipe(recipe, [f"seed={seed}"]), size, directory)
    say(f"{directory}: {parameters:,} parameters")


@app.command()
def play(
    env: Annotated[str, typer.Argument(help="The env's name.")],
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
    from turnwise.documents import document_names, read_document

    with one_sentence():
        if name is not None:
            say(read_document(name).rstrip())
            return
        for known, title in document_names().items():
            say(f"turnwise docs {known:<24} {title}")


def draw_scores(scores: RunScores) -> None:
    """Print the table of scores: the policy among all baselines, best first."""
    partly = scores.seen_share is not None and 0 < scores.seen_share < 1
    known = "partly seen" if partly else "seen" if scores.seen else "unseen"
    notes = (f"{scores.described}.", scores.meaning_of_errors, scores.divided)
    rows = [(f"trained, {name}", *found) for name, found in scores.by_decoding.items()]
    errors = scores.baselines_stderr
    rows += [(name, value, errors[name]) for name, value in scores.baselines.items()]
    texts = [
        (name, f"{value:.3f}", scores.error_text(error).removeprefix("± "))
        for name, value, error in sorted(rows, key=lambda row: -row[1])
    ]
    draw_table(
        ("policy", "score", "standard error"),
        texts,
        title=f"{scores.env}: {scores.tasks} {known} tasks, seed {scores.seed}",
        numbers=("score", "standard error"),
        bold=_is_ours,
    )
    say(" ".join(filter(None, notes)))
    if scores.exact:
        draw_exact(scores)


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
    return row[0].startswith("trained")
