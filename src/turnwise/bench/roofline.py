"""The peaks of the machine: matrix products by the fastest available library, and memory copies.

Provides `measure`.
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
    """Peaks: operations per second by precision, and bytes per second copied (read and written)."""

    device: str
    threads: int
    operations: dict[str, float]
    bandwidth: float


def measure(device: str, threads: int) -> Roofline:
    """Measure the peaks of the machine, as the best of several rounds."""
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
    """Return the available functions that multiply two square matrices."""
    one, other = (torch.randn(SIZE, SIZE, dtype=dtype, device=device) for _ in range(2))
    variants: list[Callable[[], object]] = [lambda: F.linear(one, other)]
    if device == "cpu" and torch.backends.mkldnn.is_available():
        variants.append(lambda: multiply(one, other))
    return variants


def _best(variants: list[Callable[[], object]], device: str) -> float:
    """Return the seconds of the fastest function in its best round."""
    found: list[float] = []
    for variant in variants:
        for _ in range(ROUNDS):
            began = time.perf_counter()
            variant()
            if device != "cpu":
                torch.cuda.synchronize()
            found.append(time.perf_counter() - began)
    return min(found)
