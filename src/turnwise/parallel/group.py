"""What the processes of a run exchange, in terms of Python objects and flat tensors.

Provides `ProcessGroup`, the group of one process, which exchanges nothing and imports no torch, and
the base of the others (`turnwise.parallel.connected`); and `ALONE`, an instance of it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from turnwise.errors import ProcessError, TurnwiseError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class ProcessGroup:
    """The processes of a run, which call its methods in the same order.

    Process 0 is the user's: it alone writes to the run folder, and decides what depends on the
    clock or on signals. This class is a group of one.

    Attributes:
        rank: the number of this process, from 0.
        size: how many processes there are.

    Example:
        >>> ProcessGroup().gather("a"), ProcessGroup().from_first(lambda: 7)
        (['a'], 7)
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is process 0, which writes and decides."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is no other process."""
        return self.size == 1

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        return [value]

    def broadcast(self, value: T) -> T:
        """Return the value of process 0."""
        return value

    def sum_(self, flat: Tensor) -> None:
        """Replace a tensor of one dimension by its sum over all processes, the same bits in each.

        The tensors have the same shape, type and kind of device in every process.
        """

    def close(self) -> None:
        """End the exchange; the other processes end when they notice."""

    def from_first(self, call: Callable[[], T]) -> T:
        """Return what `call` returns in process 0, the only one that makes the call.

        The other processes wait for it. What it raises is raised in all of them.
        """
        if self.is_alone:
            return call()
        outcome = self.broadcast(_outcome_of(call) if self.leads else None)
        assert outcome is not None, "process 0 sends one"
        return outcome.get(self, 0)

    def wait_for_first(self) -> None:
        """Wait until process 0 is at this place, too; it does not wait."""
        self.broadcast(None)

    def together(self, call: Callable[[], T]) -> list[T]:
        """Return what `call` returns in every process, by rank; each makes the call.

        Where it raises in one process, all raise.
        """
        if self.is_alone:
            return [call()]
        own = _outcome_of(call)
        outcomes = self.gather(own)
        if own.error is not None:
            raise own.error
        return [outcome.get(self, rank) for rank, outcome in enumerate(outcomes)]


@dataclass(slots=True)
class _Outcome(Generic[T]):
    """What a call returned or raised, as it can be sent."""

    value: T | None = None
    error: Exception | None = None

    def __reduce__(self) -> Any:
        return _Outcome, (self.value, self.error and _sendable(self.error))

    def get(self, group: ProcessGroup, rank: int) -> Any:
        if self.error is None:
            return self.value
        if isinstance(self.error, _Foreign):
            raise ProcessError(f"process {rank + 1} of {group.size} raised {self.error}")
        raise self.error


class _Foreign(Exception):
    """An error of a class that another process may not have; its text names the class."""


def _outcome_of(call: Callable[[], T]) -> _Outcome[T]:
    """Make a call; whatever it raises belongs to all processes, so that none waits in vain."""
    try:
        return _Outcome(value=call())
    except Exception as error:
        return _Outcome(error=error)


def _sendable(error: Exception) -> Exception:
    """Return an error that another process can read: turnwise's own as they are."""
    if isinstance(error, TurnwiseError):
        try:
            if str(pickle.loads(pickle.dumps(error))) == str(error):
                return error
        except (TypeError, AttributeError, pickle.PicklingError):
            pass
    return _Foreign(f"{type(error).__name__}: {error}")


ALONE = ProcessGroup()
"""The group of a run in one process."""
