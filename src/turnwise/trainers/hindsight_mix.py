"""Demonstrations of the model's own episodes beside the policy gradient, in one loss.

Provides `HindsightMix` and `with_own_means`. In every update there are supervised rows of two
kinds: the iteration's episodes on the tasks that they solved (`trainers.relabelling`), and episodes
of earlier iterations that solved the task that they were asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from turnwise.seeding import generator
from turnwise.trainers.config import HindsightConfig, HindsightMixConfig
from turnwise.trainers.relabelling import Achieved, chosen, relabelled, rows_of
from turnwise.trainers.session import Session
from turnwise.types import Episode, EpisodeId, Task, TrainingSample

KEPT = 256
"""The most solved problems that are kept for replay, the latest ones."""


@dataclass(kw_only=True)
class HindsightMix:
    """The supervised rows of a policy's own episodes, and what they showed already.

    `seen` are the problems that were demonstrated, and `solved` the shortest episode of each
    problem that was solved as it was asked, by problem. `shown` is the number of the latest rows.
    """

    config: HindsightMixConfig
    seen: set[str] = field(default_factory=set)
    solved: dict[str, Achieved] = field(default_factory=dict)
    shown: int = 0

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
        rows = session.group.from_first(lambda: self._made(session, policy, episodes, iteration))
        self.shown = len(rows)
        return rows

    def _made(
        self, session: Session, policy: str, episodes: Sequence[Episode], iteration: int
    ) -> list[TrainingSample]:
        found = relabelled(session.runner.env, episodes)
        rng = generator(session.seed, "hindsight mix", iteration)
        replayed = self._replayed(rng)
        options = HindsightConfig(again=self.config.again, order="closeness")
        fresh = chosen(found, options, self.seen, rng, self.config.most)
        self._keep(found)
        draws = session.runner.draws("train")
        of_step, own = draws.of_step, session.trained[policy].policy
        weight = np.float32(self.config.weight)
        return [
            replace(row, ce_weight=row.ce_weight * weight)
            for each in (*fresh, *replayed)
            for row in rows_of(each, session.runner.env, session.agents, own, of_step)
        ]

    def _replayed(self, rng: np.random.Generator) -> list[Achieved]:
        """Return some solved episodes of earlier iterations, drawn without replacement."""
        known = list(self.solved.values())
        places = rng.permutation(len(known))[: self.config.replay]
        return [known[place] for place in places]

    def _keep(self, found: Sequence[Achieved]) -> None:
        """Keep the shortest episode of each problem that was solved as it was asked."""
        for each in found if self.config.replay else ():
            if each.closeness < 1:
                continue
            known = self.solved.pop(each.problem, each)
            self.solved[each.problem] = min(known, each, key=lambda one: one.length)
        while len(self.solved) > KEPT:
            del self.solved[next(iter(self.solved))]

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds, as plain values."""
        return {
            "seen": sorted(self.seen),
            "solved": [asdict(each) for each in self.solved.values()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` returned."""
        self.seen = set(state["seen"])
        found = [
            Achieved(
                **each
                | {
                    "id": EpisodeId(**each["id"]),
                    "asked": Task(**each["asked"]),
                    "task": Task(**each["task"]),
                    "actions": tuple(each["actions"]),
                }
            )
            for each in state["solved"]
        ]
        self.solved = {each.problem: each for each in found}


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
