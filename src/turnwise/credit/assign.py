"""Episodes in, advantages out: the entry point of credit assignment.

Provides `assign_advantages` and its result `Credit`. Advantages belong to turns and named spans;
`rollout.samples` puts them on tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from turnwise.credit.compare import compare, scaled_by_role, spread, standardise
from turnwise.credit.config import RETURN, WHOLE, CreditConfig
from turnwise.credit.groups import Group
from turnwise.credit.metrics import credit_metrics
from turnwise.credit.returns import Payments, Penalties, team_shares
from turnwise.credit.role_baselines import less_baselines
from turnwise.credit.schemes import SCHEMES
from turnwise.credit.units import (
    component_units,
    trajectories,
    without_infrastructure_failures,
)
from turnwise.errors import ConfigError, TrainingError
from turnwise.types import Episode, Trajectory, Turn, TurnId


@dataclass(frozen=True, kw_only=True, slots=True)
class Credit:
    """The advantages of turns, and the groups and metrics they come from.

    `advantages`: turn -> span name -> advantage; the span `""` is the whole completion. Turns of
    episodes that failed by no fault of the policy are absent, and turns that are not compared.
    `groups`: those of the scheme's first comparison, for logs. `counted`: the turns whose units the
    loss's denominators count (`normalise_by`). `ends`: how many tokens of a completion carry its
    advantage, for turns of which not all do.

    Example:
        >>> Credit(advantages={}, groups=(), metrics={}, counted=frozenset()).has_signal
        False
    """

    advantages: Mapping[TurnId, Mapping[str, float]]
    groups: tuple[Group, ...]
    metrics: Mapping[str, float]
    counted: frozenset[TurnId]
    ends: Mapping[TurnId, int] = field(default_factory=dict)

    @property
    def has_signal(self) -> bool:
        """Whether any advantage is not 0; without one an iteration takes no optimizer step."""
        return any(value != 0 for spans in self.advantages.values() for value in spans.values())

    def of(self, turns: Collection[TurnId]) -> Credit:
        """Return the credit of some turns: those of one policy, say."""
        return replace(
            self,
            advantages={turn: spans for turn, spans in self.advantages.items() if turn in turns},
            counted=self.counted & frozenset(turns),
            ends={turn: end for turn, end in self.ends.items() if turn in turns},
        )


def assign_advantages(
    episodes: Sequence[Episode],
    config: CreditConfig,
    *,
    penalties: Penalties | None = None,
    team: Collection[str] = (),
    baselines: Mapping[str, float] | None = None,
) -> Credit:
    """Compare what answered the same question and return every turn's advantage.

    Args:
        episodes: all episodes of one batch, in any order, those solved early included.
        config: scheme, rewards, scaling and segments.
        penalties: what is taken off each turn's reward before anything is summed or compared: turn
            -> span -> amount, the span `""` being the whole turn. A turn's own reward, the return
            of its episode and so the advantages of earlier turns fall by it. A span that answers
            for a component of its own is charged for its own tokens there.
        team: the components of level `team`, which are part of every seat's return.
        baselines: role -> baseline, where the scheme has running ones (`credit.role_baselines`).

    Raises:
        ConfigError: if `config.rewards` is empty.
        TrainingError: if an invariant of groups is broken (see `credit.groups`), or `penalties`
            lacks a turn.
    """
    if not config.rewards:
        raise ConfigError(
            "credit.rewards is empty, so every return would be 0: name the components that count "
            "with their weights, or call fill_rewards"
        )
    kept = without_infrastructure_failures(episodes)
    played = trajectories(kept)
    if penalties is not None:
        _check_complete(played, penalties)
    shares: dict[TurnId, float] = {}
    for episode in kept if team else ():
        shares |= team_shares(episode, config.rewards, team)
    payments = Payments(penalties=penalties, shares=shares)
    groups, values = _return_advantages(played, config, payments, baselines or {})
    parts = config.segment_components
    own = _component_advantages(played, config, penalties) if parts else {}
    if config.mixed_only:
        _silence([group for group in groups if group.zero_variance], values, *own.values())
    if config.least_advantage is not None:
        values = {turn: max(value, config.least_advantage) for turn, value in values.items()}
    advantages = {
        turn.id: _by_span(turn, values[turn.id], own, config)
        for trajectory in played
        for turn in trajectory.sampled
        if turn.id in values
    }
    return Credit(
        advantages=advantages,
        groups=groups,
        metrics=credit_metrics(
            groups, values, excluded=len(episodes) - len(kept), penalties=penalties
        ),
        counted=counted_turns(advantages, config),
    )


def _component_advantages(
    played: Sequence[Trajectory], config: CreditConfig, penalties: Penalties | None
) -> dict[str, dict[TurnId, float]]:
    """Return the advantages of each turn for the components that segments answer for."""
    siblings = SCHEMES[config.scheme].by_sibling
    return {
        name: standardise(
            component_units(played, name, config.spans_of(name), penalties, siblings=siblings),
            config.floor,
        )
        for name in config.segment_components
    }


def _check_complete(played: Sequence[Trajectory], penalties: Penalties) -> None:
    """Raise unless every turn has a penalty: an absent one would count as 0."""
    for turn in (turn for trajectory in played for turn in trajectory.sampled):
        if turn.id not in penalties:
            raise TrainingError(f"turn {turn.id} has no penalty, but others have")


def _return_advantages(
    played: Sequence[Trajectory],
    config: CreditConfig,
    payments: Payments,
    baselines: Mapping[str, float],
) -> tuple[tuple[Group, ...], dict[TurnId, float]]:
    """Return the groups of the scheme's comparison and each turn's advantage for the return."""
    scheme = SCHEMES[config.scheme]
    units = scheme.compare.unit(played, config.rewards, payments, config)
    groups = compare(units, scheme.compare, config)
    if baselines:
        groups = less_baselines(groups, baselines)
    values = spread(groups)
    silent = [group for group in groups if config.mixed_only and group.zero_variance]
    if scheme.by_turn is not None:
        by_turn = scheme.by_turn(played, config.rewards, payments, config)
        return groups, scaled_by_role(by_turn, units, config, untrained=set(spread(silent)))
    if scheme.add is None:
        return groups, values
    more = scheme.add.unit(played, config.rewards, payments, config)
    added = spread(compare(more, scheme.add, config, untrained=set(spread(silent))))
    weight = config.weight_of_second
    return groups, {turn: value + weight * added[turn] for turn, value in values.items()}


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
    of its tokens: a failure that the policy caused is trained, not lost (docs/math.md 4).
    """
    if not any(span.name in config.return_spans for span in turn.spans):
        return {WHOLE: value}
    return {
        span: value if what == RETURN else own[what][turn.id]
        for span, what in config.segments.items()
    }


def counted_turns(
    advantages: Mapping[TurnId, Mapping[str, float]], config: CreditConfig
) -> frozenset[TurnId]:
    """Return the turns whose units the loss's denominators count (`normalise_by`)."""
    if config.normalise_by == "sampled":
        return frozenset(advantages)
    return frozenset(turn for turn, spans in advantages.items() if any(spans.values()))
