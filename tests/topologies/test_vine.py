"""The vine: siblings played on to the episode's end, and judged by the mean return-to-go."""

from __future__ import annotations

import pytest

from turnwise.credit import assign_advantages, make_credit
from turnwise.credit.siblings import rank_correlation, score_of
from turnwise.engines import ScriptedEngine
from turnwise.errors import EngineError
from turnwise.types import Message

WEIGHTS = {"own": 1.0, "both": 1.0, "invalid": -2.0}


def played_path(episode):
    return sorted(episode.turns, key=lambda turn: turn.order)


def test_a_sibling_is_judged_by_all_that_follows_it(make_runner, echo, vine, says):
    """On the path siblings say their number, in trials everybody says 5."""
    script = lambda r: says("5" if r.id.trial else str(r.id.branch))  # noqa: E731
    made = make_runner(echo(rounds=2), script, vine(continuations=2))
    (episode,) = made.play()
    assert [turn.action for turn in played_path(episode)] == ["2"] * 4
    first = [t for t in episode.trajectories[0].sampled if t.id.turn == 0]
    for turn in first:
        n = turn.id.branch
        # own digit, ten times it by the hearer, then 5 of its own and 50 of the team
        assert [trial["own"] + trial["both"] for trial in turn.trials] == [n + 10 * n + 55.0] * 2
    second = [t for t in episode.trajectories[1].sampled if t.id.turn == 0]
    for turn in second:
        # own digit and the team's 20 at its own step, then 50 of the team and 5 of its own
        assert score_of(turn, WEIGHTS) == turn.id.branch + 20 + 50 + 5
    last = [t for t in episode.trajectories[1].sampled if t.id.turn == 1]
    assert [t.trials for t in last] == [(t.rewards,) for t in last], "nothing follows"
    assert episode.trial_steps == 3 * 2 * (3 + 2 + 1)
    assert episode.resets == 4 * 2 + 3 * 2 * 3


def test_trials_have_draws_of_their_own_which_siblings_share(make_runner, echo, vine, by_branch):
    weights = {"luck": 1.0}
    for noise, kinds in (("common", 2), ("independent", 6)):
        made = make_runner(echo(), by_branch, vine(continuations=2), weights=weights, noise=noise)
        (episode,) = made.play()
        turns = [t for t in episode.trajectories[0].sampled if t.id.turn == 0]
        later = {trial["luck"] - turn.rewards["luck"] for turn in turns for trial in turn.trials}
        assert len({round(value, 9) for value in later}) == kinds


def test_trials_never_touch_the_played_path(make_runner, echo, vine, at_random):
    """The path is that of the chosen siblings, whatever was played beside it."""
    made = make_runner(echo(rounds=3), at_random, vine(continuations=3), history="full")
    (episode,) = made.play()
    said = [turn.action for turn in played_path(episode)]
    for number, turn in enumerate(played_path(episode)):
        shown = " ".join(said[:number]) or "none"
        assert turn.state_key == f"{turn.id.role} {shown}"
    identities = [request.id for request in made.engine.requests]
    assert len(set(identities)) == len(identities), "no two calls share their draws"


def test_a_share_of_the_turns_has_siblings(make_runner, echo, vine, at_random):
    made = make_runner(echo(rounds=5), at_random, vine(share=0.3))
    episodes = made.play(visits=range(8))
    sizes = [
        sum(t.id.turn == number for t in trajectory.sampled)
        for episode in episodes
        for trajectory in episode.trajectories
        for number in range(5)
    ]
    assert set(sizes) == {1, 3}
    assert sizes.count(3) / len(sizes) == pytest.approx(0.3, abs=0.15)
    config = make_credit(scheme="counterfactual", rewards=WEIGHTS)
    found = assign_advantages(episodes, config, team={"both"})
    alone = [t for e in episodes for t in e.turns if not t.trials]
    assert alone and not set(found.advantages) & {turn.id for turn in alone}


def test_a_trial_that_the_engine_failed_is_left_out(make_runner, echo, vine, says):
    def script(request):
        if request.id.trial.endswith(".1.0"):
            raise EngineError("out of memory")
        return says(str(request.id.branch))

    (episode,) = make_runner(echo(), script, vine()).play()
    assert episode.error is None
    siblings = [t for t in episode.trajectories[0].sampled if t.id.turn == 0]
    assert {t.id.branch: len(t.trials) for t in siblings} == {0: 1, 1: 0, 2: 1}


def test_an_invalid_reply_in_a_trial_ends_the_trial_alone(make_runner, echo, vine, says):
    script = lambda r: says("none" if r.id.trial else str(r.id.branch))  # noqa: E731
    (episode,) = make_runner(echo(), script, vine()).play()
    assert episode.error is None and len(episode.turns) == 4
    siblings = [t for t in episode.trajectories[0].sampled if t.id.turn == 0]
    assert [t.trials[0]["own"] for t in siblings] == [t.rewards["own"] for t in siblings]


@pytest.mark.parametrize("kind", ["vine", "turn_end"])
def test_after_an_invalid_sibling_its_agent_is_asked_again_in_the_trial(
    make_runner, echo, vine, spine, says, kind
):
    def script(request):
        bad = request.id.branch == 0 and not request.id.trial
        return says("none" if bad else "4" if request.id.trial else str(request.id.branch))

    topology = vine() if kind == "vine" else spine(score="turn_end")
    made = make_runner(echo(rounds=1), script, topology, invalid_reply="continue")
    (episode,) = made.play()
    siblings = {t.id.branch: t for t in episode.trajectories[0].sampled if t.id.turn == 0}
    assert siblings[0].error is not None
    # the speaker says 4 then, and the hearer brings 40
    assert siblings[0].trials[0]["own"] == 4.0 and siblings[0].trials[0]["both"] == 40.0
    assert siblings[0].trials[0]["invalid"] == 1.0
    assert siblings[2].trials[0]["own"] == 2.0 and siblings[2].trials[0]["both"] == 20.0


def test_the_rank_correlation_says_whether_steps_are_judged_as_returns_are(
    make_runner, echo, vine, says
):
    """Where a trial's later rewards fall with the digit, steps and returns order oppositely."""
    for sign, expected in ((1.0, 1.0), (-1.0, -1.0)):
        weights = {"own": 1.0, "both": sign}
        script = lambda r: says("5" if r.id.trial else str(r.id.branch))  # noqa: E731
        made = make_runner(echo(rounds=1), script, vine(siblings=4), weights=weights)
        (episode,) = made.play()
        found = rank_correlation([episode], weights)
        assert found == {"credit/score_rank_correlation": pytest.approx(expected)}


async def planning(agents, state):
    """Ask the speaker for a plan before it acts."""
    while True:
        seat = agents.acting(state)[0]
        question = [Message(role="user", content=f"{seat}?")]
        await agents[seat].ask(question, score=lambda text: -len(text))
        step = await agents[seat].act(state)
        if step.terminated or step.truncated:
            return step
        state = step.state


def test_a_workflow_that_asks_is_played_on(make_runner, echo, vine, says):
    script = lambda r: says(str(r.id.branch) if r.id.turn % 2 else "1" * (4 - r.id.branch))  # noqa: E731
    made = make_runner(echo(), script, vine(), workflow=planning)
    (episode,) = made.play()
    assert episode.error is None
    asked = [t for t in episode.turns if t.phase == "ask"]
    assert [t.id.branch for t in asked] == [2] * 4, "the shortest answer has the highest score"
    assert all(t.trials == ({"score": -float(len(t.text))},) for t in asked)
    assert all(t.rewards == {} for t in asked)
    config = make_credit(scheme="at_grpo", rewards=WEIGHTS, std="none")
    found = assign_advantages([episode], config, team={"both"})
    own = sorted(
        found.advantages[t.id][""] for t in episode.trajectories[0].sampled if t.id.turn == 0
    )
    assert own == [-1.0, 0.0, 1.0]


async def plain(agents, state):
    """Ask without a score."""
    await agents["speaker"].ask([Message(role="user", content="a plan?")])
    return await agents["speaker"].act(state)


async def forgetful(agents, state):
    """Make other calls when it is called anew."""
    forgetful.calls += 1
    question = [Message(role="user", content="?")]
    if forgetful.calls > 1:
        return await agents["speaker"].ask(question, score=len)
    return await agents["speaker"].act(state)


def test_a_question_without_a_score_is_refused_with_the_cure(make_runner, echo, vine, says):
    made = make_runner(echo(), lambda r: says("1"), vine(), workflow=plain)
    (episode,) = made.play()
    assert "write ask(messages, score=function)" in episode.error.message


def test_a_workflow_that_depends_on_more_than_its_agents_is_found(make_runner, echo, vine, says):
    forgetful.calls = 0
    made = make_runner(echo(), lambda r: says(str(r.id.branch)), vine(), workflow=forgetful)
    (episode,) = made.play()
    assert (
        episode.broken and "depend on nothing but what its agents return" in episode.error.message
    )


def test_an_independent_workflow_may_give_a_score(make_runner, echo, says):
    script = lambda r: says("1")  # noqa: E731
    made = make_runner(echo(), script, None, workflow=planning)
    (episode,) = made.play()
    assert episode.error is None and len(episode.turns) == 8
    assert all(turn.trials == () for turn in episode.turns)
    assert isinstance(made.engine, ScriptedEngine)
