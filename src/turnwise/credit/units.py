"""Episodes become units: a role's whole trajectory, or each of its turns.

Provides the units that schemes compare, each with its return, and the choice of the episodes that
take part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from turnwise.credit.config import CreditConfig
from turnwise.credit.groups import Unit
from turnwise.credit.returns import (
    Payments,
    Penalties,
    episode_return,
    returns_to_go,
    turn_rewards,
)
from turnwise.errors import TrainingError
from turnwise.types import Episode, Trajectory, Turn


def without_infrastructure_failures(episodes: Iterable[Episode]) -> list[Episode]:
    """Return the episodes that the policy, and nothing else, decided.

    Failures of the engine or the environment leave their group, which shrinks; failures that the
    policy caused (a reply that does not parse, a full context) stay and are trained (docs/math.md
    4).
    """
    return [episode for episode in episodes if not episode.broken]


def trajectories(episodes: Iterable[Episode]) -> list[Trajectory]:
    """Return every seat's trajectory that has turns, after checking that ids tell the truth.

    Seats that an opponent or a server's policy plays have no tokens to train: they earn rewards, as
    part of their team too, but are compared with nothing.

    Raises:
        TrainingError: if a turn's id names another episode or seat, or one seat used two policies.
    """
    found: list[Trajectory] = []
    for episode in episodes:
        for trajectory in episode.trajectories:
            for turn in trajectory.sampled:
                if turn.id.episode != episode.id or turn.id.role != trajectory.seat:
                    raise TrainingError(
                        f"turn {turn.id} is filed under episode {episode.id}, seat "
                        f"{trajectory.seat!r}"
                    )
            if len({turn.policy for turn in trajectory.sampled}) > 1:
                raise TrainingError(f"{trajectory.turns[0].id}: one seat, more than one policy")
            if trajectory.turns and not (trajectory.player or trajectory.turns[0].text_only):
                found.append(trajectory)
    return found


class Discounted(Protocol):
    """The options of a scheme that discounts returns-to-go."""

    @property
    def gamma(self) -> float:
        """The discount of one turn."""
        ...


def episode_units(
    played: Sequence[Trajectory],
    weights: Mapping[str, float],
    payments: Payments,
    config: CreditConfig,
) -> list[Unit]:
    """Return one unit per trajectory, whose value is the episode's return R."""
    return [
        Unit(
            role=trajectory.role,
            opens=trajectory.turns[0].order == 0,
            turns=tuple(turn.id for turn in trajectory.turns),
            policy=trajectory.turns[0].policy,
            first_prompt=trajectory.turns[0].prompt_ids,
            value=episode_return(trajectory, weights, payments),
        )
        for trajectory in played
    ]


def state_units(
    played: Sequence[Trajectory],
    weights: Mapping[str, float],
    payments: Payments,
    config: Discounted,
) -> list[Unit]:
    """Return one unit per turn, whose value is the discounted return-to-go, with its state's key.

    Raises:
        TrainingError: if a turn has no state key.
    """
    units: list[Unit] = []
    for trajectory in played:
        values = returns_to_go(turn_rewards(trajectory, weights, payments), config.gamma)
        for turn, value in zip(trajectory.turns, values, strict=True):
            require_state_key(turn, "gigpo")
            units.append(_turn_unit(trajectory.role, turn, float(value)))
    return units


def require_state_key(turn: Turn, scheme: str) -> str:
    """Return the key of a turn's state.

    Raises:
        TrainingError: if it has none.
    """
    if turn.state_key is None:
        raise TrainingError(
            f"turn {turn.id} has no state key, by which {scheme} groups turns, as the workflow "
            "asked a question: set credit.scheme = 'grpo', or do not use `ask`"
        )
    return turn.state_key


def component_units(
    played: Sequence[Trajectory],
    component: str,
    spans: Sequence[str] = (),
    penalties: Penalties | None = None,
    *,
    siblings: bool = False,
) -> list[Unit]:
    """Return one unit per turn, whose value is one reward component of that turn (absent: 0).

    `spans` answer for the component, and what their tokens cost is taken off it. `siblings` says
    whether turns beside the played path have units, too.
    """
    return [
        _turn_unit(
            trajectory.role,
            turn,
            turn.rewards.get(component, 0.0) - _cost(turn, spans, penalties),
        )
        for trajectory in played
        for turn in (trajectory.sampled if siblings else trajectory.turns)
    ]


def _cost(turn: Turn, spans: Sequence[str], penalties: Penalties | None) -> float:
    """Return the penalty of some spans of a turn; a span that the reply lacks costs nothing."""
    if penalties is None:
        return 0.0
    return sum(penalties[turn.id].get(span, 0.0) for span in spans)


def _turn_unit(role: str, turn: Turn, value: float) -> Unit:
    return Unit(
        role=role,
        turns=(turn.id,),
        policy=turn.policy,
        first_prompt=turn.prompt_ids,
        value=value,
        state=turn.state_key,
        is_episode=False,
    )
