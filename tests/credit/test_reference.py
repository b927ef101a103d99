"""Every scheme, with every option, against the definitions of docs/math.md 2 on random batches.

The reference is written as sums over pairs of episodes and shares no code with the library. Values
are multiples of 1/8, so that returns which are equal on paper are equal here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import sqrt
from random import Random

import numpy as np
import pytest

from turnwise.credit import SCHEMES, assign_advantages, make_credit, state_values
from turnwise.credit.schemes import batch_key

ROLES = ("player", "critic")
FOLDS = 16
SEGMENTS = {"think": "perception", "answer": "return"}


@dataclass(frozen=True, eq=False)
class Step:
    """One turn as drawn: its reward components, its state, its spans and what it pays by span."""

    goal: float
    style: float
    seeing: float
    state: str
    spans: tuple[str, ...]
    paid: float
    paid_by_thought: float


@dataclass(frozen=True, eq=False)
class Member:
    """One role's episode: which visit of which task, which sample, and its turns.

    `left_in` is the state in which it was left before its end.
    """

    task: str
    visit: int
    sample: int
    role: str
    steps: tuple[Step, ...]
    left_in: str | None = None

    def state(self, number):
        """The state of a turn, or of the one that would have come next."""
        return self.steps[number].state if number < len(self.steps) else self.left_in

    @property
    def place(self):
        return (self.task, self.visit, self.role)


def random_step(rng):
    return Step(
        goal=rng.choice([0.0, 0.0, 1.0, 1.0, 0.125]),
        style=rng.randrange(9) / 8,
        seeing=rng.randrange(9) / 8,
        state=rng.choice("su"),
        spans=rng.choice([("think", "answer"), ("think", "answer"), ("think",), ()]),
        paid=rng.randrange(9) / 8,
        paid_by_thought=rng.randrange(9) / 8,
    )


def random_batch(rng):
    """Return the members of up to four visits of two tasks; a role may say nothing at all."""
    return [
        Member(task="ab"[group % 2], visit=group // 2, sample=sample, role=role, steps=steps)
        for group in range(rng.randint(1, 4))
        for sample in range(rng.randint(1, 4))
        for role in ROLES
        if (steps := tuple(random_step(rng) for _ in range(rng.randint(0, 3))))
    ]


EVERY_STD = ("batch_returns", "batch_advantages", "group", "none")
STD = {
    "reinforce++": ("batch_returns",),
    "grpo": EVERY_STD,
    "max_at_k": EVERY_STD,
    "gigpo": EVERY_STD,
    "gae": ("batch_returns", "batch_advantages", "none"),
}
"""The divisors of the schemes that divide by a standard deviation."""


def random_config(rng, name):
    """Return a config with a value for every option that the scheme has."""
    scheme = SCHEMES[name]
    style = rng.choice([0.5, 2.0] if name == "maxrl" else [0.0, 0.0, 0.5, -1.0])
    options = {"rewards": {"goal": 1.0, "style": style}}
    if name in STD:
        options["std"] = rng.choice(STD[name])
    if segments := rng.random() < 0.5:
        options["segments"] = SEGMENTS
    if segments or options.get("std", "none") != "none":
        options["std_floor"] = rng.choice([None, 0.25])
    if scheme.compare.key is not batch_key:
        options["filter_zero_variance"] = rng.random() < 0.5
    if name == "max_at_k":
        options["k"] = rng.choice([None, 1, 2, 3, 6])
    if name == "grpo":
        options["statistics"] = rng.choice(["role", "all"])
    if name == "gigpo":
        options |= {
            "gamma": rng.choice([0.0, 0.5, 1.0]),
            "state_weight": rng.choice([0.0, 1.0, 3.0]),
            "own_episode": rng.choice(["include", "exclude"]),
        }
    if name == "gae":
        options["gamma"] = rng.choice([0.0, 0.5, 1.0])
        options["gae_lambda"] = rng.choice([0.0, 0.25, 1.0])
    return make_credit(scheme=name, **options)


def mean(values):
    return sum(values) / len(values)


def std(values):
    """ddof = 1; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    return sqrt(sum((value - mean(values)) ** 2 for value in values) / (len(values) - 1))


class Reference:
    """The advantages of a batch, from the definitions."""

    def __init__(self, members, config, pays):
        self.members, self.config, self.pays = members, config, pays
        self.floor = config.floor
        self.returns = {m: sum(self.reward(step) for step in m.steps) for m in members}
        episodes = sorted((m.role, m.visit, m.task, m.sample) for m in members)
        first = {role: [each[0] for each in episodes].index(role) for role, *_ in episodes}
        self.folds = {
            m: (episodes.index((m.role, m.visit, m.task, m.sample)) - first[m.role]) % FOLDS
            for m in members
        }
        self.after = {fold: self.values_where_left(fold) for fold in set(self.folds.values())}

    def values_where_left(self, fold):
        """What each member goes on with, from the members of the other folds: linear equations."""
        left = [m for m in self.members if m.left_in is not None]
        system, constant = np.eye(len(left)), np.zeros(len(left))
        for row, m in enumerate(left):
            for (other, n), weight in self.weights_of_state(m, len(m.steps), fold)[0].items():
                later = [self.reward(step) for step in other.steps[n:]]
                gamma = self.config.gamma
                constant[row] += weight * sum(gamma**d * r for d, r in enumerate(later))
                if other in left:
                    system[row, left.index(other)] -= weight * gamma ** len(later)
        found = np.linalg.solve(system, constant) if left else []
        return dict.fromkeys(self.members, 0.0) | dict(zip(left, found, strict=True))

    def reward(self, step):
        weights = self.config.rewards
        mixed = weights["goal"] * step.goal + weights["style"] * step.style
        return mixed - (step.paid if self.pays else 0.0)

    def peers(self, member):
        """The episodes that a scheme compares with one, itself included."""
        if self.config.scheme in ("reinforce", "reinforce++", "rae"):
            return [m for m in self.members if m.role == member.role]
        if self.config.pools_roles:
            return [m for m in self.members if m.place[:2] == member.place[:2]]
        return [m for m in self.members if m.place == member.place]

    def silent(self, member):
        """Whether the filter drops a group: two or more members, of one return."""
        returns = [self.returns[m] for m in self.peers(member)]
        return self.config.mixed_only and len(returns) > 1 and len(set(returns)) == 1

    def centred(self, member):
        own, returns = self.returns[member], [self.returns[m] for m in self.peers(member)]
        scheme = self.config.scheme
        if scheme in ("reinforce", "rae"):  # with no earlier iterations
            return own
        if scheme == "rloo":
            others = [self.returns[m] for m in self.peers(member) if m != member]
            return own - mean(others) if others else 0.0
        if scheme == "max_at_k":
            others = [self.returns[m] for m in self.peers(member) if m != member]
            k = min(self.config.k or (len(others) + 1) // 2, len(others))
            if not others:
                return 0.0
            with_it = mean([max((own, *some)) for some in combinations(others, k - 1)])
            return with_it - mean([max(some) for some in combinations(others, k)])
        if scheme == "maxrl":
            return (own - mean(returns)) / mean(returns) if any(returns) else 0.0
        return own - mean(returns)

    def divisor(self, group, batch, advantages):
        """The standard deviation that the option `std` names, of one of three lists of numbers."""
        if self.config.divides_by == "none":
            return 1.0
        chosen = {"group": group, "batch_returns": batch, "batch_advantages": advantages}
        return max(std(chosen[self.config.divides_by]), self.floor)

    def of_episode(self, member):
        pooled = self.config.pools_roles
        same_role = [m for m in self.members if pooled or m.role == member.role]
        divisor = self.divisor(
            [self.returns[m] for m in self.peers(member)],
            [self.returns[m] for m in same_role],
            [self.centred(m) for m in same_role if not self.silent(m)],
        )
        return self.centred(member) / divisor

    def to_go(self, member, number, fold=None):
        """The return-to-go, as the values of a fold have it: by default of the member's own."""
        later = [self.reward(step) for step in member.steps[number:]]
        later.append(self.after[self.folds[member] if fold is None else fold][member])
        return sum(self.config.gamma**delay * reward for delay, reward in enumerate(later))

    def visits(self, member, number):
        """The turns of a role in the state of one, within its visit of the task."""
        state = member.steps[number].state
        return [
            (m, n)
            for m in self.members
            if m.place == member.place
            for n, step in enumerate(m.steps)
            if step.state == state
        ]

    def centred_turn(self, member, number):
        """Return-to-go less the mean of the state's visits, the episode's own left out or not."""
        include = self.config.own_episode == "include"
        with_whom = [
            self.to_go(m, n)
            for m, n in self.visits(member, number)
            if include or m.sample != member.sample
        ]
        return self.to_go(member, number) - mean(with_whom) if with_whom else 0.0

    def of_turn(self, member, number):
        turns = [(m, n) for m in self.members if m.role == member.role for n in range(len(m.steps))]
        divisor = self.divisor(
            [self.to_go(m, n) for m, n in self.visits(member, number)],
            [self.to_go(m, n) for m, n in turns],
            [self.centred_turn(m, n) for m, n in turns if not self.silent(m)],
        )
        return self.centred_turn(member, number) / divisor

    def value_of_state(self, member, number):
        """Return the shrunk mean of other folds' returns, and how many visits the state has."""
        fold = self.folds[member]
        weights, visits = self.weights_of_state(member, number, fold)
        return sum(w * self.to_go(m, n, fold) for (m, n), w in weights.items()), visits

    def weights_of_state(self, member, number, fold):
        """Return how much each turn of other folds counts in a mean; and the state's visits."""
        weights, visits, prior = {}, 0, 0
        alike = [
            lambda m, n: True,
            lambda m, n: n == number,
            lambda m, n: m.state(n) == member.state(number),
            lambda m, n: m.state(n) == member.state(number) and m.place == member.place,
        ]
        for level, is_alike in enumerate(alike):
            others = [
                (m, n)
                for m in self.members
                if m.role == member.role and self.folds[m] != fold
                for n in range(len(m.steps))
                if is_alike(m, n)
            ]
            total = max(len(others) + prior, 1)
            weights = {turn: prior * weight / total for turn, weight in weights.items()}
            for turn in others:
                weights[turn] = weights.get(turn, 0.0) + 1 / total
            prior = 6
            visits = len(others) if level == 2 else visits
        return weights, visits

    def bootstrapped(self, member, number):
        """The reward, and what follows: partly the next value, partly the episode's own return."""
        found = self.reward(member.steps[number])
        if number + 1 < len(member.steps):
            value, visits = self.value_of_state(member, number + 1)
            known = (1 - self.config.gae_lambda) * visits / (visits + 1)
            own = self.bootstrapped(member, number + 1)
            return found + self.config.gamma * (known * value + (1 - known) * own)
        return found + self.config.gamma * self.after[self.folds[member]][member]

    def of_turn_by_values(self, member, number):
        def centred(m, n):
            if not any(o.role == m.role and self.folds[o] != self.folds[m] for o in self.members):
                return 0.0
            return self.bootstrapped(m, n) - self.value_of_state(m, n)[0]

        same_role = [m for m in self.members if m.role == member.role]
        divisor = self.divisor(
            [],
            [self.returns[m] for m in same_role],
            [centred(m, n) for m in same_role if not self.silent(m) for n in range(len(m.steps))],
        )
        return centred(member, number) / divisor

    def of_thought(self, member, number):
        """The span's own component, standardised over all turns of the role."""

        def value(step):
            pays = self.pays and "think" in step.spans
            return step.seeing - (step.paid_by_thought if pays else 0.0)

        every = [value(step) for m in self.members if m.role == member.role for step in m.steps]
        return (value(member.steps[number]) - mean(every)) / max(std(every), self.floor)

    def spans(self, member, number):
        if self.silent(member):
            total = thought = 0.0
        else:
            by_values = self.config.scheme == "gae"
            total = self.of_turn_by_values(member, number) if by_values else self.of_episode(member)
            if self.config.scheme == "gigpo":
                total += self.config.state_weight * self.of_turn(member, number)
            thought = self.of_thought(member, number) if self.config.segments else 0.0
        if self.config.segments and "answer" in member.steps[number].spans:
            return {"think": thought, "answer": total}
        return {"": total}


def played(members, episode):
    """Return the members as episodes of both roles."""
    found = {}
    for member in members:
        one = episode(
            [{"goal": s.goal, "style": s.style, "perception": s.seeing} for s in member.steps],
            task=member.task,
            visit=member.visit,
            sample=member.sample,
            role=member.role,
            policy=f"policy of {member.role}",
            states=[s.state for s in member.steps],
            spans=[s.spans for s in member.steps],
            next_key=member.left_in,
        )
        place = (member.task, member.visit, member.sample)
        before = found[place].trajectories if place in found else ()
        found[place] = replace(one, trajectories=(*before, *one.trajectories))
    return list(found.values())


EPISODES = [name for name, scheme in SCHEMES.items() if not scheme.by_sibling]
BATCHES = dict.fromkeys(EPISODES, 40) | {"gigpo": 150, "gae": 80}  # they have the most options


@pytest.mark.parametrize("scheme", EPISODES)
def test_advantages_equal_their_definitions(scheme, episode):
    for number in range(BATCHES[scheme]):
        rng = Random(f"{scheme} {number}")
        config = random_config(rng, scheme)
        pays = scheme != "maxrl" and rng.random() < 0.5  # maxrl's returns are 0 or more
        check(random_batch(rng), config, pays, episode)


@pytest.mark.parametrize("folds", [2, 3, 16])
def test_advantages_of_episodes_that_were_left_equal_their_definitions(folds, episode, monkeypatch):
    """States that others visited, and one (v) that nobody did."""
    monkeypatch.setattr(state_values, "FOLDS", folds)
    monkeypatch.setattr(f"{__name__}.FOLDS", folds)
    for number in range(30):
        rng = Random(f"left {number}")
        config = random_config(rng, "gae")
        config = config.model_copy(update={"gamma": rng.choice([0.0, 0.5, 0.75])})
        members = [
            replace(member, left_in=rng.choice([None, "s", "u", "v"]))
            for member in random_batch(rng)
        ]
        check(members, config, rng.random() < 0.5, episode, close=1e-7)


def test_episodes_that_were_not_left_have_the_same_numbers_beside_those_that_were(episode):
    """Where a role has none that was left, nothing changes, to the last digit."""
    for number in range(20):
        rng = Random(f"beside {number}")
        config = random_config(rng, "gae")
        members = random_batch(rng)
        left = [replace(m, left_in="s") if m.role == "critic" else m for m in members]
        plain, beside = (
            {
                turn: spans
                for turn, spans in assign_advantages(
                    played(each, episode), config
                ).advantages.items()
                if turn.role == "player"
            }
            for each in (members, left)
        )
        assert plain == beside


def _place(turn):
    return (turn.episode.task, turn.episode.visit, turn.episode.member, turn.role)


def check(members, config, pays, episode, close=1e-9):
    """Compare every turn's advantages with the reference's."""
    episodes = played(members, episode)
    turns = {(m.task, m.visit, m.sample, m.role): m for m in members}
    penalties, expected = {}, {}
    reference = Reference(members, config, pays)
    for turn in (turn for one in episodes for turn in one.turns):
        member = turns[_place(turn.id)]
        step = member.steps[turn.id.turn]
        penalties[turn.id] = {"": step.paid} | (
            {"think": step.paid_by_thought} if "think" in step.spans else {}
        )
        expected[turn.id] = reference.spans(member, turn.id.turn)
    credit = assign_advantages(episodes, config, penalties=penalties if pays else None)
    assert set(credit.advantages) == set(expected)
    for turn, spans in expected.items():
        assert credit.advantages[turn] == pytest.approx(spans, abs=close), turn
    assert credit.counted == set(expected)


def test_returns_that_differ_by_a_tenth_of_a_millionth_are_compared(one_turn_groups):
    """Only rounding makes returns one: 1e-9 and below."""
    config = make_credit(scheme="grpo", rewards={"goal": 1.0}, std="none")

    def advantages(gap):
        credit = assign_advantages(one_turn_groups([gap, 0.0]), config)
        return [spans[""] for spans in credit.advantages.values()], credit.groups[0].zero_variance

    assert advantages(1e-7) == ([5e-8, -5e-8], False)
    assert advantages(1e-8) == ([5e-9, -5e-9], False)
    assert advantages(1e-10) == ([0.0, 0.0], True)


def test_maxrl_divides_by_any_mean_above_0(one_turn_groups):
    """A success that pays next to nothing counts like one that pays 1."""
    config = make_credit(scheme="maxrl", rewards={"goal": 1.0})
    credit = assign_advantages(one_turn_groups([4e-7, 0.0, 0.0, 0.0]), config)
    got = [spans[""] for spans in credit.advantages.values()]
    assert got == pytest.approx([3.0, -1.0, -1.0, -1.0])
