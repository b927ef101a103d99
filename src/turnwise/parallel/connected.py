"""Processes joined by `torch.distributed`: gloo, and NCCL for tensors on a CUDA card.

Provides `ConnectedGroup`. The process groups of torch are its own: a program that uses
`torch.distributed` for something else is left alone. Objects are sent as pickles, which run code
when they are read, and any program of the machine can connect to the loopback. So each is signed
with a secret that only the processes of the run know. NCCL is untested: no machine with two cards
was available.
"""

from __future__ import annotations

import hmac
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C import _distributed_c10d as c10d

from turnwise.errors import ProcessError
from turnwise.parallel.group import ProcessGroup

T = TypeVar("T")
INLINE = 4096
"""Bytes of the first message of an exchange; a longer object needs a second one."""
HEAD = 8
"""Bytes at its start that hold the object's length."""
SIGNATURE = 32
"""Bytes before an object: its HMAC-SHA256 (RFC 2104)."""
PATIENCE = timedelta(days=30)
"""How long one process may wait for the others: a share of episodes can take hours."""
UNREADABLE = (pickle.UnpicklingError, ImportError, AttributeError, TypeError, ValueError)
"""What reading a value raises whose class this process does not have, or not so."""
POLLS, SHORT, LONG = 100, 1e-4, 1e-3
"""A wait looks so many times after the short pause, then after the long one, in seconds."""


class ConnectedGroup(ProcessGroup):
    """Several processes, connected at the first exchange.

    Args:
        rank: the number of this process.
        size: how many processes there are.
        store: where the processes find each other.
        host: the address of this process, at which the others reach it.
        secret: what all processes of the group know and no other program does.
        wait_for_all: returns once all processes run; called before the connection is made.
        lost: returns why an exchange failed, in a sentence for the user.
    """

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        store: c10d.Store,
        host: str,
        secret: bytes,
        wait_for_all: Callable[[], None] = lambda: None,
        lost: Callable[[str], str] = str,
    ) -> None:
        self.rank, self.size = rank, size
        self._store, self._host, self._secret = store, host, secret
        self._objects = 0  # exchanges of objects so far, the same number in all processes
        self._wait_for_all, self._lost = wait_for_all, lost
        self._gloo: Any = None
        self._nccl: Any = None
        self._apart: bool | None = None

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank.

        Raises:
            ProcessError: if a process is gone, or a value cannot be sent or read.
        """
        self._connect()
        self._objects += 1
        sent = self._packed(value)
        heads = [torch.empty(INLINE, dtype=torch.uint8) for _ in range(self.size)]
        self._exchange(lambda gloo: gloo.allgather([heads], [_head(sent)]))
        sizes = [_length(head) for head in heads]
        longest = max(sizes)
        if longest > INLINE - HEAD:
            bodies = [_room(longest) for _ in range(self.size)]
            own = torch.zeros(longest, dtype=torch.uint8)
            own[: len(sent)] = sent
            self._exchange(lambda gloo: gloo.allgather([bodies], [own]))
        else:
            bodies = [head[HEAD:] for head in heads]
        return [
            value if rank == self.rank else self._unpacked(body[:size], rank)
            for rank, (body, size) in enumerate(zip(bodies, sizes, strict=True))
        ]

    def broadcast(self, value: T) -> T:
        """Return the value of process 0.

        Raises:
            ProcessError: if a process is gone, or the value cannot be sent or read.
        """
        self._connect()
        self._objects += 1
        sent = self._packed(value) if self.leads else torch.empty(0, dtype=torch.uint8)
        head = _head(sent)
        self._exchange(lambda gloo: gloo.broadcast([head], _from_first()))
        size = _length(head)
        body = head[HEAD : HEAD + size]
        if size > INLINE - HEAD:
            body = sent if self.leads else _room(size)
            self._exchange(lambda gloo: gloo.broadcast([body], _from_first()))
        return value if self.leads else self._unpacked(body, 0)

    def sum_(self, flat: Tensor) -> None:
        """Replace a tensor of one dimension by its sum over all processes."""
        if flat.device.type == "cpu":
            self._exchange(lambda gloo: gloo.allreduce([flat]))
        elif flat.device.type == "cuda" and self._has_cards(flat.device):
            self._exchange(lambda gloo: self._over_cards().allreduce([flat]))
            torch.cuda.synchronize(flat.device)
        else:
            held = flat.cpu()
            self._exchange(lambda gloo: gloo.allreduce([held]))
            flat.copy_(held)

    def close(self) -> None:
        """Close the connections; an exchange that another process waits in fails there."""
        self._gloo = self._nccl = None

    def _connect(self) -> None:
        """Connect if that has not been done, and let each process show that it has the secret."""
        if self._gloo is not None:
            return
        with self._reported():
            self._wait_for_all()
            backend: Any = c10d.ProcessGroupGloo
            options = backend._Options()
            options._devices = [backend.create_device(hostname=self._host)]
            options._timeout = PATIENCE
            store = c10d.PrefixStore("gloo", self._store)
            self._gloo = backend(store, self.rank, self.size, options)
        with ExitStack() as failed:
            failed.callback(self.close)
            self.gather(None)
            failed.pop_all()

    def _has_cards(self, device: torch.device) -> bool:
        """Whether every process computes on a card of its own, as NCCL requires."""
        if self._apart is None:
            own = str(torch.cuda.get_device_properties(device).uuid)
            self._apart = len(set(self.gather(own))) == self.size
        return self._apart

    def _over_cards(self) -> Any:
        """Return torch's process group between cards."""
        if self._nccl is None:
            store = c10d.PrefixStore("nccl", self._store)
            backend: Any = c10d.ProcessGroupNCCL
            self._nccl = backend(store, self.rank, self.size, backend.Options())
        return self._nccl

    def _exchange(self, begin: Callable[[Any], Any]) -> None:
        """Connect, begin an operation and wait until it is done."""
        self._connect()
        with self._reported():
            self._wait(begin(self._gloo))

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise what torch raises in the block as a `ProcessError`."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, ProcessError):
                raise
            raise ProcessError(self._lost(str(error).splitlines()[0])) from error

    def _wait(self, work: Any) -> None:
        """Wait in Python, so that Ctrl-C is heard."""
        polls = 0
        while not work.is_completed():
            time.sleep(SHORT if polls < POLLS else LONG)
            polls += 1
        work.wait()

    def _signature(self, data: bytes, rank: int) -> bytes:
        """Return the signature of what process `rank` sends in the present exchange."""
        place = f"{rank}/{self._objects}/".encode()
        return hmac.digest(self._secret, place + data, "sha256")

    def _packed(self, value: Any) -> Tensor:
        """Return a value as signed bytes; one that cannot be pickled is an error for the others."""
        try:
            data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
            data = pickle.dumps(_Unsendable(str(error)))
        sent = bytearray(self._signature(data, self.rank) + data)
        return torch.frombuffer(sent, dtype=torch.uint8)

    def _unpacked(self, body: Tensor, rank: int) -> Any:
        sent = body.numpy().tobytes()
        signature, data = sent[:SIGNATURE], sent[SIGNATURE:]
        if not hmac.compare_digest(signature, self._signature(data, rank)):
            raise ProcessError(
                f"what came in the place of process {rank + 1} of {self.size} does not have this "
                "run's signature: another program connected to it; start again, or set "
                "processes = 1"
            )
        try:
            value = pickle.loads(data)
        except UNREADABLE as error:
            raise ProcessError(
                f"what process {rank + 1} of {self.size} found cannot be read in another one "
                f"({error}): set processes = 1"
            ) from error
        if isinstance(value, _Unsendable):
            raise ProcessError(
                f"process {rank + 1} of {self.size} cannot send what it found to the others "
                f"({value.reason}): set processes = 1"
            )
        return value


class _Unsendable:
    """Stands for a value that cannot be pickled."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _head(sent: Tensor) -> Tensor:
    """Return the first message: the length, and the value itself if there is room for it."""
    head = torch.zeros(INLINE, dtype=torch.uint8)
    head[:HEAD] = torch.frombuffer(bytearray(len(sent).to_bytes(HEAD, "big")), dtype=torch.uint8)
    if len(sent) <= INLINE - HEAD:
        head[HEAD : HEAD + len(sent)] = sent
    return head


def _room(length: int) -> Tensor:
    """Return a tensor for an object, whose length has come without a signature."""
    try:
        return torch.empty(length, dtype=torch.uint8)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise ProcessError(
            f"another process announced an object of {length} bytes, for which there is no memory: "
            "set processes = 1"
        ) from error


def _length(head: Tensor) -> int:
    return int.from_bytes(head[:HEAD].numpy().tobytes(), "big")


def _from_first() -> Any:
    options = c10d.BroadcastOptions()
    options.rootRank, options.rootTensor = 0, 0
    return options
