"""How a trained searcher is shown a history, and how its answer is read.

Provides `history_text`, `description_text`, `marks`, `answer_text`, `read_answer`, `levels_text`,
`read_levels`, `shown_of` and `near_levels`. A searcher is shown the same text in training and in a
search: levels and grades are single digits, so that a small model has one token for each. Its
answer names what changes of the best try, so that it does not have to copy the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnwise.envs.policy_search.functions import Levels
from turnwise.errors import IllegalActionError

Tries = Sequence[tuple[Levels, float]]
"""Parameters and their scores."""
MOST_LEVELS = 10
GRADES = 9
LONGEST_PAIR = 8
"""The most characters of a name and a level with the blanks after them."""
EQUAL = 5
"""The mark of a level that goes with tries as good as those of the best try's level."""


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

    They are the best, three quarters of all that are shown, and the latest of the others.
    """
    order = sorted(range(len(tries)), key=lambda i: (-tries[i][1], i))
    best = order[: shown - shown // 4]
    others = sorted(set(range(len(tries))) - set(best))
    chosen = [*best, *others[len(others) - min(shown // 4, len(others)) :]]
    return [tries[i] for i in sorted(chosen, key=lambda i: (tries[i][1], i))]


def history_text(count: int, levels: int, ordered: bool, shown: Tries) -> str:
    r"""Return what a searcher sees.

    The first line says how many parameters there are and how many levels. If there are tries, the
    second one has their grades, from 0 for the lowest of the scores that are shown to 9 for the
    highest. Each parameter has a line: its name, and its level in each try.

    Example:
        >>> history_text(2, 4, False, [((0, 1), 0.5), ((3, 3), 1.5)])
        '2 choices 4\ngrades 0 9\np0 0 3\np1 1 3'
    """
    lines = [f"{count} {'amounts' if ordered else 'choices'} {levels}"]
    if shown:
        scores = [score for _, score in shown]
        low, high = min(scores), max(scores)
        grades = [round(GRADES * (s - low) / (high - low)) if high > low else 0 for s in scores]
        lines.append(f"grades {levels_text(tuple(grades))}")
        columns = zip(*(params for params, _ in shown), strict=True)
        lines += [
            f"{param_name(place)} {levels_text(column)}" for place, column in enumerate(columns)
        ]
    return "\n".join(lines)


def description_text(count: int, levels: int, ordered: bool, shown: Tries) -> str:
    """Return what the tries say about each parameter; "" where there are none.

    It has the name of each parameter, the level that goes with the best tries among those other
    than the level in the best try (neighbouring ones of amounts), and a mark from 0 to 9 of how
    much better these tries are: 5 if they are as good. A level's tries are as good as the sum of
    their ranks, from 0 to 9 less the mean, divided by one more than their number.

    Example:
        >>> description_text(2, 3, False, [((0, 1), 0.5), ((0, 1), 0.6), ((2, 0), 0.7)])
        'p0 1 3 p1 2 3'
    """
    marked = marks(count, levels, ordered, shown)
    return " ".join(f"{param_name(i)} {level} {mark}" for i, (level, mark) in enumerate(marked))


def marks(count: int, levels: int, ordered: bool, shown: Tries) -> list[tuple[int, int]]:
    """Return the level and the mark of each parameter that a description has; none without tries.

    Example:
        >>> marks(2, 3, False, [((0, 1), 0.5), ((0, 1), 0.6), ((2, 0), 0.7)])
        [(1, 3), (2, 3)]
    """
    if not shown:
        return []
    tried = np.array([params for params, _ in shown])
    last = len(tried) - 1
    ranks = 2 * np.arange(len(tried)) - last  # whole numbers, so that equal sums are equal
    scale = GRADES / max(2 * last, 1)
    found: list[tuple[int, int]] = []
    for column in tried.T:
        with_level = column == np.arange(levels)[:, None]
        good = with_level @ ranks / (1 + with_level.sum(axis=1))
        own = int(column[-1])
        others = near_levels(own, levels, 1) if ordered else [v for v in range(levels) if v != own]
        level = max(others, key=lambda other: good[other])
        mark = EQUAL + scale * (good[level] - good[own])
        found.append((level, min(max(round(mark), 0), GRADES)))
    return found


def near_levels(level: int, levels: int, most: int) -> list[int]:
    """Return the other levels that are at most so far away."""
    return [v for v in range(level - most, level + most + 1) if 0 <= v < levels and v != level]


def param_name(place: int) -> str:
    """Return the name of a parameter."""
    return f"p{place}"


def answer_text(params: Levels, shown: Tries) -> str:
    """Return parameters as an answer: what differs from the best try that is shown.

    Example:
        >>> answer_text((0, 3), [((3, 0), 0.5), ((0, 1), 1.5)]), answer_text((0, 3), [])
        ('p1 3', 'p0 0 p1 3')
    """
    best = shown[-1][0] if shown else (-1,) * len(params)
    changed = [place for place, level in enumerate(params) if level != best[place]] or [0]
    return " ".join(f"{param_name(place)} {params[place]}" for place in changed)


def read_answer(text: str, count: int, levels: int, shown: Tries) -> Levels:
    """Return the parameters that an answer names.

    Args:
        text: the answer, which may be anything.
        count: how many parameters there are.
        levels: the number of levels.
        shown: the tries that are shown. Parameters that the answer does not name are those of the
            best of them; without any it has to name all.

    Raises:
        IllegalActionError: if it is anything else than names and levels, each name once.

    Example:
        >>> read_answer("p1 3", 2, 4, [((3, 0), 0.5), ((0, 1), 1.5)])
        (0, 3)
    """
    words = text[: LONGEST_PAIR * count + 1].split()
    if len(text) > LONGEST_PAIR * count or not words or len(words) % 2:
        raise IllegalActionError(f"an answer of names p0 to p{count - 1} with levels is needed")
    named = dict(zip(words[::2], words[1::2], strict=True))
    if 2 * len(named) != len(words):
        raise IllegalActionError("a parameter is named twice")
    found = {
        param_name(place): str(level) for place, level in enumerate(shown[-1][0] if shown else ())
    }
    found |= named
    if set(found) != {param_name(place) for place in range(count)}:
        raise IllegalActionError(
            f"names of parameters are p0 to p{count - 1}; without tries all are needed"
        )
    return read_levels(" ".join(found[param_name(place)] for place in range(count)), count, levels)
