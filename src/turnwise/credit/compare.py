"""Groups of units become groups with advantages: scaling, equal returns, groups of one.

Owns what every scheme shares around its estimator (docs/math.md 2), and the turn-level part of
GiGPO. Knows nothing of episodes or spans. Output goes to `credit.assign`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.credit.groups import Group, GroupKey, Unit
from turnwise.credit.groups import group as group_units
from turnwise.credit.returns import Floats
from turnwise.credit.schemes import Scheme, Std, batch_key, state_key
from turnwise.types import TurnId

EQUAL = 1e-9  # returns that differ by less are one return: sums of rewards carry rounding


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """What advantages are divided by: `std`, but at least `floor`.

    With `mixed_only`, groups of equal returns do not count in the std of the batch's advantages:
    their advantages, all 0, are not trained on.
    """

    std: Std
    floor: float
    mixed_only: bool = False


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


def compare(units: Sequence[Unit], scheme: Scheme, scaling: Scaling) -> tuple[Group, ...]:
    """Group whole episodes and give each its advantage.

    Args:
        units: one per episode and role.
        scheme: key and estimator.
        scaling: what to divide by.
    """
    batch = {key.role: values_of(found) for key, found in group_units(units, batch_key).items()}
    groups = tuple(
        _compare_group(key, found, scheme, _scale(scaling, values_of(found), batch[key.role]))
        for key, found in group_units(units, scheme.key).items()
    )
    return _scaled(groups, scaling) if scaling.std == "batch_advantages" else groups


def _scaled(groups: Sequence[Group], scaling: Scaling) -> tuple[Group, ...]:
    """Divide the groups' advantages by the std of all advantages of their role."""
    found: dict[str, list[float]] = {}
    for group in groups:
        if not (scaling.mixed_only and group.zero_variance):
            found.setdefault(group.key.role, []).extend(group.advantages)
    scales = {role: _floored(np.array(values), scaling) for role, values in found.items()}
    out: list[Group] = []
    for group in groups:
        scale = scales.get(group.key.role, 1.0)  # none where all of the role's advantages are 0
        out.append(replace(group, advantages=tuple(a / scale for a in group.advantages)))
    return tuple(out)


def _compare_group(key: GroupKey, units: tuple[Unit, ...], scheme: Scheme, scale: float) -> Group:
    returns = values_of(units)
    equal = all_equal(returns)
    # Rounding must not leave 1e-17 / floor where the formula says 0.
    nothing = equal and scheme.has_baseline
    advantages = np.zeros(len(units)) if nothing else scheme.advantages(returns) / scale
    return Group(
        key=key,
        units=units,
        returns=tuple(returns.tolist()),
        advantages=tuple(advantages.tolist()),
        mean=float(returns.mean()),
        std=sample_std(returns),
        zero_variance=equal and len(units) > 1,
    )


def compare_states(
    units: Sequence[Unit],
    *,
    own_episode: str,
    scaling: Scaling,
    untrained: Collection[TurnId] = (),
) -> dict[TurnId, float]:
    """Return GiGPO's turn-level advantages (Feng et al. 2025, arXiv 2505.10978), not yet weighted.

    `(G - mean of G over the visits of the same state) / scale`, within one visit of one task. With
    `own_episode = "exclude"` the mean runs over the other episodes' visits only, so that a turn's
    baseline does not depend on its own action; as published, `"include"`, it runs over all. A turn
    with nothing to compare with has 0. The advantages of `untrained` turns do not count in the std
    of the batch's advantages.
    """
    batch = {key.role: values_of(found) for key, found in group_units(units, batch_key).items()}
    out: dict[TurnId, float] = {}
    for key, found in group_units(units, state_key).items():
        values = values_of(found)
        if all_equal(values):
            out |= dict.fromkeys((unit.id for unit in found), 0.0)
            continue
        scale = _scale(scaling, values, batch[key.role])
        means = _means(values, [unit.episode for unit in found], own_episode)
        for unit, mean in zip(found, means, strict=True):
            out[unit.id] = 0.0 if mean is None else (unit.value - mean) / scale
    if scaling.std != "batch_advantages":
        return out
    roles: dict[str, list[float]] = {role: [] for role in batch}
    for turn, value in out.items():
        if turn not in untrained:
            roles[turn.role].append(value)
    scales = {role: _floored(np.array(values), scaling) for role, values in roles.items()}
    return {turn: value / scales[turn.role] for turn, value in out.items()}


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


def _means(values: Floats, episodes: Sequence[Hashable], own_episode: str) -> list[float | None]:
    """Return what each value is compared with: a mean, None where there is nothing to compare."""
    if own_episode == "include":
        return [float(values.mean())] * len(values)
    numbers: dict[Hashable, int] = {}
    owner = np.array([numbers.setdefault(episode, len(numbers)) for episode in episodes])
    if len(numbers) == 1:
        return [None] * len(values)
    means = [float(values[owner != number].mean()) for number in range(len(numbers))]
    return [means[number] for number in owner]


def _scale(scaling: Scaling, group: Floats, batch: Floats) -> float:
    """Return what a group's advantages are divided by at once; 1.0 for nothing, or for later."""
    if scaling.std in ("none", "batch_advantages"):
        return 1.0
    return _floored(group if scaling.std == "group" else batch, scaling)


def _floored(values: Floats, scaling: Scaling) -> float:
    """Return the standard deviation of `values`, at least the floor."""
    return max(sample_std(values), scaling.floor)
