import math

import pytest

import turnwise as tw
from turnwise.envs import make_env
from turnwise.errors import ConfigError, RewardError, SandboxError
from turnwise.recipe.schema import make_recipe
from turnwise.rewards import passes_tests, program_in, runs, solves
from turnwise.rewards.same import is_same
from turnwise.sandbox import SandboxConfig, configure, pool, shared
from turnwise.sandbox.backends import BACKENDS

DOUBLE = [{"call": "double", "inputs": [x], "expected": 2 * x} for x in (0, 1, 5)]
RIGHT = "def double(x): return 2 * x"


@pytest.fixture(autouse=True)
def _needs_isolation(isolated):
    """Skip where programs cannot be isolated."""


def test_the_share_of_tests_passed():
    programs = [RIGHT, "def double(x): return x * x", "def double(x): return 1 / x", "x = ("]
    assert passes_tests(programs, [DOUBLE] * 4) == [1.0, 1 / 3, 0.0, 0.0]
    assert solves(programs, [DOUBLE] * 4) == [1.0, 0.0, 0.0, 0.0]
    assert runs(programs, [DOUBLE] * 4) == [1.0, 1.0, 2 / 3, 0.0]


def test_how_programs_fail_is_told():
    notes, metrics = {}, {}
    programs = [RIGHT, "def double(x): return x", "x = (", "while True: pass"]
    limits = [{"cpu": 0.1}] * 4
    passes_tests(
        programs, [DOUBLE] * 4, limits=limits, log_extra=notes.__setitem__,
        log_metric=metrics.__setitem__, prompts=["p"] * 4,
    )  # fmt: skip
    assert notes == {"failure": ["", "wrong", "syntax", "cpu"]}
    assert metrics == {"failure/wrong": 0.25, "failure/syntax": 0.25, "failure/cpu": 0.25}


def test_scripts_are_judged_by_what_they_print():
    tests = [{"stdin": "1 2\n", "stdout": "3"}, {"stdin": "4 5\n", "stdout": "9\n\n"}]
    program = "print(sum(map(int, input().split())), ' ')"
    assert passes_tests([program, "print(3)"], [tests] * 2) == [1.0, 0.5]
    both = [{"inputs": {"x": 2}, "expected": 4, "stdout": "2"}]
    program = "print(x); result = x * x"
    assert passes_tests([program, "result = x * x"], [both] * 2) == [1.0, 0.0]


def test_a_program_may_go_on_from_the_row():
    score = passes_tests(
        [" 2 * x"], [DOUBLE], before=["def double(x):\n    return"], after=["  # done"]
    )
    assert score == [1.0]


def test_conversations_and_fences():
    text = f"So:\n```py\nx = 1\n```\nor\n```python\n{RIGHT}\n```"
    said = [{"role": "assistant", "content": text}]
    assert passes_tests([said], [DOUBLE]) == [1.0]
    assert program_in("no fence") == "no fence"
    assert program_in("```\nx\n```") == "x\n"
    assert program_in("```python\nnever closed") == "```python\nnever closed"


def test_what_programs_are_told_is_not_what_is_right():
    program = """
import gc
known = [thing for thing in gc.get_objects() if isinstance(thing, dict) and "expected" in thing]
def double(x): return known
"""
    assert passes_tests([program], [DOUBLE]) == [0.0]


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        ((1, [2]), [1, [2]], True),
        ([1], [1, 2], False),
        (1.0, 1, True),
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (10**300, 1e300, False),
        (True, 1, False),
        (1, True, False),
        (1.0, True, False),
        (True, True, True),
        (math.nan, math.nan, False),
        (math.inf, math.inf, True),
        ({"a": (1,)}, {"a": [1]}, True),
        ({"a": 1}, {"b": 1}, False),
        ("1", 1, False),
        (None, None, True),
        (None, 0, False),
        (b"x", "x", False),
        ({1, 2}, [1, 2], False),
        (10**400, 1.5, False),
        (1.5, 10**400, False),
        (math.inf, 10**400, False),
        (2**63, 2**63, True),
    ],
)
def test_when_a_value_is_the_expected_one(value, expected, same):
    assert is_same(value, expected) is same


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        ([], "tests of row 0 are '[]': give a list of one test or more"),
        ("[{}]", "give a list of one test or more"),
        ([{"call": "f"}], "test 0 of row 0: a test needs 'expected', a value, or 'stdout'"),
        ([{"expectd": 1, "stdout": ""}], "unknown key 'expectd', did you mean 'expected'?"),
        (["x"], "test 0 of row 0: got 'x', expected an object"),
    ],
)
def test_malformed_tests_are_refused(tests, words):
    with pytest.raises(RewardError) as refused:
        passes_tests([RIGHT], [tests])
    assert words in str(refused.value)


def test_rows_without_tests_are_refused():
    with pytest.raises(RewardError, match="rows have no column 'tests'"):
        passes_tests([RIGHT], prompts=["x"])


def test_malformed_limits_are_refused():
    with pytest.raises(RewardError, match="limits of row 0: unknown key 'cpus'"):
        passes_tests([RIGHT], [DOUBLE], limits=[{"cpus": 1}])


def test_a_broken_sandbox_is_nobodys_fault(monkeypatch):
    from concurrent.futures import Future

    def broken(job):
        future = Future()
        future.set_exception(SandboxError("gone"))
        return future

    monkeypatch.setattr(shared(), "submit", broken)
    assert passes_tests([RIGHT], [DOUBLE]) == [None]
    assert solves([RIGHT], [DOUBLE]) == [None]


ROWS = [{"prompt": f"double {i}", "tests": DOUBLE} for i in range(12)]
TINY = {"trainer.iterations": 1, "trainer.group_size": 2, "agents.player.max_tokens": 2}


def test_rows_are_trained_on_with_a_programs_tests(tmp_path):
    settings = TINY | {"sandbox.workers": 1}
    outcome = tw.train("nano", ROWS, reward=solves, settings=settings, root=tmp_path)
    assert outcome.scores is not None and 0 <= outcome.scores.score <= 1
    assert shared().config == SandboxConfig(workers=1)
    configure(SandboxConfig())


def test_training_refuses_to_begin_where_programs_cannot_be_isolated(tmp_path, monkeypatch):
    monkeypatch.setattr(BACKENDS["namespaces"].__class__, "setup", _no_walls_known)
    configure(SandboxConfig(workers=1))
    with pytest.raises(SandboxError, match="or 'subprocess' for programs you trust"):
        tw.train("nano", ROWS, reward=solves, settings=TINY | {"sandbox.workers": 2}, root=tmp_path)
    assert not list(tmp_path.iterdir()), "a start that fails leaves no folder"
    monkeypatch.setattr(pool, "_WARNED", set())  # whichever test of this process came before
    with pytest.warns(UserWarning, match="does not isolate them"):
        outcome = tw.train(
            "nano", ROWS, reward=solves, settings=TINY | {"sandbox.backend": "subprocess"},
            root=tmp_path / "told",
        )  # fmt: skip
    assert outcome.finished
    configure(SandboxConfig())


def _no_walls_known(self, config):
    """Ask for an isolation that no kernel grants, except where none is asked for."""
    ways = "none" if self.isolation == "none" else "palisade"
    return {"isolation": ways, "readable": [], "preload": [], "network": False}


def test_settings_of_a_sandbox_that_nothing_uses_are_refused():
    data = {
        "name": "lake",
        "env": {"name": "frozen-lake"},
        "policies": {"main": {"model": "nano"}},
        "credit": {"scheme": "grpo", "rewards": {"goal": 1.0}},
    }
    make_recipe(data)
    with pytest.raises(ConfigError, match="env 'frozen-lake' runs no programs: leave it out"):
        make_recipe(data, {"sandbox.backend": "subprocess"})


def test_envs_know_whether_they_run_programs(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "x", "tests": []}\n')
    (tmp_path / "mine.py").write_text("def brief(completions): return [0.0 for _ in completions]")
    options = {"path": str(rows)}
    assert make_env("rows", reward=["turnwise.rewards:solves"], **options).runs_programs
    assert not make_env("rows", reward=[f"{tmp_path}/mine.py:brief"], **options).runs_programs
    assert not make_env("frozen-lake").runs_programs
