"""`turnwise sandbox`."""

import json

import pytest


@pytest.fixture(autouse=True)
def _needs_isolation(isolated):
    """Skip where programs cannot be isolated."""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("def area(a, b=2):\n    print('called')\n    return [a * b]\n")
    return path


def test_check_says_what_keeps_programs_in(turnwise):
    shown = turnwise("sandbox", "check", "--seconds", "0.1", "--workers", "1")
    assert shown.exit_code == 0 and "isolated: " in shown.stdout
    assert "short programs a second" in shown.stdout
    found = json.loads(
        turnwise("sandbox", "check", "--seconds", "0.1", "--workers", "1", "--json").stdout
    )
    assert found["isolation"] in ("bubblewrap", "namespaces") and "system calls" in found["promise"]
    assert found["programs_per_second"] > 1


def test_run_shows_value_and_output(turnwise, program):
    shown = turnwise("sandbox", "run", program, "--call", "area", "--inputs", "[3]")
    assert shown.exit_code == 0 and shown.stdout.startswith("called\nvalue: [6]\n")
    told = turnwise(
        "sandbox", "run", program, "--call", "area", "--inputs", '{"a": 4, "b": 5}', "--json"
    )
    assert json.loads(told.stdout)["value"] == "[20]"


@pytest.mark.parametrize("value", ["10**4299", "'\\ud800'", "chr(27) + '[2J'"])
def test_run_shows_values_that_terminals_do_not_take(turnwise, tmp_path, value):
    path = tmp_path / "program.py"
    path.write_text(f"result = {value}")
    shown = turnwise("sandbox", "run", path)
    assert shown.exit_code == 0 and "value: " in shown.stdout and "\x1b" not in shown.stdout


def test_run_shows_a_failure_and_where(turnwise, program):
    shown = turnwise("sandbox", "run", program, "--call", "area", "--inputs", "[{}]")
    assert shown.exit_code == 1 and "exception in line 3: TypeError" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nothing.py"], "no file at 'nothing.py'"),
        (["run", "PROGRAM", "--inputs", "[1"], "give JSON, as"),
        (["run", "PROGRAM", "--inputs", "3"], "give a list, or an object by name"),
        (["run", "PROGRAM", "--limit", "cpus=1"], "did you mean 'cpu'?"),
        (["run", "PROGRAM", "--backend", "isolatd"], "'isolated'"),
        (["check", "--preload", "nump"], "No module named 'nump'"),
    ],
)
def test_mistakes_are_one_sentence(turnwise, program, arguments, words):
    given = [str(program) if word == "PROGRAM" else word for word in arguments]
    shown = turnwise("sandbox", *given)
    assert shown.exit_code == 2 and words in shown.stderr and "Traceback" not in shown.stderr
