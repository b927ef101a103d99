"""The history of a search: every policy that was tried, its episodes, and every model call.

Provides `Try`, `History` and `HistoryLog`. The log is a file of JSON lines, synced to disk after
each one, so that a kill at any instant loses at most the line that was being written; the next
start removes an incomplete last line. The history is a function of the log alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from turnwise.errors import RunError
from turnwise.runs.files import LineLog, read_json_lines
from turnwise.search.problem import MOST_RETURN, Step
from turnwise.search.space import Params, ParamSpace

HISTORY = "history.jsonl"
CURE = "restore it, or remove it and all lines after it, and the search goes on from there"
ROUNDING = 1e-12
"""Smaller shares of a mean are errors of rounding."""
Source = Literal["warm-up", "search"]
Outcome = Literal["read", "unreadable", "repeated", "failed"]
Kind = Literal["try", "again", "call", "lost"]


@dataclass(kw_only=True, slots=True)
class Try:
    """A policy that was tried: its parameters and all returns of its episodes.

    Attributes:
        slot: the number of the evaluation in which it was first played; negative for the warm-up.
        params: of the policy; None for a policy that has other parameters than a table's or a
            linear map's.
        returns: of all its episodes; a policy that is played again has more.
        steps: of its first episode, where they are kept.
        again: the slots in which it was played again, with its number of episodes before each.
        mean: the mean return.
        stderr: the standard error of the mean; None with one episode.
    """

    slot: int
    source: Source
    params: Params | None
    returns: list[float]
    steps: tuple[Step, ...] = ()

    again: list[tuple[int, int]] = field(init=False, default_factory=list)
    mean: float = field(init=False)
    stderr: float | None = field(init=False)

    def __post_init__(self) -> None:
        self.extend(())

    def extend(self, returns: Sequence[float]) -> None:
        """Add the returns of more episodes, and renew the mean and its standard error."""
        self.returns.extend(returns)
        count = len(self.returns)
        self.mean = math.fsum(self.returns) / count
        squares = math.fsum((value - self.mean) ** 2 for value in self.returns)
        self.stderr = math.sqrt(squares / (count - 1) / count) if count > 1 else None

    def mean_before(self, slot: int) -> float:
        """Return the mean of the returns that were known when a slot began."""
        later = (count for place, count in self.again if place >= slot)
        known = self.returns[: next(later, len(self.returns))]
        return math.fsum(known) / len(known)

    @property
    def cautious(self) -> float:
        """The mean minus its standard error, by which the returned policy is chosen.

        One success in any number of episodes gives exactly 0, whatever rounding does.
        """
        if self.stderr is None:
            return -math.inf
        less = self.mean - self.stderr
        return less if abs(less) > ROUNDING * abs(self.mean) else 0.0


@dataclass(kw_only=True, slots=True)
class Spent:
    """The model calls of a search: their number and their tokens.

    Attributes:
        calls: all of them.
        failed: requests that brought no reply.
        refused: replies that were unreadable, or repeated an earlier try.
        prompt_tokens: of all prompts, as the server counts them.
        completion_tokens: of all replies.
    """

    calls: int = 0
    failed: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A model call.

    Attributes:
        slot: the evaluation that it is for.
        outcome: what came of it.
        said: why the reply was not used, or the request failed.
        reply: the beginning of the reply.
        params: what the reply named, if it is used.
        prompt_tokens: of the prompt.
        completion_tokens: of the reply.
    """

    slot: int
    outcome: Outcome
    said: str = ""
    reply: str = ""
    params: Params | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(kw_only=True)
class History:
    """All tries in the order in which they were first played.

    Attributes:
        tries: the policies.
        slots: the evaluations that are finished: tries, those played again, and lost ones.
        best_so_far: the score of the best policy after each slot, by the episodes until then.
        leaders: the place in `tries` of that policy.
        attempts: the replies in the slot that is not finished.
        pending: what a reply in that slot named, and has not been played.
        refused: why the last reply in that slot was not used.
        failed_in_a_row: the requests that failed since the last reply.
        lost_in_a_row: the slots at the end that brought no policy.
    """

    tries: list[Try] = field(default_factory=list)
    slots: int = 0
    spent: Spent = field(default_factory=Spent)
    best_so_far: list[float] = field(default_factory=list)
    leaders: list[int] = field(default_factory=list)
    attempts: int = 0
    pending: Params | None = None
    refused: str = ""
    failed_in_a_row: int = 0
    lost: int = 0
    lost_in_a_row: int = 0
    _by_params: dict[Params, Try] = field(default_factory=dict)

    @property
    def episodes(self) -> int:
        """The number of episodes that were played."""
        return sum(len(each.returns) for each in self.tries)

    @property
    def warmed_up(self) -> int:
        """The number of policies of the warm-up."""
        return sum(each.source == "warm-up" for each in self.tries)

    def knows(self, params: Params) -> bool:
        """Whether a policy was tried."""
        return params in self._by_params

    def exhausts(self, space: ParamSpace) -> bool:
        """Whether every policy of a space was tried."""
        return len(self._by_params) >= space.policies

    def ranked(self) -> list[Try]:
        """Return the tries, those with the highest mean first, the earlier first among equals."""
        return sorted(self.tries, key=lambda each: -each.mean)

    def best(self) -> Try:
        """Return the try with the highest mean minus standard error."""
        assert self.tries, "something was tried"
        return max(self.tries, key=lambda each: (each.cautious, each.mean))

    def add(self, tried: Try) -> None:
        """Add a policy, in its first evaluation."""
        self.tries.append(tried)
        if tried.params is not None:
            self._by_params[tried.params] = tried
        if tried.source == "search":
            self._end_slot(lost=False)

    def play_again(self, params: Params, returns: Sequence[float]) -> None:
        """Add more episodes of a policy."""
        known = self._by_params[params]
        known.again.append((self.slots, len(known.returns)))
        known.extend(returns)
        self._end_slot(lost=False)

    def lose(self) -> None:
        """End a slot that brought no policy."""
        self.lost += 1
        self._end_slot(lost=True)

    def call(self, call: Call) -> None:
        """Count a model call; a failed request is no attempt."""
        self.spent.calls += 1
        self.spent.prompt_tokens += call.prompt_tokens
        self.spent.completion_tokens += call.completion_tokens
        if call.outcome == "failed":
            self.spent.failed += 1
            self.failed_in_a_row += 1
            return
        self.failed_in_a_row = 0
        self.spent.refused += call.outcome != "read"
        self.attempts += 1
        self.refused, self.pending = call.said, call.params

    def _end_slot(self, *, lost: bool) -> None:
        self.slots += 1
        self.attempts, self.pending, self.refused = 0, None, ""
        self.lost_in_a_row = self.lost_in_a_row + 1 if lost else 0
        if self.tries:
            best = self.best()
            self.best_so_far.append(best.mean)
            self.leaders.append(next(i for i, each in enumerate(self.tries) if each is best))


class HistoryLog:
    """The log of a search in its folder, and the history that it holds.

    Raises:
        RunError: if a line is damaged, or is not of this search.

    Example:
        >>> import tempfile
        >>> space = ParamSpace(count=1, low=0, high=3, choices=True)
        >>> log = HistoryLog(Path(tempfile.mkdtemp()), space)
        >>> log.add(Try(slot=0, source="search", params=(2,), returns=[1.0, 0.0]))
        >>> HistoryLog(log.path.parent, space).history.best().mean
        0.5
    """

    def __init__(self, folder: Path, space: ParamSpace) -> None:
        self.path, self._space = folder / HISTORY, space
        self._lines = LineLog(self.path)
        self.history = read_history(folder, space)

    def add(self, tried: Try) -> None:
        """Write and add a policy."""
        self._write(
            "try", slot=tried.slot, source=tried.source,
            params=None if tried.params is None else self._space.plain(tried.params),
            returns=tried.returns, steps=[list(step) for step in tried.steps],
        )  # fmt: skip
        self.history.add(tried)

    def play_again(self, slot: int, params: Params, returns: Sequence[float]) -> None:
        """Write and add more episodes of a policy."""
        plain = self._space.plain(params)
        self._write("again", slot=slot, params=plain, returns=list(returns))
        self.history.play_again(params, returns)

    def lose(self, slot: int) -> None:
        """Write and count a slot that brought no policy."""
        self._write("lost", slot=slot)
        self.history.lose()

    def call(self, call: Call) -> None:
        """Write and count a model call."""
        params = None if call.params is None else self._space.plain(call.params)
        self._write("call", **(asdict(call) | {"params": params}))
        self.history.call(call)

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def _write(self, kind: Kind, **fields: Any) -> None:
        self._lines.append({"kind": kind, **fields})
        self._lines.sync()


def read_history(folder: Path, space: ParamSpace) -> History:
    """Return the history in a folder; an incomplete last line of its log is ignored.

    Raises:
        RunError: if another line is damaged, or is not of a search in this space.
    """
    found, path = History(), folder / HISTORY
    for number, line in enumerate(read_json_lines(path, CURE), start=1):
        try:
            _add_line(found, line, space)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"'{path}', line {number} is not of this search ({error}): {CURE}"
            ) from error
    return found


def _add_line(history: History, line: Mapping[str, Any], space: ParamSpace) -> None:
    """Add one line of the log to a history.

    Raises:
        KeyError, TypeError, ValueError: if it does not follow on the lines before it.
    """
    kind, slot = line["kind"], line["slot"]
    warm_up = kind == "try" and _one_of(Source, line["source"]) == "warm-up"
    expected = history.slots
    if warm_up:
        expected = history.tries[-1].slot + 1 if history.tries else min(slot, -1)
    if slot != expected:
        raise ValueError(f"it is of evaluation {str(slot)[:20]}, and {expected} is the next")
    if kind == "call":
        history.call(_call_of(line, space))
    elif kind == "lost":
        history.lose()
    elif kind == "again":
        history.play_again(space.read(line["params"]), _returns_of(line))
    elif kind == "try":
        steps = tuple((int(s), int(a), float(r)) for s, a, r in line["steps"])
        params = None if line["params"] is None else space.read(line["params"])
        returns, source = _returns_of(line), line["source"]
        history.add(Try(slot=slot, source=source, params=params, steps=steps, returns=returns))
    else:
        raise ValueError(f"kind {str(kind)[:20]!r} is unknown")


def _call_of(line: Mapping[str, Any], space: ParamSpace) -> Call:
    """Return the model call of a line."""
    fields: dict[str, Any] = {name: line[name] for name in Call.__dataclass_fields__}
    used = _one_of(Outcome, line["outcome"]) == "read"
    fields["params"] = space.read(line["params"]) if used else None
    for name in ("prompt_tokens", "completion_tokens"):
        if type(line[name]) is not int or line[name] < 0:
            raise ValueError(f"{name} is no number of tokens")
    return Call(**fields)


def _returns_of(line: Mapping[str, Any]) -> list[float]:
    """Return the returns of a line."""
    returns = [float(value) for value in line["returns"]]
    if not returns or not all(abs(value) <= MOST_RETURN for value in returns):
        raise ValueError("its returns are not one or more finite numbers")
    return returns


def _one_of(names: Any, given: object) -> str:
    """Return a name that a Literal has."""
    if given not in get_args(names):
        raise ValueError(f"{str(given)[:20]!r} is none of {', '.join(get_args(names))}")
    return str(given)
