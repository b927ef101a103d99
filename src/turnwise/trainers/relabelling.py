"""Episodes as demonstrations of the tasks that they solved.

Provides `relabelled`, `chosen`, `in_order` and `rows_of_each`: from played episodes to supervised
rows (hindsight experience replay, Andrychowicz et al. 2017, arXiv:1707.01495); and `metrics_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from turnwise.agents import AgentConfig, demonstration, prompt_for
from turnwise.envs import Env
from turnwise.errors import EnvError, IllegalActionError, SandboxError, StuckEnvError
from turnwise.policies import Policy
from turnwise.rollout.random_play import exchange_of
from turnwise.trainers.config import HindsightConfig
from turnwise.trainers.rows import supervised_row
from turnwise.types import Episode, EpisodeId, Task, TrainingSample
from turnwise.utils.hashes import short_hash

NEW = "hindsight/new"
"""The metric that counts the demonstrations of an iteration that were not shown before."""
BEST_SHARE = 0.25
"""The default of `trainer.best_share`."""
Noise = Callable[[EpisodeId, int], np.random.Generator]
"""From the identity of an episode and the number of an env step to the step's draws."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Achieved:
    """What an episode achieved: a task, the actions that solve it, and how close it is.

    `id` is the episode's, and `asked` the task that it played. `problem` is a hash, equal for equal
    tasks (`Env.canonical`). `closeness` says in [0, 1] how near this task is to the one that was
    played.
    """

    id: EpisodeId
    asked: Task
    task: Task
    actions: tuple[str, ...]
    problem: str
    closeness: float

    @property
    def length(self) -> int:
        """The number of characters of all actions: of programs, their length."""
        return sum(map(len, self.actions))


def relabelled(env: Env[Any], episodes: Sequence[Episode]) -> list[Achieved]:
    """Return what episodes achieved, in their order, without those that achieved nothing.

    An episode that the env broke is left out, and the last action if it was refused. One for which
    `relabel`, `canonical` or the sandbox fails is left out, too.

    Raises:
        EnvError: if they fail for each episode, with the last error; likewise `SandboxError`.
    """
    found: list[Achieved] = []
    asked, failures = 0, list[EnvError | SandboxError]()
    for episode in episodes:
        actions = [turn.action for turn in episode.turns if turn.action is not None]
        if episode.broken or not actions:
            continue
        asked += 1
        try:
            new = _achieved(env, episode, actions)
        except StuckEnvError:
            raise
        except IllegalActionError:
            continue
        except (EnvError, SandboxError) as error:
            failures.append(error)
            continue
        if new is not None:
            found.append(new)
    if failures and len(failures) == asked:
        raise failures[-1]
    return found


def _achieved(env: Env[Any], episode: Episode, actions: Sequence[str]) -> Achieved | None:
    """Return what the actions of an episode achieved, None if nothing."""
    new = env.relabel(episode.task, actions)
    if new is None:
        return None
    return Achieved(
        id=episode.id,
        asked=episode.task,
        task=replace(episode.task, data=new.data),
        actions=new.actions,
        problem=short_hash(env.canonical(new.data)),
        closeness=new.closeness,
    )


def chosen(
    found: Sequence[Achieved],
    config: HindsightConfig,
    seen: set[str],
    rng: np.random.Generator,
    most: int | None = None,
) -> list[Achieved]:
    """Return the new demonstrations of an iteration.

    Args:
        found: what the episodes achieved.
        config: which of them are shown, and of which task.
        seen: the problems that earlier iterations showed; those of this one are added.
        rng: draws the tasks of `relabel = "shuffled"`.
        most: the most demonstrations, those closest to their tasks; None is no limit.
    """
    shortest: dict[str, Achieved] = {}
    for each in found:
        best = shortest.get(each.problem)
        if best is None or each.length < best.length:
            shortest[each.problem] = each
    shown = [each for each in shortest.values() if config.again or each.problem not in seen]
    if config.relabel == "none":
        share = BEST_SHARE if config.best_share is None else config.best_share
        closest = sorted(shown, key=lambda each: -each.closeness)
        shown = closest[: max(1, round(share * len(closest)))]
        shown = [replace(each, task=each.asked) for each in shown]
    if most is not None:
        shown = sorted(shown, key=lambda each: each.closeness)[-most:]
    seen.update(each.problem for each in shown)
    return _with_others_tasks(shown, rng) if config.relabel == "shuffled" else shown


def in_order(
    shown: Sequence[Achieved], config: HindsightConfig, rng: np.random.Generator
) -> list[Achieved]:
    """Return demonstrations in the order in which an iteration shows them."""
    if config.order == "random":
        return [shown[place] for place in rng.permutation(len(shown))]
    return sorted(shown, key=lambda each: each.closeness)


def metrics_of(found: Sequence[Achieved], new: Sequence[Achieved]) -> dict[str, float]:
    """Return how many demonstrations are new, and how close episodes came to their tasks at most.

    Args:
        found: what the episodes of an iteration achieved; if nothing, there is no closeness.
        new: the demonstrations that are shown for the first time.

    Example:
        >>> metrics_of([], [])
        {'hindsight/new': 0.0}
    """
    metrics = {NEW: float(len(new))}
    if found:
        metrics["hindsight/closest"] = max(each.closeness for each in found)
    return metrics


def _with_others_tasks(shown: Sequence[Achieved], rng: np.random.Generator) -> list[Achieved]:
    """Return demonstrations each on the task of another one; none where there is no other.

    They follow one another in a random circle, so that no task stays where it was.
    """
    circle = rng.permutation(len(shown)).tolist() if len(shown) > 1 else []
    task_of = dict(zip(circle, circle[1:] + circle[:1], strict=True))
    return [replace(shown[place], task=shown[task_of[place]].task) for place in sorted(circle)]


def rows_of_each(
    shown: Sequence[Achieved],
    env: Env[Any],
    agents: Mapping[str, AgentConfig],
    policy: Policy,
    noise: Noise,
) -> list[list[TrainingSample]]:
    """Return the rows of each demonstration (`rows_of`), none where the env or the sandbox fails.

    Raises:
        EnvError: if they fail for each demonstration, with the last error; likewise `SandboxError`.
    """
    found: list[list[TrainingSample]] = []
    failures: list[EnvError | SandboxError] = []
    for each in shown:
        try:
            found.append(rows_of(each, env, agents, policy, noise))
        except StuckEnvError:
            raise
        except (EnvError, SandboxError) as error:
            failures.append(error)
            found.append([])
    if failures and len(failures) == len(shown):
        raise failures[-1]
    return found


def rows_of(
    achieved: Achieved,
    env: Env[Any],
    agents: Mapping[str, AgentConfig],
    policy: Policy,
    noise: Noise,
) -> list[TrainingSample]:
    """Return the rows of a demonstration, one for each action: its prompt and the reply.

    The task is played with the actions, and prompts show what is then observed. Where the task ends
    or a row would be longer than the policy's context, the rest is left out, and so is an action
    that is refused, with the rest.
    """
    renderer = policy.renderer
    state, past, rows = env.reset(achieved.task), [], list[TrainingSample]()
    for number, action in enumerate(achieved.actions):
        seat = env.acting(state)[0]
        agent = agents[env.seats[seat]]
        seen = env.observe(state, seat)
        start = renderer.prompt_ids(prompt_for(agent, past, seen))
        reply = renderer.spoken(demonstration(agent, seen.description, action))
        row = supervised_row(agent.policy, start, renderer.completion_ids(reply))
        if len(row.token_ids) > policy.context:
            break
        try:
            step = env.step(state, seat, action, noise(achieved.id, number))
        except IllegalActionError:
            break
        rows.append(row)
        past.append(exchange_of(agent, renderer, seen, action))
        if step.terminated or step.truncated:
            break
        state = step.state
    return rows
