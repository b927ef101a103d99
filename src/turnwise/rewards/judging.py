"""Tests of programs: their inputs, their expected results, and the evaluation of many of them.

Provides `ProgramTest` and `judge`. The sandbox gets programs and inputs, and never the expected
results. Equal jobs of a batch, as for equal replies in a group, run once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from turnwise.errors import ConfigError, RewardError, SandboxError
from turnwise.rewards.harness import is_whole, needs_plain, unwrapped, wrapped
from turnwise.rewards.same import CLOSE, Tolerance, as_plain, is_same
from turnwise.sandbox import Job, Limits, Result, shared
from turnwise.settings import Settings, parse

EXAMPLE = '[{"call": "double", "inputs": [4], "expected": 8}]'
_TYPED = ("inputs", "expected")
"""Fields whose values keep types that JSON does not have."""


class ProgramTest(Settings):
    """One test of a program: its inputs and its expected result.

    Example:
        >>> ProgramTest(call="double", inputs=[4], expected=8).inputs
        [4]
    """

    call: str = ""
    """The function to call; "" runs the program as a script."""
    inputs: list[Any] | dict[str, Any] = Field(default_factory=list)
    """Arguments by position or by name; the variables of a script."""
    stdin: str = ""
    """The standard input."""
    expected: Any = None
    """The value that the function must return, or that a script must assign to `result`."""
    stdout: str | None = None
    """The expected output, except for space at the ends of lines; None is not checked."""
    rel_tol: float = Field(default=CLOSE, ge=0, allow_inf_nan=False)
    """The largest relative difference from an expected float. An expected int must be matched
    exactly."""
    abs_tol: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The largest absolute difference from an expected float; by default 1e-12 if 0.0 is expected,
    and 0 otherwise."""

    @model_validator(mode="after")
    def _check(self) -> ProgramTest:
        if self.stdout is None and "expected" not in self.model_fields_set:
            raise ValueError("a test needs 'expected', a value, or 'stdout', a text")
        return self

    def passed(self, result: Result) -> bool:
        """Return whether a result is the expected one."""
        if not result.ok:
            return False
        if self.stdout is not None and _lines(result.stdout) != _lines(self.stdout):
            return False
        tolerance = Tolerance(relative=self.rel_tol, absolute=self.abs_tol)
        judged = "expected" in self.model_fields_set
        return not judged or is_same(result.value, self.expected, tolerance)


Passed = Callable[[ProgramTest, Result], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A program, the text that runs after it, and its tests; `place` is the index of its row."""

    place: int
    program: str
    after: str
    limits: Limits
    tests: tuple[ProgramTest, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The share of tests passed, None if the sandbox failed, and the first failure, "" if none.

    Example:
        >>> Verdict(score=0.5, failure="wrong").score
        0.5
    """

    score: float | None
    failure: str


def read_answers(
    programs: Sequence[str],
    tests: Sequence[Any],
    around: tuple[Sequence[Any] | None, Sequence[Any] | None],
    limits: Sequence[Any] | None,
) -> list[Answer]:
    """Return the jobs of every reply.

    An `after` that is valid Python by itself runs once the program has ended; other text is
    appended to the program.

    Raises:
        RewardError: if a row's tests, limits, `before` or `after` are malformed.
    """
    answers: list[Answer] = []
    for place, program in enumerate(programs):
        before, after = (
            _text_of(column, name, place)
            for column, name in zip(around, ("before", "after"), strict=True)
        )
        own = limits[place] if limits else None
        apart = is_whole(after)
        answers.append(
            Answer(
                place=place,
                program=before + program + ("" if apart else after),
                after=after if apart else "",
                limits=_read(Limits, {} if own is None else own, f"limits of row {place}"),
                tests=tuple(
                    read_test(told, f"test {number} of row {place}")
                    for number, told in enumerate(_tests_of(tests[place], place))
                ),
            )
        )
    return answers


def read_test(told: Any, where: str) -> ProgramTest:
    """Return a test whose inputs and expected value keep their types.

    Raises:
        RewardError: if it is malformed, or expects what no program can return.
    """
    if not isinstance(told, Mapping):
        raise RewardError(f"{where}: got {str(told)[:80]!r}, expected an object")
    typed = {name: told[name] for name in _TYPED if name in told}
    plain = {"inputs": [], "expected": None}
    test = _read(ProgramTest, {**told, **{name: plain[name] for name in typed}}, where)
    if "inputs" in typed:
        given = typed["inputs"]
        if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
            typed["inputs"] = dict(given)
        elif isinstance(given, list | tuple):
            typed["inputs"] = list(given)
        else:
            raise RewardError(
                f"{where}: inputs = {str(given)[:80]!r}: give a list, arguments by position, or an "
                "object, arguments by name"
            )
    if "expected" in typed:
        typed["expected"] = as_plain(typed["expected"], f"{where}, expected")
    return test.model_copy(update=typed)


def judge(answers: Sequence[Answer], passed: Passed, *, all_count: bool = True) -> list[Verdict]:
    """Run every answer's tests and return the results.

    Args:
        answers: from `read_answers`.
        passed: whether a test's result is a pass.
        all_count: False stops at an answer's first test that fails, whose share is then 0.

    Raises:
        RewardError: if inputs cannot be given to a program.
    """
    runs = _Runs()
    if all_count:  # all are queued at once
        asked = [[(test, runs.ask(answer, test)) for test in answer.tests] for answer in answers]
        runs.finish()
        return [_verdict(pairs, passed) for pairs in asked]
    verdicts: dict[int, Verdict] = {}
    waiting = {n: (0, runs.ask(answer, answer.tests[0])) for n, answer in enumerate(answers)}
    while waiting:
        wait({run.future for _, run in waiting.values()}, return_when=FIRST_COMPLETED)
        for number, (test, run) in list(waiting.items()):
            if not run.is_finished():
                continue
            answer = answers[number]
            found = _verdict([(answer.tests[test], run)], passed)
            if found.score == 1.0 and test + 1 < len(answer.tests):
                waiting[number] = (test + 1, runs.ask(answer, answer.tests[test + 1]))
            else:
                verdicts[number] = found
                del waiting[number]
    return [verdicts[number] for number in range(len(answers))]


@dataclass(kw_only=True, slots=True)
class _Run:
    """One requested job; with a `token` it is wrapped.

    A program whose value is refused for its type is run again with its value converted.
    """

    job: Job
    token: str
    future: Future[Result]

    def is_finished(self) -> bool:
        """Return whether the result is known; start the second run if one is needed."""
        if not self.future.done():
            return False
        if self.token or self.future.exception() or not needs_plain(self.future.result()):
            return True
        job, self.token = wrapped(self.job)
        self.future = shared().submit(job)
        return False

    def outcome(self) -> tuple[str, Result]:
        """Wait for the runs; return the failure, "" if there is none, and the result.

        Raises:
            SandboxError: if the sandbox failed.
        """
        result = self.future.result()
        return unwrapped(result, self.token) if self.token else (str(result.failure or ""), result)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Runs:
    """The jobs requested so far, by everything that determines their results."""

    known: dict[str, _Run] = field(default_factory=dict)

    def ask(self, answer: Answer, test: ProgramTest) -> _Run:
        """Return the run of a test; equal tests share a run."""
        job = Job(
            program=answer.program, inputs=test.inputs, limits=answer.limits, call=test.call,
            stdin=test.stdin,
        )  # fmt: skip
        try:
            key = repr((replace(job, inputs=()), answer.after, _told(test.inputs)))
            if key not in self.known:
                asked, token = wrapped(job, answer.after) if answer.after else (job, "")
                future = shared().submit(asked)
                self.known[key] = _Run(job=job, token=token, future=future)
        except (TypeError, ValueError, RecursionError) as cause:
            raise RewardError(f"a test of row {answer.place}: {cause}") from None
        return self.known[key]

    def finish(self) -> None:
        """Wait for all runs."""
        for run in self.known.values():
            wait([run.future])
        again = [run for run in self.known.values() if not run.is_finished()]
        for run in again:
            wait([run.future])


def _told(value: Any) -> Any:
    """Return a value with a complete `repr`, which long numpy arrays do not have."""
    if isinstance(value, Mapping):
        return [(_told(key), _told(part)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [_told(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return str(value.dtype), value.shape, value.tobytes()
    return value


def _verdict(runs: Sequence[tuple[ProgramTest, _Run]], passed: Passed) -> Verdict:
    failures: list[str] = []
    for test, run in runs:
        try:
            failure, result = run.outcome()
        except SandboxError:
            return Verdict(score=None, failure="sandbox")
        right = not failure and passed(test, result)
        failures.append("" if right else failure or "wrong")
    return Verdict(
        score=failures.count("") / len(failures),
        failure=next(filter(None, failures), ""),
    )


def _tests_of(tests: Any, place: int) -> Sequence[Any]:
    if isinstance(tests, str | bytes | Mapping) or not isinstance(tests, Sequence) or not tests:
        raise RewardError(
            f"tests of row {place} are {str(tests)[:80]!r}: give a list of one test or more, "
            f"{EXAMPLE}"
        )
    return tests


def _text_of(column: Sequence[Any] | None, name: str, place: int) -> str:
    text = column[place] if column else None
    if text is not None and not isinstance(text, str):
        raise RewardError(f"{name} of row {place} is {str(text)[:80]!r}: give text, or None")
    return text or ""


def _read(kind: Any, told: Any, where: str) -> Any:
    if not isinstance(told, Mapping):
        raise RewardError(f"{where}: got {str(told)[:80]!r}, expected an object")
    try:
        return parse(kind, told, where)
    except ConfigError as cause:
        raise RewardError(str(cause)) from None


def _lines(text: str) -> list[str]:
    """Return the lines of a text without trailing space, and without empty first and last lines."""
    return [line.rstrip() for line in text.strip().splitlines()]
