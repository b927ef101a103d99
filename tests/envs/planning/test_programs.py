"""Programs of the tool role: they have the functions of the library, and run in the sandbox."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.envs import make_env
from turnwise.envs.planning import library, sokoban_rules
from turnwise.envs.planning.programs import run_tool
from turnwise.types import Task

RNG = np.random.default_rng(0)
DATA = {"rows": ["....", ".##.", "....", "...."], "start": [0, 0], "goal": [2, 2]}


def told(program, **options):
    env = make_env("plan-path", size=4, runner="sandbox", **options)
    state = env.reset(Task(id="t", env=env.name, seed=0, data=DATA))
    step = env.step(state, "tool", program, RNG)
    return step.state, dict(step.rewards)


def test_a_program_runs_in_the_sandbox():
    env = make_env("plan-path", runner="sandbox")
    assert env.runs_programs and env.blocking
    assert not make_env("plan-path").runs_programs


def test_programs_have_the_functions_and_answer_as_calls_do():
    calls = {"legal()": "legal", "apply('RIGHT DOWN')": "apply RIGHT DOWN"}
    calls |= {"distance('r3c3')": "distance r3c3", "apply('RIGHT', 'RIGHT')": "apply RIGHT RIGHT"}
    env = make_env("plan-path", size=4)
    for code, call in calls.items():
        state, paid = told(f"print({code})")
        task = Task(id="t", env=env.name, seed=0, data=DATA)
        assert state.calls[0][1] == env.step(env.reset(task), "tool", call, RNG).state.calls[0][1]
        assert (state.calls[0][0], paid["call_failed"]) == ("program", 0.0)


def test_the_last_line_that_is_printed_is_the_proposal():
    state, paid = told("print(apply('RIGHT'))\nprint('DOWN DOWN')")
    assert state.calls[0][1] == "ran 1 r0c1 distance 3\n DOWN DOWN"
    assert paid["call_useful"] == state.proposed[0] == 0.5
    assert told("print('DOWN DOWN')\nprint('so far')")[1]["call_useful"] == 0.0
    assert told("print('DOWN ' * 5)")[1]["call_useful"] == 0.0  # more than moves_per_call


@pytest.mark.parametrize("before", ["print('x' * 230)", "for i in range(99): print('tried', i)"])
def test_the_proposal_is_the_last_line_of_all_that_is_printed(before):
    state, paid = told(f"{before}\nprint('DOWN\\tDOWN\\rRIGHT')", moves_per_call=4)
    assert paid["call_useful"] == 0.75 and paid["call_idle"] == 0.0
    assert len(state.calls[0][1].replace("\n ", "\n")) <= library.MOST_SHOWN


@pytest.mark.parametrize(
    "begin", ["from __future__ import annotations\n", "\ufeff", "# -*- coding: latin-1 -*-\n"]
)
def test_programs_begin_as_files_do(begin):
    state, paid = told(begin + "print(apply('RIGHT'))")
    assert state.calls[0] == ("program", "ran 1 r0c1 distance 3") and paid["call_failed"] == 0.0


def test_a_position_may_be_used():
    state, _ = told("print(position.at, position.goal, position._replace(at=3).at)")
    assert state.calls[0][1] == "0 10 3"


@pytest.mark.parametrize(
    "program",
    ["print(", "1 / 0", "apply('NORTH')", "while True: pass", "open('/etc/passwd')", "import socket"
     "\nsocket.create_connection(('127.0.0.1', 80))"],
)  # fmt: skip
def test_a_program_that_fails_is_a_failed_call(program):
    state, paid = told(program)
    said = {"call_useful": 0.0, "call_failed": 1.0, "call_idle": 1.0}
    assert (state.calls[0][0], paid) == ("failed", said)


def test_what_is_printed_is_plain_and_bounded():
    state, _ = told("print('\\x1b[31m<\\u2603>' + 'x' * 1000)")
    assert (
        state.calls[0][1].startswith("[31m< >xxx") and len(state.calls[0][1]) <= library.MOST_SHOWN
    )
    flood, paid = told("while True: print('x' * 1000)")
    assert paid["call_failed"] == 1.0 and len(flood.calls[0][1]) <= library.MOST_SHOWN


def test_sokoban_has_its_queries():
    given = sokoban_rules.Position("######...##...##...######", 5, 6, (7,), (8,))
    printed = run_tool(sokoban_rules, "print(deadlock('DOWN'), distance('r3c3'))", given, 4)
    assert (printed.shown, printed.ok) == ("alive r3c3 distance 4", True)
