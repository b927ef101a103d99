"""A sandbox in a process of its own, as root or as an ordinary user: `Apart`.

The process reads programs from standard input and answers with results. As root, it can become an
ordinary user for whom the folders of the interpreter and of this repository are in reach, as they
would be if that user had installed them: in a mount namespace of its own, which nobody else sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
ORDINARY = 61234
LARGEST = 1 << 26


class RefusedError(Exception):
    """There is no such sandbox here; the message says why."""


class Apart:
    """A sandbox of some backend, owned by root or by an ordinary user."""

    def __init__(self, user: str, backend: str, **options) -> None:
        from turnwise.sandbox.inside import frames, wire

        self._frames, self._wire, self._lock = frames, wire, threading.Lock()
        asked = wire.dump({"user": user, "backend": backend} | options, LARGEST)
        self._process = subprocess.Popen(
            [sys.executable, __file__, asked.hex()],
            env=os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid
        told = self._read()
        if "refused" in told:
            self.close()
            raise RefusedError(told["refused"])
        self.isolation = told["isolation"]

    def run(self, program, inputs=(), limits=None, *, call="", stdin=""):
        """Do what `Sandbox.run` does."""
        from turnwise.sandbox import Limits, Result

        given = limits or Limits()
        asked = {"program": program, "inputs": inputs, "call": call, "stdin": stdin}
        asked |= {"limits": given.model_dump(exclude_unset=True)}
        with self._lock:
            data = self._wire.dump(asked, LARGEST)
            self._frames.write_all(self._process.stdin.fileno(), len(data).to_bytes(8, "little"))
            self._frames.write_all(self._process.stdin.fileno(), data)
            told = self._read()
        if "error" in told:
            from turnwise.errors import SandboxError

            raise SandboxError(told["error"])
        self._lost = told.pop("replaced")
        return Result(**told)

    _lost = _forgiven = 0

    @property
    def replaced(self):
        """Workers that were lost, but for those that are forgiven."""
        return self._lost - self._forgiven

    def forgive(self):
        """Count lost workers from now on."""
        self._forgiven = self._lost

    def _read(self):
        read = self._process.stdout.fileno()
        size = int.from_bytes(self._frames.read_exactly(read, 8), "little")
        import numpy

        return self._wire.load(self._frames.read_exactly(read, size), lambda: numpy)

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def become_ordinary() -> None:
    """Become an ordinary user who can reach the interpreter and this repository."""
    from turnwise.sandbox.inside import kernel

    needed = [sys.base_prefix, sys.prefix, str(SOURCE.parent)]
    needed += [path for path in sys.path if os.path.isdir(path)]
    closed = {
        str(parent)
        for path in needed
        for parent in Path(os.path.realpath(path)).parents
        if not os.stat(parent).st_mode & 1
    }
    if closed:
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
        for parent in sorted(closed, key=len):
            below = [p for p in map(os.path.realpath, needed) if p.startswith(f"{parent}/")]
            held = [(path, os.open(path, os.O_PATH)) for path in sorted(set(below), key=len)]
            kernel.mount("tmpfs", parent, "tmpfs", 0, "mode=755,size=1m")
            for path, descriptor in held:
                if not os.path.exists(path):
                    os.makedirs(path)
                    kernel.mount(
                        f"/proc/self/fd/{descriptor}", path, "", kernel.MS_BIND | kernel.MS_REC
                    )
                os.close(descriptor)


def main() -> None:
    """Serve one sandbox."""
    sys.path.insert(0, str(SOURCE))
    from turnwise.errors import SandboxError, TurnwiseError
    from turnwise.sandbox import Limits, Sandbox
    from turnwise.sandbox.inside import frames, wire

    def answer(told) -> None:
        data = wire.dump(told, LARGEST)
        frames.write_all(1, len(data).to_bytes(8, "little") + data)

    asked = wire.load(bytes.fromhex(sys.argv[1]))
    user = asked.pop("user")
    try:
        if os.geteuid() == 0:
            become_ordinary()
        if user == "ordinary" and os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(ORDINARY, ORDINARY, ORDINARY)
            os.setresuid(ORDINARY, ORDINARY, ORDINARY)
            from turnwise.sandbox.inside import kernel

            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        sandbox = Sandbox(workers=1, **asked)
        sandbox.start()
    except (OSError, TurnwiseError) as refused:
        answer({"refused": str(refused)})
        return
    answer({"isolation": sandbox.isolation})
    with sandbox:
        while head := os.read(0, 8):
            job = wire.load(frames.read_exactly(0, int.from_bytes(head, "little")))
            limits = Limits(**job.pop("limits"))
            try:
                result = sandbox.run(limits=limits, **job)
            except SandboxError as error:
                answer({"error": str(error)})
                continue
            answer(asdict(result) | {"replaced": sandbox.replaced})


if __name__ == "__main__":
    main()
