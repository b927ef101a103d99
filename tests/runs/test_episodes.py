import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnwise.credit import assign_advantages, make_credit
from turnwise.errors import RunError
from turnwise.runs.episodes import EpisodeLog, episode_file, read_episodes, recorded_iterations
from turnwise.types import (
    Episode,
    EpisodeId,
    Failure,
    Moves,
    Sampling,
    Span,
    Task,
    Trajectory,
    Turn,
    TurnId,
)

TASK = Task(id="lake-1", env="lake", seed=3, data={"map": ["SF", "FG"], "slippery": False})


def turn(sample, number, prompt, completion, **more) -> Turn:
    place = TurnId(
        episode=EpisodeId(iteration=4, visit=1, task="lake-1", member=sample),
        role="player",
        turn=number,
    )
    values = {"text": "Füße <answer>", "sampling": Sampling(), "finish_reason": "stop"} | more
    return Turn(
        order=place.turn,
        id=place,
        policy="main",
        policy_version=4,
        prompt_ids=prompt,
        completion_ids=completion,
        logprobs=tuple(-0.1 / (i + 3) for i in range(len(completion))),
        **values,
    )


def episode(sample, turns=(), **more) -> Episode:
    values = {"terminated": True, "truncated": False, "score": 1 / 3} | more
    trajectory = Trajectory(role="player", seat="player", turns=tuple(turns))
    return Episode(
        id=EpisodeId(iteration=4, visit=1, task=TASK.id, member=sample),
        task=TASK,
        trajectories=(trajectory,),
        **values,
    )


def growing(sample) -> Episode:
    """Two turns whose second prompt goes on from the first one's row, and one that does not."""
    first = turn(sample, 0, (1, 2, 3), (10 + sample, 9), spans=(Span(name="a", start=0, end=1),))
    rewards = {"goal": 1.0 - sample}
    second = turn(sample, 1, (1, 2, 3, 10 + sample, 9, 4), (7,), rewards=rewards, action="UP")
    third = turn(sample, 2, (5, 5), (), error=Failure(kind="parse", message="no tag"))
    return episode(sample, (first, second, third))


def test_what_is_read_equals_what_was_played_with_its_credit(tmp_path):
    broke = episode(2, error=Failure(kind="env", message="broke"), measures={"steps": 1 / 3})
    episodes = [growing(0), growing(1), broke]
    credit = assign_advantages(
        episodes[:2],
        make_credit(scheme="grpo", rewards={"goal": 1.0}, filter_zero_variance=False),
    )
    EpisodeLog(tmp_path).write(4, episodes, credit=credit)
    read = read_episodes(episode_file(tmp_path, 4))
    assert read.episodes == tuple(episodes)
    assert (read.stream, read.iteration, read.played) == ("train", 4, 3)
    assert read.advantages == credit.advantages
    first, other = episodes[0].turns[0].id, episodes[1].turns[0].id
    assert read.groups[first] == read.groups[other] == "player 4/1/lake-1"
    assert (read.returns[first], read.returns[other]) == (1.0, 0.0)


def test_a_file_from_before_episodes_had_measures_reads_as_none(tmp_path):
    EpisodeLog(tmp_path).write(4, [growing(0)])
    file = episode_file(tmp_path, 4)
    assert "measures" not in file.read_text()
    assert read_episodes(file).episodes[0].measures == {}


def test_where_an_episode_began_and_was_left_is_read_as_it_was_played(tmp_path):
    begun = Moves(
        episode=EpisodeId(iteration=2, visit=7, task=TASK.id, member=3),
        actions=(("player", "UP"), ("player", "LEFT")),
    )
    then = Moves(
        episode=EpisodeId(iteration=3, visit=0, task=TASK.id, member=0), actions=(("ant-2", ""),)
    )
    left = replace(growing(0).trajectories[0], next_key="cell 3/5")
    played = replace(
        episode(0, terminated=False, truncated=True), trajectories=(left,), opening=(begun, then)
    )
    plain = growing(1)
    EpisodeLog(tmp_path).write(4, [played, plain])
    file = episode_file(tmp_path, 4)
    assert read_episodes(file).episodes == (played, plain)
    assert [each.left for each in read_episodes(file).episodes] == [True, False]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    first, second = (line for line in lines if line["kind"] == "episode")
    assert first["opening"] == [
        [2, 7, 3, [["player", "UP"], ["player", "LEFT"]]],
        [3, 0, 0, [["ant-2", ""]]],
    ]
    assert first["trajectories"][0]["next_key"] == "cell 3/5"
    assert "opening" not in second and "next_key" not in second["trajectories"][0]


def test_prompts_and_tasks_are_stored_once_and_longer_prompts_as_suffixes(tmp_path):
    decode = lambda policy, ids: f"{policy}:" + " ".join(map(str, ids))  # noqa: E731
    EpisodeLog(tmp_path, decode=decode).write(4, [growing(0), growing(0), growing(1)])
    lines = [json.loads(line) for line in episode_file(tmp_path, 4).read_text().splitlines()]
    assert [line["kind"] for line in lines].count("task") == 1
    prompts = [(p["after"], p["ids"], p["text"]) for p in lines if p["kind"] == "prompt"]
    assert prompts == [
        (None, [1, 2, 3], "main:1 2 3"),
        (0, [4], "main:4"),
        (None, [5, 5], "main:5 5"),
        (6, [4], "main:4"),
    ]


def test_equal_prompts_of_two_policies_are_decoded_by_their_own(tmp_path):
    one, other = turn(0, 0, (1, 2), (7,)), replace(turn(0, 1, (1, 2), (8,)), policy="other")
    other = replace(other, id=replace(other.id, role="digger", turn=0))
    trajectories = tuple(
        Trajectory(role=each.id.role, seat=each.id.role, turns=(each,)) for each in (one, other)
    )
    played = replace(episode(0), trajectories=trajectories)
    EpisodeLog(tmp_path, decode=lambda policy, ids: f"{policy}:{ids}").write(4, [played])
    file = episode_file(tmp_path, 4)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    texts = [line["text"] for line in lines if line["kind"] == "prompt"]
    assert texts == ["main:(1, 2)", "other:(1, 2)"]
    assert read_episodes(file).episodes == (played,)


def test_prompts_that_go_on_after_siblings_are_read_whole(tmp_path):
    branch = replace(turn(0, 0, (1, 2), (8,)), chosen=False)
    branch = replace(branch, id=replace(branch.id, branch=1))
    spine = Trajectory(
        role="scout", seat="scout", turns=(turn(0, 0, (1, 2), (7,)),), siblings=(branch, branch)
    )
    goes_on = Trajectory(
        role="player", seat="player", turns=(turn(0, 1, (3,), (9,)), turn(0, 2, (3, 9, 4), (5,)))
    )
    played = replace(episode(0), trajectories=(spine, goes_on))
    EpisodeLog(tmp_path).write(4, [played])
    assert read_episodes(episode_file(tmp_path, 4)).episodes == (played,)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ids = st.lists(st.integers(0, 50), max_size=4).map(tuple)
failures = st.none() | st.builds(Failure, kind=st.sampled_from(["parse", "env"]), message=st.text())
turn_ids = st.builds(
    TurnId,
    episode=st.just(EpisodeId(iteration=0, visit=0, task="", member=0)),
    role=st.text(),
    turn=st.integers(0, 9),
    round=st.integers(0, 9),
    branch=st.integers(0, 9),
)
turns = st.builds(
    Turn,
    id=turn_ids,
    order=st.integers(0, 9),
    phase=st.sampled_from(["act", "ask"]),
    chosen=st.booleans(),
    policy=st.sampled_from(["main", "other"]),
    policy_version=st.integers(0, 9),
    prompt_ids=ids,
    completion_ids=ids,
    logprobs=st.lists(st.floats(max_value=0, allow_nan=False), max_size=4).map(tuple),
    sampling=st.builds(Sampling, temperature=st.floats(0, 2), max_tokens=st.integers(1, 99)),
    finish_reason=st.sampled_from(["stop", "length", "context"]),
    text=st.text(),
    spans=st.lists(
        st.builds(Span, name=st.text(), start=st.integers(0, 9), end=st.integers(0, 9)), max_size=2
    ).map(tuple),
    action=st.none() | st.text(),
    rewards=st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=2),
    state_key=st.none() | st.text(),
    seen=st.text(),
    forced=st.booleans(),
    error=failures,
    media=st.lists(st.text(), max_size=2).map(tuple),
)
trajectories = st.lists(
    st.builds(
        Trajectory,
        role=st.text(),
        seat=st.text(),
        turns=st.lists(turns, max_size=3).map(tuple),
        siblings=st.lists(turns, max_size=2).map(tuple),
        next_key=st.none() | st.text(),
    ),
    max_size=2,
).map(tuple)


openings = st.lists(
    st.tuples(
        st.integers(-1, 9),
        st.integers(0, 9),
        st.integers(0, 9),
        st.lists(st.tuples(st.text(), st.text()), max_size=3).map(tuple),
    ),
    max_size=3,
)


def one_identity(task, numbers, trajectories, opening, **values) -> Episode:
    """Return an episode whose turns are its own, after moves of episodes of the same task."""
    iteration, visit, member = numbers
    place = EpisodeId(iteration=iteration, visit=visit, task=task.id, member=member)

    def own(turns):
        return tuple(replace(turn, id=replace(turn.id, episode=place)) for turn in turns)

    trajectories = tuple(
        replace(one, turns=own(one.turns), siblings=own(one.siblings)) for one in trajectories
    )
    moves = tuple(
        Moves(
            episode=EpisodeId(iteration=iteration, visit=visit, task=task.id, member=member),
            actions=actions,
        )
        for iteration, visit, member, actions in opening
    )
    return Episode(id=place, task=task, trajectories=trajectories, opening=moves, **values)


any_episode = st.builds(
    one_identity,
    task=st.builds(
        Task,
        id=st.text(),
        env=st.text(),
        seed=st.integers(),
        data=st.dictionaries(st.text(), json_values, max_size=3),
    ),
    numbers=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    trajectories=trajectories,
    opening=openings,
    terminated=st.booleans(),
    truncated=st.booleans(),
    score=st.floats(allow_nan=False),
    error=failures,
)


@given(st.lists(any_episode, max_size=4))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_episode_survives_the_round_trip(tmp_path, episodes):
    EpisodeLog(tmp_path).write(0, episodes)
    assert read_episodes(episode_file(tmp_path, 0)).episodes == tuple(episodes)


def test_text_with_half_of_a_character_is_written_and_read(tmp_path):
    """Env and judge may give such text in data, notes and refusals."""
    odd = replace(TASK, data={"n": "\ud800"})
    failed = Failure(kind="format", message="no \udfff")
    played = [replace(growing(0), task=odd, notes={"said": "é \ud800"}, error=failed), growing(1)]
    EpisodeLog(tmp_path).write(0, played)
    assert read_episodes(episode_file(tmp_path, 0)).episodes == tuple(played)


def write_many(log: EpisodeLog, iterations) -> None:
    for iteration in iterations:
        log.write(iteration, [growing(i) for i in range(5)])


@pytest.mark.parametrize(("keep", "left"), [(2, [3, 4]), (0, []), (-1, [0, 1, 2, 3, 4])])
def test_only_the_last_iterations_are_kept(tmp_path: Path, keep, left):
    write_many(EpisodeLog(tmp_path, keep=keep), range(5))
    assert recorded_iterations(tmp_path) == left


def test_an_iteration_records_its_first_episodes_and_says_how_many_were_played(tmp_path):
    write_many(EpisodeLog(tmp_path, per_iteration=2), [0])
    read = read_episodes(episode_file(tmp_path, 0))
    assert [e.id.member for e in read.episodes] == [0, 1]
    assert read.played == 5


def test_a_resumed_run_forgets_later_iterations_of_its_stream(tmp_path):
    log = EpisodeLog(tmp_path)
    write_many(log, range(4))
    log.write(3, [growing(0)], stream="evaluation")
    log.cut_after(1)
    assert recorded_iterations(tmp_path) == [0, 1]
    assert recorded_iterations(tmp_path, "evaluation") == [3]


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "train-000000.jsonl"
    path.write_text('{"kind": "episode"}\n')
    with pytest.raises(RunError, match="not an episode file of version 3"):
        read_episodes(path)


@pytest.mark.parametrize(
    "line", ['{"kind": "x"}', "{}", '{"kind": "episode"}', '{"kind": "episode", "task": 9}']
)
def test_a_damaged_line_is_told(tmp_path, line):
    write_many(EpisodeLog(tmp_path), [0])
    path = episode_file(tmp_path, 0)
    whole = path.read_text()
    path.write_text(f"{whole}{line}\n")
    number = whole.count("\n") + 1
    with pytest.raises(RunError, match=rf"line {number} is no part of an episode file: .*delete"):
        read_episodes(path)
