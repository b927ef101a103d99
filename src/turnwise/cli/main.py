"""The `turnwise` command: a thin face on `turnwise.api`.

Owns arguments, tables and exit codes: 0 for done, 2 for a mistake that the user can mend, 130 for a
run that a signal stopped after saving. Does nothing that the library cannot do without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from turnwise.cli.bench import bench
from turnwise.cli.options import console, one_sentence, print_json, problems, say
from turnwise.cli.sandbox import sandbox

if TYPE_CHECKING:
    from turnwise.runs import RunScores

app = typer.Typer(
    name="turnwise",
    help="Train language-model agents, alone or in teams, by playing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.add_typer(bench, name="bench")
app.add_typer(sandbox, name="sandbox")
STOPPED = 130

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a setting, as section.key=value; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name, or a .toml file.")],
    sets: Sets = None,
    run: Annotated[Path | None, typer.Option(help="The run folder; made if new.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with the run in --run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a recipe, evaluate it on unseen tasks, and write the report."""
    from turnwise import api
    from turnwise.cli.live import LiveProgress
    from turnwise.cli.verdict import verdict
    from turnwise.errors import ConfigError
    from turnwise.recipe import load_recipe

    with one_sentence():
        if resume and sets:
            raise ConfigError(
                "--resume goes on with the run's own recipe, so --set would be ignored: leave it "
                "out, or start a new run"
            )
        chosen = load_recipe(recipe, sets or [])
        with LiveProgress(problems if as_json else console) as live:
            outcome = api.train(chosen, run=run, resume_run=resume, progress=live)
    if as_json:
        scores = outcome.scores.model_dump() if outcome.scores else None
        print_json({"run": str(outcome.run), "finished": outcome.finished, "scores": scores})
    elif outcome.scores is not None:
        draw_scores(outcome.scores)
        say(verdict(outcome.scores))
        say(f"report: {outcome.run / 'report.md'}")
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
    from turnwise.scoring import evaluate_run

    with one_sentence():
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
    table = Table("recipe", "env", "model", "scheme", "iterations", "presets")
    for item in found:
        models = ", ".join(item["models"].values())
        presets = ", ".join(item["presets"])
        table.add_row(
            item["name"], item["env"], models, item["scheme"], str(item["iterations"]), presets
        )
    console.print(table)


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
        console.print(f"[bold]{item['name']}[/]  roles: {', '.join(item['roles'])}; {rewards}")
        table = Table("option", "default", "meaning")
        for key, option in item["options"].items():
            table.add_row(key, str(option["default"]), option["help"])
        console.print(table)


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
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Check an env against its contract and measure what its calls cost."""
    from dataclasses import asdict

    from turnwise.cli.play import env_with
    from turnwise.rollout import check_guarded

    with one_sentence():
        found = check_guarded(env_with(env, sets or []))
    if as_json:
        print_json(asdict(found))
        return
    table = Table("call", "microseconds")
    for name, value in found.costs.items():
        table.add_row(name, f"{value:.1f}")
    say(f"{env}: keeps the contract")
    console.print(table)


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
    sets: Sets = None,
) -> None:
    """Play an environment yourself, or watch a baseline or a trained policy."""
    from turnwise.cli.play import play_env

    with one_sentence():
        play_env(env, baseline=baseline, run=run, seed=seed, sets=sets or [])


def draw_scores(scores: RunScores) -> None:
    """Print the table of scores: the policy among all baselines, best first."""
    known = "seen" if scores.seen else "unseen"
    table = Table(title=f"{scores.env}: {scores.tasks} {known} tasks, seed {scores.seed}")
    table.add_column("policy")
    table.add_column("score", justify="right")
    table.add_column("standard error", justify="right")
    rows = [
        ("trained, greedy", scores.score, scores.stderr),
        ("trained, sampled", scores.score_sampled, scores.score_sampled_stderr),
    ]
    errors = scores.baselines_stderr
    rows += [(name, value, errors[name]) for name, value in scores.baselines.items()]
    for name, value, error in sorted(rows, key=lambda row: -row[1]):
        style = "bold" if name.startswith("trained") else ""
        table.add_row(name, f"{value:.3f}", f"{error:.3f}", style=style)
    console.print(table)
    if scores.exact:
        draw_exact(scores)


def draw_exact(scores: RunScores) -> None:
    """Print what was computed without sampling."""
    columns = list(next(iter(scores.exact.values())))
    table = Table(title="computed, not sampled")
    table.add_column("policy")
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in scores.exact.items():
        cells = (f"{row[column]:.3f}" if column in row else "" for column in columns)
        table.add_row(name, *cells, style="bold" if name.startswith("trained") else "")
    console.print(table)
