"""Calls of a user's code whose errors name the method or function, the file and the line.

Provides `call_env`, which has a time limit and turns every exception of an env into a
`BrokenEnvError`, and `UserErrors`, which turns those of a block into an error of another type.
`call_on_thread` makes a call that may never return. They check no returned values.
"""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType, TracebackType
from typing import Any, TypeVar

from turnwise.envs.timeout import Overrun, within
from turnwise.envs.unicode import escaped
from turnwise.errors import BrokenEnvError, SlowEnvError, TurnwiseError
from turnwise.utils.stuck_calls import report

T = TypeVar("T")
CURE = "fix it; `turnwise check` tries every call"
BY_KEYWORD = {
    "Observation": (
        "Observation(text='3', legal_actions=('A', 'B')); legal_actions=() where any text may be "
        "an answer"
    ),
    "Step": "Step(state=..., rewards={...}, terminated=False, truncated=False)",
}
"""Classes that take keyword arguments only -> how to write them."""
LONGEST = 300
"""The most characters of an exception's message that an error repeats."""
OURS = Path(__file__).parents[1]
OWN_FILES = ("user_calls.py", "guard.py", "timeout.py")
"""Files whose frames make the calls of envs, and say nothing about an error."""
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def call_env(
    env: Any,
    method: str,
    timeout: float,
    call: Callable[..., T],
    *args: Any,
    title: str = "",
    cure: str = CURE,
) -> T:
    """Return `call(*args)`, a call of the method `method` of `env`.

    Args:
        env: the env; None while it is being constructed.
        method: the name of the method, for messages.
        timeout: the time limit in seconds.
        call: the function to call.
        *args: the arguments of the call.
        title: what is called, where it is no env's.
        cure: what an error advises, where it knows nothing better.

    Raises:
        BrokenEnvError: if the call raises any error but turnwise's own.
        SlowEnvError: if the call takes longer than `timeout` seconds.
    """
    try:
        return within(timeout, call, *args, stuck=partial(still_inside, env, method, title=title))
    except TurnwiseError:  # an illegal action, or an error that already has its message
        raise
    except Overrun as cause:
        place = place_of(cause.__traceback__, env)
        raise overran(env, method, timeout, place, title=title, cure=cure) from None
    except (Exception, SystemExit) as cause:
        named, place = title or title_of(env, method), place_of(cause.__traceback__, env)
        raise BrokenEnvError(
            f"{named} raised {_shown(cause)} ({place}): {_cure(cause, cure)}"
        ) from cause


class UserErrors:
    """A context manager that turns what a user's code raises into an error of turnwise.

    This includes `SystemExit`. Turnwise's own errors, Ctrl-C, time limits and the cancellation of
    the running task pass.

    Args:
        title: what is called, for the message.
        kind: the type of the error.
        cure: what the user can do.
    """

    def __init__(self, title: str, kind: type[TurnwiseError], cure: str) -> None:
        self._title, self._kind, self._cure = title, kind, cure

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        passing = (TurnwiseError, KeyboardInterrupt, GeneratorExit, Overrun)
        if error is None or isinstance(error, passing):
            return
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            return
        raise self._kind(
            f"{self._title} raised {_shown(error)} ({place_of(trace, None)}): {self._cure}"
        ) from error


def is_cancelled() -> bool:
    """Whether the running task is being cancelled, which an error of a user's code is not."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _shown(cause: BaseException) -> str:
    """Return the type and the message of an exception, on one line."""
    said = escaped(" ".join(str(cause).split())[:LONGEST])
    return f"{type(cause).__name__}: {said}" if said else type(cause).__name__


def call_on_thread(title: str, timeout: float, call: Callable[..., T], *args: Any) -> T:
    """Return `call(*args)`, made on a thread of its own, where no event loop runs.

    After the limit its Python code is interrupted. A call that cannot be interrupted is left
    behind: its thread keeps no process from ending.

    Args:
        title: what is called, for the message.
        timeout: the time limit in seconds.
        call: the function to call; what it raises is raised here.
        *args: the arguments of the call.

    Raises:
        SlowEnvError: if the call takes longer than `timeout` seconds.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(within(timeout, call, *args))
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=work, name="turnwise-user-call", daemon=True)
    thread.start()
    try:
        if wait([outcome], timeout).done:
            return outcome.result()
        frame = sys._current_frames().get(thread.ident or 0)
        place = _place_in(frame, None)
    except Overrun as cause:
        place = place_of(cause.__traceback__, None)
    raise SlowEnvError(f"{title} did not return within {timeout:g} s ({place})")


def _cure(cause: BaseException, otherwise: str) -> str:
    """Return what to mend where an exception tells it; `otherwise` is for all others."""
    name = str(cause).partition(".__init__()")[0]
    if isinstance(cause, TypeError) and name in BY_KEYWORD:
        return f"give keyword arguments, as in {BY_KEYWORD[name]}"
    return otherwise


def overran(
    env: Any, method: str, timeout: float, place: str, *, title: str = "", cure: str = CURE
) -> SlowEnvError:
    """Return the error for a call that exceeded its time limit."""
    title = title or title_of(env, method)
    return SlowEnvError(
        f"{title} did not return within {timeout:g} s ({place}): {cure}, or raise env.timeout"
    )


def still_inside(
    env: Any, method: str, seconds: float, frame: FrameType | None, *, title: str = ""
) -> None:
    """Report a call that has taken `seconds` and cannot be interrupted."""
    place = _place_in(frame, env)
    report(f"{title or title_of(env, method)} has not returned for {seconds:.0f} s ({place})", CURE)


def title_of(env: Any, method: str) -> str:
    """Return the name of a method in messages."""
    return f"{type(env).__name__}.{method}" if env is not None else "making the env"


def place_of(trace: TracebackType | None, env: Any) -> str:
    """Return file:line of the innermost frame in the env's own file.

    Without such a frame it is the innermost frame in user code, or else the innermost frame.
    """
    return _chosen([(frame.f_code.co_filename, line) for frame, line in walk_tb(trace)], env)


def _place_in(frame: FrameType | None, env: Any) -> str:
    """Return the same for a call that goes on, whose innermost frame is `frame`."""
    frames = [] if frame is None else [(f, number) for f, number in walk_stack(frame)]
    return _chosen([(f.f_code.co_filename, number) for f, number in reversed(frames)], env)


def _chosen(places: list[tuple[str, int]], env: Any) -> str:
    """Return the most informative place of a stack (the innermost last) as file:line."""
    module = sys.modules.get(type(env).__module__)
    own = vars(module).get("__file__") if module else None
    users = [place for place in places if not _library(place[0])]
    mine = [place for place in users if place[0] == own]
    others = [p for p in places if Path(p[0]).name not in OWN_FILES]
    file, line = (mine or users or others or places or [("?", 0)])[-1]
    return f"{short(file)}:{line}"


def short(file: str) -> str:
    """Return a path, relative to the working directory if it is below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _library(file: str) -> bool:
    path = Path(file)
    return (
        file.startswith("<")
        or path.is_relative_to(OURS)
        or any(path.is_relative_to(root) for root in LIBRARIES)
    )
