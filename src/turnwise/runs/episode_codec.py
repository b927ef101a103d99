"""Episodes as JSON lines and back, without loss.

Provides the format of each line of an episode file. Numbers that JSON cannot express, such as a
log-probability of minus infinity, are strings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from turnwise.credit import Credit
from turnwise.envs.unicode import is_unicode
from turnwise.errors import RunError
from turnwise.tasks.openings import opening_as_json, opening_from_json
from turnwise.types import (
    Episode,
    EpisodeId,
    Failure,
    MediaKey,
    Sampling,
    Span,
    Task,
    Trajectory,
    Turn,
    TurnId,
)

VERSION = 3
Line = dict[str, Any]
Ids = tuple[int, ...]


@dataclass(slots=True)
class Marks:
    """The credit of each turn of a file: advantages by span, its group, its return."""

    advantages: dict[TurnId, dict[str, float]] = field(default_factory=dict)
    groups: dict[TurnId, str] = field(default_factory=dict)
    returns: dict[TurnId, float] = field(default_factory=dict)

    @classmethod
    def of(cls, credit: Credit | None) -> Marks:
        """Return the marks of a batch's credit; none without it."""
        if credit is None:
            return cls()
        compared = [
            (turn, group, value)
            for group in credit.groups
            for unit, value in zip(group.units, group.returns, strict=True)
            for turn in unit.turns
        ]
        return cls(
            advantages={turn: dict(spans) for turn, spans in credit.advantages.items()},
            groups={turn: str(group.key) for turn, group, _ in compared},
            returns={turn: value for turn, _, value in compared},
        )


class EpisodeLines:
    """Gathers the lines of one file; tasks and prompts are written once each."""

    def __init__(self, decode: Callable[[str, Sequence[int]], str] | None, marks: Marks) -> None:
        self.lines: list[Line] = []
        self._decode, self._marks = decode, marks
        self._tasks: dict[str, int] = {}
        self._prompts: dict[tuple[str, tuple[Ids, str, MediaKey]], int] = {}
        self._turns = 0

    def head(self, **facts: Any) -> None:
        """Add the first line."""
        self.lines.append({"kind": "head", "version": VERSION, **facts})

    def episode(self, episode: Episode) -> None:
        """Add an episode, and before it the task and the prompts that are new."""
        line: Line = {"kind": "episode", "task": self._task(episode.task)}
        for name in ("iteration", "visit", "member"):
            line[name] = getattr(episode.id, name)
        line |= {"terminated": episode.terminated, "truncated": episode.truncated}
        line["score"] = _number(episode.score)
        line["error"] = _failure(episode.error)
        if episode.measures:
            line["measures"] = _numbers(episode.measures)
        if episode.notes:
            line["notes"] = dict(episode.notes)
        if episode.opening:
            line["opening"] = opening_as_json(episode.opening)
        for name in ("resets", "trial_steps"):
            if count := getattr(episode, name):
                line[name] = count
        line["trajectories"] = [self._trajectory(t) for t in episode.trajectories]
        self.lines.append(line)

    def _task(self, task: Task) -> int:
        facts = {"id": task.id, "env": task.env, "seed": task.seed, "data": dict(task.data)}
        key = json.dumps(facts)
        if key not in self._tasks:
            self._tasks[key] = len(self._tasks)
            self.lines.append({"kind": "task", **facts})
        return self._tasks[key]

    def _trajectory(self, trajectory: Trajectory) -> Line:
        turns: list[Line] = []
        before: tuple[int, Turn] | None = None
        for turn in trajectory.turns:
            turns.append(self._turn(turn, self._prompt(turn, before)))
            before = (self._turns, turn)
            self._turns += 1
        siblings = [self._turn(turn, self._prompt(turn, None)) for turn in trajectory.siblings]
        self._turns += len(siblings)
        seat = {"role": trajectory.role, "seat": trajectory.seat, "turns": turns}
        if trajectory.next_key is not None:
            seat["next_key"] = trajectory.next_key
        if trajectory.player:
            seat["player"] = trajectory.player
        return seat | ({"siblings": siblings} if siblings else {})

    def _prompt(self, turn: Turn, before: tuple[int, Turn] | None) -> int:
        """Return the number of the turn's prompt, and write it if it is new."""
        key = (turn.policy, turn.shown)
        if key in self._prompts:
            return self._prompts[key]
        after, ids = None, turn.prompt_ids
        if before is not None:
            number, earlier = before
            row = earlier.prompt_ids + earlier.completion_ids
            if ids[: len(row)] == row:
                after, ids = number, ids[len(row) :]
        text: str | None = turn.prompt_text
        if not turn.text_only:
            text = None if self._decode is None else self._decode(turn.policy, ids)
        self._prompts[key] = len(self._prompts)
        self.lines.append({"kind": "prompt", "after": after, "ids": list(ids), "text": text})
        return self._prompts[key]

    def _turn(self, turn: Turn, prompt: int) -> Line:
        marks, credit = self._marks, {}
        if turn.id in marks.advantages:
            credit["advantages"] = _numbers(marks.advantages[turn.id])
        if turn.id in marks.groups:
            credit["group"] = marks.groups[turn.id]
        if turn.id in marks.returns:
            credit["return"] = _number(marks.returns[turn.id])
        shown: Line = {"media": list(turn.media)} if turn.media else {}
        if turn.text_only:
            shown["text_only"] = True
        if turn.trials:
            shown["trials"] = [_numbers(trial) for trial in turn.trials]
        return {
            "id": {name: getattr(turn.id, name) for name in _ID},
            "order": turn.order,
            "phase": turn.phase,
            "chosen": turn.chosen,
            "policy": turn.policy,
            "policy_version": turn.policy_version,
            "prompt": prompt,
            "text": turn.text,
            "action": turn.action,
            "rewards": _numbers(turn.rewards),
            "state_key": turn.state_key,
            "seen": turn.seen,
            "forced": turn.forced,
            "error": _failure(turn.error),
            "finish_reason": turn.finish_reason,
            "sampling": asdict(turn.sampling),
            "spans": [[span.name, span.start, span.end] for span in turn.spans],
            "ids": list(turn.completion_ids),
            "logprobs": [_number(value) for value in turn.logprobs],
            "credit": credit,
            **shown,
        }


def as_text(lines: Sequence[Line]) -> str:
    """Return lines as they stand in a file; halves of surrogate pairs are escaped."""
    return "".join(_line(line) + "\n" for line in lines)


def _line(line: Line) -> str:
    text = json.dumps(line, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text if is_unicode(text) else json.dumps(line, separators=(",", ":"))


def episodes_from_lines(path: Path, lines: Sequence[Line]) -> tuple[Line, list[Episode], Marks]:
    """Return head, episodes and marks of a file's lines.

    Raises:
        RunError: if the first line is no head of a known version, or another one is damaged.
    """
    if not lines or lines[0].get("kind") != "head" or lines[0].get("version") != VERSION:
        raise RunError(
            f"{path} is not an episode file of version {VERSION}: it was damaged, delete it"
        )
    reader = _Reader()
    for number, line in enumerate(lines[1:], start=2):
        try:
            reader.read(line)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise RunError(
                f"{path}, line {number} is no part of an episode file: it was damaged, delete the "
                "file"
            ) from error
    return lines[0], reader.episodes, reader.marks


class _Reader:
    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.marks = Marks()
        self._tasks: list[Task] = []
        self._prompts: list[Line] = []
        self._prompt_ids: dict[int, Ids] = {}
        self._rows: list[Ids] = []

    def read(self, line: Line) -> None:
        kind = line["kind"]
        if kind == "task":
            self._tasks.append(Task(**{key: line[key] for key in ("id", "env", "seed", "data")}))
        elif kind == "prompt":
            self._prompts.append(line)
        else:
            if kind != "episode":
                raise ValueError(f"kind {kind!r}")
            self.episodes.append(self._episode(line))

    def _episode(self, line: Line) -> Episode:
        task = self._tasks[line["task"]]
        identity = EpisodeId(
            iteration=line["iteration"], visit=line["visit"], task=task.id, member=line["member"]
        )
        return Episode(
            id=identity,
            task=task,
            trajectories=tuple(
                Trajectory(
                    role=t["role"],
                    seat=t["seat"],
                    turns=tuple(self._turn(identity, turn) for turn in t["turns"]),
                    siblings=tuple(self._turn(identity, turn) for turn in t.get("siblings", ())),
                    next_key=t.get("next_key"),
                    player=t.get("player", ""),
                )
                for t in line["trajectories"]
            ),
            terminated=line["terminated"],
            truncated=line["truncated"],
            score=float(line["score"]),
            measures={name: float(value) for name, value in line.get("measures", {}).items()},
            error=_failed(line["error"]),
            notes=line.get("notes", {}),
            opening=opening_from_json(line.get("opening", []), task.id),
            resets=line.get("resets", 0),
            trial_steps=line.get("trial_steps", 0),
        )

    def _turn(self, episode: EpisodeId, line: Line) -> Turn:
        turn_id = TurnId(episode=episode, **line["id"])
        self._read_credit(turn_id, line["credit"])
        turn = Turn(
            id=turn_id,
            prompt_ids=self._ids_of(line["prompt"]),
            completion_ids=tuple(line["ids"]),
            logprobs=tuple(float(value) for value in line["logprobs"]),
            sampling=Sampling(**line["sampling"]),
            spans=tuple(Span(name=name, start=a, end=b) for name, a, b in line["spans"]),
            rewards={name: float(value) for name, value in line["rewards"].items()},
            error=_failed(line["error"]),
            media=tuple(line.get("media", ())),
            prompt_text=self._prompts[line["prompt"]]["text"] if "text_only" in line else "",
            trials=tuple(
                {name: float(value) for name, value in trial.items()}
                for trial in line.get("trials", ())
            ),
            **{name: line[name] for name in _PLAIN},
        )
        self._rows.append(turn.prompt_ids + turn.completion_ids)
        return turn

    def _ids_of(self, prompt: int) -> Ids:
        """Return a prompt whole; a suffix refers to a turn that was read before."""
        if prompt not in self._prompt_ids:
            line = self._prompts[prompt]
            front = () if line["after"] is None else self._rows[line["after"]]
            self._prompt_ids[prompt] = front + tuple(line["ids"])
        return self._prompt_ids[prompt]

    def _read_credit(self, turn: TurnId, credit: Line) -> None:
        if "advantages" in credit:
            values = credit["advantages"]
            self.marks.advantages[turn] = {name: float(values[name]) for name in values}
        if "group" in credit:
            self.marks.groups[turn] = credit["group"]
        if "return" in credit:
            self.marks.returns[turn] = float(credit["return"])


_ID = ("role", "turn", "round", "branch")
_PLAIN = (
    "order",
    "phase",
    "chosen",
    "policy",
    "policy_version",
    "finish_reason",
    "text",
    "action",
    "state_key",
    "seen",
    "forced",
)


def _number(value: float) -> float | str:
    value = float(value)
    return value if math.isfinite(value) else str(value)


def _numbers(values: Mapping[str, float]) -> dict[str, float | str]:
    return {name: _number(value) for name, value in values.items()}


def _failure(failure: Failure | None) -> Line | None:
    return None if failure is None else asdict(failure)


def _failed(line: Line | None) -> Failure | None:
    return None if line is None else Failure(**line)
