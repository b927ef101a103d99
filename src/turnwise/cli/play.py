"""Playing an env at the terminal: a person, a baseline, or the policy of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from turnwise.cli.options import look_at_run, print_styled, say
from turnwise.envs import make_env
from turnwise.envs.base import Env, Observation
from turnwise.envs.calls import call_env
from turnwise.envs.tool_calls import CLOSE, OPEN
from turnwise.errors import ConfigError, IllegalActionError, unknown_name
from turnwise.noise import generator, world_generator
from turnwise.recipe import parse_override
from turnwise.rollout import guarded
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

OPTIONS = "env.options."
"""What stands before an env's options in recipes, and may stand there here."""


def env_with(name: str, sets: Sequence[str], *, timeout: float) -> Env[Any]:
    """Return the env called `name` with its options from "key=value" pairs, made in time."""
    pairs = dict(parse_override(pair.removeprefix(OPTIONS)) for pair in sets)
    return call_env(None, "__init__", timeout, lambda: make_env(name, **pairs))


def play_env(
    name: str,
    *,
    baseline: str | None,
    run: Path | None,
    seed: int,
    timeout: float,
    sets: Sequence[str],
) -> None:
    """Play one episode of a random task of the test split and show every step."""
    if baseline is not None and run is not None:
        raise ConfigError("give --baseline or --run, not both: one of them plays")
    if run is not None:
        look_at_run(run, ())
    env = guarded(env_with(name, sets, timeout=timeout), timeout)
    task = GeneratedTasks(env, "test", seed).task(0)
    if run is not None:
        _watch_policy(env, task, run, seed)
        return
    if baseline is not None and baseline not in env.baselines():
        raise unknown_name("baseline", baseline, env.baselines())
    _play_by_hand(env, task, baseline, seed)


def _play_by_hand(env: Env[Any], task: Task, baseline: str | None, seed: int) -> None:
    (role,) = env.roles
    state, total = env.reset(task), 0
    while total < env.turn_cap():
        observation = env.observe(state, role)
        say(env.render(state))
        rng = generator(seed, "play", total)
        if baseline is not None:
            action = env.baselines()[baseline](state, rng)
            say(f"{baseline}: {action}")
        else:
            action = _ask(observation)
        if action is None:
            return
        try:
            step = env.step(state, role, action, rng)
        except IllegalActionError as refused:
            say(str(refused))
            if baseline is None:
                continue
            say(f"the env refused the action: the end after {total} steps, score 0")
            return
        state, total = step.state, total + 1
        if step.terminated or step.truncated:
            say(env.render(state))
            how = "the end" if step.terminated else "the step limit"
            say(f"{how} after {total} steps, score {env.score(state):g}")
            return
    say(env.render(state))
    say(f"cut after {total} steps, the env's max_turns, score {env.score(state):g}")


def _ask(observation: Observation) -> str | None:
    """Return the action a person chooses by word or first letters; None to stop.

    A tool is called by its name and a JSON object of its arguments.
    """
    legal = observation.legal
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
    """Show an episode again: the same actions under the same chance lead to the same states."""
    from turnwise.scoring import play_run

    episode = play_run(run, env, task, seed=seed)
    (role,) = env.roles
    state = env.reset(task)
    for turn in episode.turns:
        say(env.render(state))
        say(turn.text)
        if turn.action is None:
            break
        noise = world_generator(seed, "evaluation", 0, 0, turn.id.turn, None)
        state = env.step(state, role, turn.action, noise).state
    say(env.render(state))
    say(f"score {episode.score:g} after {len(episode.turns)} turns")
