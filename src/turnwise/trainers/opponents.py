"""Opponents of a policy in training: itself, earlier versions of it, and baselines of the env.

Provides `Opponents`, which says who plays which seat in each visit and keeps the pool of earlier
versions, and `frozen_copies`, the weights with which they play. Every draw is a function of the
iteration and the visit, and the pool is part of checkpoints, so that a resumed run goes on with
equal numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from turnwise.engines.loop import SteppedEngine
from turnwise.envs.opponents import opposed
from turnwise.policies import Policy
from turnwise.rollout.metrics import POOL, SELF
from turnwise.seeding import generator
from turnwise.trainers.opponents_config import OpponentsConfig
from turnwise.types import Player, TaskVisit

FILE = "pool.json"
"""The file of a checkpoint that lists the versions of the pool, beside their weights."""


def frozen_copies(
    policies: Mapping[str, Policy], config: OpponentsConfig | None
) -> dict[str, Policy]:
    """Return the policies of the pool by name: for each place of it a copy of each trained policy.

    A copy has the name of its policy with the number of the place, as in `main@0`. Frozen tensors
    are shared.
    """
    kept = None if config is None else config.kept
    if kept is None:
        return {}
    copies: dict[str, Policy] = {}
    for place in range(kept.versions):
        for name, policy in policies.items():
            if policy.config.trainable:
                copies[copy_name(name, place)] = policy.frozen_copy(copy_name(name, place))
    return copies


def copy_name(policy: str, place: int) -> str:
    """Return the name of the copy of a policy in a place of the pool."""
    return f"{policy}@{place}"


@dataclass(kw_only=True)
class Opponents:
    """Says who plays which seat, and keeps the pool of earlier versions.

    Attributes:
        seats: seat -> the policy of its agent.
        policies: the policies that are trained, by name.
        copies: their frozen copies (`frozen_copies`).
        versions: place of the pool -> the iteration whose weights it holds, from the oldest.
    """

    config: OpponentsConfig
    seed: int
    seats: Mapping[str, str]
    policies: Mapping[str, Policy]
    copies: Mapping[str, Policy]
    engine: SteppedEngine
    versions: dict[int, int] = field(default_factory=dict)

    def assigned(self, visits: Sequence[TaskVisit]) -> list[TaskVisit]:
        """Return visits with the opponents that they are played against.

        Before the first visit of an iteration the weights join the pool, where that is due.
        """
        if visits:
            self._grow(visits[0].iteration)
        return [replace(visit, players=self.players_of(visit)) for visit in visits]

    def players_of(self, visit: TaskVisit) -> dict[str, Player]:
        """Return the opponents of a visit by seat; empty for self-play."""
        rng = generator(self.seed, "opponents", visit.iteration, visit.visit)
        names = list(self.config.shares)
        shares = [self.config.shares[name] for name in names]
        name = names[int(rng.choice(len(names), p=[share / sum(shares) for share in shares]))]
        if name == SELF:
            return {}
        others = opposed(self.seats, visit.iteration + visit.visit, Player(name=name))
        if name != POOL:
            return others
        place = self._drawn(float(rng.random()), int(rng.integers(2**31)))
        return {seat: Player(name=name, policy=self._playing(seat, place)) for seat in others}

    def _drawn(self, chance: float, number: int) -> int:
        """Return the place of the version that plays: the newest, or any of them."""
        places = list(self.versions)
        kept = self.config.kept
        assert kept is not None and places, "the pool is filled before the first visit"
        return places[-1] if chance < kept.latest else places[number % len(places)]

    def _playing(self, seat: str, place: int) -> str:
        """Return the policy that plays a seat of the pool's side; untrained ones have no copy."""
        name = copy_name(self.seats[seat], place)
        return name if name in self.copies else self.seats[seat]

    def _grow(self, iteration: int) -> None:
        """Add the present weights to the pool, if it is due and not done."""
        kept = self.config.kept
        if kept is None or iteration % kept.every or iteration in self.versions.values():
            return
        place = next((n for n in range(kept.versions) if n not in self.versions), None)
        if place is None:
            place = next(iter(self.versions))  # the oldest
            del self.versions[place]
        for name, policy in self.policies.items():
            self.copies[copy_name(name, place)].copy_weights(policy)
        self._set(place, iteration)

    def _set(self, place: int, iteration: int) -> None:
        self.versions[place] = iteration
        for name in self.policies:
            copy = self.copies[copy_name(name, place)]
            copy.version = iteration + 1  # 0 is what it was made with
            self.engine.update_weights(copy.name)

    def save(self, folder: Path) -> None:
        """Write the pool into the folder of a checkpoint."""
        if not self.versions:
            return
        for place in self.versions:
            for name, policy in self.policies.items():
                copy = self.copies[copy_name(name, place)]
                save_file(_weights(copy, policy), folder / _file(copy.name))
        (folder / FILE).write_text(json.dumps(list(self.versions.items())), encoding="utf-8")

    def restore(self, folder: Path) -> None:
        """Go on with the pool of a checkpoint; one without a pool has none yet."""
        self.versions.clear()
        if not (folder / FILE).is_file():
            return
        for place, iteration in json.loads((folder / FILE).read_text(encoding="utf-8")):
            for name, policy in self.policies.items():
                copy = self.copies[copy_name(name, place)]
                own, saved = _weights(copy, policy), load_file(folder / _file(copy.name))
                with torch.no_grad():
                    for title, tensor in own.items():
                        tensor.copy_(saved[title])
            self._set(place, iteration)


def _weights(copy: Policy, policy: Policy) -> dict[str, torch.Tensor]:
    """Return the tensors of a copy that training changes in its policy, by name."""
    own = dict(copy.model.named_parameters())
    return {
        name: own[name]
        for name, parameter in policy.model.named_parameters()
        if parameter.requires_grad
    }


def _file(copy: str) -> str:
    return f"pool-{copy}.safetensors"
