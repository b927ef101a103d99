"""The command `turnwise play`: an env at the terminal, played by a person, baseline or policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from turnwise.cli.options import console, look_at_run, print_styled, say
from turnwise.cli.watching import animated, frames_of
from turnwise.envs import guarded, make_env
from turnwise.envs.base import Env, Observation
from turnwise.envs.tools.calls import CLOSE, OPEN
from turnwise.envs.user_calls import call_env
from turnwise.errors import ConfigError, IllegalActionError, unknown_name
from turnwise.recipe.schema import load_recipe, parse_override
from turnwise.runs import Run
from turnwise.seeding import generator, world_generator
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

OPTIONS = "env.options."
"""The prefix of an env's options in recipes, which is accepted here too."""


def env_with(name: str, sets: Sequence[str], *, timeout: float) -> Env[Any]:
    """Return the env called `name` with its options from "key=value" pairs, with a time limit."""
    pairs = options_of(sets)
    return call_env(None, "__init__", timeout, lambda: make_env(name, **pairs))


def options_of(sets: Sequence[str]) -> dict[str, Any]:
    """Return an env's options from "key=value" pairs."""
    return dict(parse_override(pair.removeprefix(OPTIONS)) for pair in sets)


def env_of_run(run: Path, sets: Sequence[str], *, timeout: float) -> Env[Any]:
    """Return the env of a run as it is evaluated, with options of "key=value" pairs over its own.

    Raises:
        TurnwiseError: if there is no run at `run`, or its env does not take the options.
    """
    known = load_recipe(str(Run.open(run).recipe), (), lambda text: None).env
    choice = known.model_copy(update={"options": known.options | options_of(sets)})
    return call_env(None, "__init__", timeout, choice.unguarded, "evaluation")


def play_env(
    name: str | None,
    *,
    baseline: str | None,
    run: Path | None,
    seed: int,
    timeout: float,
    sets: Sequence[str],
) -> None:
    """Play one episode of a random task of the test split and show every step.

    Without a name, it is the env of the run.
    """
    if baseline is not None and run is not None:
        raise ConfigError("give --baseline or --run, not both: one of them plays")
    if run is not None:
        look_at_run(run, ())
    if name is not None:
        made = env_with(name, sets, timeout=timeout)
    elif run is not None:
        made = env_of_run(run, sets, timeout=timeout)
    else:
        raise ConfigError("there is no env to play: give its name, or a run by --run")
    env = guarded(made, timeout)
    task = GeneratedTasks(env, "test", seed).task(0)
    watched = run is not None or baseline is not None
    if watched and console.is_terminal and env.frame(env.reset(task)) is not None:
        animated(frames_of(env, task, baseline=baseline, run=run, seed=seed))
        return
    if run is not None:
        _watch_policy(env, task, run, seed)
        return
    if baseline is not None and baseline not in env.baselines():
        raise unknown_name("baseline", baseline, env.baselines())
    _play_by_hand(env, task, baseline, seed)


def _play_by_hand(env: Env[Any], task: Task, baseline: str | None, seed: int) -> None:
    state, total, earned = env.reset(task), 0, 0.0
    while total < env.turn_cap():
        seat = env.acting(state)[0]
        observation = env.observe(state, seat)
        say(_shown(env, state, seat))
        rng = generator(seed, "play", total)
        if baseline is not None:
            action = env.baselines()[baseline](state, rng)
            say(f"{baseline}: {action}")
        else:
            action = _ask(observation)
        if action is None:
            return
        try:
            step = env.step(state, seat, action, rng)
        except IllegalActionError as refused:
            say(str(refused))
            if baseline is None:
                continue
            told = _told_score(env, 0.0, earned)
            say(f"the env refused the action: the end after {total} steps, {told}")
            return
        state, total = step.state, total + 1
        earned += sum(step.rewards.values())
        if step.terminated or step.truncated:
            say(env.render(state))
            how = "the end" if step.terminated else "the step limit"
            say(f"{how} after {total} steps, {_told_score(env, env.score(state), earned)}")
            return
    say(env.render(state))
    told = _told_score(env, env.score(state), earned)
    say(f"cut after {total} steps, the env's max_turns, {told}")


def _told_score(env: Env[Any], score: float, earned: float) -> str:
    """Return the score in words: the sum of the rewards where returns are scores."""
    return f"return {earned:g}" if env.scored_by == "return" else f"score {score:g}"


def _shown(env: Env[Any], state: Any, seat: str) -> str:
    """Return what is printed before a turn: a picture, or in a team what the seat alone sees."""
    if len(env.seats) == 1:
        return env.render(state)
    return f"{seat} sees: {env.observe(state, seat).text}"


def _ask(observation: Observation) -> str | None:
    """Return the action that the user chooses by a word or its first letters; None to stop.

    A tool is called by its name and a JSON object of its arguments.
    """
    legal = observation.legal_actions
    tools = [json.loads(tool)["function"]["name"] for tool in observation.tools]
    offered = [*(f'{name} {{"argument": ...}}' for name in tools), *(legal or ("any text",))]
    while True:
        print_styled(f"[bold]{escape(' / '.join(offered))}[/] (or quit): ", end="")
        try:
            said = input().strip()
        except EOFError:
            return None
        typed = said.casefold()
        if typed in ("q", "quit"):
            return None
        name, _, arguments = said.partition(" ")
        if name in tools:
            return f'{OPEN}{{"name": "{name}", "arguments": {arguments or "{}"}}}{CLOSE}'
        if not legal and said:
            return said
        found = [action for action in legal if typed and action.casefold().startswith(typed)]
        if len(found) == 1:
            return found[0]
        say(f"{typed!r} is none of {', '.join(legal)}")


def _watch_policy(env: Env[Any], task: Task, run: Path, seed: int) -> None:
    """Render an episode again: the same actions with the same seed lead to the same states."""
    from turnwise.app.run_scores import play_run

    episode = play_run(run, env, task, seed=seed)
    state, steps = env.reset(task), 0
    for turn in sorted(episode.turns, key=lambda turn: turn.order):
        if turn.phase == "act":
            say(_shown(env, state, turn.id.role))
        say(turn.text if len(env.seats) == 1 else f"{turn.id.role}: {turn.text}")
        if turn.error is not None:
            say(f"no action: {turn.error.message}")
        if turn.action is None:
            continue  # a question, or a reply after which the agent may be asked again
        noise = world_generator(seed, "evaluation", 0, 0, steps, None)
        state, steps = env.step(state, turn.id.role, turn.action, noise).state, steps + 1
    say(env.render(state))
    say(f"score {episode.score:g} after {len(episode.turns)} turns")
