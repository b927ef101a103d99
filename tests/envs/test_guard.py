"""Envs of the user's that raise, hang and return nonsense: one sentence with the place, in time."""

from __future__ import annotations

import asyncio
import math
import signal
import threading
import time

import numpy as np
import pytest

from turnwise.engines import ScriptedEngine, run
from turnwise.envs import (
    Env,
    FrozenLake,
    FrozenLakeConfig,
    GuardedEnv,
    Observation,
    Step,
    check_env,
    guarded,
    make_guarded,
    score_baselines,
)
from turnwise.envs.base import BatchRewards
from turnwise.envs.guard import WINDOW
from turnwise.envs.timeout import Overrun, within
from turnwise.errors import (
    BrokenEnvError,
    EnvError,
    IllegalActionError,
    SlowEnvError,
    StuckEnvError,
)
from turnwise.rollout import Health
from turnwise.tasks import GeneratedTasks
from turnwise.types import Episode, EpisodeId, Failure, Task

NAN = float("nan")
TASK = Task(id="t", env="own", seed=0, data={"seed": 1})
SEEN = Observation(text="one", legal_actions=("A", "B"))


def outcome(**changes):
    values = {"state": 1, "rewards": {"hit": 1.0}, "terminated": True, "truncated": False}
    return Step(**(values | changes))


class Own(Env[int]):
    """Answers every call with what it was made with, or raises it."""

    name = "own"
    components = {"hit": "agent"}  # noqa: RUF012

    def __init__(self, **answers):
        super().__init__()
        self.answers = answers

    def answer(self, method, otherwise):
        given = self.answers.get(method, otherwise)
        if isinstance(given, BaseException):
            raise given
        return given() if callable(given) else given

    def generate(self, rng):
        return self.answer("generate", {"seed": 1})

    def reset(self, task):
        return self.answer("reset", 0)

    def observe(self, state, role):
        return self.answer("observe", SEEN)

    def step(self, state, role, action, noise):
        return self.answer("step", outcome())

    def score(self, state):
        return self.answer("score", 1.0)

    def state_key(self, state, role):
        return self.answer("state_key", "k")

    def random_action(self, state, role, rng):
        return self.answer("random_action", "A")


def calls(env):
    """Every call that a rollout, a warm-up and a split make."""
    rng = np.random.default_rng(0)
    return {
        "generate": lambda: env.generate(rng),
        "reset": lambda: env.reset(TASK),
        "observe": lambda: env.observe(0, "player"),
        "step": lambda: env.step(0, "player", "A", rng),
        "score": lambda: env.score(0),
        "state_key": lambda: env.state_key(0, "player"),
        "random_action": lambda: env.random_action(0, "player", rng),
    }


def test_an_env_that_keeps_its_contract_is_left_alone():
    bare = Own()
    env, before = guarded(bare, timeout=5), dict(vars(bare))
    for name, call in calls(env).items():
        assert call() == calls(Own())[name]()
    assert (type(bare), vars(bare)) == (Own, before)
    assert env.unwrapped is bare.unwrapped is bare
    again = guarded(env, timeout=7)
    assert (again.unwrapped, again.timeout, env.timeout) == (bare, 7, 5)


def test_a_guard_passes_on_all_that_an_env_has():
    """A method or attribute that is added to `Env` and not to the guard would be lost."""
    contract = {n for n in vars(Env) if not n.startswith("_")} | set(Env.__annotations__)
    assert contract <= set(vars(GuardedEnv))


def test_what_an_env_declares_is_read_from_it_and_set_on_it():
    class Team(Own):
        scored_by = "return"
        roles = ("a", "b")
        single_task = property(lambda self: True)

    own = Team()
    env = guarded(own, timeout=5)
    assert (env.name, env.scored_by, env.roles) == ("own", "return", ("a", "b"))
    assert (env.single_task, env.max_turns, env.config) == (True, None, None)
    assert env.seats == {"a": "a", "b": "b"} and env.components is own.components
    env.max_turns = 7
    assert (own.max_turns, env.max_turns, env.turn_cap()) == (7, 7, 7)


def test_what_a_baseline_answers_is_text():
    class Numbers(Own):
        def baselines(self):
            return {"random": lambda state, rng: 1}

    env = guarded(Numbers(), timeout=5)
    words = r"Numbers\.baselines\(\)\['random'\] returned 1 of type int, expected a str \(.*py:"
    with pytest.raises(BrokenEnvError, match=words):
        env.baselines()["random"](0, np.random.default_rng(0))


@pytest.mark.parametrize("method", calls(Own()))
def test_whatever_raises_is_named_with_its_place(method):
    env = guarded(Own(**{method: KeyError("no\nsuch thing")}), timeout=5)
    with pytest.raises(BrokenEnvError) as caught:
        calls(env)[method]()
    line = Own.answer.__code__.co_firstlineno + 3
    words = f"Own.{method} raised KeyError: 'no\\nsuch thing' ("
    assert str(caught.value).startswith(words)
    assert f"test_guard.py:{line}): fix it; `turnwise check` tries" in str(caught.value)


@pytest.mark.parametrize("method", calls(Own()))
def test_whatever_hangs_is_interrupted_in_time(method):
    env = guarded(Own(**{method: lambda: time.sleep(60)}), timeout=0.05)
    began = time.monotonic()
    with pytest.raises(
        BrokenEnvError, match=rf"Own\.{method} did not return within 0\.05 s \(.*py"
    ):
        calls(env)[method]()
    assert time.monotonic() - began < 5


WRONG = {
    "a state that is none": ("reset", lambda: None, "returned None of type NoneType"),
    "a text for an observation": ("observe", "you see", "expected an Observation"),
    "an observation without text": (
        "observe",
        Observation(text=3, legal_actions=()),
        "text and descript",
    ),
    "a list of actions": ("observe", Observation(text="x", legal_actions=["A"]), "a tuple of str"),
    "actions that are numbers": (
        "observe",
        Observation(text="x", legal_actions=(1,)),
        "a tuple of str",
    ),
    "a tuple for a step": ("step", (1, 0.0, True, False), "expected a Step"),
    "numpy's truth": ("step", outcome(terminated=np.True_), "terminated and truncated are bool"),
    "a reward alone": ("step", outcome(rewards=1.0), "a dict of name and float"),
    "a reward of no name": ("step", outcome(rewards={"hti": 1.0}), r"declared components \(hit\)"),
    "a reward in words": ("step", outcome(rewards={"hit": "1"}), "{'hit': '1'} of type dict"),
    "a reward that is none": ("step", outcome(rewards={"hit": None}), "finite floats"),
    "a reward that is NaN": ("step", outcome(rewards={"hit": NAN}), "{'hit': nan} of type dict"),
    "an endless reward": ("step", outcome(rewards={"hit": float("inf")}), "finite floats"),
    "a score in words": ("score", "won", "a float from 0 to 1"),
    "a score that is NaN": ("score", NAN, "a float from 0 to 1"),
    "a score beyond one": ("score", 100.0, "a float from 0 to 1"),
    "a score just beyond one": ("score", 1.5, "a float from 0 to 1"),
    "a key of numbers": ("state_key", (1, 2), "expected a str"),
    "an action of a number": ("random_action", 1, "expected a str"),
    "data that are a list": ("generate", [1], "expected a dict"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_of_a_wrong_type_is_said(case):
    method, value, words = WRONG[case]
    env = guarded(Own(**{method: value}), timeout=5)
    with pytest.raises(BrokenEnvError, match=words) as caught:
        calls(env)[method]()
    defined = vars(Own)[method].__code__.co_firstlineno
    assert f"test_guard.py:{defined}): fix it" in str(caught.value)


def test_a_refused_action_is_no_failure_of_the_env():
    env = guarded(Own(step=IllegalActionError("no")), timeout=5)
    with pytest.raises(IllegalActionError, match="no"):
        calls(env)["step"]()


def test_what_an_env_raises_beneath_a_library_is_placed_in_its_own_file():
    env = guarded(Own(observe=lambda: np.zeros(3).reshape(2, 2)), timeout=5)
    with pytest.raises(BrokenEnvError, match=r"ValueError: cannot reshape .*test_guard\.py:\d+\)"):
        env.observe(0, "player")


def test_the_second_hang_soon_after_the_first_is_the_last_one():
    moods = iter([0, 60, 0, 60])
    step = lambda: time.sleep(next(moods)) or outcome()  # noqa: E731
    stuck = guarded(Own(step=step), timeout=0.02)
    for expected in (None, SlowEnvError, None, StuckEnvError):
        stuck.observe(0, "player")  # calls that answer change nothing
        if expected is None:
            calls(stuck)["step"]()
            continue
        with pytest.raises(BrokenEnvError) as caught:
            calls(stuck)["step"]()
        assert type(caught.value) is expected
    assert "), again after 4 calls: fix it" in str(caught.value)


def test_nothing_is_called_any_more_when_an_env_is_stuck():
    made = []
    stuck = guarded(Own(reset=lambda: made.append(1) or time.sleep(60)), timeout=0.02)
    for _ in range(50):
        with pytest.raises(SlowEnvError) as caught:
            stuck.reset(TASK)
    assert len(made) == 2 and type(caught.value) is StuckEnvError
    with pytest.raises(StuckEnvError, match=r"Own\.reset did not return"):
        stuck.observe(0, "player")
    assert guarded(stuck, timeout=0.02).observe(0, "player") == SEEN  # a new run


def test_rare_hangs_are_data():
    moody = guarded(Own(step=lambda: time.sleep(next(moods)) or outcome()), timeout=0.02)
    moods = iter([60, *[0] * WINDOW, 60])
    for number in range(WINDOW + 2):
        if number in (0, WINDOW + 1):
            with pytest.raises(BrokenEnvError) as caught:
                calls(moody)["step"]()
            assert type(caught.value) is SlowEnvError
        else:
            calls(moody)["step"]()


def test_a_second_hang_within_the_window_is_the_last():
    moods = iter([60, *[0] * (WINDOW - 1), 60])
    moody = guarded(Own(step=lambda: time.sleep(next(moods)) or outcome()), timeout=0.02)
    with pytest.raises(SlowEnvError):
        calls(moody)["step"]()
    for _ in range(WINDOW - 1):
        calls(moody)["step"]()
    with pytest.raises(StuckEnvError, match=f"again after {WINDOW} calls"):
        calls(moody)["step"]()


def test_an_env_that_waits_may_hang_unless_it_does_so_again_and_again():
    """Hangs of one method count in a row: what other methods answer in between changes nothing."""

    class Waits(Own):
        blocking = True

    moods = iter([60, 60, 0, 60, 60, 60])
    env = guarded(Waits(step=lambda: time.sleep(next(moods)) or outcome()), timeout=0.02)
    slow = SlowEnvError
    for expected in (slow, slow, None, slow, slow, StuckEnvError):
        env.observe(0, "player")
        if expected is None:
            calls(env)["step"]()
            continue
        with pytest.raises(slow) as caught:
            calls(env)["step"]()
        assert type(caught.value) is expected
    assert "3 times in a row" in str(caught.value)


def test_seats_act_and_not_roles():
    class Ants(Own):
        roles = ("ant",)
        seats = property(lambda self: {"ant-1": "ant", "ant-2": "ant"})

        def acting(self, state):
            return self.answer("acting", ("ant-1", "ant-2"))

    assert guarded(Ants(), timeout=5).acting(0) == ("ant-1", "ant-2")
    with pytest.raises(BrokenEnvError, match="expected a tuple of seats out of ant-1, ant-2"):
        guarded(Ants(acting=("ant",)), timeout=5).acting(0)


def test_an_env_may_have_attributes_called_as_the_guards_were():
    env = Own()
    env.timeout, env.hangs = "mine", "too"
    guarded(env, timeout=5).reset(TASK)
    assert (env.timeout, env.hangs) == ("mine", "too")


def test_an_env_that_exits_does_not_end_the_run_in_silence():
    env = guarded(Own(step=SystemExit(0)), timeout=5)
    with pytest.raises(BrokenEnvError, match=r"Own\.step raised SystemExit"):
        calls(env)["step"]()


class Judge(Own):
    """Judges batches as `judge` says."""

    def __init__(self, judge, **answers):
        super().__init__(**answers)
        self.judge = judge

    async def score_batch(self, episodes, iterations):
        return await self.judge()


async def sleeps():
    time.sleep(60)


async def waits():
    await asyncio.sleep(60)


async def sleeps_beside():
    await asyncio.gather(sleeps(), waits())


@pytest.mark.parametrize("judge", [sleeps, waits, sleeps_beside])
def test_judging_a_batch_has_a_limit(judge, monkeypatch):
    monkeypatch.setattr("turnwise.envs.guard.GRACE", 0.05)
    env = guarded(Judge(judge), timeout=0.05)
    began = time.monotonic()
    with pytest.raises(StuckEnvError, match=r"Judge\.score_batch did not return within 0\.05 s \("):
        run(env.score_batch([], 1), ScriptedEngine(lambda request: (1,)))
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"goal": 1.0}, "a BatchRewards, or None"),
        (BatchRewards(rewards=({}, {})), "rewards, and notes or none, of each of 1 episodes"),
        (BatchRewards(rewards=(None,), notes=({}, {})), "of each of 1 episodes"),
        (BatchRewards(rewards=(1.0,)), "rewards that are finite floats"),
        (BatchRewards(rewards=({"goal": math.nan},)), "rewards that are finite floats"),
        (BatchRewards(rewards=({"goal": 1.7e308},)), r"finite floats, of at most 1e\+18 in size"),
    ],
)
def test_the_rewards_of_a_batch_are_checked(found, expected):
    async def judge():
        return found

    env = guarded(Judge(judge), timeout=5)
    with pytest.raises(BrokenEnvError, match=rf"Judge\.score_batch returned .*{expected}"):
        run(env.score_batch([None], 1), ScriptedEngine(lambda request: (1,)))


def test_code_that_swallows_everything_is_interrupted_nevertheless():
    def stubborn():
        for _ in range(6000):
            try:
                time.sleep(0.01)
            except Exception:
                continue

    with pytest.raises(Overrun):
        within(0.05, stubborn)


def test_a_clock_that_somebody_else_set_goes_on():
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(time.monotonic()))
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0.15)
    try:
        began = time.monotonic()
        within(5, time.sleep, 0.05)
        assert rung == []
        time.sleep(0.3)
        assert len(rung) == 1
        assert 0.1 < rung[0] - began < 0.3
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left, interval)


def test_outside_the_main_thread_python_code_is_interrupted():
    said = []

    def spins():
        while True:
            pass

    def work():
        said.append(within(30, max, 3, 4))
        try:
            within(0.05, spins)
        except Overrun:
            said.append("too long")
        said.append(within(30, max, 5, 6))
        time.sleep(0.2)  # nothing comes afterwards

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert said == [4, "too long", 6]


def test_an_env_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "own.py").write_text(
        "from turnwise.envs import FrozenLake\n"
        "class Broken(FrozenLake):\n"
        "    def __init__(self, config=None):\n"
        "        self.table = open('no such table')\n"
    )
    with pytest.raises(
        BrokenEnvError, match=r"making the env raised FileNotFoundError: .*own\.py:4\)"
    ):
        make_guarded(f"{tmp_path}/own.py:Broken", {}, 5)


def test_check_tells_what_an_env_raises_by_itself():
    with pytest.raises(BrokenEnvError, match=r"Own\.score raised ZeroDivisionError: by 0 \("):
        check_env(Own(score=ZeroDivisionError("by 0")))
    with pytest.raises(EnvError, match="score is 'won': return a float"):
        check_env(Own(score="won"))


BY_POSITION = {
    "observe": (lambda: Observation("one", ("A",)), r"Observation\(text='3', legal_actions=\('A'"),
    "step": (lambda: Step(1, {}, True, False), r"Step\(state=\.\.\., rewards=\{\.\.\.\}, term"),
}


@pytest.mark.parametrize("method", BY_POSITION)
def test_a_value_made_by_position_is_told_its_keywords(method):
    make, written = BY_POSITION[method]
    words = rf"Own\.{method} raised TypeError: .*: give keyword arguments, as in {written}"
    with pytest.raises(BrokenEnvError, match=words):
        check_env(Own(**{method: make}))
    with pytest.raises(BrokenEnvError, match=words):
        calls(guarded(Own(**{method: make}), timeout=5))[method]()


def test_only_a_check_does_not_advise_to_check():
    with pytest.raises(BrokenEnvError, match=r": fix it$"):
        check_env(Own(reset=ZeroDivisionError()))
    with pytest.raises(BrokenEnvError, match="fix it; `turnwise check` tries every call"):
        guarded(Own(reset=ZeroDivisionError()), timeout=5).reset(TASK)


@pytest.mark.parametrize("method", calls(Own()))
def test_check_names_the_call_that_hangs(method):
    said, named = [], rf"({method}|baselines\(\)\['{method.partition('_')[0]}'\])"
    began = time.monotonic()
    with pytest.raises(SlowEnvError, match=rf"Own\.{named} did not return within 0\.05 s \(.*py"):
        check_env(Own(**{method: lambda: time.sleep(60)}), timeout=0.05, say=said.append)
    assert time.monotonic() - began < 20
    assert said[0] == "what the env declares" and len(said) > 1


class Brittle(FrozenLake):
    """A lake that breaks where it is entered at the right of the start."""

    def step(self, state, role, action, noise):
        step = super().step(state, role, action, noise)
        if step.state.position == 1:
            raise OSError("cracked")
        return step


def test_baselines_in_broken_episodes_score_nothing_and_are_counted():
    env = guarded(Brittle(FrozenLakeConfig(map=("SFF", "FFF", "FFG"))), timeout=5)
    tasks = GeneratedTasks(env, "test", 0).take(3)
    found = score_baselines(env, tasks, 0, names=["always-right", "always-down"])
    assert (found["always-right"].mean, found["always-right"].broken) == (0.0, 3)
    assert found["always-down"].broken == 0


BAD, WORSE = Failure(kind="env", message="bad"), Failure(kind="env", message="worse")
AWAY, MUTE = Failure(kind="engine", message="away"), Failure(kind="parse", message="no tag")


def episodes(*rows):
    """One visit a row, in it one episode for each error."""
    return [
        Episode(id=EpisodeId(iteration=0, visit=visit, task=TASK.id, member=i), task=TASK,
        trajectories=(), terminated=False,
                truncated=False, score=0.0, error=error)
        for visit, row in enumerate(rows) for i, error in enumerate(row)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("iterations", "sentence"),
    [
        ([[[BAD, BAD], [BAD, BAD]]], "EnvError: all 4 episodes of it broke: bad"),
        ([[[BAD, WORSE], [WORSE, WORSE]]], "EnvError: all 4 episodes of it broke: worse; 1 other"),
        ([[[AWAY, AWAY], [AWAY, BAD]]], "EngineError: all 4 episodes of it broke: away; 1 other"),
        ([[[BAD, BAD], [BAD, None]]], None),
        ([[[BAD, BAD], [BAD, MUTE]]], None),
        ([[[BAD, BAD]]], None),
        ([[[BAD, BAD]], [[BAD, BAD]]], "EnvError: all 2 episodes of it broke: bad"),
        ([[[BAD, BAD]], [[None, BAD]], [[BAD, BAD]]], None),
        ([[]], None),
    ],
)  # fmt: skip
def test_a_run_stops_when_the_world_decided_everything(iterations, sentence):
    health, found = Health(), None
    for rows in iterations:
        found = health.problem(episodes(*rows), "it")
    said = f"{type(found).__name__}: {found}" if found else None
    assert said == sentence or (said and sentence and said.startswith(sentence))
