"""A model as the searcher: it is asked for parameters until it names some that are new.

Provides `PromptedSearch` and `Reply`. A reply that cannot be used costs an attempt; when all
attempts of an iteration are used up, the iteration is lost and the search goes on. A request that
fails costs nothing: it is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from turnwise.errors import EndpointRefusedError, EngineError, RunError
from turnwise.search.history import Call, History, HistoryLog, Outcome
from turnwise.search.parsing import UnreadableError, read_params
from turnwise.search.space import Params, ParamSpace

KEPT = 2_000
"""The most characters of a reply that are kept in the history."""
FAILURES = 5
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds after the first failed request, doubled for each one after; and the most seconds."""
FAILED_APART = 1_000
"""Added to the number of an attempt for each failed request, so that its draws are others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """A model's reply, and how many tokens it and its prompt had."""

    text: str
    prompt_tokens: int
    completion_tokens: int


Ask = Callable[[History, int, int], Reply]
"""From the history, the number of the evaluation and that of the attempt to a reply. The history
says why the last reply was refused."""
Read = Callable[[str, ParamSpace], Params]
"""From a reply to its parameters; raises `UnreadableError`."""


class PromptedSearch:
    """Asks a model for each policy.

    Args:
        space: of the parameters.
        ask: asks the model.
        retries: attempts after the first in one iteration.
        read: reads the parameters of a reply.
        failures: requests that may fail in a row, with growing pauses, before the search stops.
        wait: waits for seconds.
    """

    warms_up = True

    def __init__(
        self,
        space: ParamSpace,
        *,
        ask: Ask,
        retries: int,
        read: Read = read_params,
        failures: int = FAILURES,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._space, self._retries = space, retries
        self._failures, self._wait = failures, wait
        self._ask, self._read = ask, read

    def propose(self, log: HistoryLog, slot: int) -> Params | None:
        """Return a policy that was not tried yet; None if no attempt brought one.

        Raises:
            RunError: if the endpoint refuses for good, or fails several times in a row. No
                iteration is lost by that.
        """
        history, failures, pause = log.history, 0, FIRST_PAUSE
        while history.pending is None and history.attempts <= self._retries:
            apart = FAILED_APART * history.failed_in_a_row
            try:
                reply = self._ask(history, slot, history.attempts + apart)
            except EngineError as failed:
                log.call(Call(slot=slot, outcome="failed", said=str(failed)[:KEPT]))
                failures += 1
                if isinstance(failed, EndpointRefusedError) or failures > self._failures:
                    raise RunError(
                        f"{failed}. What was tried is kept, and the search can go on"
                    ) from failed
                self._wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            failures, pause = 0, FIRST_PAUSE
            log.call(self._judged(slot, reply, history))
        return history.pending

    def _judged(self, slot: int, reply: Reply, history: History) -> Call:
        """Return what came of a reply."""
        params: Params | None = None
        outcome: Outcome = "read"
        said = ""
        try:
            params = self._read(reply.text, self._space)
        except UnreadableError as error:
            outcome, said = "unreadable", str(error)
        if params is not None and history.knows(params):
            params, outcome, said = None, "repeated", "its parameters were tried already"
        return Call(
            slot=slot, outcome=outcome, said=said, reply=reply.text[:KEPT], params=params,
            prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens,
        )  # fmt: skip
