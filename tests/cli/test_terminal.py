"""Text of envs, rewards and models cannot control the terminal: no command prints an escape."""

from __future__ import annotations

import io
import json

import pytest
from typer.testing import CliRunner

from turnwise.app.progress_bar import LiveProgress
from turnwise.cli import options
from turnwise.cli.main import app
from turnwise.report import write_report
from turnwise.runs import Run
from turnwise.utils import stuck_calls
from turnwise.utils.console import LastingConsole

CLEAR = "\x1b[2J\x1b]0;title\x07\u202e"
SHOWN = r"\x1b[2J\x1b]0;title\x07\u202e"
ENVS = """
import turnwise as tw

CLEAR = "\\x1b[2J\\x1b]0;title\\x07\\u202e"

class Base(tw.Env[int]):
    name, components, actions = "base", {"right": "agent"}, ("yes", "no")
    def reset(self, task):
        return 0
    def observe(self, state, role):
        return tw.Observation(text="say it", legal_actions=self.actions)
    def step(self, state, role, action, noise):
        if action not in self.actions:
            raise tw.IllegalActionError("say yes or no")
        return tw.Step(state=1, rewards={"right": 1.0}, terminated=True, truncated=False)
    def score(self, state):
        return 1.0

class Seen(Base):
    def observe(self, state, role):
        return tw.Observation(text=CLEAR, legal_actions=self.actions)

class Said(Base):
    actions = (CLEAR, "no")

class Refused(Base):
    def step(self, state, role, action, noise):
        raise tw.IllegalActionError(CLEAR)

class Raises(Base):
    def step(self, state, role, action, noise):
        raise RuntimeError(CLEAR)

class Named(Base):
    name = CLEAR

class Marked(Base):
    def baselines(self):
        return super().baselines() | {"[/no]": lambda state, rng: "yes"}
"""


@pytest.fixture
def own(tmp_path):
    """`own("Seen")`: an env of the file, as commands take it."""
    (tmp_path / "own.py").write_text(ENVS)
    return lambda name: f"{tmp_path / 'own.py'}:{name}"


def is_clean(text):
    return not set(text) & set("\x1b\x07\u202e\ud800")


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (("play", "--baseline", "random"), "Seen"),
        (("play", "--baseline", "random"), "Said"),
        (("play", "--baseline", "random"), "Refused"),
        (("check",), "Raises"),
        (("check",), "Named"),
        (("eval", "--baselines", "--tasks", "3"), "Named"),
    ],
)
def test_text_of_an_env_is_printed_with_escapes(turnwise, own, words, env):
    command, *more = words
    result = turnwise(command, own(env), *more)
    assert is_clean(result.output)
    if (command, env) not in (("play", "Said"), ("check", "Named")):
        assert SHOWN in "".join(result.output.split("\n"))


@pytest.mark.parametrize("env", ["Seen", "Refused", "Said"])
def test_a_person_sees_text_with_escapes(own, env):
    result = CliRunner().invoke(app, ["play", own(env)], input="y\nx\nq\n")
    assert is_clean(result.output)
    assert SHOWN in result.output


def test_names_in_brackets_are_no_styles(turnwise, own):
    result = turnwise("check", own("Marked"))
    assert result.exit_code == 0, result.output
    assert "baseline '[/no]'" in result.stderr


def test_every_console_prints_text_with_escapes_and_keeps_its_styles():
    file = io.StringIO()
    console = LastingConsole(file=file, force_terminal=True, color_system="standard", width=200)
    with LiveProgress(console, "lines") as live:
        live.note(f"note {CLEAR}")
    console.print(f"[bold]{CLEAR}[/]", highlight=False)
    text = file.getvalue()
    assert text.count(SHOWN) == 2
    assert not set(text) & set("\x07\u202e")
    assert {part.partition("m")[0] for part in text.split("\x1b[")[1:]} <= {"1", "2", "0"}


def test_names_between_colons_are_no_emoji(capsys):
    options.say("a :bug: b")
    options.print_styled("[bold]a :bug: b[/]")
    assert capsys.readouterr().out == "a :bug: b\na :bug: b\n"


def test_cells_of_a_table_are_measured_as_they_are_printed(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(options, "console", LastingConsole(file=file, width=60))
    options.draw_table(("policy", CLEAR), [("a", CLEAR), ("b", "")], title=CLEAR)
    assert is_clean(file.getvalue())
    assert file.getvalue().count(SHOWN) == 3
    tables = [line for line in file.getvalue().splitlines() if line.startswith(("│", "┃"))]
    assert len({len(line) for line in tables}) == 1


def test_an_error_is_printed_as_it_is(capsys):
    with pytest.raises(options.typer.Exit):
        options.fail(rf"a\[bold]b {CLEAR} [/x]")
    assert capsys.readouterr().err == rf"error: a\[bold]b {SHOWN} [/x]" + "\n"


def test_a_report_of_a_stuck_call_is_printed_with_escapes(capsys):
    stuck_calls.report(f"a call {CLEAR}", "mend it")
    assert f"a call {SHOWN};" in capsys.readouterr().err


def test_the_report_of_a_run_holds_no_escape(tmp_path):
    run = Run.create(tmp_path, "lake", "seed = 1", tmp_path / "run")
    record = {"phase": "train", "step": 1, "rollout/score": 0.5}
    run.metrics.write_text(json.dumps(record) + "\n")
    write_report(run, command=CLEAR)
    assert is_clean(run.report.read_text()) and SHOWN in run.report.read_text()
