"""The log of a search, whatever a kill leaves of it."""

from __future__ import annotations

import math

import pytest

from turnwise.errors import EngineError, RunError
from turnwise.search.history import Call, History, HistoryLog, Try, read_history
from turnwise.search.prompted import FAILED_APART, PromptedSearch, Reply
from turnwise.search.space import ParamSpace

SPACE = ParamSpace(count=2, low=-60, high=60, decimals=1)
TRY = '{"kind":"try","slot":4,"source":"search","params":[1.0,1.0],"returns":[3.0],"steps":[]}'
CALL = (
    '{"kind":"call","slot":4,"outcome":"read","said":"","reply":"","params":[1.0,1.0],'
    '"prompt_tokens":7,"completion_tokens":0}'
)


def tried(slot, params, *returns, source="search"):
    return Try(slot=slot, source=source, params=params, returns=list(returns))


@pytest.fixture
def log(tmp_path):
    log = HistoryLog(tmp_path, SPACE)
    log.add(tried(-1, (0, 0), 5.0, source="warm-up"))
    log.add(tried(0, (1, -2), 1.0, 3.0))
    log.call(Call(slot=1, outcome="unreadable", said="no", reply="ü", prompt_tokens=7))
    log.call(Call(slot=1, outcome="failed", said="gone"))
    log.call(Call(slot=1, outcome="read", params=(3, 3), completion_tokens=2))
    log.add(tried(1, (3, 3), 2.0, 2.0))
    log.lose(2)
    log.play_again(3, (1, -2), [5.0, 7.0])
    return log


def test_numbers_by_hand(log):
    history = log.history
    one, two = history.tries[1:]
    assert (one.mean, one.stderr) == (4.0, pytest.approx(math.sqrt(20 / 3 / 4)))
    assert (two.mean, two.stderr) == (2.0, 0.0)
    assert history.tries[0].stderr is None
    assert [one.mean_before(slot) for slot in (1, 3, 4)] == [2.0, 2.0, 4.0]
    assert history.best() is one  # one episode of 5 has no error, and is no proof
    assert [each.mean for each in history.ranked()] == [5.0, 4.0, 2.0]
    assert (history.slots, history.episodes, history.lost) == (4, 7, 1)
    assert history.best_so_far == [2.0, 2.0, 2.0, 4.0]
    assert (history.spent.calls, history.spent.failed, history.spent.refused) == (3, 1, 1)
    assert (history.spent.prompt_tokens, history.spent.completion_tokens) == (7, 2)


@pytest.mark.parametrize("episodes", [3, 7, 20, 22])
def test_one_success_is_better_than_none(episodes):
    one = tried(0, (1, 1), 1.0, *(0.0,) * (episodes - 1))
    none = tried(1, (2, 2), *(0.0,) * episodes)
    history = History(tries=[none, one])
    assert one.cautious == none.cautious == 0.0  # their means decide
    assert history.best() is one


def test_what_is_read_is_what_was_written(log, tmp_path):
    assert read_history(tmp_path, SPACE) == log.history


@pytest.mark.parametrize("torn", [b'{"kind":"tr', b'{"kind":"lost","slot":4}', b"\xff\xfe"])
def test_an_incomplete_last_line_is_dropped(log, tmp_path, torn):
    log.close()
    with log.path.open("ab") as file:
        file.write(torn)
    assert read_history(tmp_path, SPACE) == log.history
    again = HistoryLog(tmp_path, SPACE)
    again.lose(4)
    assert read_history(tmp_path, SPACE) == again.history
    assert again.history.lost == 2


def test_a_reply_that_was_not_played_yet_is_pending(tmp_path):
    log = HistoryLog(tmp_path, SPACE)
    log.call(Call(slot=0, outcome="repeated", said="known"))
    assert (log.history.attempts, log.history.refused) == (1, "known")
    log.call(Call(slot=0, outcome="read", params=(4, 5)))
    again = HistoryLog(tmp_path, SPACE).history
    assert (again.pending, again.attempts) == ((4, 5), 2)


@pytest.mark.parametrize(
    "line",
    [
        '{"kind":"try","slot":0,"source":"search","params":[1.0],"returns":[1.0],"steps":[]}',
        '{"kind":"again","slot":0,"params":[9.0,9.0],"returns":[1.0]}',
        '{"kind":"walk","slot":4}',
        '{"kind":"call","slot":4}',
        CALL.replace("read", "liked"),
        CALL.replace("[1.0,1.0]", "null"),
        CALL.replace("7", "-7"),
        '{"kind":"lost","slot":3}',
        '{"kind":"again","slot":5,"params":[0.1,-0.2],"returns":[1.0]}',
        '{"kind":"again","slot":4,"params":[0.1,-0.2],"returns":[]}',
        TRY.replace("search", "serach"),
        TRY.replace("search", "warm-up").replace(":4", ":-9"),
        TRY.replace(":4", ":5"),
        TRY.replace("3.0", ""),
        TRY.replace("3.0", "NaN"),
        TRY.replace("3.0", "1e999"),
        TRY.replace("3.0", "-1e200"),
        TRY.replace("1.0,1.0", "9.0,1.0"),
        TRY.replace("1.0,1.0", "1.04,1.0"),
        TRY.replace("1.0,1.0", "NaN,1.0"),
        TRY.replace("1.0,1.0", "true,1.0"),
        "[]",
    ],
)
def test_a_damaged_line_is_named_with_a_cure(log, line, tmp_path):
    log.close()
    before = log.path.read_text()
    log.path.write_text(before + line + "\n")
    with pytest.raises(RunError, match="line 9 is not.*remove it and all lines after it"):
        HistoryLog(tmp_path, SPACE)
    for good in (TRY, CALL):
        log.path.write_text(before + good + "\n")
        assert HistoryLog(tmp_path, SPACE).history != log.history


@pytest.mark.parametrize("missing", [2, 6, 7])
def test_a_missing_line_is_noticed(log, missing, tmp_path):
    log.close()
    written = log.path.read_text().splitlines(keepends=True)
    log.path.write_text("".join(written[: missing - 1] + written[missing:]))
    with pytest.raises(RunError, match=f"line {missing} is not.* is the next"):
        HistoryLog(tmp_path, SPACE)


def test_draws_after_failed_requests_are_equal_after_a_kill(tmp_path):
    asked = []

    def ask(history, slot, attempt):
        asked.append(attempt)
        if len(asked) < 4:
            raise EngineError("down")
        return Reply(text="params[0]: 1, params[1]: 2", prompt_tokens=1, completion_tokens=1)

    def propose(failures):
        search = PromptedSearch(SPACE, ask=ask, retries=0, failures=failures, wait=lambda s: None)
        return search.propose(HistoryLog(tmp_path, SPACE), 0)

    with pytest.raises(RunError, match="down"):
        propose(failures=1)  # it stops in the middle, as a kill does
    assert propose(failures=5) == (10, 20)
    assert asked == [0, FAILED_APART, 2 * FAILED_APART, 3 * FAILED_APART]
    assert read_history(tmp_path, SPACE).failed_in_a_row == 0
