"""A search at an endpoint that fails in every way: it goes on, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from turnwise.app.search import resume_search, search_policy
from turnwise.errors import ConfigError, RunError
from turnwise.search.config import SearchConfig
from turnwise.search.history import HISTORY
from turnwise.settings import parse

from .conftest import line_of, proposes, says

BUDGET = {"iterations": 12, "episodes": 4, "warmup": 3, "recheck": 5, "best": 2, "fresh": 10}
SETS = [f"budget.{name}={value}" for name, value in BUDGET.items()]


def searching(server, *, endpoint=None, **settings):
    where = {"base_url": server.url, "model": "small", "timeout": 5, "retries": 1}
    data = {"task": "frozen-lake", "budget": BUDGET, **settings}
    return parse(SearchConfig, data | {"endpoint": where | (endpoint or {})}, "the search")


def lines(folder):
    return [json.loads(line) for line in (folder / HISTORY).read_text().splitlines()]


def played(folder):
    return [line for line in lines(folder) if line["kind"] != "call"]


def slow(handler, prompt):
    time.sleep(1.0)
    says(proposes)(handler, prompt)


def cut(handler, prompt):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.connection.close()


FAULTS = [
    says("I will not say."),
    says("\x00\x1b[31m params[0]: 1, params[1]: 2" * 50),
    slow,
    says("wait", status=429, Retry_After=0),
    says("oops", status=500),
    cut,
    says(lambda prompt: line_of("the same")),
    says(b"\xff".decode("latin-1"), status=502),
    says("params[0]: 9" + ", params[1]: 9" * 20),
]


def test_every_fault_is_survived(server, no_pauses, tmp_path):
    good = says(proposes, usage={"prompt_tokens": 100, "completion_tokens": 7})
    there = server(lambda n: good if n % 2 else FAULTS[n // 2 % len(FAULTS)])
    found = search_policy(searching(there, endpoint={"timeout": 0.4}), tmp_path / "a").result
    assert found.evaluations == 12
    assert found.lost == 0
    tries = [line for line in played(tmp_path / "a") if line["kind"] == "try"]
    assert len(tries) == 3 + 12 - 2 - 2
    assert len({tuple(line["params"]) for line in tries}) == len(tries)
    assert found.episodes == 3 + 12 * 4
    outcomes = {line["outcome"] for line in lines(tmp_path / "a") if line["kind"] == "call"}
    assert {"read", "unreadable"} <= outcomes
    assert found.refused_replies > 0
    assert found.completion_tokens >= 7 * 8


def test_repeats_are_refused_and_an_iteration_without_a_policy_is_lost(server, tmp_path):
    there = server(lambda n: says(line_of("the same") if n < 4 else proposes))
    config = searching(there, prompt={"retries": 1}, budget=BUDGET | {"recheck": 0})
    found = search_policy(config, tmp_path / "a").result
    calls = [line["outcome"] for line in lines(tmp_path / "a") if line["kind"] == "call"]
    assert calls[:4] == ["read", "repeated", "repeated", "repeated"]
    kinds = [line["kind"] for line in played(tmp_path / "a")][3:]
    assert kinds[:3] == ["try", "lost", "try"]
    assert (found.lost, found.evaluations) == (1, 12)
    told = [prompt for prompt in there.asked if "could not be used" in prompt]
    assert all("its parameters were tried already" in prompt for prompt in told)


def test_a_model_that_never_answers_well_stops_the_search(server, tmp_path):
    there = server(lambda n: says("no"))
    config = searching(there, prompt={"retries": 1}, budget=BUDGET | {"lost": 3})
    with pytest.raises(RunError, match="no policy in 3 iterations in a row.*--resume .*goes on"):
        search_policy(config, tmp_path / "a")
    assert len(there.asked) == 6
    assert [line["kind"] for line in played(tmp_path / "a")][3:] == ["lost"] * 3


def test_an_endpoint_that_is_gone_loses_no_iteration(server, no_pauses, tmp_path):
    down = threading.Event()

    def script(number):
        if number == 4:
            down.set()
        return says("down", status=503) if down.is_set() else says(proposes)

    there = server(script)
    with pytest.raises(RunError, match=r"status 503.*What was tried is kept.*--resume"):
        search_policy(searching(there), tmp_path / "a")
    before = played(tmp_path / "a")
    assert [line["kind"] for line in before] == ["try"] * 7 + ["again"]
    down.clear()
    there.script = lambda number: says(proposes)
    found = resume_search(tmp_path / "a").result
    assert played(tmp_path / "a")[:8] == before
    assert (found.lost, found.evaluations, found.failed_calls) == (0, 12, 6)


def test_a_refusal_for_good_stops_at_once(server, tmp_path):
    there = server(lambda n: says("who are you", status=401))
    with pytest.raises(RunError, match="status 401.*check the key"):
        search_policy(searching(there), tmp_path / "a")
    assert len(there.asked) == 1


def test_the_key_is_sent_and_nowhere_kept(server, no_pauses, tmp_path, monkeypatch, capfd):
    key = "sk-very/secret&1234567"
    slashes = key.replace("/", "\\/")
    monkeypatch.setenv("SEARCH_KEY", key)
    escaped = "".join(f"\\u{ord(c):04x}" for c in key)

    def echo(handler, prompt):
        told = (
            f'{{"choices": [{{"message": {{"content": "{escaped} {key} {slashes}"}}}}]}}'.encode()
        )
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(told)))
        handler.end_headers()
        handler.wfile.write(told)

    script = {0: echo, 2: says(f"bad {slashes}", status=500)}
    there = server(lambda n: script.get(n, says(proposes)))
    config = searching(there, endpoint={"api_key_env": "SEARCH_KEY"})
    search_policy(config, tmp_path / "a")
    assert set(there.keys) == {f"Bearer {key}"}
    there.script = lambda n: says(f"no {key} {slashes} {escaped}", status=403)
    with pytest.raises(RunError) as refused:
        search_policy(config, tmp_path / "b")
    kept = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert any("SEARCH_KEY" in text for text in kept)
    assert any("*** *** ***" in text for text in kept)
    for text in (*kept, str(refused.value), *capfd.readouterr()):
        assert not any(spelled in text for spelled in (key, slashes, escaped))


def test_a_placeholder_for_a_key_changes_no_reply(server, tmp_path, monkeypatch):
    monkeypatch.setenv("SEARCH_KEY", "1")
    there = server(lambda n: says(proposes, usage={"prompt_tokens": 100, "completion_tokens": 11}))
    config = searching(there, endpoint={"api_key_env": "SEARCH_KEY"})
    found = search_policy(config, tmp_path / "a").result
    assert (found.lost, found.refused_replies, found.completion_tokens) == (0, 0, 11 * found.calls)


def test_a_key_that_is_not_set_is_told_where_the_search_has_it(monkeypatch, server, tmp_path):
    monkeypatch.delenv("SEARCH_KEY", raising=False)
    config = searching(server(lambda n: says(proposes)), endpoint={"api_key_env": "SEARCH_KEY"})
    with pytest.raises(ConfigError, match=r"^endpoint\.api_key_env = 'SEARCH_KEY'"):
        search_policy(config, tmp_path / "a")


def command(there, folder, *more):
    words = [sys.executable, "-m", "turnwise", "search"]
    if not more:
        words += ["frozen-lake", "--endpoint", there.url, "--model", "small", "--folder", folder]
        words += [word for each in SETS for word in ("--set", each)]
    return subprocess.Popen(
        [str(word) for word in (*words, *more)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}, text=True,
    )  # fmt: skip


def holding(server, number):
    """A server that answers by the prompt, and holds request `number` until it is released."""
    reached, released = threading.Event(), threading.Event()

    def hold(handler, prompt):
        reached.set()
        released.wait(60)
        says(proposes)(handler, prompt)

    there = server(lambda n: hold if n == number else says(proposes))
    return there, reached, released


@pytest.mark.timeout(170)
def test_a_killed_search_goes_on_with_the_same_history(server, tmp_path):
    whole = search_policy(searching(server(lambda n: says(proposes))), tmp_path / "whole")
    there, reached, released = holding(server, 5)
    process = command(there, tmp_path / "a")
    assert reached.wait(100)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    released.set()
    before = (tmp_path / "a" / HISTORY).read_bytes()
    with (tmp_path / "a" / HISTORY).open("ab") as file:
        file.write(b'{"kind":"try","slot":')
    again = command(there, None, "--resume", tmp_path / "a", "--json")
    said, problems = again.communicate()
    assert again.returncode == 0, problems
    assert (tmp_path / "a" / HISTORY).read_bytes().startswith(before)
    assert lines(tmp_path / "a") == lines(tmp_path / "whole")
    assert json.loads(said)["fresh"] == whole.result.fresh


@pytest.mark.timeout(170)
def test_ctrl_c_stops_with_code_130_and_says_how_to_go_on(server, tmp_path):
    there, reached, released = holding(server, 3)
    process = command(there, tmp_path / "a")
    assert reached.wait(100)
    process.send_signal(signal.SIGINT)
    said, problems = process.communicate(timeout=60)
    released.set()
    assert process.returncode == 130
    assert f"`turnwise search --resume {tmp_path / 'a'}` goes on, from iteration 3" in said
    assert "Traceback" not in said + problems
    assert "8 calls, about" in said.replace("\n", " ")  # the cost is told before
    found = resume_search(tmp_path / "a").result
    assert (found.evaluations, found.lost) == (12, 0)
