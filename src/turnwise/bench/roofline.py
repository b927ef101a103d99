"""What this machine can do, and how much of it a training step uses.

Owns the measurement of peaks: products of matrices by the fastest library at hand, and memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from turnwise.kernels.linear import multiply

SIZE, ROUNDS = 2048, 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """Peaks: operations a second by precision, and bytes a second copied (read and written)."""

    device: str
    threads: int
    operations: dict[str, float]
    bandwidth: float


def measure(device: str, threads: int) -> Roofline:
    """Measure the machine's peaks; the best of a few rounds, as a peak is."""
    torch.set_num_threads(threads)
    operations = {
        name: 2 * SIZE**3 / _best(_products(dtype, device), device)
        for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
    }
    source = torch.ones(1 << 26, device=device)
    target = torch.empty_like(source)
    copied = 2 * source.numel() * source.element_size()
    bandwidth = copied / _best([lambda: target.copy_(source)], device)
    return Roofline(device=device, threads=threads, operations=operations, bandwidth=bandwidth)


def _products(dtype: torch.dtype, device: str) -> list[Callable[[], object]]:
    """Return the ways to multiply two square matrices."""
    one, other = (torch.randn(SIZE, SIZE, dtype=dtype, device=device) for _ in range(2))
    ways: list[Callable[[], object]] = [lambda: F.linear(one, other)]
    if device == "cpu" and torch.backends.mkldnn.is_available():
        ways.append(lambda: multiply(one, other))
    return ways


def _best(ways: list[Callable[[], object]], device: str) -> float:
    """Return the seconds of the fastest way at its best."""
    found: list[float] = []
    for way in ways:
        for _ in range(ROUNDS):
            began = time.perf_counter()
            way()
            if device != "cpu":
                torch.cuda.synchronize()
            found.append(time.perf_counter() - began)
    return min(found)
