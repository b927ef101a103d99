"""Saved states of live gymnasium envs: all objects that an env and its wrappers refer to.

Provides `Copies`, which saves and restores one live env in place: every object reachable from the
env keeps its identity and gets its content back. State that is not reachable from the env (class
attributes, module globals) is not saved; `outside_state` watches it.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from turnwise.envs.gymnasium.contents import ATOMS, Kind, NotCopiedError
from turnwise.envs.gymnasium.nodes import kind_of, references, same_references
from turnwise.envs.gymnasium.registry import Live

CONSTANT: Mapping[type, frozenset[str]] = {
    TaxiEnv: frozenset(("P", "desc", "locs", "locs_colors", "initial_state_distrib")),
    FrozenLakeEnv: frozenset(("P", "desc", "initial_state_distrib")),
    CliffWalkingEnv: frozenset(("P", "initial_state_distrib", "_cliff")),
}
"""Attributes that only `__init__` of gymnasium's own classes writes. They are skipped, except in
subclasses and below wrappers that are not in `HARMLESS`, which may write them."""
HARMLESS = (OrderEnforcing, PassiveEnvChecker, TimeLimit)
LENGTH, BLOCK = 16, 64
"""A container with this many entries, and this many references to plain values below it, is checked
as a whole."""
LARGE = 4096
"""Arrays of at least this many bytes are stored once for all states with equal content."""
_PLAIN = frozenset((list, dict, tuple))


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Nested lists, dicts and tuples of plain values, and the objects that they referred to."""

    nodes: Sequence[Any]
    refers: Sequence[Any]
    contents: Sequence[tuple[Kind, Any, Any]]

    def holds(self) -> bool:
        """Whether they still refer to the same objects in the same order."""
        return same_references(self.nodes, self.refers)


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """The contents of all objects: (put, object, content), blocks of values, large arrays."""

    contents: Sequence[tuple[Any, Any, Any]]
    blocks: Sequence[_Block]
    arrays: Mapping[int, tuple[Any, Any]]


class Copies:
    """Saves and restores all objects that one live env refers to.

    Example:
        >>> import gymnasium
        >>> env = gymnasium.make("FrozenLake-v1", is_slippery=False)
        >>> _ = env.reset(seed=0)
        >>> copies = Copies(env)
        >>> before = copies.save()
        >>> _ = env.step(1)
        >>> copies.restore(before)
        >>> int(env.unwrapped.s)
        0
    """

    def __init__(self, env: Live) -> None:
        self._env = env
        self._core = env.unwrapped
        self._skipped = _constant(env)
        self._last = Saved([], [], {})
        self._blocks: dict[int, _Block] = {}
        self.keeps_noise = False
        """Whether the env keeps the generator that was passed to a step."""

    def save(self, noise: np.random.Generator | None = None) -> Saved:
        """Return the contents of all objects reachable from the env.

        `noise` is the generator of the last step, to detect whether the env keeps it.

        Raises:
            NotCopiedError: if an object cannot be saved; the message names the attribute.
        """
        contents: list[tuple[Any, Any, Any]] = []
        blocks: list[_Block] = []
        arrays: dict[int, tuple[Any, Any]] = {}
        weak: list[Any] = []
        seen: dict[int, Any] = {}
        stack: list[Any] = [self._env]
        try:
            while stack:
                thing = stack.pop()
                if id(thing) in seen:
                    continue
                seen[id(thing)] = thing
                kind = type(thing)
                if kind is weakref.ref:
                    weak.append(thing)
                    continue
                if kind in _PLAIN and len(thing) >= LENGTH:
                    block = self._block(thing)
                    if block is not None:
                        blocks.append(block)
                        continue
                how = kind_of(thing)
                if how is None:
                    continue
                content, refers = how.take(thing)
                if kind is np.ndarray and thing.nbytes >= LARGE:
                    known = self._last.arrays.get(id(thing))
                    if known is not None and known[0] is thing and known[1] == content:
                        content = known[1]
                    arrays[id(thing)] = thing, content
                if how.put is not None:
                    contents.append((how.put, thing, content))
                if thing is self._core:
                    refers = [v for name, v in content[2].items() if name not in self._skipped]
                    refers += content[3]
                stack += [v for v in refers if type(v) not in ATOMS]
        except NotCopiedError as cause:
            raise NotCopiedError(cause.thing, self._sentence(cause)) from cause
        if weak:
            self._check_weak(weak, seen)
        self.keeps_noise |= noise is not None and id(noise) in seen
        return self._remember(Saved(contents, blocks, arrays))

    def restore(self, saved: Saved) -> None:
        """Restore all objects to the content in `saved`, which is not changed.

        Raises:
            NotCopiedError: if the content of an object cannot be restored.
        """
        try:
            for put, thing, content in saved.contents:
                put(thing, content)
        except NotCopiedError as cause:
            raise NotCopiedError(cause.thing, self._sentence(cause)) from cause
        for block in saved.blocks:
            if not block.holds():
                for kind, thing, content in block.contents:
                    if kind.put is not None:
                        kind.put(thing, content)
        self._remember(saved)

    def _remember(self, saved: Saved) -> Saved:
        self._last = saved
        self._blocks = {id(block.nodes[0]): block for block in saved.blocks}
        return saved

    def _block(self, thing: Any) -> _Block | None:
        """Return the block that starts at `thing`; None if it is small or not plain."""
        known = self._blocks.get(id(thing))
        if known is not None and known.nodes[0] is thing and known.holds():
            return known
        nodes, contents, stack, seen = [], [], [thing], set()
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            kind = type(node)
            if kind not in _PLAIN:
                return None
            seen.add(id(node))
            how = kind_of(node)
            assert how is not None
            content, refers = how.take(node)
            nodes.append(node)
            contents.append((how, node, content))
            stack += [v for v in refers if type(v) not in ATOMS]
        refers = references(nodes)
        if len(refers) < BLOCK:
            return None
        return _Block(nodes, refers, contents)

    def _check_weak(self, weak: Sequence[Any], seen: Mapping[int, Any]) -> None:
        for link in weak:
            target = link()
            if target is not None and id(target) not in seen and type(target) not in ATOMS:
                cause = NotCopiedError(
                    link, "a weak reference to an object that nothing else holds"
                )
                raise NotCopiedError(link, self._sentence(cause))

    def _sentence(self, cause: NotCopiedError) -> str:
        """Return the attribute with the object that cannot be copied, and the reason."""
        core = type(self._core).__name__
        for thing, path in _paths(self._env):
            if thing is cause.thing:
                return f"{path} holds a {type(thing).__name__} ({cause.why})"
        return f"{core} holds a {type(cause.thing).__name__} ({cause.why})"


def layers_of(env: Live) -> list[Live]:
    """Return the wrappers from the outermost to the env itself."""
    found = [env]
    while isinstance(found[-1], gymnasium.Wrapper):
        found.append(found[-1].env)
    return found


def _constant(env: Live) -> frozenset[str]:
    """Return the attributes of the innermost env that are skipped."""
    *wrappers, core = layers_of(env)
    if all(type(layer) in HARMLESS for layer in wrappers):
        return frozenset(("_np_random",)) | CONSTANT.get(type(core), frozenset())
    return frozenset(("_np_random",))


def _paths(env: Live) -> Iterator[tuple[Any, str]]:
    """Yield all objects that an env refers to, breadth first, each with its path."""
    seen: set[int] = set()
    waiting: deque[tuple[Any, str]] = deque([(env, type(env).__name__)])
    while waiting:
        thing, path = waiting.popleft()
        if id(thing) in seen or type(thing) in ATOMS:
            continue
        seen.add(id(thing))
        yield thing, path
        if isinstance(thing, dict):
            waiting += [(value, f"{path}[{key!r}]") for key, value in dict.items(thing)]
        elif isinstance(thing, list | tuple):
            waiting += [(value, f"{path}[{place}]") for place, value in enumerate(thing)]
        try:
            how = kind_of(thing)
            content, refers = how.take(thing) if how else (None, ())
        except NotCopiedError:
            continue
        if isinstance(content, tuple) and len(content) == 5 and isinstance(content[2], dict):
            for name, value in content[2].items():
                inner = isinstance(thing, gymnasium.Wrapper) and name == "env"
                waiting.append((value, type(value).__name__ if inner else f"{path}.{name}"))
        waiting += [(value, path) for value in refers]
