"""Two roles by enumeration: team rewards are in every seat's return, other rewards in one's own.

The game: the speaker says 0 or 1; the hearer sees it and answers 0 or 1. The team earns `TEAM`,
recorded on the hearer's turn; the speaker alone earns 0.3 for saying 1. The policies are tabular,
the hearer's with one logit for each word: `d log pi(a) / d logit = a - p`.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from turnwise.credit import assign_advantages, make_credit
from turnwise.credit.returns import team_shares
from turnwise.errors import TrainingError
from turnwise.rollout import rollout_metrics, samples_from_episodes
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


def ants(member, first, second, state=None):
    """Return an episode of two seats of the role `ant`, each with one turn and its reward."""
    turns = [
        replace(turn(f"ant-{i}", 0, i - 1, {"own": own}, member), state_key=state)
        for i, own in ((1, first), (2, second))
    ]
    return episode({one.id.role: ("ant", [one]) for one in turns}, member)


def by_seat(credit):
    """Return (seat, member) -> advantage of a batch whose seats have one turn each."""
    return {(t.role, t.episode.member): spans[""] for t, spans in credit.advantages.items()}


def test_seats_of_one_role_gain_the_teams_reward_each():
    told, earned = turn("ant-1", 0, 0, {}), turn("ant-2", 0, 1, {"both": 2.0})
    shown = episode({"ant-1": ("ant", [told]), "ant-2": ("ant", [earned])})
    assert team_shares(shown, {"both": 1.0}, {"both"}) == {told.id: 2.0}
    config = make_credit(scheme="reinforce", rewards=REWARDS)
    found = by_seat(assign_advantages([shown], config, team={"both"}))
    assert found == {("ant-1", 0): 2.0, ("ant-2", 0): 2.0}


def test_a_turn_filed_under_another_seat_is_refused():
    stray = episode({"ant-2": ("ant", [turn("ant-1", 0, 0, {})])})
    with pytest.raises(TrainingError, match="is filed under episode 0/0/t/0, seat 'ant-2'"):
        assign_advantages([stray], make_credit(scheme="reinforce", rewards=REWARDS))


def test_groups_of_two_seats_have_different_names_and_batches_have_the_roles():
    batch = [ants(0, 1.0, 0.0), ants(1, 0.0, 0.0)]
    by_visit = assign_advantages(batch, make_credit(scheme="rloo", rewards=REWARDS)).groups
    assert {str(group.key) for group in by_visit} == {"ant-1 0/0/t", "ant-2 0/0/t"}
    (whole,) = assign_advantages(batch, make_credit(scheme="reinforce", rewards=REWARDS)).groups
    assert str(whole.key) == "ant batch"


def test_a_batch_is_compared_over_all_seats_of_a_role():
    found = assign_advantages(
        [ants(0, 3.0, 1.0), ants(1, 1.0, 3.0)],
        make_credit(scheme="reinforce++", rewards=REWARDS),
    )
    one = 1 / np.std([3.0, 1.0, 1.0, 3.0], ddof=1)
    expected = {("ant-1", 0): one, ("ant-2", 0): -one, ("ant-1", 1): -one, ("ant-2", 1): one}
    assert by_seat(found) == pytest.approx(expected)


def test_turns_of_a_state_are_compared_over_the_seats_of_other_episodes():
    found = assign_advantages(
        [ants(0, 6.0, 2.0, state="nest"), ants(1, 0.0, 1.0, state="nest")],
        make_credit(scheme="gigpo", rewards=REWARDS),
    )
    assert by_seat(found) == {
        ("ant-1", 0): 3.0 + 6.0 - 0.5,
        ("ant-2", 0): 0.5 + 2.0 - 0.5,
        ("ant-1", 1): -3.0 + 0.0 - 4.0,
        ("ant-2", 1): -0.5 + 1.0 - 4.0,
    }


def test_siblings_that_were_not_chosen_enter_nothing():
    batch = [ants(0, 1.0, 0.0), ants(1, 0.0, 2.0)]
    with_siblings = []
    for one in batch:
        first, *rest = one.trajectories
        chosen = first.turns[0]
        branch = replace(
            chosen, id=replace(chosen.id, branch=1), chosen=False, rewards={"own": 9.0, "both": 9.0}
        )
        with_siblings.append(replace(one, trajectories=(replace(first, siblings=(branch,)), *rest)))
    for scheme in ("rloo", "reinforce", "grpo"):
        config = make_credit(scheme=scheme, rewards=REWARDS)
        plain = assign_advantages(batch, config, team={"both"})
        assert assign_advantages(with_siblings, config, team={"both"}) == plain
    rows = samples_from_episodes(with_siblings, plain.advantages)
    assert {one for row in rows for one in row.turns} == set(plain.advantages)
    assert rollout_metrics(with_siblings) == rollout_metrics(batch)
