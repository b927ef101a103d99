"""Rewards for programs: a reply's program is run on a row's tests, and judged here, outside.

Owns how a program is found in a reply, what a test is, and when a value is the expected one. The
sandbox is given programs and inputs; what is expected never goes there.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from pydantic import Field, model_validator

from turnwise.errors import ConfigError, RewardError, SandboxError
from turnwise.sandbox import Job, Limits, Result, runs_programs, shared
from turnwise.settings import Settings, parse

CLOSE = 1e-6
"""How far floats may be apart, of the larger one's size, and still be the same."""
EXAMPLE = '[{"call": "double", "inputs": [4], "expected": 8}]'
_FENCE = re.compile(r"^```[^\n`]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_Answer: TypeAlias = str | Sequence[Mapping[str, str]]


class ProgramTest(Settings):
    """One test of a program: what it is given, and what must come of it.

    Example:
        >>> ProgramTest(call="double", inputs=[4], expected=8).inputs
        [4]
    """

    call: str = ""
    """The function to call; "" runs the program as a script."""
    inputs: list[Any] | dict[str, Any] = Field(default_factory=list)
    """Arguments by position or by name; the variables of a script."""
    stdin: str = ""
    """What it reads from standard input."""
    expected: Any = None
    """What the function must return, or a script call `result`."""
    stdout: str | None = None
    """What it must print, but for space at the ends of lines; None is not judged."""

    @model_validator(mode="after")
    def _check(self) -> ProgramTest:
        if self.stdout is None and "expected" not in self.model_fields_set:
            raise ValueError("a test needs 'expected', a value, or 'stdout', a text")
        return self

    def passed(self, result: Result) -> bool:
        """Return whether a result is what was to come."""
        if not result.ok:
            return False
        printed = self.stdout is None or _lines(result.stdout) == _lines(self.stdout)
        judged = "expected" in self.model_fields_set
        return printed and (not judged or is_same(result.value, self.expected))


@runs_programs
def passes_tests(
    completions: Sequence[_Answer],
    tests: Sequence[Sequence[Mapping[str, Any]]] | None = None,
    before: Sequence[str] | None = None,
    after: Sequence[str] | None = None,
    limits: Sequence[Mapping[str, Any] | None] | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """Reward the share of its row's tests that a reply's program passes.

    Args:
        completions: the replies; a program is what `program_in` finds.
        tests: of each row, dicts with the fields of `ProgramTest`.
        before: of each row, text that its program begins with, as where the reply goes on with it.
        after: of each row, text that its program ends with.
        limits: of each row, the fields of `Limits` that differ from the defaults, or None.
        log_extra: takes how each first test that failed did so, as the note "failure".
        log_metric: takes the share of replies that failed so, as "failure/NAME".
        **columns: other columns of the rows, not looked at.

    Returns:
        A share for each reply; None where the sandbox itself failed, for nobody is to blame then.

    Raises:
        RewardError: if a row's tests or limits are malformed.
    """
    scores, failures = _judge(completions, tests, (before, after), limits)
    if log_extra is not None:
        log_extra("failure", failures)
    if log_metric is not None:
        for name, count in Counter(name for name in failures if name).items():
            log_metric(f"failure/{name}", count / len(failures))
    return scores


@runs_programs
def solves(
    completions: Sequence[_Answer],
    tests: Sequence[Sequence[Mapping[str, Any]]] | None = None,
    **columns: Any,
) -> list[float | None]:
    """Reward 1 for a program that passes all tests of its row, 0 for others (`passes_tests`)."""
    scores = passes_tests(completions, tests, **columns)
    return [None if score is None else float(score == 1.0) for score in scores]


@runs_programs
def runs(
    completions: Sequence[_Answer],
    tests: Sequence[Sequence[Mapping[str, Any]]] | None = None,
    before: Sequence[str] | None = None,
    after: Sequence[str] | None = None,
    limits: Sequence[Mapping[str, Any] | None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """Reward the share of its row's tests on which a reply's program ends well, right or wrong.

    With a small weight it tells programs that run from text that does not, where few pass a test.
    """
    return _judge(completions, tests, (before, after), limits, lambda test, result: result.ok)[0]


def program_in(answer: _Answer) -> str:
    r"""Return the program in a reply: its last fenced block, or all of it if it has none.

    Example:
        >>> program_in("I would write:\n```python\nx = 1\n```\nIt works.")
        'x = 1\n'
    """
    text = answer if isinstance(answer, str) else answer[-1]["content"]
    blocks = _FENCE.findall(text)
    return blocks[-1] if blocks else text


def is_same(value: Any, expected: Any) -> bool:
    """Return whether a program's value is the expected one, which came from JSON.

    Lists and tuples are alike, ints and floats of one value too, but no bool is a number; floats
    are the same up to `CLOSE`. Values are plain, so that none has an equality of its own.

    Example:
        >>> is_same((1, 2.0), [1.0, 2]), is_same(True, 1), is_same(float("nan"), float("nan"))
        (True, False, False)
    """
    if isinstance(value, list | tuple) and isinstance(expected, list | tuple):
        return len(value) == len(expected) and all(map(is_same, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            is_same(value[key], expected[key]) for key in expected
        )
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, float) and isinstance(expected, int | float):
        try:
            return math.isclose(value, expected, rel_tol=CLOSE, abs_tol=CLOSE)
        except OverflowError:  # an int beyond all floats
            return False
    if isinstance(value, int) and isinstance(expected, float):
        return value == expected
    return type(value) is type(expected) and value == expected


def _judge(
    completions: Sequence[_Answer],
    tests: Sequence[Sequence[Mapping[str, Any]]] | None,
    around: tuple[Sequence[str] | None, Sequence[str] | None],
    limits: Sequence[Mapping[str, Any] | None] | None,
    passed: Callable[[ProgramTest, Result], bool] = ProgramTest.passed,
) -> tuple[list[float | None], list[str]]:
    """Return the share of tests passed by every reply, and how its first failed test failed.

    What is asked twice, as in groups that agree, is run once.
    """
    if tests is None:
        raise RewardError(f"rows have no column 'tests': give each one a list of tests, {EXAMPLE}")
    asked: dict[str, Future[Result]] = {}
    wanted: list[list[tuple[ProgramTest, str]]] = []
    for place, answer in enumerate(completions):
        bounds = _read(Limits, (limits[place] if limits else None) or {}, f"limits of row {place}")
        before, after = (texts[place] if texts else "" for texts in around)
        program, cases = before + program_in(answer) + after, []
        for number, told in enumerate(_tests_of(tests[place], place)):
            test = _read(ProgramTest, told, f"test {number} of row {place}")
            inputs = test.inputs
            job = Job(
                program=program, inputs=inputs, limits=bounds, call=test.call, stdin=test.stdin
            )
            key = repr(job)
            if key not in asked:
                asked[key] = shared().submit(job)
            cases.append((test, key))
        wanted.append(cases)
    return _scores(asked, wanted, passed)


def _scores(
    asked: Mapping[str, Future[Result]],
    wanted: Sequence[Sequence[tuple[ProgramTest, str]]],
    passed: Callable[[ProgramTest, Result], bool],
) -> tuple[list[float | None], list[str]]:
    scores: list[float | None] = []
    failures: list[str] = []
    for cases in wanted:
        try:
            results = [(test, asked[key].result()) for test, key in cases]
        except SandboxError:
            scores.append(None)
            failures.append("sandbox")
            continue
        right = [passed(test, result) for test, result in results]
        scores.append(sum(right) / len(right))
        wrong = [
            result for (_, result), is_right in zip(results, right, strict=True) if not is_right
        ]
        failures.append((wrong[0].failure or "wrong") if wrong else "")
    return scores, failures


def _tests_of(tests: Any, place: int) -> Sequence[Mapping[str, Any]]:
    if isinstance(tests, str | bytes | Mapping) or not isinstance(tests, Sequence) or not tests:
        raise RewardError(
            f"tests of row {place} are {str(tests)[:80]!r}: give a list of one test or more, "
            f"{EXAMPLE}"
        )
    return tests


def _read(kind: Any, told: Any, where: str) -> Any:
    if not isinstance(told, Mapping):
        raise RewardError(f"{where}: got {str(told)[:80]!r}, expected an object")
    try:
        return parse(kind, told, where)
    except ConfigError as cause:
        raise RewardError(str(cause)) from None


def _lines(text: str) -> list[str]:
    """Return the lines of a text without space at their ends, nor empty lines at its own."""
    return [line.rstrip() for line in text.strip().splitlines()]
