"""The number of threads of torch: one for small models, unless the user sets another.

Provides `use_threads` and `kept_threads`. With two threads every operation waits for the slower
one. Beside another busy process a step of a small model then takes several times as long as with
one thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

SMALL = 5_000_000
"""Models with fewer parameters are computed on one thread by default."""
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_CPUS = Path("/sys/devices/system/cpu")


def default_threads(parameters: int) -> int | None:
    """Return the default number of threads for a model of this size; None leaves it to torch.

    Example:
        >>> default_threads(800_000), default_threads(600_000_000)
        (1, None)
    """
    return 1 if parameters < SMALL else None


def use_threads(parameters: int, asked: int | None) -> str:
    """Set torch's number of threads to the requested or the default number.

    Args:
        parameters: of the model.
        asked: the number; None is what the user set by `OMP_NUM_THREADS`, `MKL_NUM_THREADS` or
            `torch.set_num_threads`, or else `default_threads`.

    Returns:
        What holds now and why, in words.
    """
    if asked is not None:
        torch.set_num_threads(asked)
        return f"{_many(asked)}, as `threads` says"
    if _chosen():
        return f"{_many(torch.get_num_threads())}, as set outside the recipe"
    small = default_threads(parameters)
    if small is None:
        return f"{_many(torch.get_num_threads())}, torch's default"
    torch.set_num_threads(small)
    return f"{_many(small)}, as the model is small; `threads` or OMP_NUM_THREADS changes it"


@contextmanager
def kept_threads() -> Iterator[None]:
    """Restore torch's number of threads at the end of the block."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _many(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"


def _chosen() -> bool:
    """Whether the user set the number of threads; by itself torch uses all CPUs or all cores."""
    if any(os.environ.get(name) for name in VARIABLES):
        return True
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    cores = {_core(cpu) for cpu in usable}
    return torch.get_num_threads() not in {os.cpu_count(), len(usable), len(cores)}


def _core(cpu: int) -> str:
    """Return the name of the core that a CPU belongs to: hyper-threads share one."""
    folder = _CPUS / f"cpu{cpu}" / "topology"
    try:
        return f"{(folder / 'physical_package_id').read_text()}/{(folder / 'core_id').read_text()}"
    except OSError:
        return str(cpu)
