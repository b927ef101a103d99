"""The number of threads of torch: one for small models, measured for others, or the user's choice.

Provides `use_threads`, `measure_threads`, `cores_are_chosen` and `kept_threads`. With two threads
every operation waits for the slower one. Beside another busy process a step of a small model then
takes several times as long as with one thread.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from turnwise.kernels.wrapped import Model, base_of

SMALL = 5_000_000
"""Models with fewer parameters are computed on one thread by default."""
LARGE = 50_000_000
"""Models with more parameters use all cores: a pass that could be timed takes too long."""
RATE, PASS = 30e9, 0.1
"""Operations a second that a core is expected to do, and the seconds of one timed pass at it."""
LEAST_TOKENS, MOST_TOKENS = 16, 256
GAIN = 1.1
"""How much faster several threads must be to be chosen."""
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
    if cores_are_chosen():
        return f"{_many(torch.get_num_threads())}, as set outside the recipe"
    small = default_threads(parameters)
    if small is None:
        return f"{_many(torch.get_num_threads())}, torch's default"
    torch.set_num_threads(small)
    return (
        f"{_many(small)}, as the model is small; `threads` or OMP_NUM_THREADS changes it, and "
        "`processes` uses more cores"
    )


def measure_threads(model: Model, processes: int = 1) -> int | None:
    """Time a pass of a model with one thread and with all, and set the faster number.

    It takes about half a second. A busy machine makes several threads slow, and is then given one.

    Args:
        model: on the CPU.
        processes: how many processes share the cores.

    Returns:
        The number of threads, or None where nothing is measured: the user has set a number, or the
        model's size decides.
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if parameters < SMALL or cores_are_chosen():
        return None
    several = max(1, torch.get_num_threads() // processes)
    torch.set_num_threads(several)
    if several == 1 or parameters > LARGE:
        return several if processes > 1 else None
    tokens = int(min(max(PASS * RATE / (6 * parameters), LEAST_TOKENS), MOST_TOKENS))
    torch.set_num_threads(1)
    alone = min(_time_pass(model, tokens) for _ in range(2))  # the first one allocates
    torch.set_num_threads(several)
    try:
        together = min(_time_pass(model, tokens, limit=alone) for _ in range(2))
    except _SlowerError:
        together = alone
    chosen = several if together * GAIN < alone else 1
    torch.set_num_threads(chosen)
    return chosen


class _SlowerError(Exception):
    """A pass takes longer than its limit."""


def _time_pass(model: Model, tokens: int, limit: float = math.inf) -> float:
    """Return the seconds of a forward pass, and of a backward pass where something is trained.

    Raises:
        _SlowerError: in the forward pass, as soon as it has taken `limit` seconds.
    """

    def stop(*_: object) -> None:
        if time.perf_counter() - began > limit:
            raise _SlowerError

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    vocab = int(base_of(model).config.get_text_config().vocab_size)
    ids = torch.arange(tokens)[None] % vocab
    began = time.perf_counter()
    hooks = [module.register_forward_pre_hook(stop) for module in model.modules()]
    try:
        with torch.set_grad_enabled(bool(trained)):
            logits = model(input_ids=ids, use_cache=False).logits
            stop()
            if trained:
                torch.autograd.grad(logits.float().logsumexp(-1).sum(), trained, allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    return time.perf_counter() - began


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


def cores_are_chosen() -> bool:
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
