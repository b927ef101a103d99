"""Reward functions for programs: a reply's program runs in the sandbox on the tests of its row.

The results are compared with the expected ones outside the sandbox, by `judging` and `same`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from turnwise.errors import RewardError
from turnwise.formats import fenced_blocks
from turnwise.rewards.judging import EXAMPLE, Passed, ProgramTest, Verdict, judge, read_answers
from turnwise.sandbox import runs_programs

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
    """Return the share of its row's tests that a reply's program passes.

    Args:
        completions: the replies; a program is what `program_in` finds.
        tests: of each row, dicts with the fields of `ProgramTest`.
        before: of each row, text before the program, for replies that continue it.
        after: of each row, text after the program. If it is valid Python by itself, such as
            asserts, it runs once the program has ended, and a test is passed only if its end is
            reached.
        limits: of each row, the fields of `Limits` that differ from the defaults, or None.
        log_extra: gets the first failure of each reply, as the note "failure".
        log_metric: gets the share of replies with each failure, as "failure/NAME".
        **columns: other columns of the rows, which are ignored.

    Returns:
        A share for each reply; None if the sandbox itself failed.

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
    """Return 1 for a program that passes all tests of its row, 0 for others (`passes_tests`).

    The tests of a program run one after another, up to the first failure.
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
    """Return the share of its row's tests on which a reply's program ends without an error.

    With a small weight it distinguishes programs that run from other text, when few pass a test.
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
    blocks = fenced_blocks(text)
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


for _function in (passes_tests, solves, runs):  # marked before a model is loaded
    vars(_function)["turnwise_columns"] = ("tests",)
