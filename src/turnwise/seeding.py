"""Counter-based random numbers: a draw is a function of its position, not of the time of the call.

Provides generators from a run seed, a stream and a position (docs/math.md 1). Two run seeds,
streams, iterations or visits never share a draw, and batching never changes one.
"""

from __future__ import annotations

import hashlib
from typing import Any, cast

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence
from numpy.typing import NDArray

from turnwise.types import Stream, TurnId


def generator(seed: int, *labels: str | int) -> np.random.Generator:
    """Return the generator that belongs to `seed` and a place named by labels.

    Example:
        >>> a, b = generator(1, "maps", 7), generator(1, "maps", 7)
        >>> a.integers(1000) == b.integers(1000)
        np.True_
    """
    place = "\x1f".join(f"{type(label).__name__}:{label}" for label in (seed, *labels))
    # numpy takes such a key; its stubs do not say so
    return np.random.Generator(np.random.Philox(cast(Any, _PhiloxKey(place.encode()))))


class _PhiloxKey(ISpawnableSeedSequence):
    """Gives Philox its key of 16 bytes, in a third of the time that `Philox(key=...)` takes.

    That one draws a seed from the operating system first, which `Generator.spawn` would use.
    """

    def __init__(self, place: bytes) -> None:
        self._key, self._spawned = hashlib.blake2b(place, digest_size=16).digest(), 0

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> NDArray[Any]:
        """Return the key as two words of 64 bits, which is what Philox asks for."""
        if (n_words, np.dtype(dtype)) != (2, np.dtype(np.uint64)):
            raise ValueError(f"the key of Philox is 2 words of uint64, not {n_words} of {dtype}")
        return np.frombuffer(self._key, "<u8").astype(np.uint64)

    def spawn(self, n_children: int) -> list[Any]:
        """Return keys that follow from this one and from how many were spawned before."""
        first, self._spawned = self._spawned, self._spawned + n_children
        numbers = range(first, self._spawned)
        return [type(self)(self._key + n.to_bytes(8, "little")) for n in numbers]


def token_uniforms(seed: int, stream: Stream, turn: TurnId, count: int) -> NDArray[np.float64]:
    """Return the uniforms in [0, 1) that draw tokens 0..count-1 of a turn, float64 [count].

    Token i's uniform depends on (seed, stream, turn, i) alone: asking for more never changes the
    first ones.
    """
    return generator(seed, "token", stream, str(turn)).random(count)


def world_generator(
    seed: int,
    stream: Stream,
    iteration: int,
    visit: int,
    step: int,
    member: int | None,
    draw: str = "",
) -> np.random.Generator:
    """Return the generator of the env's random draws in one step of one episode.

    Args:
        seed: the run's seed.
        stream: training, warm-up or evaluation.
        iteration: the iteration.
        visit: the number of the task visit in the iteration.
        step: the number of the env step in the episode, over all seats.
        member: None shares the draws by the group (`noise = "common"`); a number makes them the
            episode's own (`noise = "independent"`).
        draw: names another draw of the same step, where it is made more than once.
    """
    place = (stream, iteration, visit, step, "group" if member is None else member)
    return generator(seed, "world", *place, *([draw] if draw else []))
