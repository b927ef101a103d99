"""Groups of units become groups with advantages: scaling, equal returns, groups of one.

Provides what every scheme shares around its estimator (docs/math.md 2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from turnwise.credit.config import CreditConfig
from turnwise.credit.groups import ALL_ROLES, Group, GroupKey, KeyFunction, Unit
from turnwise.credit.groups import group as group_units
from turnwise.credit.returns import Floats
from turnwise.credit.schemes.base import Comparison, batch_key
from turnwise.types import TurnId

EQUAL = 1e-9  # returns that differ by less are one return: sums of rewards carry rounding


def sample_std(values: Floats) -> float:
    """Return the standard deviation with ddof = 1; 0 for a single value.

    Example:
        >>> sample_std(np.array([1.0, 2.0, 3.0]))
        1.0
    """
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def all_equal(values: Floats) -> bool:
    """Return whether all values are one, but for rounding."""
    return bool(np.ptp(values) <= EQUAL)


def compare(
    units: Sequence[Unit],
    comparison: Comparison,
    config: CreditConfig,
    untrained: Collection[TurnId] = (),
) -> tuple[Group, ...]:
    """Group units and give each its advantage.

    Args:
        units: what is compared.
        comparison: key and estimator.
        config: the scheme's options; `divides_by` and `floor` scale advantages.
        untrained: turns whose advantages do not count in the std of the batch's advantages; with
            `config.mixed_only` neither do those of groups of equal values.
    """
    whole, own = _pooled(batch_key, config), _pooled(comparison.key, config)
    batch = {key.role: values_of(found) for key, found in group_units(units, whole).items()}
    groups = tuple(
        _compare_group(key, found, comparison, config, batch[key.role])
        for key, found in group_units(units, own).items()
    )
    return _scaled(groups, config, untrained) if config.divides_by == "batch_advantages" else groups


def _pooled(key: KeyFunction, config: CreditConfig) -> KeyFunction:
    """Return the key of a comparison, without role and seat where roles are pooled."""
    if not config.pools_roles:
        return key
    return lambda unit: replace(key(unit), role=ALL_ROLES, seat=None)


def _scaled(
    groups: Sequence[Group], config: CreditConfig, untrained: Collection[TurnId]
) -> tuple[Group, ...]:
    """Divide the groups' advantages by the std of all advantages of their role."""
    found: dict[str, list[float]] = {}
    for group in groups:
        if not (config.mixed_only and group.zero_variance and group.units[0].is_episode):
            pairs = zip(group.units, group.advantages, strict=True)
            kept = [value for unit, value in pairs if unit.id not in untrained]
            found.setdefault(group.key.role, []).extend(kept)
    scales = {role: _floored(np.array(values), config) for role, values in found.items()}
    out: list[Group] = []
    for group in groups:
        scale = scales.get(group.key.role, 1.0)  # none where all of the role's advantages are 0
        out.append(replace(group, advantages=tuple(a / scale for a in group.advantages)))
    return tuple(out)


def _compare_group(
    key: GroupKey,
    units: tuple[Unit, ...],
    comparison: Comparison,
    config: CreditConfig,
    batch: Floats,
) -> Group:
    values = values_of(units)
    equal = all_equal(values)
    # Rounding must not leave 1e-17 / floor where the formula says 0.
    if equal and comparison.has_baseline:
        advantages = np.zeros(len(units))
    else:
        episodes = [unit.episode for unit in units]
        advantages = comparison.estimator(values, episodes, config) / _scale(config, values, batch)
    return Group(
        key=key,
        units=units,
        returns=tuple(values.tolist()),
        advantages=tuple(advantages.tolist()),
        mean=float(values.mean()),
        std=sample_std(values),
        zero_variance=equal and len(units) > 1,
    )


def scaled_by_role(
    advantages: Mapping[TurnId, float],
    units: Sequence[Unit],
    config: CreditConfig,
    untrained: Collection[TurnId],
) -> dict[TurnId, float]:
    """Divide the advantages of turns by what `config.divides_by` says, for each role.

    Args:
        advantages: of all turns.
        units: the roles' episodes, whose values are the returns of the batch.
        config: the scheme's options.
        untrained: turns whose advantages do not count in the std of the batch's advantages.
    """
    scaled: dict[TurnId, float] = {}
    for found in group_units(units, batch_key).values():
        turns = [turn for unit in found for turn in unit.turns]
        values = np.array([advantages[turn] for turn in turns])
        values[np.abs(values) <= EQUAL] = 0.0
        values /= _scale(config, values_of(found), values_of(found))
        if config.divides_by == "batch_advantages":
            counted = np.array([turn not in untrained for turn in turns])
            values /= _floored(values[counted], config)
        scaled |= zip(turns, values.tolist(), strict=True)
    return scaled


def standardise(units: Sequence[Unit], floor: float) -> dict[TurnId, float]:
    """Return `(r - mean) / std` of turn-level units, each compared with its role's whole batch."""
    out: dict[TurnId, float] = {}
    for found in group_units(units, batch_key).values():
        values = values_of(found)
        centred = np.zeros(len(values)) if all_equal(values) else values - values.mean()
        scaled = centred / max(sample_std(values), floor)
        out |= {unit.id: value for unit, value in zip(found, scaled.tolist(), strict=True)}
    return out


def spread(groups: Sequence[Group]) -> dict[TurnId, float]:
    """Copy each unit's advantage to its turns: the mean was over episodes, not over turns."""
    return {
        turn: advantage
        for group in groups
        for unit, advantage in zip(group.units, group.advantages, strict=True)
        for turn in unit.turns
    }


def values_of(units: Sequence[Unit]) -> Floats:
    """Return the units' values, [members]."""
    return np.array([unit.value for unit in units], dtype=float)


def _scale(config: CreditConfig, group: Floats, batch: Floats) -> float:
    """Return the divisor of a group's advantages; 1.0 for none, or for one that follows later."""
    if config.divides_by in ("none", "batch_advantages"):
        return 1.0
    return _floored(group if config.divides_by == "group" else batch, config)


def _floored(values: Floats, config: CreditConfig) -> float:
    """Return the standard deviation of `values`, at least the floor."""
    return max(sample_std(values), config.floor)
