"""The spine: siblings of every turn, of which one goes on (docs/math.md 2).

Each invariant is a bug that was found in a published system.
"""

from __future__ import annotations

import pytest

from turnwise.credit import assign_advantages, make_credit
from turnwise.credit.groups import GroupKey, group
from turnwise.credit.returns import Payments
from turnwise.credit.siblings import sibling_units
from turnwise.errors import EngineError, TrainingError
from turnwise.rollout import rollout_metrics, samples_from_episodes
from turnwise.runs.episodes import EpisodeLog, read_episodes

WEIGHTS = {"own": 1.0, "both": 1.0, "invalid": -2.0}


def at_turn(episode, seat, number):
    """The siblings of one turn, with the one that went on, in the order of their branches."""
    (trajectory,) = (t for t in episode.trajectories if t.seat == seat)
    found = [turn for turn in trajectory.sampled if turn.id.turn == number]
    return sorted(found, key=lambda turn: turn.id.branch)


def credit_of(episodes, **options):
    config = make_credit(**{"scheme": "at_grpo", "rewards": WEIGHTS, "std": "none", **options})
    return assign_advantages(episodes, config, team={"both"})


def test_distinct_answers_give_every_role_distinct_rewards(make_runner, echo, by_branch, spine):
    (episode,) = make_runner(echo(), by_branch, spine(siblings=5)).play()
    assert episode.error is None
    for seat in ("speaker", "hearer"):
        for number in (0, 1):
            siblings = at_turn(episode, seat, number)
            assert [turn.rewards["own"] for turn in siblings] == [0.0, 1.0, 2.0, 3.0, 4.0]
            assert len({turn.trials[0]["own"] for turn in siblings}) == 5
            assert [turn.chosen for turn in siblings] == [False] * 4 + [True]
    found = credit_of([episode])
    assert len(found.groups) == 4
    for one in found.groups:
        assert sorted(one.advantages) == [-2.0, -1.0, 0.0, 1.0, 2.0]


def test_a_sibling_is_stepped_from_its_own_state_and_changes_no_other(
    make_runner, echo, by_branch, spine
):
    (episode,) = make_runner(echo(rounds=3), by_branch, spine()).play()
    words = [turn.action for turn in sorted(episode.turns, key=lambda turn: turn.order)]
    assert words == ["2"] * 6
    for seat in ("speaker", "hearer"):
        for number in range(3):
            keys = {turn.state_key for turn in at_turn(episode, seat, number)}
            assert len(keys) == 1
            said = 2 * number + (seat == "hearer")
            assert keys == {f"{seat} {' '.join(['2'] * said) or 'none'}"}


def test_the_second_role_sees_what_the_first_one_went_on_with(make_runner, echo, spine, says):
    made = make_runner(echo(rounds=1), lambda r: says(str(7 - r.id.branch)), spine())
    (episode,) = made.play()
    for request in made.engine.requests:
        if request.id.role == "hearer":
            assert request.prompt.messages[-1].content == "hearer 7"
    assert len(at_turn(episode, "hearer", 0)) == 3


def test_all_siblings_of_a_group_answer_one_prompt_and_no_group_spans_two_visits(
    make_runner, echo, at_random, spine
):
    episodes = make_runner(echo(rounds=3), at_random, spine()).play(2, visits=(0, 1))
    prompts = {turn.id: turn.prompt_ids for e in episodes for turn in e.sampled}
    found = credit_of(episodes)
    sizes = set()
    for one in found.groups:
        assert len({prompts[unit.id] for unit in one.units}) == 1
        assert {unit.episode.visit_id for unit in one.units} == {one.key.visit}
        assert {unit.id.role for unit in one.units} == {one.key.seat}
        assert {unit.id.round for unit in one.units} == {one.key.round}
        sizes.add(len(one.units))
    assert sizes == {3, 6}, "both episodes of a visit ask the first question"
    assert {one.key.visit.visit for one in found.groups} == {0, 1}


def test_a_group_of_different_prompts_is_refused(make_runner, echo, by_branch, spine):
    (episode,) = make_runner(echo(), by_branch, spine()).play()
    units = sibling_units(episode.trajectories[:1], WEIGHTS, Payments(), None)
    with pytest.raises(TrainingError, match="did not answer the same question"):
        group(
            units,
            lambda unit: GroupKey(
                role=unit.role, visit=unit.episode.visit_id, round=0, observation="all"
            ),
        )


def test_an_episode_that_ends_early_is_kept(make_runner, echo, by_branch, spine):
    early, late = (
        make_runner(echo(ends=ends), by_branch, spine()).play()[0] for ends in ("2", None)
    )
    assert early.terminated and len(early.turns) == 1 and len(late.turns) == 4
    assert {turn.id for turn in early.sampled} == set(credit_of([early]).advantages)


def test_siblings_never_enter_the_return_and_the_metrics_of_play(
    make_runner, echo, by_branch, spine
):
    (episode,) = make_runner(echo(rounds=1), by_branch, spine(), weights=WEIGHTS).play()
    assert rollout_metrics([episode])["reward/own"] == 4.0
    assert rollout_metrics([episode])["rollout/turns"] == 2.0
    assert [turn.chosen for turn in episode.turns] == [True, True]
    assert all(not turn.chosen for t in episode.trajectories for turn in t.siblings)


def test_every_sibling_is_trained_in_one_row(make_runner, echo, at_random, spine):
    episodes = make_runner(echo(), at_random, spine(), history="full").play(visits=(0, 1))
    found = credit_of(episodes)
    rows = samples_from_episodes(episodes, found.advantages)
    trained = [turn for row in rows for turn in row.turns]
    assert sorted(trained) == sorted(found.advantages)
    assert len(trained) == 2 * 4 * 3


@pytest.mark.parametrize("noise", ["common", "independent"])
@pytest.mark.parametrize("kind", ["turn_end", "fresh", "vine"])
def test_batching_and_order_never_change_a_draw(
    make_runner, echo, at_random, spine, vine, kind, noise
):
    topology = {
        "turn_end": spine(score="turn_end", continuation="proportional"),
        "fresh": spine(fresh_noise=True, continuation="epsilon-greedy", epsilon=0.5),
        "vine": vine(continuations=2, share=0.5),
    }[kind]

    def play(*visits):
        return make_runner(echo(), at_random, topology, noise=noise).play(2, visits=visits)

    def key(episode):
        return str(episode.id)

    apart = [*play(2), *play(1), *play(0)]
    assert sorted(play(0, 1, 2), key=key) == sorted(apart, key=key)


def test_siblings_draw_different_tokens(make_runner, echo, at_random, spine):
    (episode,) = make_runner(echo(), at_random, spine(siblings=10)).play()
    assert len({turn.action for turn in at_turn(episode, "speaker", 0)}) > 3


def test_an_invalid_sibling_does_not_end_the_episode_and_is_trained(make_runner, echo, spine, says):
    script = lambda r: says("none" if r.id.branch == 2 else str(r.id.branch))  # noqa: E731
    (episode,) = make_runner(echo(), script, spine()).play()
    assert episode.error is None and len(episode.turns) == 4
    siblings = at_turn(episode, "speaker", 0)
    assert [turn.error is None for turn in siblings] == [True, True, False]
    assert [turn.chosen for turn in siblings] == [False, True, False]
    advantages = [credit_of([episode]).advantages[turn.id][""] for turn in siblings]
    assert advantages == pytest.approx([0 + 1 / 3, 1 + 1 / 3, -2 + 1 / 3])


def test_an_episode_ends_where_all_siblings_are_invalid(make_runner, echo, spine, says):
    made = make_runner(echo(), lambda r: says("none"), spine())
    (episode,) = made.play()
    assert episode.error.kind == "illegal_action" and len(episode.turns) == 1
    assert len(credit_of([episode]).advantages) == 3


def test_agents_that_are_asked_again_have_siblings_again(make_runner, echo, spine, says):
    script = lambda r: says("none" if r.id.turn == 0 else "3")  # noqa: E731
    (episode,) = make_runner(echo(), script, spine(), invalid_reply="continue").play()
    assert episode.error is None
    assert [len(at_turn(episode, "speaker", n)) for n in range(3)] == [3, 3, 3]


def test_a_sibling_that_the_engine_failed_leaves_its_group(make_runner, echo, spine, says):
    def script(request):
        if request.id.branch == 1:
            raise EngineError("out of memory")
        return says(str(request.id.branch))

    (episode,) = make_runner(echo(), script, spine()).play()
    assert episode.error is None
    assert [turn.id.branch for turn in at_turn(episode, "hearer", 1)] == [0, 2]
    assert {len(one.units) for one in credit_of([episode]).groups} == {2}

    def never(request):
        raise EngineError("gone")

    (episode,) = make_runner(echo(), never, spine()).play()
    assert episode.broken


def test_a_sibling_that_broke_the_env_is_recorded_and_not_compared(
    make_runner, echo, spine, by_branch, says
):
    (episode,) = make_runner(echo(raises="2"), by_branch, spine()).play()
    assert episode.error is None and len(episode.turns) == 4
    broken = at_turn(episode, "speaker", 0)[2]
    assert broken.error.kind == "env" and broken.trials == ()
    assert broken.id not in credit_of([episode]).advantages
    made = make_runner(echo(raises="3"), lambda r: says("3"), spine())
    (episode,) = made.play()
    assert episode.broken and "KeyError" in episode.error.message


def test_evaluation_has_no_siblings(make_runner, echo, at_random, spine):
    for greedy in (False, True):
        (episode,) = make_runner(echo(), at_random, spine()).play(
            stream="evaluation", greedy=greedy
        )
        assert all(t.siblings == () for t in episode.trajectories)
        assert all(turn.trials == () for turn in episode.turns)
        assert episode.resets == episode.trial_steps == 0


def test_fresh_noise_steps_the_chosen_sibling_again(make_runner, echo, by_branch, spine):
    plain, fresh = (
        make_runner(echo(), by_branch, spine(fresh_noise=again), weights={"luck": 1.0}).play()[0]
        for again in (False, True)
    )
    for one in plain.turns:
        assert one.rewards["luck"] == one.trials[0]["luck"]
    for one in fresh.turns:
        assert one.rewards["luck"] != one.trials[0]["luck"]
    assert fresh.trial_steps == 4 and fresh.resets == 4 * 2 + 4


def test_siblings_share_the_worlds_draws_where_noise_is_common(make_runner, echo, by_branch, spine):
    for noise, kinds in (("common", 1), ("independent", 3)):
        (episode,) = make_runner(echo(), by_branch, spine(), noise=noise).play()
        drawn = {turn.rewards["luck"] for turn in at_turn(episode, "speaker", 0)}
        assert len(drawn) == kinds


def test_siblings_and_their_trials_are_recorded(make_runner, echo, at_random, spine, tmp_path):
    episodes = make_runner(echo(), at_random, spine(score="turn_end"), history="full").play(2)
    log = EpisodeLog(tmp_path)
    log.write(0, episodes, credit=credit_of(episodes))
    (path,) = tmp_path.iterdir()
    read = read_episodes(path)
    assert list(read.episodes) == episodes
    assert set(read.advantages) == {turn.id for e in episodes for turn in e.sampled}


def test_a_round_is_completed_with_the_other_roles_answers(make_runner, echo, says, spine):
    """With `turn_end` a speaker's siblings differ by what the hearer's step brings the team."""
    script = lambda r: says(str(r.id.branch) if not r.id.trial else "5")  # noqa: E731
    made = make_runner(echo(), script, spine(score="turn_end"))
    (episode,) = made.play()
    for number in (0, 1):
        speakers = at_turn(episode, "speaker", number)
        assert [one.trials for one in speakers] == [
            ({"own": float(n), "luck": one.rewards["luck"], "invalid": 0.0, "both": 10.0 * n},)
            for n, one in enumerate(speakers)
        ]
        hearers = at_turn(episode, "hearer", number)
        assert [one.trials[0]["own"] for one in hearers] == [0.0, 1.0, 2.0]
    asked = [r for r in made.engine.requests if r.id.trial]
    assert {r.id.role for r in asked} == {"hearer"} and len(asked) == 2 * 3
    assert episode.trial_steps == 2 * 3
