"""The engine of this machine: transformers models, continuous batching, counter-based draws.

Provides `LocalEngine`, the queue between coroutines and batches. Policies share neither rows nor
caches: each has a queue of its own for one version of its weights. Adapters on one base share
forward passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.engines.base import Completion, Request
from turnwise.engines.config import EngineConfig
from turnwise.engines.local.drafts import Drafts, spare_tokens
from turnwise.engines.local.forward import Model
from turnwise.engines.local.multi_lora import Families
from turnwise.engines.local.probe import choose_rows
from turnwise.engines.local.row_store import RowStore
from turnwise.engines.local.scheduler import Entry, RunningBatch
from turnwise.engines.loop import RunLoop
from turnwise.errors import EngineError, unknown_name
from turnwise.seeding import token_uniforms
from turnwise.types import TurnId

_NO_TOKENS: Mapping[str, int] = MappingProxyType({})
_PLACE = attrgetter(*(field.name for field in fields(TurnId)))


class PolicyLike(Protocol):
    """The part of a policy that the engine uses: weights in eval mode, their version and limits."""

    @property
    def name(self) -> str:
        """The policy's name."""
        ...

    @property
    def version(self) -> int:
        """The number of changes of its weights."""
        ...

    @property
    def model(self) -> Model:
        """The transformers model, wrapped by PEFT where there is an adapter."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end a completion."""
        ...

    @property
    def context(self) -> int:
        """The longest sequence of prompt and completion, in tokens."""
        ...


@dataclass(kw_only=True, slots=True, eq=False)
class _Call:
    """A request that a coroutine waits for."""

    request: Request
    future: asyncio.Future[Completion]
    order: tuple[Any, ...]
    entry: Entry | None = None


class LocalEngine:
    """Samples from models on this machine, for many coroutines at once.

    Run coroutines with `turnwise.engines.run`, which calls `advance` whenever they all wait.
    """

    def __init__(
        self,
        policies: Mapping[str, PolicyLike],
        config: EngineConfig,
        seed: int,
        tokens: Mapping[str, int] = _NO_TOKENS,
    ) -> None:
        self.deterministic = config.deterministic
        self.loop = RunLoop()
        self._seed = seed
        self._lanes = {
            name: _PolicyQueue(policy, config, seed, tokens.get(name, 0))
            for name, policy in sorted(policies.items())
        }
        self._families = Families()

    async def generate(self, request: Request) -> Completion:
        """Return one completion, drawn as (seed, stream, turn) decide.

        A prompt that leaves no room in the context gets an empty completion with finish reason
        "context".

        Raises:
            EngineError: if the policy is unknown, its logits are not finite, or nothing is asked.
        """
        lane = self._lane(request.policy)
        if not request.prompt_ids:
            raise EngineError(f"turn {request.id} has an empty prompt: give at least one token")
        if request.sampling.max_tokens < 1:
            raise EngineError(
                f"turn {request.id} asks for max_tokens = {request.sampling.max_tokens}: 1 or more"
            )
        future = asyncio.get_running_loop().create_future()
        order = (*_PLACE(request.id), request.stream)
        call = _Call(request=request, future=future, order=order)
        lane.waiting.append(call)
        try:
            return await future
        except asyncio.CancelledError:
            lane.abandon(call)
            raise

    def advance(self) -> bool:
        """Admit what waits and draw one token for every completion; False if nothing was to do."""
        busy = [name for name, lane in self._lanes.items() if lane.busy]
        with torch.inference_mode(), ExitStack() as undo:
            for name in busy:  # short of memory, or Ctrl-C
                undo.callback(self._lanes[name].begin_anew)
            for name in busy:
                self._lanes[name].admit(self._seed)
            computed = self._families.compute(self._lanes, busy)
            for name in busy:
                self._lanes[name].step(computed.get(name))
            undo.pop_all()
        return bool(busy)

    def update_weights(self, policy: str) -> None:
        """Drop everything computed with the policy's old weights; none may be in use."""
        lane = self._lane(policy)
        assert not lane.busy, f"policy {policy!r} got new weights while it was writing"
        lane.rows.forget()

    def end_iteration(self) -> None:
        """Forget all prompts, frozen policies' too, unless the engine is not deterministic."""
        for lane in self._lanes.values():
            lane.batch.drafts.end_iteration()
            if self.deterministic:
                lane.rows.forget()

    async def close(self) -> None:
        """Forget everything that was computed, and give the memory back."""
        for lane in self._lanes.values():
            lane.rows.forget()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what the passes of later iterations depend on: what drafts are made from."""
        return {
            f"{policy}/{name}": array
            for policy, lane in self._lanes.items()
            for name, array in lane.batch.drafts.state().items()
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned."""
        for policy, lane in self._lanes.items():
            begin = f"{policy}/"
            own = {n.removeprefix(begin): a for n, a in state.items() if n.startswith(begin)}
            lane.batch.drafts.restore(own)

    def reason(self, policy: str) -> str:
        """Return how the policy is sampled and what was measured to choose it."""
        return self._lane(policy).reason

    def metrics(self) -> dict[str, float]:
        """Return what was done since the last call.

        `sampled_tokens` were drawn, `decode_tokens` computed for it (fewer where completions share
        rows); `prompt_tokens` were asked with, `prefill_tokens` of them computed; in `steps` steps
        `row_steps` rows were gone on with; `drafted_tokens` were computed ahead, `accepted_tokens`
        of them were then drawn; `copied_bytes` of keys and values were moved or remembered.
        """
        lanes = list(self._lanes.values())
        found = {
            "engine/sampled_tokens": float(sum(lane.batch.sampled for lane in lanes)),
            "engine/decode_tokens": float(sum(lane.rows.decoded for lane in lanes)),
            "engine/prompt_tokens": float(sum(lane.prompt_tokens for lane in lanes)),
            "engine/prefill_tokens": float(sum(lane.rows.prefilled for lane in lanes)),
            "engine/forward_calls": float(
                self._families.take_calls() + sum(lane.rows.calls for lane in lanes)
            ),
            "engine/copied_bytes": float(sum(lane.rows.copied for lane in lanes)),
            "engine/steps": float(sum(lane.batch.steps for lane in lanes)),
            "engine/row_steps": float(sum(lane.batch.row_steps for lane in lanes)),
            "engine/drafted_tokens": float(sum(lane.batch.drafted for lane in lanes)),
            "engine/accepted_tokens": float(sum(lane.batch.accepted for lane in lanes)),
        }
        for lane in lanes:
            lane.reset_counts()
        return found

    def _lane(self, policy: str) -> _PolicyQueue:
        if policy not in self._lanes:
            raise EngineError(str(unknown_name("policy", policy, self._lanes)))
        return self._lanes[policy]


class _PolicyQueue:
    """One policy's queue and batch."""

    def __init__(self, policy: PolicyLike, config: EngineConfig, seed: int, tokens: int) -> None:
        self._policy, self._in_order = policy, config.deterministic
        make: Callable[[], RowStore]
        make, self.reason = choose_rows(policy.model, policy.context, config, seed, tokens)
        self.rows = make()
        self.batch = RunningBatch(
            self.rows,
            capacity=config.max_rows,
            stop_ids=policy.stop_ids,
            share_rows=config.share_rows,
            drafts=Drafts(policy.stop_ids, spare_tokens(policy.model) if config.drafts else 0.0),
        )
        self.waiting: list[_Call] = []
        self.prompt_tokens = 0
        self._calls: dict[Entry, _Call] = {}
        self._version = policy.version

    @property
    def busy(self) -> bool:
        """Whether a request waits or is being written."""
        return bool(self.waiting) or bool(len(self.batch))

    @property
    def model(self) -> Model:
        """The policy's model."""
        return self._policy.model

    @property
    def version(self) -> int:
        """The version of its weights."""
        return self._policy.version

    def admit(self, seed: int) -> None:
        """Add what waits, as far as it fits in."""
        self._check_version()
        self.batch.admit(self._admitted(seed))

    def step(self, computed: Tensor | None) -> None:
        """Draw tokens for every completion, and wake whose completions are done.

        `computed` are the logits of the batch's pass, where it has been run.
        """
        if not len(self.batch):
            return
        for gone in self.batch.step(self._version, computed):
            future = self._calls.pop(gone.entry).future
            if future.done():
                continue
            if isinstance(gone.result, EngineError):
                future.set_exception(gone.result)
            else:
                future.set_result(gone.result)

    def abandon(self, call: _Call) -> None:
        """Take back a request whose coroutine was cancelled."""
        if call in self.waiting:
            self.waiting.remove(call)
        elif call.entry in self._calls:
            del self._calls[call.entry]
            with torch.inference_mode():  # rows move up, and were made in this mode
                self.batch.abandon(call.entry)

    def begin_anew(self) -> None:
        """Forget everybody that is being written, after a step that failed in the middle."""
        self.batch.clear()
        self._calls.clear()

    def reset_counts(self) -> None:
        """Begin to count anew."""
        self.rows.reset_counts()
        self.prompt_tokens = 0
        self.batch.reset_counts()

    def _check_version(self) -> None:
        """Forget what another version computed, and refuse a model that would draw wrongly."""
        assert not self._policy.model.training, f"{self._policy.name!r} is in training mode"
        if self._policy.version != self._version:
            assert not len(self.batch), "weights changed while completions were being written"
            self.rows.forget()
            self._version = self._policy.version

    def _admitted(self, seed: int) -> list[Entry]:
        """Take from the queue what fits, in the order of turns; answer what has no room at all."""
        if not self.waiting or not self.batch.free:
            return []
        if self._in_order:
            self.waiting.sort(key=lambda call: call.order)
        arrivals: list[Entry] = []
        taken = 0
        while taken < len(self.waiting) and len(arrivals) < self.batch.free:
            entry = self._entry(self.waiting[taken], seed)
            taken += 1
            if entry is not None:
                arrivals.append(entry)
        del self.waiting[:taken]
        return arrivals

    def _entry(self, call: _Call, seed: int) -> Entry | None:
        """Return a call as the batch takes it; None if its prompt fills the context."""
        request = call.request
        room = self._policy.context - len(request.prompt_ids)
        if room < 1:
            full = Completion(
                token_ids=(), logprobs=(), finish_reason="context", policy_version=self._version
            )
            if not call.future.done():
                call.future.set_result(full)
            return None
        count = min(room, request.sampling.max_tokens)
        uniforms = token_uniforms(seed, request.stream, request.id, count)
        call.entry = Entry(request=request, uniforms=uniforms, room=room)
        self._calls[call.entry] = call
        self.prompt_tokens += len(request.prompt_ids)
        return call.entry
