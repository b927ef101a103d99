"""Known properties of some gymnasium envs: action words, renderers, returns, rule policies.

Provides the table `KNOWN`. Other envs are described by their spaces and by the user's options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from turnwise.envs.base import RewardTiming

Shown = str | tuple[str, str]
Renderer = Callable[[Any], Shown]
Rule = Callable[[Any], str]

STOPS = ("r0c0", "r0c4", "r4c0", "r4c3")
DEALER_STANDS, MOST = 17, 21
CARDS = (*range(1, 10), 10, 10, 10, 10)


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownEnv:
    """The words and properties of an env.

    `actions` are the words of discrete actions, and `names` those of the numbers of a Box
    observation. `renderer` is a name in `RENDERERS`. `worst` and `best` are returns (None: the step
    limit), and `steps` is the limit if gymnasium has none. `rules` maps the names of policies to
    functions from an observation to an action.
    """

    actions: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    renderer: str = "plain"
    worst: float = 0.0
    best: float | None = 1.0
    steps: int | None = None
    reward_timing: RewardTiming = "dense"
    rules: Mapping[str, Rule] = field(default_factory=dict)


def taxi(state: int) -> Shown:
    """Return a taxi's state by coordinates, and the offset of its next stop.

    Example:
        >>> taxi(328)
        ('taxi r3c1 passenger r4c0 destination r0c0', 'passenger SOUTH 1 WEST 1')
        >>> taxi(16)
        ('taxi r0c0 passenger aboard destination r0c0', 'destination here')
    """
    rest, destination = divmod(int(state), len(STOPS))
    rest, passenger = divmod(rest, len(STOPS) + 1)
    row, column = divmod(rest, 5)
    where, to = (*STOPS, "aboard")[passenger], STOPS[destination]
    text = f"taxi r{row}c{column} passenger {where} destination {to}"
    goal, stop = ("destination", to) if where == "aboard" else ("passenger", where)
    sides = _sides(int(stop[1]) - row, int(stop[3]) - column)
    return text, f"{goal} {sides or 'here'}"


def _sides(down: int, right: int) -> str:
    """Return an offset in cells as words; empty if there is none."""
    steps = {"SOUTH": down, "NORTH": -down, "EAST": right, "WEST": -right}
    return " ".join(f"{side} {count}" for side, count in steps.items() if count > 0)


def cliff_walking(state: int) -> Shown:
    """Return a walker's state by coordinates.

    Example:
        >>> cliff_walking(36)
        'you r3c0 goal r3c11'
    """
    row, column = divmod(int(state), 12)
    return f"you r{row}c{column} goal r3c11"


def blackjack(hand: tuple[int, int, int]) -> Shown:
    """Return a hand, with the dealer's open card.

    Example:
        >>> blackjack((14, 1, 0))
        'you 14 dealer ace'
    """
    total, dealer, ace = (int(number) for number in hand)
    soft = " with an ace" if ace else ""
    return f"you {total}{soft} dealer {'ace' if dealer == 1 else dealer}"


RENDERERS: dict[str, Renderer] = {
    "taxi": taxi,
    "cliff-walking": cliff_walking,
    "blackjack": blackjack,
}


def push_with_velocity(observation: Any) -> str:
    """Return a full push in the direction in which the car moves; forward if it is at rest."""
    return "-1.0" if observation[1] < 0 else "1.0"


def basic_strategy(hand: tuple[int, int, int]) -> str:
    """Return the better of HIT and STICK against an infinite deck.

    It is optimal among policies of the observation. Naturals, which some rules pay differently or
    let win, count as 21, where it sticks in any case.
    """
    total, dealer, ace = (int(number) for number in hand)
    return "HIT" if _hit(total, bool(ace), dealer) > _stick(total, dealer) else "STICK"


def _add(total: int, ace: bool, card: int) -> tuple[int, bool]:
    """Return a hand after a card; `ace` says whether one counts as 11."""
    if card == 1 and not ace and total + 11 <= MOST:
        return total + 11, True
    total += card
    return (total - 10, False) if ace and total > MOST else (total, ace)


@cache
def _dealt(total: int, ace: bool) -> Mapping[int, float]:
    """Return the dealer's final totals from a hand, with their probabilities; 22 is bust."""
    if total >= DEALER_STANDS:
        return {min(total, MOST + 1): 1.0}
    found: dict[int, float] = {}
    for card in CARDS:
        for final, chance in _dealt(*_add(total, ace, card)).items():
            found[final] = found.get(final, 0.0) + chance / len(CARDS)
    return found


def _stick(total: int, dealer: int) -> float:
    """Return the expected reward of standing at `total`."""
    value = 0.0
    for final, chance in _dealt(*_add(0, False, dealer)).items():
        value += chance * (1.0 if final > MOST else float(np.sign(total - final)))
    return value


@cache
def _hit(total: int, ace: bool, dealer: int) -> float:
    """Return the expected reward of one more card, and the better choice after it."""
    value = 0.0
    for card in CARDS:
        after, soft = _add(total, ace, card)
        best = -1.0 if after > MOST else max(_stick(after, dealer), _hit(after, soft, dealer))
        value += best / len(CARDS)
    return value


_LAKE = KnownEnv(actions=("LEFT", "DOWN", "RIGHT", "UP"), reward_timing="terminal")
_CLIFF = KnownEnv(
    actions=("UP", "RIGHT", "DOWN", "LEFT"),
    renderer="cliff-walking",
    worst=-100.0,
    best=-13.0,
    steps=100,
)

KNOWN: dict[str, KnownEnv] = {
    "Taxi": KnownEnv(
        actions=("SOUTH", "NORTH", "EAST", "WEST", "PICKUP", "DROPOFF"),
        renderer="taxi",
        worst=-200.0,
        best=15.0,
    ),
    "CliffWalking": _CLIFF,
    "CliffWalkingSlippery": _CLIFF,
    "Blackjack": KnownEnv(
        actions=("STICK", "HIT"),
        renderer="blackjack",
        worst=-1.0,
        steps=MOST,
        reward_timing="terminal",
        rules={"basic-strategy": basic_strategy},
    ),
    "FrozenLake": _LAKE,
    "FrozenLake8x8": _LAKE,
    "CartPole": KnownEnv(
        actions=("LEFT", "RIGHT"), names=("position", "velocity", "angle", "spin"), best=None
    ),
    "MountainCar": KnownEnv(
        actions=("LEFT", "NONE", "RIGHT"), names=("position", "velocity"), worst=-200.0, best=-100.0
    ),
    "MountainCarContinuous": KnownEnv(
        names=("position", "velocity"),
        best=100.0,
        rules={"push-with-velocity": push_with_velocity},
    ),
    "Acrobot": KnownEnv(
        actions=("NEGATIVE", "NONE", "POSITIVE"),
        names=("cos1", "sin1", "cos2", "sin2", "spin1", "spin2"),
        worst=-500.0,
        best=-70.0,
    ),
    "Pendulum": KnownEnv(names=("cos", "sin", "spin"), worst=-1600.0, best=0.0),
}
"""Gymnasium name without its version -> known properties of the env."""
