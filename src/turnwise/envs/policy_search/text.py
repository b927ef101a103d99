"""How a trained searcher is shown a history, and how its answer is read.

Provides `history_text`, `description_text`, `setting`, `settings_of`, `answer_text`, `read_answer`,
`levels_text`, `read_levels` and `shown_of`. A searcher is shown the same text in training and in a
search. A parameter with its level is one word (`p3=2`), so that a small model has a token for it
and copies it in one step. Its answer names what changes of the best try, so that it does not have
to copy the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import lru_cache

from turnwise.envs.policy_search.estimates import Tries, marks, promising
from turnwise.envs.policy_search.functions import Levels
from turnwise.errors import IllegalActionError

MOST_LEVELS = 10
GRADES = 9
LONGEST_SETTING = 8
"""The most characters of a parameter with its level and the blanks after them."""


def levels_text(levels: Levels) -> str:
    """Return levels as digits with blanks between them.

    Example:
        >>> levels_text((1, 0, 3))
        '1 0 3'
    """
    return " ".join(map(str, levels))


def read_levels(text: str, count: int, levels: int) -> Levels:
    """Return the levels of a text.

    Args:
        text: may be anything.
        count: how many parameters there are.
        levels: the number of levels.

    Raises:
        IllegalActionError: if it is anything else than `count` digits with blanks between them.

    Example:
        >>> read_levels("1 0 3", 3, 4)
        (1, 0, 3)
    """
    words = text[: 4 * count + 4].split()
    digits = [ord(word) - ord("0") for word in words if len(word) == 1]
    if len(digits) != len(words) or len(words) != count or len(text) > 4 * count + 4:
        raise IllegalActionError(f"levels of {count} parameters, single digits, are needed")
    if not all(0 <= digit < levels for digit in digits):
        raise IllegalActionError(f"a digit is not from 0 to {levels - 1}")
    return tuple(digits)


def shown_of(tries: Tries, shown: int) -> list[tuple[Levels, float]]:
    """Return the tries that are shown, in rising order of their scores.

    They are the best, three quarters of all that are shown, and the latest of the others. Of equal
    scores the later one is better.
    """
    order = sorted(range(len(tries)), key=lambda i: (-tries[i][1], -i))
    best = order[: shown - shown // 4]
    others = sorted(set(range(len(tries))) - set(best))
    chosen = [*best, *others[len(others) - min(shown // 4, len(others)) :]]
    return [tries[i] for i in sorted(chosen, key=lambda i: (tries[i][1], i))]


def history_text(count: int, levels: int, ordered: bool, shown: Tries) -> str:
    r"""Return what a searcher sees.

    The first line says how many parameters there are and how many levels. Each try has a line: its
    grade, from 0 for the lowest of the scores that are shown to 9 for the highest, and its level of
    each parameter.

    Example:
        >>> history_text(2, 4, False, [((0, 1), 0.5), ((3, 3), 1.5)])
        '2 choices 4\n0 p0=0 p1=1\n9 p0=3 p1=3'
    """
    lines = [f"{count} {'amounts' if ordered else 'choices'} {levels}"]
    if shown:
        scores = [score for _, score in shown]
        low, high = min(scores), max(scores)
        grades = [round(GRADES * (s - low) / (high - low)) if high > low else 0 for s in scores]
        lines += [
            " ".join([str(grade), *map(setting, range(count), params)])
            for grade, (params, _) in zip(grades, shown, strict=True)
        ]
    return "\n".join(lines)


def description_text(levels: int, ordered: bool, tries: Tries, known: Set[Levels]) -> str:
    """Return what tries say about each parameter; "" where there are none.

    The text has, for each parameter, the most promising level that was not tried in the best try,
    and its mark from 0 to 9 (`marks`). Parameters are in rising order of their marks, so that the
    most promising one is last.

    Args:
        levels: of each parameter.
        ordered: whether levels are amounts.
        tries: those that the marks rest on, in rising order of their scores.
        known: all parameters that were tried.

    Example:
        >>> tries = [((0, 1), 0.5), ((1, 1), 0.6), ((2, 0), 0.7)]
        >>> description_text(3, False, tries, {params for params, _ in tries})
        'better p0=1 8 p1=2 9'
    """
    marked = marks(levels, ordered, tries, known)
    told = [f"{setting(i, marked[i][0])} {marked[i][1]}" for i in promising(marked)]
    return " ".join(["better", *told]) if told else ""


def setting(place: int, level: int) -> str:
    """Return a parameter and its level as one word.

    Example:
        >>> setting(3, 2)
        'p3=2'
    """
    return f"p{place}={level}"


@lru_cache(maxsize=64)
def settings_of(count: int, levels: int) -> Mapping[str, tuple[int, int]]:
    """Return the word of each parameter with each level -> its place and its level.

    Example:
        >>> list(settings_of(1, 2).items())
        [('p0=0', (0, 0)), ('p0=1', (0, 1))]
    """
    return {setting(i, level): (i, level) for i in range(count) for level in range(levels)}


def answer_text(params: Levels, shown: Tries, order: Sequence[int] | None = None) -> str:
    """Return parameters as an answer: what differs from the best try that is shown.

    Args:
        params: all parameters.
        shown: the tries.
        order: all places, in the order in which they are named; None is from the first to the last.

    Example:
        >>> answer_text((0, 3), [((3, 0), 0.5), ((0, 1), 1.5)]), answer_text((0, 3), [])
        ('p1=3', 'p0=0 p1=3')
    """
    best = shown[-1][0] if shown else (-1,) * len(params)
    places = range(len(params)) if order is None else order
    changed = [place for place in places if params[place] != best[place]] or [0]
    return " ".join(setting(place, params[place]) for place in changed)


def read_answer(text: str, count: int, levels: int, shown: Tries) -> Levels:
    """Return the parameters that an answer names.

    Args:
        text: the answer, which may be anything.
        count: how many parameters there are.
        levels: the number of levels.
        shown: the tries that are shown. Parameters that the answer does not name are those of the
            best of them; without any it has to name all.

    Raises:
        IllegalActionError: if it is anything else than parameters with levels, each one once.

    Example:
        >>> read_answer("p1=3", 2, 4, [((3, 0), 0.5), ((0, 1), 1.5)])
        (0, 3)
    """
    words = text[: LONGEST_SETTING * count + 1].split()
    if len(text) > LONGEST_SETTING * count or not words:
        raise IllegalActionError(f"an answer of p0 to p{count - 1} with levels, p0=1, is needed")
    known = settings_of(count, levels)
    if not all(word in known for word in words):
        raise IllegalActionError(
            f"an answer names parameters p0 to p{count - 1} with levels 0 to {levels - 1}, such as "
            f"{setting(0, levels - 1)}"
        )
    named = dict(known[word] for word in words)
    if len(named) != len(words):
        raise IllegalActionError("a parameter is named twice")
    found = dict(enumerate(shown[-1][0] if shown else ())) | named
    if len(found) != count:
        raise IllegalActionError("without tries all parameters are needed")
    return tuple(found[place] for place in range(count))
