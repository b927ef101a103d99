"""A process of a run beside the user's: it goes through the same program and writes nothing.

`python -m turnwise.app.worker` is started by `turnwise.parallel.launch`, never by a user.
"""

from __future__ import annotations

import sys
import traceback
from functools import partial
from pathlib import Path
from types import TracebackType

from turnwise.errors import ProcessError, TurnwiseError
from turnwise.parallel.launch import begin, join
from turnwise.utils.stuck_calls import ending_process

FAILED = 2


def main(arguments: list[str]) -> int:
    """Take part in a run until it ends; return the exit code."""
    begin(arguments)
    from turnwise.app.build import assemble
    from turnwise.app.processes import Job
    from turnwise.app.program import run_program
    from turnwise.recipe.schema import Recipe
    from turnwise.runs import StopSignal
    from turnwise.trainers import Session, Silent

    group, farewell = join(arguments)
    sys.excepthook = partial(_say, farewell)
    try:
        job: Job | None = group.broadcast(None)
        assert job is not None, "process 0 sends it"
        stop = StopSignal()  # never entered: process 0 says when to stop

        def parts(recipe: Recipe) -> Session:
            group.wait_for_first()
            session = assemble(recipe, job.folder, stop, Silent(), writes=False)
            session.join(group)
            return session

        def finish(*found: object) -> None:
            """Leave the scores to process 0."""

        with ending_process():
            run_program(job.recipe, job.folder, parts, stop, finish, resumed=job.resumed)
    except ProcessError:  # another process ended; process 0 says why
        return FAILED
    except TurnwiseError as error:
        farewell.write_text(str(error), encoding="utf-8")
        return FAILED
    return 0


def _say(
    farewell: Path, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show an error that nobody expected, and leave it for the message of process 0."""
    traceback.print_exception(kind, error, trace)
    farewell.write_text(f"{kind.__name__}: {error}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
