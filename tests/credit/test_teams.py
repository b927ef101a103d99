"""Two roles by enumeration: team rewards are in every seat's return, other rewards in one's own.

The game: the speaker says 0 or 1; the hearer sees it and answers 0 or 1. The team earns `TEAM`,
recorded on the hearer's turn; the speaker alone earns 0.3 for saying 1. The policies are tabular,
the hearer's with one logit for each word: `d log pi(a) / d logit = a - p`.
"""

import itertools

import numpy as np
import pytest

from turnwise.credit import assign_advantages, make_credit
from turnwise.credit.returns import team_shares
from turnwise.trainers.grpo import of_mixed_groups
from turnwise.types import Episode, EpisodeId, Sampling, Task, Trajectory, Turn, TurnId

SPEAKS, ANSWERS = 0.7, np.array([0.4, 0.8])  # probabilities of 1; the hearer's by the word
TEAM = {(0, 0): 1.0, (0, 1): 0.0, (1, 0): 0.25, (1, 1): 2.0}
OWN = 0.3
K = 3
REWARDS = {"both": 1.0, "own": 1.0}


def turn(seat, number, order, rewards, member=0, prompt=(1,)):
    episode = EpisodeId(iteration=0, visit=0, task="t", member=member)
    return Turn(
        id=TurnId(episode=episode, role=seat, turn=number, round=number),
        order=order,
        policy="main",
        policy_version=0,
        prompt_ids=prompt,
        completion_ids=(2,),
        logprobs=(-0.5,),
        sampling=Sampling(),
        finish_reason="stop",
        text="",
        rewards=rewards,
    )


def episode(seats, member=0):
    """Return the episode of seat -> (role, turns)."""
    return Episode(
        id=EpisodeId(iteration=0, visit=0, task="t", member=member),
        task=Task(id="t", env="e", seed=0, data={}),
        trajectories=tuple(
            Trajectory(role=role, seat=seat, turns=tuple(turns))
            for seat, (role, turns) in seats.items()
        ),
        terminated=True,
        truncated=False,
        score=0.0,
    )


def played(word, answer, member):
    """Return the episode of a word and an answer; what the hearer reads depends on the word."""
    said = turn("speaker", 0, 0, {"own": OWN * word}, member)
    answered = turn("hearer", 0, 1, {"both": TEAM[word, answer]}, member, prompt=(1, word))
    return episode({"speaker": ("speaker", [said]), "hearer": ("hearer", [answered])}, member)


def probability(word, answer):
    spoken = SPEAKS if word else 1 - SPEAKS
    return spoken * (ANSWERS[word] if answer else 1 - ANSWERS[word])


def scores(word, answer):
    """Return d log pi / d logits of both turns: [speaker], [hearer at 0, hearer at 1]."""
    return {
        "speaker": np.array([word - SPEAKS, 0.0, 0.0]),
        "hearer": np.eye(3)[1 + word] * (answer - ANSWERS[word]),
    }


TRUE = sum(
    probability(*outcome)
    * (
        (TEAM[outcome] + OWN * outcome[0]) * scores(*outcome)["speaker"]
        + TEAM[outcome] * scores(*outcome)["hearer"]
    )
    for outcome in TEAM
)


def expected(scheme):
    config, total = make_credit(scheme=scheme, rewards=REWARDS), np.zeros(3)
    for chosen in itertools.product(TEAM, repeat=K):
        found = assign_advantages(
            [played(*outcome, i) for i, outcome in enumerate(chosen)], config, team={"both"}
        )
        for one, spans in found.advantages.items():
            weight = np.prod([probability(*outcome) for outcome in chosen]) / K
            total += weight * spans[""] * scores(*chosen[one.episode.member])[one.role]
    return total


@pytest.mark.parametrize("scheme", ["reinforce", "rloo"])
def test_each_roles_gradient_is_the_true_one(scheme):
    assert expected(scheme) == pytest.approx(TRUE, abs=1e-12)


def test_without_levels_the_speaker_would_not_learn_of_the_team():
    config = make_credit(scheme="reinforce", rewards=REWARDS)
    found = assign_advantages([played(1, 1, 0)], config)
    by_role = {one.role: spans[""] for one, spans in found.advantages.items()}
    assert by_role == {"speaker": OWN, "hearer": 2.0}


def test_the_second_speakers_first_prompts_may_differ_but_not_the_firsts():
    config = make_credit(scheme="rloo", rewards=REWARDS)
    found = assign_advantages([played(0, 1, 0), played(1, 1, 1)], config, team={"both"})
    assert {group.key.role for group in found.groups} == {"speaker", "hearer"}


def test_a_seat_is_compared_with_itself_in_other_episodes():
    """The other seats of its episode depend on what it did, so they are no baseline for it."""
    config = make_credit(scheme="rloo", rewards=REWARDS)
    ants = [
        episode(
            {
                "ant-1": ("ant", [turn("ant-1", 0, 0, {"own": 1.0 * member}, member)]),
                "ant-2": ("ant", [turn("ant-2", 0, 1, {"own": 4.0 * member}, member)]),
            },
            member,
        )
        for member in (0, 1)
    ]
    found = assign_advantages(ants, config)
    assert {group.key.role for group in found.groups} == {"ant"}
    assert {group.key.seat: group.advantages for group in found.groups} == {
        "ant-1": (-1.0, 1.0),
        "ant-2": (-4.0, 4.0),
    }


def test_a_team_reward_belongs_to_the_latest_turn_before_it():
    first, last = turn("a", 0, 0, {}), turn("a", 1, 2, {"both": 1.0})
    middle, late = turn("b", 0, 1, {"both": 10.0}), turn("b", 1, 3, {"both": 100.0})
    other = turn("c", 0, 4, {})
    shown = episode({"a": ("a", [first, last]), "b": ("b", [middle, late]), "c": ("c", [other])})
    shares = team_shares(shown, {"both": 2.0, "own": 5.0}, {"both"})
    assert shares == {first.id: 20.0, last.id: 200.0, middle.id: 2.0, other.id: 222.0}
    assert team_shares(shown, {"both": 2.0}, ()) == {}


def test_only_groups_that_hold_a_difference_are_trained():
    """The speakers earn differently, the hearers all the same: dynamic sampling drops theirs."""
    episodes = [
        episode(
            {
                "speaker": ("speaker", [turn("speaker", 0, 0, {"own": OWN * word}, word)]),
                "hearer": ("hearer", [turn("hearer", 0, 1, {"both": 1.0}, word)]),
            },
            word,
        )
        for word in (0, 1)
    ]
    config = make_credit(scheme="grpo", rewards=REWARDS)
    credit = assign_advantages(episodes, config)
    kept = of_mixed_groups(credit)
    assert {turn.role for turn in credit.advantages} == {"speaker", "hearer"}
    assert {turn.role for turn in kept.advantages} == {"speaker"}
    assert {turn.role for turn in kept.counted} == {"speaker"}
    assert all(kept.advantages[turn] == credit.advantages[turn] for turn in kept.advantages)
