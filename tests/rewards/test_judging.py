"""The judging of programs: values, types, and programs that do not end."""

from __future__ import annotations

import math
from array import array
from collections import Counter, OrderedDict
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import turnwise as tw
from turnwise.errors import DataError, RewardError
from turnwise.rewards import passes_tests, runs, solves
from turnwise.rewards.same import Tolerance, is_same
from turnwise.sandbox import shared

RIGHT = "def double(x): return 2 * x\n"
SOLVED = "assert double(2) == 4\nassert double(0) == 0\n"
NOTHING = [{"expected": None}]


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        (1e9, 1000000007, False),
        (1000000007.0, 1000000007, True),
        (1000000006.9999, 1000000007, False),
        (0.0, 3e-7, False),
        (0, 3e-7, False),
        (0.0, 1e-15, False),
        (0.0, 5e-324, False),
        (3.0000001e-7, 3e-7, True),
        (1e-17, 0.0, True),
        (1e-9, 0.0, False),
        (3, 2.9999999999999996, True),
        (2**53 + 1, 2.0**53, False),
        ([1e9], [1000000007], False),
        ({"a": 1e9}, {"a": 1000000007}, False),
        ({"a": [0.0]}, {"a": [3e-7]}, False),
        (np.array([1e9]), [1000000007], False),
        (np.array([1, 2]), [1, 2], True),
        (np.array([[0.1 + 0.2]]), np.array([[0.3]]), True),
        (np.array([0.0]), np.array([3e-7]), False),
        (np.float64(0.3), 0.1 + 0.2, True),
        (np.bool_(True), True, True),
        (np.array([True]), [1], False),
        (np.zeros((2, 0)), [[], []], True),
        (np.zeros((2, 0)), [[]], False),
        (np.zeros((2**60, 0), "int8"), [], False),
        (np.zeros((2**60, 0), "int8"), 9, False),
        (np.array([[[1, 2]], [[3, 4]]]), [[[1, 2]], [[3, 4.0]]], True),
        (np.array([[[1, 2]], [[3, 4]]]), [[[1, 2]], [[3, 5]]], False),
        (np.array([[True]]), [[1]], False),
        (np.array([[1]]), {1: 1}, False),
        (4, np.int64(4), True),
        (1e9, np.int64(1000000007), False),
        (1 + 1e-9j, 1 + 0j, True),
        (1 + 1e-3j, 1 + 0j, False),
        (0j, 3e-7 + 0j, False),
        (2, 2 + 0j, True),
        (2 + 0j, 2, False),
        (complex(math.inf, 0), complex(math.inf, 0), True),
        ({1, 2}, {2, 1}, True),
        (frozenset({1}), {1}, True),
        ({True}, {1}, False),
        ({0.1 + 0.2, 1}, {0.3, 1}, True),
        ({1e9}, {1000000007}, False),
        ({(1, 2.0)}, {(1, 2)}, True),
        ({"a", 1}, {"b", 1}, False),
        ({True: "x"}, {1: "x"}, False),
        ({1: "x"}, {"1": "x"}, False),
        ({1.0: "x"}, {1: "x"}, True),
        (b"ab", b"ab", True),
        ("ab", b"ab", False),
        ([], {}, False),
        ([], None, False),
        (0, False, False),
        (-0.0, 0, True),
    ],
)
def test_a_tolerance_is_for_expected_floats_alone(value, expected, same):
    assert is_same(value, expected) is same


def test_a_test_may_give_its_tolerance(isolated):
    program = "def third(): return 0.333"
    test = {"call": "third", "expected": 1 / 3}
    tests = [[test], [{**test, "rel_tol": 0.01}], [{**test, "abs_tol": 0.001}]]
    assert passes_tests([program] * 3, tests) == [0.0, 1.0, 1.0]
    assert Tolerance(relative=0.0).allows(1.0, 1.0)
    with pytest.raises(RewardError, match="rel_tol = -1"):
        passes_tests([program], [[{**test, "rel_tol": -1}]])


NEVER_THERE = {
    "exit": "import sys; sys.exit(0)",
    "exit without a code": "raise SystemExit",
    "quit": "quit()",
    "os._exit": "import os; os._exit(0)",
    "exit in a function that asserts call": "def double(x): raise SystemExit(0)",
    "os._exit in it": "import os\ndef double(x): os._exit(0)",
    "an exit that is returned": "class A:\n def __eq__(s, o): exit()\ndef double(x): return A()",
    "exit when the process ends": "import atexit, os\natexit.register(os._exit, 0)\nexit(0)",
    "a thread that ends the process": "import threading, os\n"
    "threading.Thread(target=lambda: os._exit(0)).start()\nimport time; time.sleep(9)",
    "its own result": "result = None\nimport sys; sys.exit()\n",
    "a comment that is left open": "import sys\ndef double(x): return 1\n#",
    "a line that goes on": "def double(x): return 1\nif False: \\",
    "a text that is left open": "def double(x): return 1\nr = '''",
    "asserts that are skipped": "import sys\ndef double(x): return 1\n"
    "def jump(frame, event, arg):\n"
    "    if event == 'line' and frame.f_lineno == 1:\n        frame.f_lineno = 2\n"
    "    return jump\n"
    "sys.settrace(jump)",
    "tracing switched off": "import sys\ndef double(x): return 1\n"
    "def jump(frame, event, arg):\n"
    "    try: frame.f_lineno = 2\n    except ValueError: pass\n    return jump\n"
    "sys.settrace(jump); sys.settrace = lambda f: None; f = sys._getframe()\n"
    "while f: f.f_trace = jump; f = f.f_back\n",
    "its main module": "import __main__\n__main__.result = [None, 'value', None]\nraise SystemExit",
    "its own source": "import linecache, re, sys\n"
    "text = ''.join(linecache.getlines('<program>'))\n"
    "found = re.findall('[0-9a-f]{32}', text)\n"
    "sys.modules['__main__'].result = [*found[:1], 'value', None]\nsys.exit()",
    "builtins": "import builtins\ndef double(x): return 1\n"
    "builtins.AssertionError = lambda *a: SystemExit(0)\n"
    "builtins.exec = builtins.compile = lambda *a: None\n",
    "assertions off": "import sys\ndef double(x): return 1\n"
    "AssertionError = SystemExit\n",
    "an exit as it is deleted": "class A:\n def __del__(s): raise SystemExit\n"
    "def double(x): A(); return 1\n",
    "a generator that exits": "def double(x): return next(g)\ng = (exit(0) for _ in '1')",
}  # fmt: skip


@pytest.mark.parametrize("name", NEVER_THERE)
def test_the_end_of_after_must_be_reached(isolated, name):
    program = NEVER_THERE[name]
    limits = [{"wall": 5.0}]
    assert passes_tests([program], [NOTHING], after=[SOLVED], limits=limits) == [0.0]
    assert solves([program], [NOTHING], after=[SOLVED], limits=limits) == [0.0]
    assert runs([program], [NOTHING], after=[SOLVED], limits=limits) == [0.0]


def test_what_is_right_reaches_the_end(isolated):
    notes = {}
    programs = [RIGHT, RIGHT + "import sys; sys.exit(0)", "import sys; sys.exit(0)", "x = ("]
    scores = passes_tests(programs, [NOTHING] * 4, after=[SOLVED] * 4, log_extra=notes.__setitem__)
    assert scores == [1.0, 1.0, 0.0, 0.0]
    assert notes == {"failure": ["", "", "exception", "syntax"]}
    left = passes_tests(["def double(x): exit()"], [NOTHING], after=[SOLVED],
                        log_extra=notes.__setitem__)  # fmt: skip
    assert (left, notes) == ([0.0], {"failure": ["unfinished"]})


def test_a_call_and_printed_text_are_judged_behind_after(isolated):
    tests = [
        {"call": "double", "inputs": [4], "expected": 8},
        {"call": "double", "inputs": {"x": 4}, "expected": 9},
    ]
    after = ["print('checked')\n" + SOLVED]
    assert passes_tests([RIGHT], [tests], after=after) == [0.5]
    printed = [{"stdin": "3", "stdout": "6\nchecked"}, {"stdin": "3", "stdout": "7\nchecked"}]
    program = RIGHT + "print(double(int(input())))"
    assert passes_tests([program], [printed], after=after) == [0.5]
    variables = [{"inputs": {"n": 2}, "expected": 4}]
    assert passes_tests(["result = n * n"], [variables], after=["assert result == 4"]) == [1.0]


def test_rows_without_before_or_after_stand_beside_those_with_them(isolated):
    tests = [{"call": "double", "inputs": [1], "expected": 2}]
    scores = passes_tests(
        [RIGHT, "    return 2 * x"], [tests] * 2, before=[None, "def double(x):\n"],
        after=[None, "\n"],
    )  # fmt: skip
    assert scores == [1.0, 1.0]
    with pytest.raises(RewardError, match="before of row 0 is '3': give text, or None"):
        passes_tests([RIGHT], [tests], before=[3])


def test_steps_are_limited_behind_after(isolated):
    program = RIGHT + "import sys\nsys.settrace(None)\nfor i in range(100000): pass"
    endless = RIGHT + "for i in range(100000): pass"
    limits = [{"steps": 2000}] * 2
    notes = {}
    passes_tests([endless, RIGHT], [NOTHING] * 2, after=[SOLVED] * 2, limits=limits,
                 log_extra=notes.__setitem__)  # fmt: skip
    assert notes["failure"] == ["cpu", ""]
    assert passes_tests([program], [NOTHING], after=[SOLVED]) == [1.0]


HONEST = [
    ("Counter('aab')", {"a": 2, "b": 1}),
    ("OrderedDict(b=1, a=2)", {"a": 2, "b": 1}),
    ("d", {"k": [1]}),
    ("{1: Counter('a')}", {1: {"a": 1}}),
    ("Decimal('1.5')", 1.5),
    ("Decimal('8')", 8),
    ("Decimal('1e3')", 1000),
    ("Fraction(1, 3)", 1 / 3),
    ("Fraction(4, 2)", 2),
    ("[Fraction(4, 2), Decimal(3)]", [2, 3]),
    ("P(1, 2)", (1, 2)),
    ("[P(1, Decimal(2))]", [[1, 2]]),
    ("deque([1, 2])", [1, 2]),
    ("range(3)", [0, 1, 2]),
    ("{'a': 1}.keys()", {"a"}),
    ("{'a': 1}.items()", {("a", 1)}),
    ("ChainMap({'a': 1}, {'a': 2, 'b': 3})", {"a": 1, "b": 3}),
    ("array('i', [1, 2])", [1, 2]),
    ("Color.RED", 1),
    ("Word.RED", "red"),
    ("MappingProxyType({'a': 1})", {"a": 1}),
    ("UserDict(a=1)", {"a": 1}),
    ("Text('x')", "x"),
]
AROUND = """
from array import array
from collections import *
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from types import MappingProxyType
P = namedtuple("P", "x y")
d = defaultdict(list); d["k"].append(1)
class Color(IntEnum): RED = 1
class Word(str, Enum): RED = "red"
class Text(str): pass
"""


@pytest.mark.parametrize(("returned", "expected"), HONEST)
def test_honest_values_come_back_as_plain_ones(isolated, returned, expected):
    program = f"{AROUND}\ndef f(): return {returned}"
    test = {"call": "f", "expected": expected}
    assert passes_tests([program], [[test]]) == [1.0]
    assert solves([program, program], [[test]] * 2, after=["pass"] * 2) == [1.0, 1.0]


def test_numpys_values_come_back(isolated):
    head = "import numpy as np\ndef f(): return "
    values = ["np.int64(3)", "np.array([1.0, 2.0])", "[np.float32(0.5)]", "np.array(['a'])",
              "np.array([1, None])"]  # fmt: skip
    expected = [3, [1.0, 2.0], [0.5], ["a"], [1, None]]
    tests = [[{"call": "f", "expected": each}] for each in expected]
    limits = [{"cpu": 20.0, "memory": 1024}] * len(values)
    assert solves([head + each for each in values], tests, limits=limits) == [1.0] * len(values)


def test_empty_arrays_of_many_rows_do_not_pass(isolated):
    program = "import numpy as np\ndef f(): return np.zeros((2**60, 0), 'int8')"
    limits = [{"cpu": 20.0, "memory": 1024}]
    for expected in (9, [], [[]]):
        assert passes_tests([program], [[{"call": "f", "expected": expected}]], limits=limits) == [
            0
        ]


@pytest.mark.parametrize(
    "returned", ["(x for x in [1])", "map(int, '1')", "object()", "f", "{1: 1}.values()"]
)
def test_what_is_no_value_does_not_pass(isolated, returned):
    notes = {}
    tests = [[{"call": "f", "expected": [1]}]]
    program = f"def f(): return {returned}"
    assert passes_tests([program], tests, log_extra=notes.__setitem__) == [0.0]
    assert notes == {"failure": ["exception"]}


TYPED = {
    "int64": (np.int64(3), "3", True),
    "set": ({1, 2}, "{2, 1}", True),
    "a set is no list": ({1, 2}, "[1, 2]", False),
    "bytes": (b"ab", "b'ab'", True),
    "bytes are no text": (b"ab", "'ab'", False),
    "int keys": ({1: "a"}, "{1: 'a'}", True),
    "int keys are no text": ({1: "a"}, "{'1': 'a'}", False),
    "tuple keys": ({(1, 2): 3}, "{(1, 2): 3}", True),
    "frozenset": ({frozenset({1})}, "{frozenset({1})}", True),
    "array": (np.arange(3), "[0, 1, 2]", True),
    "complex": (1 + 2j, "1 + 2j", True),
    "Decimal": (Decimal("1.5"), "1.5", True),
    "Fraction": (Fraction(6, 3), "2", True),
    "Counter": (Counter("aa"), "{'a': 2}", True),
    "OrderedDict": (OrderedDict(a=1), "{'a': 1}", True),
}


@pytest.mark.parametrize("name", TYPED)
def test_types_of_tests_are_kept(isolated, name):
    expected, returned, same = TYPED[name]
    tests = [[{"call": "f", "expected": expected}]]
    assert passes_tests([f"def f(): return {returned}"], tests) == [float(same)]


def test_types_of_inputs_are_kept(isolated):
    inputs = (np.int64(3), {1, 2}, b"x", {1: 2}, (1,), np.arange(2))
    program = "def f(*given): return [type(each).__name__ for each in given]"
    names = ["int", "set", "bytes", "dict", "tuple", "ndarray"]
    tests = [[{"call": "f", "inputs": inputs, "expected": names}]]
    limits = [{"cpu": 20.0, "memory": 1024}]
    assert passes_tests([program], tests, limits=limits) == [1.0]


def test_long_arrays_that_differ_in_the_middle_are_two_inputs(isolated):
    first, second = np.zeros(5000), np.zeros(5000)
    second[2500] = 1
    tests = [
        [{"call": "f", "inputs": [each], "expected": n}] for n, each in enumerate((first, second))
    ]
    program = "def f(x): return float(x.sum())"
    assert passes_tests([program] * 2, tests, limits=[{"cpu": 20, "memory": 1024}] * 2) == [1, 1]


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def test_values_are_nested_as_deep_as_they_come_back(isolated):
    program = "def f(n):\n    x = 1\n    for _ in range(n): x = [x]\n    return x"
    tests = [[{"call": "f", "inputs": [63], "expected": nested(63)}]]
    assert passes_tests([program], tests) == [1.0]


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ({"expected": object()}, "expected: got a object, which no program can return"),
        ({"expected": math.nan}, "nan equals no value"),
        ({"expected": [10**4300]}, "an int of more than 4300 digits, which no program can return"),
        ({"expected": nested(64)}, "nested to 64 levels, which no program can return"),
        ({"expected": nested(900)}, "nested to 64 levels, which no program can return"),
        ({"inputs": [10**5000], "expected": 1}, "a test of row 0: "),
        ({"inputs": [nested(900)], "expected": 1}, "a test of row 0: "),
        ({"inputs": [array("i")], "expected": 1}, "a test of row 0: inputs of a program: a array"),
        ({"inputs": "abc", "expected": 1}, "inputs = 'abc': give a list"),
        ({"inputs": {1: 2}, "expected": 1}, "give a list, arguments by position, or an object"),
        ({"inputs": [object()], "expected": 1}, "a test of row 0: inputs of a program: a object"),
    ],
)
def test_values_that_cannot_be_tested_are_refused(isolated, test, words):
    with pytest.raises(RewardError) as refused:
        passes_tests([RIGHT], [[{"call": "double", **test}]])
    assert words in str(refused.value)


def test_solves_stops_at_the_first_test_that_fails(isolated, monkeypatch):
    asked, submit = [], shared().submit
    monkeypatch.setattr(shared(), "submit", lambda job: asked.append(job) or submit(job))
    tests = [{"call": "double", "inputs": [x], "expected": 2 * x} for x in range(4)]
    wrong = "def double(x): return x"  # right for 0 alone
    assert solves([wrong, RIGHT, wrong], [tests] * 3) == [0.0, 1.0, 0.0]
    assert len(asked) == 2 + 4  # equal programs run once
    asked.clear()
    assert passes_tests([wrong], [tests]) == [0.25]
    assert len(asked) == 4


def test_rows_keep_the_types_of_their_tests(isolated, tmp_path):
    tests = [{"call": "f", "inputs": [np.int64(1), (2,)], "expected": {1: {2, 3}, "b": b"x"}}]
    rows = [{"prompt": f"p {n}", "tests": tests} for n in range(3)]
    found = []

    def judge(completions, tests, **kwargs):
        found.extend(tests)
        return [0.0 for _ in completions]

    tiny = {"trainer.iterations": 1, "trainer.group_size": 2, "agents.player.max_tokens": 2}
    outcome = tw.train("nano", rows, reward=judge, settings=tiny, root=tmp_path)
    assert outcome.finished
    (test,) = found[0]
    assert test["expected"] == {1: {2, 3}, "b": b"x"}
    assert [type(each) for each in test["inputs"]] == [np.int64, tuple]


def test_a_value_that_no_row_keeps_is_named(tmp_path):
    rows = [{"prompt": "p"}, {"prompt": "q", "when": [object()]}]
    with pytest.raises(DataError, match=r"rows\[1\], column 'when': a value of type object cannot"):
        tw.train("nano", rows, reward=lambda completions: [0.0], root=tmp_path)
