"""Findings about prompts that do not show what decides the reward.

Recorded turns with equal prompts and equal actions are compared. Members of a group may share their
task and the random draws of the env, so that equal outcomes within one group show nothing: of each
group at most one turn with a given prompt and action is used. It is chosen without regard to what
followed it, as a choice among all of them would depend on the length of the episode.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from turnwise.agents import LAST_N
from turnwise.envs.past_helps import LEAST, NOT_COMPARED, SURE, SeenTurn, excess, past_excess
from turnwise.formats import REPLY_COMPONENTS
from turnwise.policies.presets import is_nano, nano_preset
from turnwise.report.findings.facts import Facts, Finding
from turnwise.seeding import generator
from turnwise.types import Episode, Trajectory, VisitId

LABEL = "findings"
MAYBE = 3.0
"""Standard deviations from which the past may tell what the prompt does not."""

GUESS = "If they may not, no policy can do better than a guess, and no setting helps."


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A turn as its prompt showed it: what was seen, its group, and its task's data."""

    visit: VisitId
    step: int
    seen: SeenTurn
    data: Mapping[str, Hashable]


def hidden(facts: Facts) -> list[Finding]:
    """Name for each role what decides what follows a reply and is not in its prompt."""
    if facts.solved:
        return []
    found = (_of_role(facts, role) for role in facts.roles)
    return [finding for finding in found if finding is not None]


def _of_role(facts: Facts, role: str) -> Finding | None:
    turns = independent_turns(list(_turns(facts, role)))
    found = None
    if facts.at(f"agents.{role}.history", "observation") != "full":
        found = past_excess([turn.seen for turn in turns], 0)
    if found is not None and found > SURE:
        return _past(facts, role, found, len(turns))
    if facts.risen:
        return None
    setting = more_history(facts, role) if found is not None and found > MAYBE else ""
    return _task(facts, role, turns, setting)


def _past(facts: Facts, role: str, found: float, count: int) -> Finding:
    where = f"agents.{role}.history"
    return Finding(
        name="past-hidden",
        sentence=(
            f"The prompts of {role} do not show what decides what follows: after equal prompts and "
            f"equal actions it depends on the turns before ({found:.0f} standard deviations more "
            f"than chance, {count} turns in `episodes/`), which {where} = "
            f"{facts.at(where, 'observation')!r} leaves out."
        ),
        setting=more_history(facts, role),
    )


def more_history(facts: Facts, role: str) -> str:
    """Return the setting that shows more of the past: all of it where the context holds it."""
    where = f"agents.{role}"
    last = facts.at(f"{where}.last_n", LAST_N)
    kept = last if facts.at(f"{where}.history", "observation") == "last_n" else 0
    longest = max(
        (
            sum(len(turn.prompt_ids) / (1 + kept) + len(turn.completion_ids) for turn in one.turns)
            for episode in facts.episodes
            for one in episode.trajectories
            if one.role == role and not one.player
        ),
        default=0.0,
    )
    if longest <= _context(facts, role):
        return f"{where}.history=full"
    return f"{where}.last_n={2 * last}" if kept else f"{where}.history=last_n"


def _context(facts: Facts, role: str) -> float:
    """Return the context of a role's policy, if it is a nano model, whose context is small."""
    policy = f"policies.{facts.at(f'agents.{role}.policy', 'main')}"
    model = facts.at(f"{policy}.model", "")
    default = nano_preset(model).context if is_nano(model) else float("inf")
    return facts.at(f"{policy}.nano.context", default)


def _task(facts: Facts, role: str, turns: list[Shown], setting: str) -> Finding | None:
    """Say that equal prompts and actions are paid differently in different tasks.

    `setting` shows more of the past, where it may tell the task.
    """
    counts: dict[tuple[str, str], int] = {}
    for turn in turns:
        strata = (turn.seen.observation, turn.seen.action)
        counts[strata] = counts.get(strata, 0) + 1
    alike = [t for t in turns if counts[t.seen.observation, t.seen.action] > 1]
    if len(alike) < LEAST * len(turns) or not alike:
        return None
    rng = generator(0, LABEL, "task")
    names = sorted({name for turn in alike for name in turn.data})
    found = {
        name: excess([t.seen for t in alike], [t.data.get(name) for t in alike], rng)
        for name in names
    }
    name = max(found, key=lambda each: found[each], default="")
    if not name or found[name] <= SURE:
        return None
    return Finding(
        name="task-hidden",
        sentence=(
            f"The prompts of {role} do not show what decides the reward: equal prompts and equal "
            f"actions are paid differently in tasks that differ in {name!r} ({found[name]:.0f} "
            f"standard deviations more than chance, {len(alike)} turns in `episodes/`). The score "
            f"is {facts.score}. If players may know it, write it in Observation.text. "
            + ("The turns before may tell it, too." if setting else GUESS)
        ),
        setting=setting,
    )


def _turns(facts: Facts, role: str) -> Iterator[Shown]:
    """Yield the recorded turns of a role whose outcome is known."""
    weights = facts.at("credit.rewards", {})
    counted = {name for name, weight in weights.items() if weight} - set(REPLY_COMPONENTS)
    own = [
        (game, episode, trajectory)
        for game, episode in enumerate(facts.episodes)
        for trajectory in (() if episode.broken else episode.trajectories)
        if trajectory.role == role and not trajectory.player
    ]
    # where all games have as many turns, the end tells their number alone
    timed = len({len(trajectory.turns) for _, _, trajectory in own}) == 1
    for game, episode, trajectory in own:
        yield from _shown(episode, trajectory, game, counted, timed)


def _shown(
    episode: Episode, trajectory: Trajectory, game: int, counted: set[str], timed: bool
) -> Iterator[Shown]:
    past: list[tuple[str, str]] = []
    data = {
        name: value
        for name, value in episode.task.data.items()
        if isinstance(value, str | int | float | bool)
    }
    prompts = [str(turn.shown) for turn in trajectory.turns]
    for step, turn in enumerate(trajectory.turns):
        last = step == len(trajectory.turns) - 1
        cut = last and not episode.terminated
        if turn.action is not None and not cut:
            rewards = tuple(
                sorted(
                    (name, round(value, 6))
                    for name, value in turn.rewards.items()
                    if value and name in counted
                )
            )
            after = "" if last else prompts[step + 1]
            yield Shown(
                visit=episode.id.visit_id,
                step=step,
                data=data,
                seen=SeenTurn(
                    game=game,
                    observation=prompts[step],
                    action=turn.action,
                    followed=(rewards, NOT_COMPARED if last and timed else (last, after)),
                    past=tuple(past),
                ),
            )
        past.append((prompts[step], turn.action or ""))


def independent_turns(turns: list[Shown]) -> list[Shown]:
    """Return at most one turn of each group with a given prompt and action.

    It is the first one from a step on that is drawn from the steps of other groups' turns with that
    prompt and action. So neither what followed a turn nor how long its episode went on decides
    whether it is taken.
    """
    rng = generator(0, LABEL, "turns")
    strata: dict[tuple[str, str], list[Shown]] = {}
    for place in rng.permutation(len(turns)):  # members of one group and step in random order
        turn = turns[place].seen
        strata.setdefault((turn.observation, turn.action), []).append(turns[place])
    found = []
    for alike in strata.values():
        visits: dict[VisitId, list[Shown]] = {}
        for turn in alike:
            visits.setdefault(turn.visit, []).append(turn)
        steps = np.array([turn.step for turn in alike])
        numbers = {visit: number for number, visit in enumerate(visits)}
        group = np.array([numbers[turn.visit] for turn in alike])
        for number, own in enumerate(visits.values() if len(visits) > 1 else ()):
            begin = rng.choice(steps[group != number])
            later = [turn for turn in own if turn.step >= begin]
            found += [min(later, key=lambda turn: turn.step)] if later else []
    return found
