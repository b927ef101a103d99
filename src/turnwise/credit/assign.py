"""Episodes in, advantages out: the entry point of credit assignment.

Owns `assign_advantages`, its result `Credit`, and which span of a completion carries what. Knows
nothing of tokens or tensors: advantages belong to turns and named spans; `rollout.samples` puts
them on tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from turnwise.credit.compare import compare, compare_states, spread, standardise
from turnwise.credit.config import RETURN, WHOLE, CreditConfig
from turnwise.credit.groups import Group
from turnwise.credit.metrics import credit_metrics
from turnwise.credit.schemes import SCHEMES, Std
from turnwise.credit.units import (
    component_units,
    episode_units,
    state_units,
    trajectories,
    without_infrastructure_failures,
)
from turnwise.errors import ConfigError
from turnwise.types import Episode, Trajectory, Turn, TurnId

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Credit:
    """What each turn is worth, and how that was found.

    `advantages`: turn -> span name -> advantage; the span `""` is the whole completion. Turns of
    episodes that failed by no fault of the policy are absent. `groups`: the episode-level groups,
    for logs. `counted`: the turns whose units the loss's denominators count (`normalise_by`).

    Example:
        >>> Credit(advantages={}, groups=(), metrics={}, counted=frozenset()).has_signal
        False
    """

    advantages: Mapping[TurnId, Mapping[str, float]]
    groups: tuple[Group, ...]
    metrics: Mapping[str, float]
    counted: frozenset[TurnId]

    @property
    def has_signal(self) -> bool:
        """Whether any advantage is not 0; without one an iteration takes no optimizer step."""
        return any(value != 0 for spans in self.advantages.values() for value in spans.values())


def assign_advantages(episodes: Sequence[Episode], config: CreditConfig) -> Credit:
    """Compare what answered the same question and return every turn's advantage.

    Args:
        episodes: all episodes of one batch, in any order, those solved early included.
        config: scheme, rewards, scaling and segments.

    Raises:
        ConfigError: if `config.rewards` is empty.
        TrainingError: if an invariant of groups is broken (see `credit.groups`).
    """
    if not config.rewards:
        raise ConfigError(
            "credit.rewards is empty, so every return would be 0: name the components that count "
            "with their weights, or call fill_rewards"
        )
    kept = without_infrastructure_failures(episodes)
    played = trajectories(kept)
    groups, values = _return_advantages(played, config)
    own = {
        name: standardise(component_units(played, name), _given(config.std_floor))
        for name in config.segment_components
    }
    if config.filter_zero_variance:
        _silence([group for group in groups if group.zero_variance], values, *own.values())
    advantages = {
        turn.id: _by_span(turn, values[turn.id], own, config)
        for trajectory in played
        for turn in trajectory.turns
    }
    return Credit(
        advantages=advantages,
        groups=groups,
        metrics=credit_metrics(groups, values, excluded=len(episodes) - len(kept)),
        counted=_counted(advantages, config),
    )


def _return_advantages(
    played: Sequence[Trajectory], config: CreditConfig
) -> tuple[tuple[Group, ...], dict[TurnId, float]]:
    """Return the episode-level groups and each turn's advantage for the return."""
    scheme = SCHEMES[config.scheme]
    std: Std = _given(config.std)
    floor = 0.0 if std == "none" else _given(config.std_floor)
    units = episode_units(played, config.rewards)
    groups = compare(units, scheme, std, floor)
    values = spread(groups)
    if scheme.compares_states:
        states = compare_states(
            state_units(played, config.rewards, _given(config.gamma)),
            own_episode=_given(config.own_episode),
            std=std,
            floor=floor,
        )
        weight = _given(config.weight)
        values = {turn: value + weight * states[turn] for turn, value in values.items()}
    return groups, values


def _silence(groups: Sequence[Group], *tables: dict[TurnId, float]) -> None:
    """Set the advantages of all turns of `groups` to 0 in `tables`, in place."""
    for turn in (turn for group in groups for unit in group.units for turn in unit.turns):
        for table in tables:
            table[turn] = 0.0


def _by_span(
    turn: Turn,
    value: float,
    own: Mapping[str, Mapping[TurnId, float]],
    config: CreditConfig,
) -> dict[str, float]:
    """Return span -> advantage of one turn.

    A reply without any span that carries the return (no answer, a cut one) answers for it with all
    of its tokens: a failure that the policy caused is trained, not lost (MATH 5).
    """
    carriers = {span for span, what in config.segments.items() if what == RETURN}
    if not any(span.name in carriers for span in turn.spans):
        return {WHOLE: value}
    return {
        span: value if what == RETURN else own[what][turn.id]
        for span, what in config.segments.items()
    }


def _counted(
    advantages: Mapping[TurnId, Mapping[str, float]], config: CreditConfig
) -> frozenset[TurnId]:
    if config.normalise_by == "sampled":
        return frozenset(advantages)
    return frozenset(turn for turn, spans in advantages.items() if any(spans.values()))


def _given(value: T | None) -> T:
    """Return an option that parsing has resolved."""
    assert value is not None, "CreditConfig resolves every option that its scheme has"
    return value
