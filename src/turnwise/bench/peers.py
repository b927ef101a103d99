"""The ways in which TRL is run beside turnwise: tuned in every way known, and as documented.

Provides `Peer`, `peers_of`, and what a setting is in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line imports this module to print its help
    from turnwise.bench.workloads import Workload


class Against(StrEnum):
    """The settings of TRL to compare with."""

    TUNED = "tuned"
    DOCUMENTED = "documented"
    BOTH = "both"
    NOBODY = "nobody"


class Rollout(StrEnum):
    """How TRL plays a workload of many turns.

    `TOOLS` is TRL's own loop over an environment with tools. It reads the whole history again in
    every turn, as `ANEW` does, a rollout function for workloads without tools. `KEPT` is a rollout
    function that keeps keys and values from turn to turn. All give one training row per episode.
    """

    ONE_TURN = "one turn"
    TOOLS = "tools"
    ANEW = "anew"
    KEPT = "kept"


ROLLOUTS = {
    Rollout.ONE_TURN: "",
    Rollout.TOOLS: "TRL's own loop over an environment, which reads the history again every turn",
    Rollout.ANEW: "a rollout function that reads the history again every turn",
    Rollout.KEPT: "a rollout function that keeps keys and values over turns",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """One TRL to compare with: its name, its way to play, and whether its settings are defaults."""

    name: str
    rollout: Rollout
    documented: bool = False

    def variants(self, workload: Workload) -> list[dict[str, Any]]:
        """Return the settings to try: rows of a micro-batch, sampling method, allocator settings.

        `keep` applies turnwise's settings of the allocator to TRL's process; a user's process would
        not have them.
        """
        asked: dict[str, Any] = {"documented": self.documented, "rollout": self.rollout}
        if self.documented:
            return [asked]
        asked |= {"continuous": False, "keep": True}
        variants = [asked | {"micro_rows": rows} for rows in workload.micro_rows]
        variants.append(variants[0] | {"keep": False})
        if self.rollout is Rollout.ONE_TURN:
            variants.append(variants[0] | {"continuous": True})
        return variants


def peers_of(workload: Workload, against: Against) -> list[Peer]:
    """Return the peers of a workload.

    With many turns, TRL tuned is two of them: the rollout that keeps keys and values, and TRL's own
    loop. The first is there to choose the settings of both.
    """
    own = Rollout.ONE_TURN
    if workload.turns > 1:
        own = Rollout.TOOLS if workload.system_tokens else Rollout.ANEW
    found: list[Peer] = []
    if against in (Against.TUNED, Against.BOTH):
        if own is Rollout.ONE_TURN:
            found = [Peer(name="tuned", rollout=own)]
        else:
            found = [
                Peer(name="tuned, kept", rollout=Rollout.KEPT),
                Peer(name="tuned, own loop", rollout=own),
            ]
    if against in (Against.DOCUMENTED, Against.BOTH):
        found.append(Peer(name="documented", rollout=own, documented=True))
    return found


def describe(settings: Mapping[str, Any]) -> str:
    """Return the settings of TRL in words.

    Example:
        >>> describe({"documented": True, "rollout": "one turn"})
        'the defaults of GRPOConfig: bfloat16 autocast, gradient checkpointing'
    """
    if settings["documented"]:
        words = ["the defaults of GRPOConfig: bfloat16 autocast, gradient checkpointing"]
    else:
        words = [
            f"float32, micro-batches of {settings['micro_rows']} rows",
            "continuous batching" if settings["continuous"] else "`generate`",
            "turnwise's allocator settings" if settings["keep"] else "no allocator settings",
        ]
    played = ROLLOUTS[Rollout(settings["rollout"])]
    return ", ".join([*words, played] if played else words)
