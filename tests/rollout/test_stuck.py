"""Envs that hang where nothing can interrupt them, or where nobody looked for a hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

import turnwise as tw
from turnwise.envs import make_guarded, timeout
from turnwise.envs.checks.declarations import ATTRIBUTES
from turnwise.envs.timeout import Overrun, within
from turnwise.errors import SlowEnvError
from turnwise.utils import stuck_calls

ENV = """
import hashlib, os, time
import turnwise as tw

WHERE = os.environ.get("WHERE", "")

def hang():
    how = os.environ["HOW"]
    while how == "swallow":
        try:
            time.sleep(1)
        except BaseException:
            pass
    if how == "not at all":
        return
    if how == "c":
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2**31 - 1)
    time.sleep(10**6)

class Own(tw.Env[int]):
    name, components = "own", {"right": "agent"}
    def reset(self, task):
        hang() if WHERE == "reset" else None
        return 0
    def observe(self, state, role):
        return tw.Observation(text=f"state {state}", legal_actions=("yes", "no"))
    def step(self, state, role, action, noise):
        if action not in ("yes", "no"):
            raise tw.IllegalActionError("say yes or no")
        return tw.Step(state=1, rewards={}, terminated=True, truncated=False)
    def score(self, state):
        hang() if WHERE == "score" else None
        return 0.0
    def baselines(self):
        hang() if WHERE == "baselines" else None
        return super().baselines()

def prop(name, value):
    def read(self):
        hang() if WHERE == name else None
        return value
    return property(read)

if WHERE in %s:
    kept = False if WHERE == "single_task" else getattr(Own, WHERE)
    setattr(Own, WHERE, prop(WHERE, kept))
"""


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(ENV % (ATTRIBUTES,))
    return f"{file}:Own"


def check(own, where, how, *arguments):
    """Return how `turnwise check` ended within a minute, and its last line."""
    ended = subprocess.run(
        [sys.executable, "-m", "turnwise", "check", own, "--timeout", "0.5", *arguments],
        env=os.environ | {"WHERE": where, "HOW": how},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return ended.returncode, ended.stderr.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_call_in_c_ends_the_command_with_the_sentence(own):
    code, said = check(own, "reset", "c")
    assert code == stuck_calls.EXIT_CODE
    assert said.startswith("error: Own.reset has not returned for ")
    assert "own.py:17); it cannot be interrupted, so the process ends here: fix it" in said


@pytest.mark.parametrize("name", ["name", "components", "max_turns", "single_task"])
def test_a_property_is_read_in_time(own, name, monkeypatch):
    monkeypatch.setenv("WHERE", name)
    monkeypatch.setenv("HOW", "sleep")
    with pytest.raises(
        SlowEnvError, match=rf"Own\.{name} did not return within 0\.2 s \(.*own\.py"
    ):
        make_guarded(own, {}, 0.2).single_task  # noqa: B018


def test_a_property_that_answers_stays_what_it_was(own, monkeypatch):
    monkeypatch.setenv("WHERE", "max_turns")
    monkeypatch.setenv("HOW", "not at all")
    env = make_guarded(own, {}, 5)
    assert env.max_turns is None and env.single_task is False and env.name == "own"


@pytest.mark.parametrize("where", ["baselines", "score"])
def test_what_is_asked_at_the_end_is_tried_before_training(own, where, monkeypatch, tmp_path):
    monkeypatch.setenv("WHERE", where)
    monkeypatch.setenv("HOW", "sleep")
    settings = {"env.timeout": 0.2}
    with pytest.raises(SlowEnvError, match=rf"Own\.{where} did not return within 0\.2 s"):
        tw.train("nano", env=own, settings=settings, root=tmp_path / "runs", progress=False)
    assert not (tmp_path / "runs").exists()


def test_a_file_that_hangs_while_it_is_imported_is_named(tmp_path):
    (tmp_path / "own.py").write_text("import time\ntime.sleep(10**6)\n")
    with pytest.raises(SlowEnvError, match=r"did not return within 0\.2 s \(.*own\.py:2\)"):
        tw.train("nano", env=f"{tmp_path}/own.py:Own", settings={"env.timeout": 0.2})


def swallows():
    while True:
        try:  # noqa: SIM105
            time.sleep(1)
        except BaseException:
            pass


def swallows_and_notes():
    noted = []
    while True:
        try:
            try:
                time.sleep(1)
            except BaseException as error:
                noted.append(error)
        finally:
            noted.clear()


@pytest.mark.parametrize("call", [swallows, swallows_and_notes])
def test_a_loop_that_catches_every_exception_is_left(call, monkeypatch):
    monkeypatch.setattr(timeout, "REPEAT", 0.05)
    before = sys.gettrace()
    with pytest.raises(Overrun):
        within(0.05, call)
    assert sys.gettrace() is before


def test_python_is_told_of_a_stuck_call_and_goes_on(monkeypatch, capsys):
    monkeypatch.setattr(timeout, "GRACE", 0.1)
    monkeypatch.setattr(stuck_calls.os, "_exit", lambda code: pytest.fail("ended"))
    told = threading.Event()

    def tell(seconds, frame):
        stuck_calls.report(f"a call has taken {seconds > 0.05}", "fix it")
        told.set()

    def thread():
        with pytest.raises(Overrun):
            within(0.05, told.wait, 60, stuck=tell)

    worker = threading.Thread(target=thread)
    worker.start()
    worker.join(90)
    said = capsys.readouterr().err
    assert "turnwise: a call has taken True; it cannot be interrupted, and the error is" in said


def test_wishes_are_heard_before_the_end_the_innermost_first(monkeypatch, capfd):
    ended = []
    monkeypatch.setattr(stuck_calls.os, "_exit", ended.append)

    def full():
        raise OSError("no space")

    with (
        stuck_calls.before_exit(lambda: "outer"),
        stuck_calls.before_exit(full),
        stuck_calls.before_exit(lambda: "go on with `turnwise resume run`"),
        stuck_calls.ending_process(),
    ):
        stuck_calls.report("Own.step has not returned for 5 s (own.py:3)", "fix it")
    assert ended == [stuck_calls.EXIT_CODE]
    assert (
        capfd.readouterr()
        .err.strip()
        .endswith("so the process ends here: fix it. go on with `turnwise resume run`. outer")
    )
