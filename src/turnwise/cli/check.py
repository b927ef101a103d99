"""`turnwise check`: an env's contract, its topologies, and what a recipe costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from turnwise.cli.options import draw_table, say, tell
from turnwise.cli.play import env_with
from turnwise.envs import ENVS, check_env, guarded
from turnwise.envs.base import Env
from turnwise.envs.user_calls import call_env
from turnwise.errors import ConfigError, unknown_name
from turnwise.recipe.schema import Recipe, load_recipe, recipe_names
from turnwise.rollout.workflow_check import check_workflow
from turnwise.utils.user_code import is_import_name
from turnwise.workflows import WorkflowConfig, make_workflow

Found = dict[str, Any]


def check_name(
    name: str, *, recipe: bool, timeout: float, sets: Sequence[str], workflow: str | None = None
) -> Found:
    """Check an env, or a recipe and its env; return what was found, as `--json` prints it.

    A name that an env and a recipe share is the env's unless `recipe`. The topologies of an env are
    those that `workflow` supports too, by default `turns`; a recipe has its own.
    """
    env_like = is_import_name(name) or name in ENVS or name.endswith(".py")
    if recipe or name.endswith(".toml") or (name in recipe_names() and not env_like):
        if workflow is not None:
            raise ConfigError(
                f"--workflow {workflow} is for an env, and {name!r} is a recipe, which names its "
                f"own: give --set workflow={workflow}"
            )
        return _check_recipe(load_recipe(name, sets, tell), timeout)
    if not env_like:
        raise unknown_name(
            "env or recipe", name, {*ENVS, *recipe_names()}, "file.py:Class or a .toml file"
        )
    try:
        env = env_with(name, sets, timeout=timeout)
    except ConfigError as error:
        if sets and name in recipe_names():
            raise ConfigError(f"{error}; for the recipe of this name add --recipe") from None
        raise
    return _check_env(name, env, timeout, WorkflowConfig(kind=workflow or "turns"))


def _check_env(name: str, env: Env[Any], timeout: float, workflow: WorkflowConfig) -> Found:
    make_workflow(workflow)
    report = check_env(env, timeout=timeout, say=_say_what)
    topologies = _topologies(guarded(env, timeout=timeout), workflow)
    found = {"ok": True, **asdict(report), "env": name, "workflow": workflow.kind}
    return found | {"topologies": topologies}


def _check_recipe(recipe: Recipe, timeout: float) -> Found:
    choice = recipe.env
    env = call_env(None, "__init__", timeout, lambda: choice.unguarded("training"))
    found = _check_env(choice.name, env, timeout, recipe.workflow)
    from turnwise.app.recipe_cost import measure_recipe

    tell(
        f"measuring recipe {recipe.name!r}: two iterations, which take seconds for nano models and "
        "minutes for large ones"
    )
    return {**found, "recipe": recipe.name, **asdict(measure_recipe(recipe, _say_what))}


def _topologies(env: Env[Any], workflow: WorkflowConfig) -> Found:
    return {
        name: {"allowed": not refusal, "refusal": refusal}
        for name, refusal in check_workflow(workflow, env).topologies.items()
    }


def draw_found(found: Found) -> None:
    """Print what was found; `ok` is the last line."""
    say(f"{found['env']}: keeps the contract")
    for note in found["notes"]:
        tell(f"warning: {note}.")
    costs = [(name, f"{cost:.1f}") for name, cost in found["costs"].items()]
    draw_table(("call", "microseconds"), costs)
    rows = [(name, _verdict(entry)) for name, entry in found["topologies"].items()]
    allows = f"whether the env and the workflow {found['workflow']!r} allow it"
    draw_table(("topology", allows), rows, wraps=allows)
    if "recipe" in found:
        say(_cost(found))
    elif found["env"] in recipe_names():
        say(f"a recipe has this name, too: `turnwise check {found['env']} --recipe` measures it")
    say("ok")


def _verdict(entry: Found) -> str:
    return "yes" if entry["allowed"] else f"no: {entry['refusal']}"


def _cost(found: Found) -> str:
    gpu = found["gpu_megabytes"]
    held = "" if gpu is None else f", {gpu:,.0f} megabytes of the GPU"
    seconds, rollout = found["seconds_per_iteration"], found["rollout_seconds"]
    update = "" if found["trained"] else "; no update was measured, as there was nothing to train"
    return (
        f"recipe {found['recipe']}: {found['megabytes']:,.0f} megabytes{held}, {seconds:.2f} s an "
        f"iteration, {rollout:.2f} s of them play{update}; measured with the models that the "
        "recipe begins with and a difference in every group: later iterations may be shorter or "
        "longer, as replies and episodes are"
    )


def _say_what(what: str) -> None:
    tell(f"checking: {what}")
