"""Episodes of the one rollout core: rewards, ends, failures as data, chance by place."""

from __future__ import annotations

import operator
import sys
from dataclasses import replace
from typing import ClassVar

import pytest

from turnwise.agents import AgentConfig
from turnwise.credit import assign_advantages, make_credit
from turnwise.engines import Completion, ScriptedEngine
from turnwise.envs import FrozenLake, FrozenLakeConfig, Step
from turnwise.envs.base import MAX_TURNS, BatchRewards
from turnwise.envs.relay import Relay, RelayConfig
from turnwise.errors import EngineError, RewardError
from turnwise.rollout import Runner
from turnwise.types import Failure, Message, Task, TaskVisit
from turnwise.workflows import turns

MAP = ("SFF", "FHF", "FFG")
WINNING = ("DOWN", "DOWN", "RIGHT", "RIGHT")


def states(episode):
    return [turn.state_key for turn in episode.turns]


def test_a_won_episode_is_recorded_turn_by_turn(make_runner, lake, says, renderer):
    (episode,) = make_runner(lake, says(WINNING)).play()
    assert (episode.terminated, episode.truncated, episode.score) == (True, False, 1.0)
    assert episode.error is None
    assert [turn.action for turn in episode.turns] == list(WINNING)
    assert [turn.id.turn for turn in episode.turns] == [0, 1, 2, 3]
    assert [key.split("/", 2)[2] for key in states(episode)] == [
        "r0c0/8", "r1c0/7", "r2c0/6", "r2c1/5",
    ]  # fmt: skip
    last = episode.turns[-1]
    assert last.rewards == {
        "invalid": 0.0, "perception": 0.0, "goal": 1.0, "fall": 0.0, "progress": 1.0, "expert": 1.0,
    }  # fmt: skip
    assert last.text == "<answer> RIGHT </answer>"
    assert [span.name for span in last.spans] == ["answer", "action"]
    assert last.completion_ids == renderer.completion_ids(last.text)


def test_seeing_is_rewarded_to_the_letter(make_runner, lake, renderer):
    truth = "LEFT edge DOWN r1c0 ice RIGHT r0c1 ice UP edge"
    wrong = (truth.replace("ice", "hole"), f"{truth} ice", truth.lower(), "")
    for thought, expected in ((truth, 1.0), *((other, 0.0) for other in wrong)):
        ids = renderer.completion_ids(f"<think> {thought} </think> <answer> LEFT </answer>")
        (episode,) = make_runner(lake, lambda request, ids=ids: ids).play()
        assert episode.turns[0].rewards["perception"] == expected


def test_a_fall_ends_with_its_reward_and_the_limit_truncates(make_runner, lake, says):
    (fallen,) = make_runner(lake, says(["RIGHT", "DOWN"])).play()
    assert (fallen.terminated, fallen.truncated, fallen.score) == (True, False, 0.0)
    assert fallen.turns[-1].rewards["fall"] == 1.0
    assert fallen.measures == {"steps": 2.0, "falls": 1.0}
    (lost,) = make_runner(lake, says(["LEFT"] * 8)).play()
    assert lost.measures == {"steps": 8.0, "falls": 0.0}
    assert (lost.terminated, lost.truncated, len(lost.turns)) == (False, True, 8)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [("DOWN", "parse"), ("<answer> </answer>", "illegal_action"), ("", "parse"),
     ("<answer> JUMP </answer>", "illegal_action")],
)  # fmt: skip
def test_a_reply_without_an_action_ends_the_episode_and_costs(
    make_runner, lake, renderer, says, reply, kind
):
    first, second = says(["DOWN"] * 2), renderer.completion_ids(reply)
    script = lambda request: second if request.id.turn else first(request)  # noqa: E731
    (episode,) = make_runner(lake, script).play()
    assert (episode.terminated, episode.truncated, episode.score) == (True, False, 0.0)
    assert episode.error.kind == kind
    assert episode.measures == {}
    good, bad = episode.turns
    assert good.rewards["invalid"] == 0.0
    assert (bad.action, bad.error, bad.rewards["invalid"]) == (None, episode.error, 1.0)
    assert set(bad.rewards) == {"invalid", "perception"}
    assert bad.state_key is not None


def test_an_invalid_reply_may_be_followed_by_another_try(make_runner, slippery, renderer, says):
    """The env is not stepped: its later steps take the same draws as without the invalid reply."""
    moves = ["DOWN", "RIGHT"] * 4
    bad, good = renderer.completion_ids("DOWN"), says(moves)
    plain = make_runner(slippery, good).play()[0]

    def script(request):
        turn = request.id.turn
        if turn == 1:
            return bad
        ids = [renderer.completion_ids(f"<answer> {word} </answer>") for word in moves]
        return ids[turn - (turn > 1)]

    (episode,) = make_runner(slippery, script, invalid_reply="continue").play()
    assert [turn.id.turn for turn in episode.turns] == list(range(9))
    assert [turn.action is None for turn in episode.turns] == [False, True] + [False] * 7
    failed, again = episode.turns[1:3]
    assert (failed.error.kind, failed.rewards["invalid"]) == ("parse", 1.0)
    assert (again.error, again.rewards["invalid"]) == (None, 0.0)
    assert (failed.prompt_ids, failed.state_key) == (again.prompt_ids, again.state_key)
    keys = zip(states(episode), episode.turns, strict=True)
    assert [key for key, turn in keys if turn.action] == states(plain)
    assert (episode.error, episode.terminated, episode.truncated) == (None, False, True)


def test_an_agent_that_may_try_again_sees_what_it_said(make_runner, lake, renderer, says):
    bad, good = renderer.completion_ids("DOWN"), says([*WINNING, "UP"])
    script = lambda request: good(request) if request.id.turn else bad  # noqa: E731
    agent = {"history": "full", "invalid_reply": "continue"}
    (episode,) = make_runner(lake, script, **agent).play()
    first, second = episode.turns[:2]
    said = first.prompt_ids + first.completion_ids
    assert second.prompt_ids[: len(said)] == said


def test_invalid_replies_count_against_the_cap_on_turns(make_runner, lake, renderer):
    for env, reply in ((AnyWords(lake.config), "<answer> JUMP </answer>"), (lake, "DOWN")):
        env.max_turns = 5
        ids = renderer.completion_ids(reply)
        made = make_runner(env, lambda request, ids=ids: ids, invalid_reply="continue")
        (episode,) = made.play()
        assert (episode.error, episode.terminated, episode.truncated) == (None, False, True)
        assert (len(episode.turns), episode.score, episode.broken) == (5, 0.0, False)
        assert all(turn.error and turn.rewards["invalid"] == 1.0 for turn in episode.turns)
        assert made.runner.take_metrics()["rollout/capped_share"] == 1.0


def test_a_full_context_ends_an_episode_that_could_go_on(make_runner, lake):
    full = Completion(token_ids=(), logprobs=(), finish_reason="context", policy_version=0)
    (episode,) = make_runner(lake, lambda request: full, invalid_reply="continue").play()
    assert (episode.error.kind, len(episode.turns)) == ("context", 1)


@pytest.mark.parametrize("reply", ["tags", "lines", "program", "whole"])
@pytest.mark.parametrize("empty", ["refused", "a step down"])
def test_a_full_context_is_no_answer(make_runner, lake, reply, empty):
    """Even where any text, or none, is an answer: nobody said the empty one."""
    full = Completion(token_ids=(), logprobs=(), finish_reason="context", policy_version=0)
    env = (AnyWords if empty == "refused" else EmptyIsDown)(lake.config)
    (episode,) = make_runner(env, lambda request: full, reply=reply).play()
    assert (episode.terminated, episode.truncated) == (False, True)
    assert (episode.error.kind, episode.turns[0].action) == ("context", None)


def test_a_full_context_truncates(make_runner, lake, says):
    full = Completion(token_ids=(), logprobs=(), finish_reason="context", policy_version=0)
    first = says(["DOWN"])
    script = lambda request: full if request.id.turn else first(request)  # noqa: E731
    (episode,) = make_runner(lake, script).play()
    assert (episode.terminated, episode.truncated) == (False, True)
    assert episode.error.kind == "context"
    assert (episode.turns[-1].completion_ids, episode.turns[-1].finish_reason) == ((), "context")


def test_a_cut_reply_says_so(make_runner, lake, says):
    (episode,) = make_runner(lake, says(["DOWN"]), max_tokens=2).play()
    assert (episode.turns[0].finish_reason, episode.error.kind) == ("length", "parse")
    assert len(episode.turns[0].completion_ids) == 2


class AnyWords(FrozenLake):
    """A lake that takes any text, and says itself what is a direction."""

    def observe(self, state, role):
        return replace(super().observe(state, role), legal_actions=())


class EmptyIsDown(AnyWords):
    """The same; who says nothing goes down."""

    def step(self, state, role, action, noise):
        return super().step(state, role, action or "DOWN", noise)


@pytest.mark.parametrize(
    ("options", "reply", "action", "kind"),
    [
        ({}, "<answer> DOWN </answer>", "DOWN", None),
        ({}, "<answer> JUMP </answer>", None, "illegal_action"),
        ({}, "DOWN", None, "parse"),
        ({"reply": "whole"}, "DOWN", "DOWN", None),
        ({"reply": "whole"}, "<answer> DOWN </answer>", None, "illegal_action"),
    ],
)
def test_where_any_text_is_legal_the_env_refuses(
    make_runner, lake, renderer, options, reply, action, kind
):
    ids = renderer.completion_ids(reply)
    (episode,) = make_runner(AnyWords(lake.config), lambda request: ids, **options).play()
    first = episode.turns[0]
    assert first.action == action
    assert first.rewards["invalid"] == float(action is None)
    assert (first.error.kind if first.error else None) == kind
    assert not episode.broken


class Cracking(FrozenLake):
    """A lake that breaks under the second step of an episode that goes right."""

    def step(self, state, role, action, noise):
        if state.position == 1:
            raise KeyError("the ice broke")
        return super().step(state, role, action, noise)


def test_an_env_that_raises_is_data_and_kills_no_sibling(make_runner, says):
    env = Cracking(FrozenLakeConfig(map=("SFF", "FHF", "FFG")))
    right, down = says(["RIGHT"] * 2), says(WINNING)
    script = lambda request: (right if request.id.episode.member == 1 else down)(request)  # noqa: E731
    played = make_runner(env, script).play(samples=3)
    assert [episode.score for episode in played] == [1.0, 0.0, 1.0]
    broken = played[1]
    assert broken.error == Failure(kind="env", message="KeyError: 'the ice broke'")
    assert (broken.terminated, broken.truncated) == (False, False)
    assert [episode.broken for episode in played] == [False, True, False]
    acts = [(turn.action, turn.error) for turn in broken.turns]
    assert acts == [("RIGHT", None), ("RIGHT", broken.error)]


def test_broken_episodes_count_nothing_where_returns_are_scores(make_runner, says):
    class Paid(Cracking):
        scored_by = "return"

    env = Paid(FrozenLakeConfig(map=("SFF", "FHF", "FFG")))
    right, down = says(["RIGHT"] * 2), says(WINNING)
    script = lambda request: (right if request.id.episode.member == 1 else down)(request)  # noqa: E731
    played = make_runner(env, script, weights={"progress": 1.0}).play(samples=2)
    assert played[1].broken and sum(t.rewards.get("progress", 0.0) for t in played[1].turns) > 0
    assert played[0].score > 0 and played[1].score == 0.0


@pytest.mark.parametrize("blocking", [False, True])
def test_what_an_env_waits_for_may_fail_and_be_tried_again(make_runner, slippery, table, blocking):
    """A server that is away for a moment costs nothing; an env's own fault would come again."""
    drawn = table({"DOWN": 0.5, "RIGHT": 0.5})
    calm = make_runner(slippery, drawn, noise="independent").play(samples=3)
    lost = [2]

    class Served(FrozenLake):
        def step(self, state, role, action, noise):
            if state.steps == 1 and lost[0]:
                lost[0] -= 1
                raise OSError("connection lost")
            return super().step(state, role, action, noise)

    env = Served(slippery.config)
    env.blocking = blocking
    played = make_runner(env, drawn, noise="independent").play(samples=3)
    if blocking:
        assert played == calm
    else:
        assert sum(episode.broken for episode in played) == 2


def test_an_env_that_returns_nonsense_is_named(make_runner, says):
    class Wrong(FrozenLake):
        def step(self, state, role, action, noise):
            return state

    (episode,) = make_runner(Wrong(FrozenLakeConfig(map=("SF", "FG"))), says(["DOWN"])).play()
    assert episode.error.kind == "env"
    assert "must return a Step, got LakeState" in episode.error.message


def test_engine_failures_are_retried_with_the_same_noise(make_runner, slippery, table):
    """An episode that failed on its way is played again to the very same tokens and slips."""
    drawn = table({"DOWN": 0.5, "RIGHT": 0.5})
    calm = make_runner(slippery, drawn, noise="independent").play(samples=4)
    failures = {(1, 0): 2, (2, 2): 1}

    def shaky(request):
        place = (request.id.episode.member, request.id.turn)
        if failures.get(place, 0):
            failures[place] -= 1
            raise EngineError("the engine was away")
        return drawn(request)

    assert make_runner(slippery, shaky, noise="independent").play(samples=4) == calm
    assert not any(failures.values())


def test_an_engine_that_keeps_failing_costs_its_episode_only(make_runner, lake, says):
    calls = []

    def script(request):
        if request.id.episode.member == 1 and request.id.turn == 2:
            calls.append(request)
            raise EngineError("gone")
        return says(WINNING)(request)

    played = make_runner(lake, script).play(samples=2)
    assert [episode.score for episode in played] == [1.0, 0.0]
    assert played[1].error == Failure(kind="engine", message="gone")
    assert (played[1].terminated, played[1].truncated) == (False, False)
    assert len(played[1].turns) == 2
    assert len(calls) == 3


def test_a_group_shares_the_worlds_chance_or_does_not(make_runner, slippery, says):
    same = says(["DOWN", "RIGHT"] * 4)
    common = make_runner(slippery, same).play(samples=4, visits=2)
    own = make_runner(slippery, same, noise="independent").play(samples=4, visits=2)
    for group in (common[:4], common[4:]):
        assert all(states(episode) == states(group[0]) for episode in group)
    assert states(common[0]) != states(common[4])
    assert len({tuple(states(episode)) for episode in own[:4]}) > 1


def test_chance_depends_on_seed_iteration_and_stream(make_runner, slippery, says):
    def walked(seed=0, **place):
        played = make_runner(slippery, says(["DOWN", "RIGHT"] * 4), seed=seed).play(
            visits=3, **place
        )
        return [states(episode) for episode in played]

    base = walked()
    assert walked() == base
    others = (walked(seed=1), walked(iteration=1), walked(stream="evaluation"))
    assert all(other != base for other in others)


def test_an_episode_is_the_same_alone_and_among_others(make_runner, slippery, table):
    drawn = table({"DOWN": 0.5, "RIGHT": 0.5})
    many = make_runner(slippery, drawn, noise="independent").play(samples=3, visits=2)
    alone = make_runner(slippery, drawn, noise="independent").play()
    assert alone == many[:1]


def test_episodes_that_are_solved_early_are_kept(make_runner, lake, says):
    quick, slow = says(WINNING), says(["LEFT"] * 8)
    script = lambda request: (slow if request.id.episode.member else quick)(request)  # noqa: E731
    played = make_runner(lake, script).play(samples=3)
    assert [len(episode.turns) for episode in played] == [4, 8, 8]
    assert [episode.id.member for episode in played] == [0, 1, 2]


def test_the_agents_history_is_what_its_prompt_holds(make_runner, lake, says, renderer):
    for history, extends in (("full", True), ("observation", False)):
        (episode,) = make_runner(lake, says(WINNING), history=history).play()
        first, second = episode.turns[:2]
        said = first.prompt_ids + first.completion_ids
        assert (second.prompt_ids[: len(said)] == said) == extends
    shown = renderer.decode(second.prompt_ids)
    assert "you r1c0" in shown
    assert "you r0c0" not in shown


def test_greedy_takes_the_likeliest_and_sampling_draws(make_runner, lake, table):
    made = make_runner(lake, table({"LEFT": 0.4, "UP": 0.6}))
    greedy, sampled = made.play(greedy=True), made.play()
    assert {turn.action for turn in greedy[0].turns} == {"UP"}
    assert {turn.action for turn in sampled[0].turns} == {"UP", "LEFT"}
    assert {turn.sampling.temperature for turn in greedy[0].turns} == {0.0}
    assert {turn.sampling.temperature for turn in sampled[0].turns} == {1.0}


def test_a_workflow_may_ask_without_stepping(lake, renderer, says, task_of):
    async def consulted(agents, state):
        await agents["player"].ask([Message(role="user", content="ready")])
        return await turns(agents, state)

    answers = says(["UP", *WINNING])
    runner = Runner(
        env=lake,
        workflow=consulted,
        agents={"player": AgentConfig()},
        renderers={"main": renderer},
        engine=ScriptedEngine(answers),
        seed=0,
    )
    play = TaskVisit(iteration=0, visit=0, task=task_of(lake))
    (episode,) = runner.collect([play], "train")
    question, *moves = episode.turns
    assert (question.action, question.rewards, question.state_key) == (None, {}, None)
    assert [turn.id.turn for turn in episode.turns] == [0, 1, 2, 3, 4]
    assert [turn.action for turn in moves] == list(WINNING)
    assert episode.score == 1.0


def test_what_is_asked_before_changes_no_slip(slippery, renderer, says, task_of, make_runner):
    """The world's chance is by its own steps: a question in one episode is none of its business."""
    moves = ["DOWN", "RIGHT"] * 4

    async def consulted(agents, state):
        await agents["player"].ask([Message(role="user", content="ready")])
        return await turns(agents, state)

    def played(workflow, answers):
        runner = Runner(
            env=slippery,
            workflow=workflow,
            agents={"player": AgentConfig()},
            renderers={"main": renderer},
            engine=ScriptedEngine(says(answers)),
            seed=0,
        )
        (episode,) = runner.collect(
            [TaskVisit(iteration=0, visit=3, task=task_of(slippery))], "train"
        )
        return [turn.state_key for turn in episode.turns if turn.state_key is not None]

    assert played(consulted, ["UP", *moves]) == played(turns, moves)


def test_no_plays_are_no_episodes(make_runner, lake, says):
    assert make_runner(lake, says(WINNING)).play(samples=0) == []


def test_turns_name_the_weights_that_wrote_them(make_runner, lake, says):
    made = make_runner(lake, says(WINNING))
    made.engine.update_weights("main")
    (episode,) = made.play()
    assert {turn.policy_version for turn in episode.turns} == {1}


class Judged(FrozenLake):
    """A lake whose rewards are also found for whole batches."""

    async def score_batch(self, episodes, iterations):
        """Give the second of all episodes nothing, the others their number."""
        every = range(len(episodes))
        found = [None if i == 1 else {"goal": 5.0, "judged": float(i)} for i in every]
        notes = [{"read": i} for i in every]
        return BatchRewards(rewards=tuple(found), notes=tuple(notes), metrics={"judge/mean": 3.0})


def test_rewards_of_a_batch_belong_to_the_last_turn_of_episodes_that_ended(
    make_runner, lake, renderer, says
):
    """They replace the env's own of the same name; what failed is not judged."""
    won, nonsense = says(WINNING), renderer.completion_ids("nonsense")
    script = lambda request: nonsense if request.id.episode.member == 0 else won(request)  # noqa: E731
    runner = make_runner(Judged(lake.config), script)
    failed, first, nobody, third = runner.play(samples=4)
    assert failed.error.kind == "parse"
    assert "judged" not in failed.turns[-1].rewards and failed.notes == {}
    for episode, number in ((first, 0.0), (third, 2.0)):
        last = episode.turns[-1].rewards
        assert (last["goal"], last["judged"], last["progress"]) == (5.0, number, 1.0)
        assert all("judged" not in turn.rewards for turn in episode.turns[:-1])
        assert episode.turns[0].rewards["goal"] == 0.0
        assert episode.notes == {"read": int(number)}
    assert nobody.error.kind == "env"
    assert nobody.notes == {"read": 1}


class JudgedTeam(Relay):
    """A team whose rewards are found when the batch has been played."""

    components: ClassVar = {"found": "team", "brief": "agent"}
    scored_by: ClassVar = "return"

    async def score_batch(self, episodes, iterations):
        return BatchRewards(rewards=tuple({"found": 1.0, "brief": 0.25} for _ in episodes))


def test_a_team_reward_of_a_batch_is_recorded_once_and_is_in_every_return(make_runner, renderer):
    words = {"scout": "bim", "digger": "r0 c0"}
    script = lambda request: renderer.completion_ids(f"<answer> {words[request.id.role]} </answer>")  # noqa: E731
    env = JudgedTeam(RelayConfig(size=2, roles="one"))
    weights = {"found": 1.0, "brief": 1.0}
    runner = make_runner(env, script, weights=weights).runner
    task = Task(id="t", env="relay", seed=0, data={"treasures": [[0, 0]]})
    (episode,) = runner.collect([TaskVisit(iteration=0, visit=0, task=task)], "train")
    assert episode.error is None
    rewards = {turn.id.role: turn.rewards for turn in episode.turns}
    assert "found" not in rewards["scout"]
    assert (rewards["digger"]["found"], rewards["scout"]["brief"]) == (1.0, 0.25)
    assert episode.score == 1.0 + 2 * 0.25
    config = make_credit(scheme="reinforce", rewards=weights)
    found = assign_advantages([episode], config, team={"found"})
    assert [spans[""] for spans in found.advantages.values()] == [1.25, 1.25]


class Endless(FrozenLake):
    """Never ends; its score is the number of steps."""

    def __init__(self, cap):
        super().__init__(FrozenLakeConfig(map=MAP))
        self.max_turns = cap

    def step(self, state, role, action, noise):
        after = replace(state, steps=state.steps + 1)
        return Step(state=after, rewards={"goal": 1.0}, terminated=False, truncated=False)

    def score(self, state):
        return state.steps / 10


def test_rewards_that_no_python_code_refuses_are_named_too(make_runner, lake, says):
    class Divides(FrozenLake):
        score_batch = operator.truediv

    with pytest.raises(RewardError, match=r"raised TypeError: .* \(in no line of Python\)"):
        make_runner(Divides(lake.config), says(["DOWN"] * 8)).play()


def test_rewards_of_a_batch_that_leave_the_program_are_named_too(make_runner, lake, says):
    class Leaves(FrozenLake):
        async def score_batch(self, episodes, iterations):
            sys.exit(0)

    with pytest.raises(RewardError, match=r"raised SystemExit: 0 \(in score_batch, '.*' line \d+"):
        make_runner(Leaves(lake.config), says(["DOWN"] * 8)).play()


def test_an_episode_that_reaches_the_cap_is_truncated_and_counted(make_runner, says):
    play = make_runner(Endless(3), says(["UP"] * 9))
    for episode in play.play(2):
        assert (len(episode.turns), episode.score) == (3, 0.3)
        assert (episode.terminated, episode.truncated, episode.error) == (False, True, None)
    metrics = play.runner.take_metrics()
    assert metrics == {"rollout/capped_share": 1.0}
    assert "cut after 3 turns" in play.runner.take_warning(metrics)
    assert play.runner.take_warning(metrics) is None, "it is said once"


def test_an_episode_that_ends_in_time_is_not_counted(make_runner, lake, says):
    play = make_runner(lake, says(["DOWN", "DOWN", "RIGHT", "RIGHT"]))
    lake.max_turns = 4
    (episode,) = play.play()
    assert (episode.terminated, episode.truncated) == (True, False)
    metrics = play.runner.take_metrics()
    assert metrics == {"rollout/capped_share": 0.0}
    assert play.runner.take_warning(metrics) is None


def test_without_a_declared_maximum_the_cap_is_a_hundred(make_runner, says):
    (episode,) = make_runner(Endless(None), says(["UP"] * 200)).play()
    assert len(episode.turns) == MAX_TURNS == 100 and episode.truncated
