"""Rewards for programs: a reply's program is run on a row's tests, and judged here, outside.

Provides the reward functions, and how a program is found in a reply. Tests are `judging`'s, equal
values `same`'s.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from turnwise.errors import RewardError
from turnwise.rewards.judging import EXAMPLE, Passed, ProgramTest, Verdict, judge, read_answers
from turnwise.sandbox import runs_programs

_FENCE = re.compile(r"^```[^\n`]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_Answer: TypeAlias = str | Sequence[Mapping[str, str]]


@runs_programs
def passes_tests(
    completions: Sequence[_Answer],
    tests: Sequence[Sequence[Mapping[str, Any]]] | None = None,
    before: Sequence[str | None] | None = None,
    after: Sequence[str | None] | None = None,
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
        after: of each row, text that its program ends with. Where it is Python by itself, such as
            asserts, it runs once the program has ended, and a test is passed only if its end is
            reached.
        limits: of each row, the fields of `Limits` that differ from the defaults, or None.
        log_extra: takes how each first test that failed did so, as the note "failure".
        log_metric: takes the share of replies that failed so, as "failure/NAME".
        **columns: other columns of the rows, not looked at.

    Returns:
        A share for each reply; None where the sandbox itself failed, for nobody is to blame then.

    Raises:
        RewardError: if a row's tests or limits are malformed.
    """
    verdicts = _judge(completions, tests, (before, after), limits)
    _log(verdicts, log_extra, log_metric)
    return [verdict.score for verdict in verdicts]


@runs_programs
def solves(
    completions: Sequence[_Answer],
    tests: Sequence[Sequence[Mapping[str, Any]]] | None = None,
    before: Sequence[str | None] | None = None,
    after: Sequence[str | None] | None = None,
    limits: Sequence[Mapping[str, Any] | None] | None = None,
    log_extra: Callable[[str, list[Any]], None] | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """Reward 1 for a program that passes all tests of its row, 0 for others (`passes_tests`).

    A program's tests run one after another, up to the first that it fails.
    """
    verdicts = _judge(completions, tests, (before, after), limits, all_count=False)
    _log(verdicts, log_extra, log_metric)
    return [verdict.score for verdict in verdicts]


@runs_programs
def runs(
    completions: Sequence[_Answer],
    tests: Sequence[Sequence[Mapping[str, Any]]] | None = None,
    before: Sequence[str | None] | None = None,
    after: Sequence[str | None] | None = None,
    limits: Sequence[Mapping[str, Any] | None] | None = None,
    **columns: Any,
) -> list[float | None]:
    """Reward the share of its row's tests on which a reply's program ends well, right or wrong.

    With a small weight it tells programs that run from text that does not, where few pass a test.
    """
    verdicts = _judge(completions, tests, (before, after), limits, lambda test, result: result.ok)
    return [verdict.score for verdict in verdicts]


def program_in(answer: _Answer) -> str:
    r"""Return the program in a reply: its last fenced block, or all of it if it has none.

    Example:
        >>> program_in("I would write:\n```python\nx = 1\n```\nIt works.")
        'x = 1\n'
    """
    text = answer if isinstance(answer, str) else answer[-1]["content"]
    blocks = _FENCE.findall(text)
    return blocks[-1] if blocks else text


def _judge(
    completions: Sequence[_Answer],
    tests: Sequence[Sequence[Mapping[str, Any]]] | None,
    around: tuple[Sequence[str | None] | None, Sequence[str | None] | None],
    limits: Sequence[Mapping[str, Any] | None] | None,
    passed: Passed = ProgramTest.passed,
    *,
    all_count: bool = True,
) -> list[Verdict]:
    if tests is None:
        raise RewardError(f"rows have no column 'tests': give each one a list of tests, {EXAMPLE}")
    programs = [program_in(answer) for answer in completions]
    return judge(read_answers(programs, tests, around, limits), passed, all_count=all_count)


def _log(
    verdicts: Sequence[Verdict],
    log_extra: Callable[[str, list[Any]], None] | None,
    log_metric: Callable[[str, float], None] | None,
) -> None:
    failures = [verdict.failure for verdict in verdicts]
    if log_extra is not None:
        log_extra("failure", failures)
    if log_metric is not None:
        for name, count in Counter(name for name in failures if name).items():
            log_metric(f"failure/{name}", count / len(failures))


for _function in (passes_tests, solves, runs):  # told before a model is loaded
    vars(_function)["turnwise_columns"] = ("tests",)
