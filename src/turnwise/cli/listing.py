"""`turnwise recipes` and `turnwise envs`: what is shipped, and one recipe or env of it."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.options import (
    AsJson,
    draw_table,
    one_sentence,
    print_json,
    print_styled,
    say,
)

if TYPE_CHECKING:
    from turnwise.envs.base import Env

Found = dict[str, Any]


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(help="Print this recipe, as a .toml file; all are listed without."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the shipped recipes, or print one, as a beginning of your own."""
    from turnwise.recipe.schema import recipe_names, recipe_summary, recipe_text

    with one_sentence():
        if name is not None and not as_json:
            say(recipe_text(name).rstrip())
            return
        found = [recipe_summary(each) for each in ([name] if name else recipe_names())]
    if as_json:
        print_json({"recipes": found})
        return
    draw_table(
        ("recipe", "env", "model", "scheme", "iterations", "presets"),
        [
            (
                item["name"],
                item["env"],
                ", ".join(dict.fromkeys(item["models"].values())),
                item["scheme"],
                str(item["iterations"]),
                ", ".join(item["presets"]),
            )
            for item in found
        ],
    )


def envs(
    name: Annotated[
        str | None,
        typer.Argument(help="Describe this env, a name or file.py:Class; all are listed without."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the environments with their options, or describe one."""
    from turnwise.envs import ENVS, find_env

    with one_sentence():
        chosen = ENVS if name is None else {name: find_env(name)}
    found = [_described(name, env) for name, env in chosen.items()]
    if as_json:
        print_json({"envs": found})
        return
    if name is not None:
        say(_text_of(chosen[name]) + "\n")
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


def _described(name: str, env: type[Env[Any]]) -> Found:
    return {
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


def _text_of(env: type[Env[Any]]) -> str:
    """Return the docstrings of the modules of an env and of the envs that it is derived from."""
    from turnwise.envs.base import Env

    modules = dict.fromkeys(
        each.__module__ for each in env.__mro__ if issubclass(each, Env) and each is not Env
    )
    texts = (inspect.cleandoc(sys.modules[module].__doc__ or "") for module in modules)
    return "\n\n".join(texts)
