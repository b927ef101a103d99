"""Demonstrations of the model's own episodes beside the policy gradient, in one loss.

Provides `HindsightMix` and `with_own_means`. In every update there are supervised rows of two
kinds: the iteration's episodes on the tasks that they solved (`trainers.relabelling`), and those of
earlier iterations (`trainers.replay`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from turnwise.seeding import generator
from turnwise.trainers.config import HindsightConfig, HindsightMixConfig
from turnwise.trainers.relabelling import (
    chosen,
    in_order,
    metrics_of,
    relabelled,
    rows_of_each,
)
from turnwise.trainers.replay import Replay, Shown
from turnwise.trainers.session import Session
from turnwise.types import Episode, TrainingSample


@dataclass(kw_only=True)
class HindsightMix:
    """The supervised rows of a policy's own episodes, and what they showed already.

    `past` is what was demonstrated, and `solved` are demonstrations of problems that were solved as
    they were asked. `metrics` are of the latest rows.
    """

    config: HindsightMixConfig
    past: Shown = field(init=False)
    solved: Replay = field(init=False)
    metrics: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin without demonstrations."""
        self.past = Shown(replay=Replay(count=self.config.replay))
        self.solved = Replay(count=self.config.replay_solved)

    def rows(
        self, session: Session, policy: str, episodes: Sequence[Episode], iteration: int
    ) -> list[TrainingSample]:
        """Return the rows of an iteration, and note what they show.

        Process 0 makes them for all processes of the run: an env may break in one of them only.

        Args:
            session: has the env, the agents and the seeds.
            policy: the name of the trained policy, whose renderer writes the rows.
            episodes: of the iteration.
            iteration: its number.
        """
        made = session.group.from_first(lambda: self._made(session, policy, episodes, iteration))
        rows, metrics = made
        self.metrics = metrics | {"hindsight/rows": float(len(rows))}
        return rows

    def _made(
        self, session: Session, policy: str, episodes: Sequence[Episode], iteration: int
    ) -> tuple[list[TrainingSample], dict[str, float]]:
        found = relabelled(session.runner.env, episodes)
        rng = generator(session.seed, "hindsight mix", iteration)
        replayed = [*self.past.replay.drawn(rng), *self.solved.drawn(rng)]
        options = HindsightConfig(again=self.config.again, order="closeness")
        new = chosen(found, options, self.past.seen, rng, self.config.most)
        self.past.replay.add(new)
        self.solved.add(each for each in found if each.closeness >= 1)
        draws = session.runner.draws("train")
        of_step, own = draws.of_step, session.trained[policy].policy
        weight = np.float32(self.config.weight)
        shown = [*in_order(new, options, rng), *replayed]
        rows = [
            replace(row, ce_weight=row.ce_weight * weight)
            for each in rows_of_each(shown, session.runner.env, session.agents, own, of_step)
            for row in each
        ]
        return rows, metrics_of(found, new)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds, as plain values."""
        return {"past": self.past.state(), "solved": self.solved.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` returned."""
        self.past.restore(state["past"])
        self.solved.restore(state["solved"])


def with_own_means(
    shown: Sequence[TrainingSample], taught: Sequence[TrainingSample]
) -> list[TrainingSample]:
    """Return demonstrations and the rows of the SFT mix, the loss of each kind a mean of its own.

    The loss divides by the tokens of both kinds (`losses.token_weights`), so the weights of each
    are multiplied by these and divided by its own. Otherwise the one would weigh less the more rows
    the other has.
    """
    kinds = (shown, taught)
    tokens = [sum(int(np.count_nonzero(row.ce_weight)) for row in rows) for rows in kinds]
    if not all(tokens):
        return [*shown, *taught]
    return [
        replace(row, ce_weight=row.ce_weight * np.float32(sum(tokens) / own))
        for rows, own in zip(kinds, tokens, strict=True)
        for row in rows
    ]
