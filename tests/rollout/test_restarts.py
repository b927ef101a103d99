"""Episodes that begin in a later state, and episodes that are left before their end."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from turnwise.agents import AgentConfig, demonstration
from turnwise.curriculum import RestartsConfig, RestartsCurriculum
from turnwise.envs import FrozenLake, Step
from turnwise.envs.base import BatchRewards
from turnwise.envs.relay import Relay, RelayConfig
from turnwise.errors import IllegalActionError
from turnwise.rollout.draws import Draws
from turnwise.tasks import GeneratedTasks
from turnwise.tasks.openings import opening_as_json, replayed
from turnwise.types import EpisodeId, Failure, Moves, Task, TaskVisit

FIRM = np.random.default_rng(0)
"""Noise where nothing slips."""
WINNING = ("DOWN", "DOWN", "RIGHT", "RIGHT")
AROUND = ("DOWN", "RIGHT", "UP", "RIGHT", "DOWN", "LEFT", "DOWN", "RIGHT")


def states(episode):
    return [turn.state_key for turn in episode.turns]


def way_to(episode, turn):
    """Return the opening that leads to turn number `turn` of an episode of a single seat."""
    acted = [(each.id.role, each.action) for each in episode.turns[:turn] if each.action]
    return (*episode.opening, Moves(episode=episode.id, actions=tuple(acted)))


def begun_at(opening, task, *, iteration=7, visit=0):
    return TaskVisit(iteration=iteration, visit=visit, task=task, opening=opening)


def expected_keys(env, task, opening, episode, words, *, common=True):
    """Return the keys of the states that an episode acts in after an opening, step by step."""
    draws = Draws(seed=0, stream="train", common_noise=common).of_step
    state, keys = replayed(env, task, opening, draws), []
    for number, word in enumerate(words):
        keys.append(env.state_key(state, "player"))
        step = env.step(state, "player", word, draws(episode, number))
        state = step.state
        if step.terminated or step.truncated:
            break
    return keys


def test_on_firm_ice_an_episode_goes_on_as_the_one_it_goes_on_from(
    make_runner, lake, says, task_of
):
    (whole,) = make_runner(lake, says(WINNING)).play()
    visit = begun_at(way_to(whole, 2), task_of(lake))
    (rest,) = make_runner(lake, says(WINNING[2:])).runner.collect([visit], "train")
    assert states(rest) == states(whole)[2:]
    assert rest.opening == visit.opening
    assert (rest.id, rest.task) == (visit.episode(0), whole.task)
    assert [(turn.order, turn.id.turn, turn.id.round) for turn in rest.turns] == [
        (0, 0, 0), (1, 1, 1),
    ]  # fmt: skip
    assert (rest.terminated, rest.truncated, rest.score) == (True, False, 1.0)
    assert rest.measures["steps"] == 4
    assert whole.opening == () and not whole.left and not rest.left


@pytest.mark.parametrize("noise", ["common", "independent"])
def test_on_slippery_ice_the_moves_slip_as_they_did(make_runner, slippery, says, task_of, noise):
    made = make_runner(slippery, says(AROUND), noise=noise)
    before = made.play(samples=3, visits=2, iteration=4)
    for episode in before:
        for turn in range(1, len(episode.turns)):
            visit = begun_at(way_to(episode, turn), task_of(slippery))
            rest = made.runner.collect([visit], "train", group_size=2)
            assert {states(each)[0] for each in rest} == {states(episode)[turn]}


@pytest.mark.parametrize("noise", ["common", "independent"])
def test_after_its_opening_an_episode_has_noise_of_its_own(
    make_runner, slippery, says, task_of, noise
):
    made = make_runner(slippery, says(AROUND), noise=noise)
    (episode,) = made.play(iteration=4)
    task, opening = task_of(slippery), way_to(episode, 2)
    visits = [begun_at(opening, task, visit=number) for number in range(3)]
    played = made.runner.collect(visits, "train", group_size=3)
    for each in played:
        assert states(each) == expected_keys(
            slippery, task, opening, each.id, AROUND, common=noise == "common"
        )
    groups = [{tuple(states(e)) for e in played[n : n + 3]} for n in (0, 3, 6)]
    assert all(len(group) == 1 for group in groups) == (noise == "common")
    assert len(set.union(*groups)) > 1


@pytest.mark.parametrize("noise", ["common", "independent"])
def test_an_episode_may_begin_where_one_came_that_began_so_too(
    make_runner, slippery, says, task_of, noise
):
    made = make_runner(slippery, says(AROUND), noise=noise)
    (first,) = made.play(iteration=4)
    task = task_of(slippery)
    second = made.runner.collect([begun_at(way_to(first, 2), task)], "train", group_size=3)[2]
    opening = way_to(second, 2)
    assert [len(moves.actions) for moves in opening] == [2, 2]
    third, other = made.runner.collect(
        [begun_at(opening, task, iteration=9)], "train", group_size=2
    )
    assert states(third)[0] == states(other)[0] == states(second)[2]
    assert third.opening == opening
    assert states(third) == expected_keys(
        slippery, task, opening, third.id, AROUND, common=noise == "common"
    )


def test_a_group_begins_in_one_state_that_is_reached_once(make_runner, lake, says, task_of):
    steps = []

    class Counted(FrozenLake):
        def step(self, state, role, action, noise):
            steps.append(action)
            return super().step(state, role, action, noise)

    made = make_runner(Counted(lake.config), says(WINNING[2:]))
    moves = Moves(episode=EpisodeId(iteration=0, visit=0, task="t", member=0), actions=(
        ("player", "DOWN"), ("player", "DOWN")))  # fmt: skip
    visits = [begun_at((moves,), task_of(lake), visit=number) for number in range(2)]
    played = made.runner.collect(visits, "train", group_size=4)
    assert [episode.score for episode in played] == [1.0] * 8
    assert steps.count("DOWN") == 2 * 2
    assert steps.count("RIGHT") == 8 * 2
    made.runner.collect(visits, "train")
    assert steps.count("DOWN") == 2 * 2 * 2, "other visits may have the same numbers"


def test_some_visits_begin_later_and_others_do_not(make_runner, lake, says, task_of):
    made = make_runner(lake, says(WINNING))
    (whole,) = made.play()
    visits = [
        TaskVisit(iteration=3, visit=0, task=task_of(lake)),
        begun_at(way_to(whole, 1), task_of(lake), iteration=3, visit=1),
    ]
    fresh, later = made.runner.collect(visits, "train")
    assert states(fresh) == states(whole)
    assert (fresh.opening, len(later.opening)) == ((), 1)
    assert states(later)[0] == states(whole)[1]


def described(env, task, words):
    """Return replies that describe truly what they act on, as demonstrations do."""
    replies, state = [], env.reset(task)
    for word in words:
        seen = env.observe(state, "player").description
        replies.append(demonstration(AgentConfig(), seen, word))
        state = env.step(state, "player", word, FIRM).state
    return replies


@pytest.mark.parametrize(
    ("history", "assistants"),
    [
        ({"history": "full"}, [2, 3]),
        ({"history": "last_n", "last_n": 1}, [1, 1]),
        ({"history": "last_n", "last_n": 3}, [2, 3]),
        ({"history": "observation"}, [0, 0]),
    ],
    ids=str,
)
def test_prompts_are_those_of_the_whole_episode(
    make_runner, lake, renderer, task_of, history, assistants
):
    """Where replies are what demonstrations say, the remembered past is the true one."""
    task = task_of(lake)
    ids = [renderer.completion_ids(reply) for reply in described(lake, task, WINNING)]
    (whole,) = make_runner(lake, lambda request: ids[request.id.turn], **history).play()
    made = make_runner(lake, lambda request: ids[2 + request.id.turn], **history)
    for rest in made.runner.collect([begun_at(way_to(whole, 2), task)], "train", group_size=2):
        assert [turn.prompt_ids for turn in rest.turns] == [
            turn.prompt_ids for turn in whole.turns[2:]
        ]
        prompts = [renderer.decode(turn.prompt_ids) for turn in rest.turns]
        assert [prompt.count("<answer>") for prompt in prompts] == assistants
        assert ("you r0c0" in prompts[0]) == (assistants[0] == 2)


def test_each_seat_remembers_its_own_moves(make_runner, renderer):
    words = {"scout": "bim", "digger": "r0 c0"}
    script = lambda request: renderer.completion_ids(f"<answer> {words[request.id.role]} </answer>")  # noqa: E731
    env = Relay(RelayConfig(size=2, legs=3))
    task = Task(id="t", env="relay", seed=0, data={"treasures": [[0, 0], [1, 1], [0, 1]]})
    made = make_runner(env, script, history="full")
    (whole,) = made.runner.collect([TaskVisit(iteration=0, visit=0, task=task)], "train")
    acted = sorted(whole.turns, key=lambda turn: turn.order)
    moves = tuple((turn.id.role, turn.action) for turn in acted[:3])
    assert [seat for seat, _ in moves] == ["scout", "digger", "scout"]
    visit = begun_at((Moves(episode=whole.id, actions=moves),), task)
    (rest,) = made.runner.collect([visit], "train")
    assert [turn.state_key for turn in sorted(rest.turns, key=lambda turn: turn.order)] == [
        turn.state_key for turn in acted[3:]
    ]
    prompts = {turn.order: renderer.decode(turn.prompt_ids) for turn in rest.turns}
    assert "row" not in prompts[0] and prompts[0].count("<answer>") == 1, "one dig before"
    assert "column" not in prompts[1] and prompts[1].count("<answer>") == 2
    assert rest.score == whole.score


class Forgetful(FrozenLake):
    """A lake that is another one from its second reset on."""

    resets = 0

    def reset(self, task):
        self.resets += 1
        return super().reset(task)

    def step(self, state, role, action, noise):
        if self.resets > 1 and action == "DOWN":
            raise IllegalActionError("there is a wall now")
        return super().step(state, role, action, noise)


def test_an_env_that_does_not_repeat_itself_breaks_the_episode_and_no_other(
    make_runner, lake, says, task_of
):
    made = make_runner(Forgetful(lake.config), says(WINNING))
    (whole,) = made.play()
    assert whole.score == 1.0
    task = task_of(lake)
    right = Moves(episode=whole.id, actions=(("player", "RIGHT"),))
    visits = [begun_at(way_to(whole, 2), task), begun_at((right,), task, visit=1)]
    played = made.runner.collect(visits, "train", group_size=2)
    for episode in played[:2]:
        assert episode.broken and episode.error.kind == "env"
        assert "'DOWN' was played before" in episode.error.message
        assert "there is a wall now" in episode.error.message
        assert "curriculum.kind = 'uniform'" in episode.error.message
        assert (episode.turns, episode.terminated, episode.truncated) == ((), False, False)
        assert episode.opening == visits[0].opening
    assert [states(episode)[0] for episode in played[2:]] == [
        lake.state_key(lake.step(lake.reset(task), "player", "RIGHT", FIRM).state, "player")
    ] * 2


def test_an_env_that_raises_on_the_way_breaks_the_episode(make_runner, lake, says, task_of):
    class Cracking(FrozenLake):
        def step(self, state, role, action, noise):
            raise KeyError("the ice broke")

    moves = Moves(episode=EpisodeId(iteration=0, visit=0, task="t", member=0), actions=(
        ("player", "DOWN"),))  # fmt: skip
    made = make_runner(Cracking(lake.config), says(WINNING))
    (episode,) = made.runner.collect([begun_at((moves,), task_of(lake))], "train")
    assert episode.error == Failure(kind="env", message="KeyError: 'the ice broke'")


class AnyWords(FrozenLake):
    """A lake that takes any text, and says itself what is a direction."""

    def observe(self, state, role):
        return replace(super().observe(state, role), legal_actions=())


def test_an_unreadable_reply_on_the_way_is_no_move(make_runner, slippery, renderer, task_of):
    bad = renderer.completion_ids("DOWN")
    good = [renderer.completion_ids(f"<answer> {word} </answer>") for word in AROUND]
    script = lambda request: bad if request.id.turn == 1 else good[request.id.turn % 8]  # noqa: E731
    made = make_runner(slippery, script, invalid_reply="continue")
    (episode,) = made.play(iteration=4)
    for turn in range(2, 6):
        visit = begun_at(way_to(episode, turn), task_of(slippery))
        (rest,) = made.runner.collect([visit], "train")
        assert states(rest)[0] == states(episode)[turn]


def test_a_reply_that_the_env_refuses_on_the_way_is_no_move(
    make_runner, slippery, renderer, task_of
):
    env = AnyWords(slippery.config)
    bad = renderer.completion_ids("<answer> JUMP </answer>")
    good = [renderer.completion_ids(f"<answer> {word} </answer>") for word in AROUND]
    script = lambda request: bad if request.id.turn == 1 else good[request.id.turn % 8]  # noqa: E731
    made = make_runner(env, script, invalid_reply="continue")
    for iteration in range(4):
        (episode,) = made.play(iteration=iteration)
        assert episode.turns[1].error.kind == "illegal_action"
        for turn in range(2, len(episode.turns)):
            visit = begun_at(way_to(episode, turn), task_of(slippery))
            (rest,) = made.runner.collect([visit], "train")
            assert states(rest)[0] == states(episode)[turn]


@pytest.mark.parametrize("noise", ["common", "independent"])
@pytest.mark.parametrize("most", [None, 3])
def test_episodes_begin_where_the_curriculum_saw_others_act(
    make_runner, slippery, table, noise, most
):
    """Iteration after iteration: what is seen first is what the way was remembered for."""
    drawn = table({"DOWN": 0.3, "RIGHT": 0.3, "LEFT": 0.2, "UP": 0.1, "JUMP": 0.1})
    again = {"invalid_reply": "continue", "invalid_limit": 3}
    made = make_runner(slippery, drawn, noise=noise, most_turns=most, **again)
    tasks = GeneratedTasks(slippery, "train", 0)
    curriculum = RestartsCurriculum(tasks, 6, RestartsConfig(share=0.5))
    curriculum.begin({})
    later, longest = 0, 0
    for iteration in range(5):
        remembered = {
            json.dumps(way): seen for _, seen, _, way, *_ in curriculum.state().get("known", [])
        }
        visits = curriculum.visits(iteration)
        played = made.runner.collect(visits, "train", group_size=2)
        assert not any(episode.broken for episode in played)
        for episode in played:
            if episode.opening:
                way = json.dumps(opening_as_json(episode.opening))
                assert episode.turns[0].seen == remembered[way]
                later, longest = later + 1, max(longest, len(episode.opening))
        curriculum.learn(played, {})
    assert later == 4 * 3 * 2
    assert longest >= 2


class Judged(FrozenLake):
    """A lake whose rewards are found for whole batches."""

    async def score_batch(self, episodes, iterations):
        """Give every episode that it is given the number of its turns."""
        rewards = tuple({"goal": float(len(episode.turns))} for episode in episodes)
        return BatchRewards(rewards=rewards, metrics={"judge/episodes": float(len(episodes))})


def test_episodes_that_were_left_are_not_judged(make_runner, lake, says):
    won, lost = says(WINNING), says(["LEFT"] * 8)
    script = lambda request: (lost if request.id.episode.member else won)(request)  # noqa: E731
    made = make_runner(Judged(lake.config), script, most_turns=4)
    judged, left = made.play(samples=2)
    assert (judged.left, left.left) == (False, True)
    assert judged.turns[-1].rewards["goal"] == 4.0
    assert left.turns[-1].rewards["goal"] == 0.0
    assert made.runner.take_metrics()["judge/episodes"] == 1.0


def test_a_batch_of_which_all_were_left_has_no_judge(make_runner, lake, says):
    made = make_runner(Judged(lake.config), says(["LEFT"] * 8), most_turns=2)
    assert all(episode.left for episode in made.play(samples=2))
    assert "judge/episodes" not in made.runner.take_metrics()


def test_the_rewards_until_then_are_the_score_where_returns_are(make_runner, lake, says):
    class Paid(FrozenLake):
        scored_by = "return"

    made = make_runner(
        Paid(lake.config), says(WINNING), most_turns=2, weights={"progress": 1.0, "expert": 0.5}
    )
    (episode,) = made.play()
    rewards = [turn.rewards for turn in episode.turns]
    assert episode.left
    assert episode.score == sum(each["progress"] + 0.5 * each["expert"] for each in rewards) > 0


def test_an_episode_is_left_after_its_turns(make_runner, lake, says):
    made = make_runner(lake, says(["LEFT"] * 8), most_turns=3)
    for episode in made.play(samples=2):
        assert (episode.terminated, episode.truncated, episode.error) == (False, True, None)
        assert episode.left and not episode.broken
        assert len(episode.turns) == 3
        (trajectory,) = episode.trajectories
        assert trajectory.next_key == states(episode)[0].replace("/8", "/5")
        assert (episode.score, episode.measures) == (0.0, {}), "it has not ended"
    metrics = made.runner.take_metrics()
    assert metrics == {"rollout/capped_share": 0.0}
    assert made.runner.take_warning(metrics) is None


def test_the_key_is_that_of_the_state_in_which_the_episode_would_go_on(make_runner, slippery, says):
    (whole,) = make_runner(slippery, says(AROUND)).play()
    for most in range(1, len(whole.turns)):
        (part,) = make_runner(slippery, says(AROUND), most_turns=most).play()
        assert states(part) == states(whole)[:most]
        assert part.trajectories[0].next_key == states(whole)[most]


def test_the_turns_of_an_opening_do_not_count(make_runner, lake, says, task_of):
    (whole,) = make_runner(lake, says(["LEFT"] * 8)).play()
    visit = begun_at(way_to(whole, 3), task_of(lake))
    made = make_runner(lake, says(["LEFT"] * 8), most_turns=3)
    (rest,) = made.runner.collect([visit], "train")
    assert states(rest) == states(whole)[3:6]
    assert rest.left and rest.trajectories[0].next_key == states(whole)[6]


def test_evaluation_plays_to_the_end(make_runner, lake, says):
    made = make_runner(lake, says(["LEFT"] * 8), most_turns=3)
    for stream in ("evaluation", "warmup"):
        (episode,) = made.play(stream=stream)
        assert (len(episode.turns), episode.truncated, episode.left) == (8, True, False)
        assert episode.trajectories[0].next_key is None


class Endless(FrozenLake):
    """Never ends."""

    def step(self, state, role, action, noise):
        after = replace(state, steps=state.steps + 1)
        return Step(state=after, rewards={}, terminated=False, truncated=False)


@pytest.mark.parametrize(("most", "turns", "left"), [(2, 2, True), (3, 3, False), (5, 3, False)])
def test_at_the_cap_of_the_env_an_episode_is_not_left_but_capped(
    make_runner, lake, says, most, turns, left
):
    env = Endless(lake.config)
    env.max_turns = 3
    made = make_runner(env, says(["UP"] * 9), most_turns=most)
    (episode,) = made.play()
    assert (len(episode.turns), episode.truncated, episode.left) == (turns, True, left)
    assert made.runner.take_metrics() == {"rollout/capped_share": float(not left)}


@pytest.mark.parametrize(
    ("most", "turns", "left"), [(None, 3, False), (2, 2, True), (3, 3, False), (9, 3, False)]
)
def test_the_turns_of_an_opening_count_against_the_cap_of_the_env(
    make_runner, lake, says, task_of, most, turns, left
):
    """So that no chain of beginnings makes a game longer than the env allows."""
    env = Endless(lake.config)
    env.max_turns = 5
    begun = EpisodeId(iteration=0, visit=0, task="t", member=0)
    moves = Moves(episode=begun, actions=(("player", "UP"),) * 2)
    made = make_runner(env, says(["UP"] * 9), most_turns=most)
    visit = begun_at((moves,), task_of(lake))
    (episode,) = made.runner.collect([visit], "train")
    assert (len(episode.turns), episode.truncated, episode.left) == (turns, True, left)
    assert made.runner.take_metrics() == {"rollout/capped_share": float(not left)}


def test_an_episode_that_ends_with_its_last_turn_is_not_left(make_runner, lake, says):
    (won,) = make_runner(lake, says(WINNING), most_turns=4).play()
    assert (won.terminated, won.truncated, won.left, won.score) == (True, False, False, 1.0)
    (cut,) = make_runner(lake, says(["LEFT"] * 8), most_turns=8).play()  # by the env itself
    assert (cut.terminated, cut.truncated, cut.left) == (False, True, False)


def test_unreadable_replies_count_as_turns(make_runner, lake, renderer, says):
    bad, good = renderer.completion_ids("DOWN"), says(WINNING)
    script = lambda request: bad if request.id.turn else good(request)  # noqa: E731
    made = make_runner(lake, script, most_turns=3, invalid_reply="continue")
    (episode,) = made.play()
    assert [turn.action for turn in episode.turns] == ["DOWN", None, None]
    assert (episode.truncated, episode.left, episode.error) == (True, True, None)
    assert episode.trajectories[0].next_key == states(episode)[-1]
    assert made.runner.take_metrics() == {"rollout/capped_share": 0.0}


def test_an_episode_that_fails_in_its_last_turn_is_not_left(make_runner, lake, renderer, says):
    bad, good = renderer.completion_ids("DOWN"), says(WINNING)
    script = lambda request: bad if request.id.turn == 2 else good(request)  # noqa: E731
    (episode,) = make_runner(lake, script, most_turns=3).play()
    assert (episode.error.kind, len(episode.turns)) == ("parse", 3)
    assert not episode.left and episode.terminated


@pytest.mark.parametrize(("most", "turns"), [(1, [1, 0]), (2, [1, 1]), (3, [2, 1])])
def test_the_turns_of_all_seats_count_and_each_seat_has_its_key(make_runner, renderer, most, turns):
    words = {"scout": "bim", "digger": "r0 c0"}
    script = lambda request: renderer.completion_ids(f"<answer> {words[request.id.role]} </answer>")  # noqa: E731
    env = Relay(RelayConfig(size=2, legs=3))
    task = Task(id="t", env="relay", seed=0, data={"treasures": [[0, 0], [1, 1], [0, 1]]})
    visit = TaskVisit(iteration=0, visit=0, task=task)
    made = make_runner(env, script, most_turns=most)
    (episode,) = made.runner.collect([visit], "train")
    assert [len(trajectory.turns) for trajectory in episode.trajectories] == turns
    assert episode.left and episode.truncated
    after = {1: "leg 0 r0 c0 bim", 2: "leg 1 r1 c1 none", 3: "leg 1 r1 c1 bim"}[most]
    assert [trajectory.next_key for trajectory in episode.trajectories] == [
        after if number else None for number in turns
    ]


def test_what_is_shown_may_be_the_key(make_runner, lake, says):
    shown = []
    for legal in (False, True):
        made = make_runner(
            lake, says(WINNING), state_key="observation", most_turns=3, show_legal=legal
        )
        (episode,) = made.play()
        shown.append([*states(episode), episode.trajectories[0].next_key])
        state, texts = lake.reset(episode.task), []
        for word in (*WINNING[:3], None):
            seen = lake.observe(state, "player")
            line = "\nlegal actions: " + " ".join(seen.legal_actions) if legal else ""
            texts.append(seen.text + line)
            state = lake.step(state, "player", word, FIRM).state if word else state
        assert shown[-1] == texts
    (plain,) = make_runner(lake, says(WINNING), most_turns=3).play()
    assert not set(states(plain)) & set(shown[0])


def test_equal_observations_have_equal_marks_whatever_the_key(make_runner, lake, says):
    """LEFT at the left edge: the cell is the same, and the steps that are left are not shown."""
    marks = set()
    for rule in ("env", "observation"):
        for legal in (False, True):
            words = ["LEFT", "LEFT", *WINNING]
            made = make_runner(lake, says(words), state_key=rule, show_legal=legal)
            (episode,) = made.play()
            marks.add(tuple(turn.seen for turn in episode.turns))
            assert len(set(states(episode))) == (6 if rule == "env" else 4)
    (seen,) = marks
    assert seen[0] == seen[1] == seen[2]
    assert len({*seen, ""}) == 5


@pytest.mark.parametrize("reply", ["DOWN", "<answer> JUMP </answer>"])
def test_so_many_invalid_replies_in_a_row_end_an_episode(make_runner, lake, renderer, reply):
    """A valid one begins the count again."""
    bad = renderer.completion_ids(reply)
    good = renderer.completion_ids("<answer> LEFT </answer>")
    script = lambda request: good if request.id.turn in (2, 5) else bad  # noqa: E731
    made = make_runner(lake, script, invalid_reply="continue", invalid_limit=3)
    (episode,) = made.play()
    assert [turn.action is None for turn in episode.turns] == [
        True, True, False, True, True, False, True, True, True,
    ]  # fmt: skip
    assert episode.error == episode.turns[-1].error
    assert episode.error.kind in ("parse", "illegal_action")
    assert (episode.terminated, episode.truncated, episode.broken) == (True, False, False)
    assert not episode.left and episode.score == 0.0


def test_one_invalid_reply_may_be_enough(make_runner, lake, renderer):
    bad = renderer.completion_ids("DOWN")
    made = make_runner(lake, lambda request: bad, invalid_reply="continue", invalid_limit=1)
    (episode,) = made.play()
    assert (len(episode.turns), episode.error.kind) == (1, "parse")


def test_each_seat_has_its_own_invalid_replies(make_runner, renderer):
    """The digger fails twice in each leg, the scout once: nobody three times in a row."""
    words = {"scout": "bim", "digger": "r0 c0"}

    def script(request):
        fails = 2 if request.id.role == "digger" else 1
        valid = request.id.turn % (fails + 1) == fails
        return renderer.completion_ids(f"<answer> {words[request.id.role]} </answer>" * valid)

    env = Relay(RelayConfig(size=2, legs=2))
    env.max_turns = 100
    task = Task(id="t", env="relay", seed=0, data={"treasures": [[0, 0], [1, 1]]})
    visit = TaskVisit(iteration=0, visit=0, task=task)
    made = make_runner(env, script, invalid_reply="continue", invalid_limit=3)
    (episode,) = made.runner.collect([visit], "train")
    assert (episode.error, episode.terminated, len(episode.turns)) == (None, True, 2 * (2 + 3))


def test_a_limit_of_invalid_replies_needs_that_they_do_not_end_the_episode():
    assert AgentConfig(invalid_reply="continue", invalid_limit=2).invalid_limit == 2
    assert AgentConfig(invalid_reply="continue").invalid_limit is None
    with pytest.raises(ValueError, match="invalid_limit = 2 needs invalid_reply = 'continue'"):
        AgentConfig(invalid_limit=2)
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        AgentConfig(invalid_reply="continue", invalid_limit=0)
