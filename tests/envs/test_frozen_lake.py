import inspect
import itertools
import json

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.envs import FrozenLake, FrozenLakeConfig, make_env
from turnwise.envs.frozen_lake.maps import (
    ACTIONS,
    distances_on,
    draw_rows,
    lake_of,
    layout,
    mirror,
    trap_cells,
)
from turnwise.envs.frozen_lake.solver import action_values, advantages, success_chances, transitions
from turnwise.envs.frozen_lake.state import LakeState, render_lake
from turnwise.errors import ConfigError, DataError, EnvError, IllegalActionError, UnknownNameError
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

STANDARD = ("SFFF", "FHFH", "FFFH", "HFFG")


def task_of(env, seed=0, **change):
    data = env.generate(np.random.default_rng(seed)) | change
    return Task(id="t", env=env.name, seed=seed, data=data)


def state_of(rows, cell, *, slippery=False, limit=12, steps=0):
    return LakeState(map=tuple(rows), position=cell, steps=steps, limit=limit, slippery=slippery)


def gym_lake(rows, slippery):
    return gymnasium.make("FrozenLake-v1", desc=list(rows), is_slippery=slippery).unwrapped


@pytest.mark.parametrize("slippery", [False, True])
def test_a_thousand_steps_equal_those_of_gymnasium(slippery):
    env, rng = FrozenLake(), np.random.default_rng(5)
    slipped = 0
    for number in range(10):
        rows = draw_rows(rng, 4 + number % 3, 0.8, solvable=True)
        world = gym_lake(rows, slippery)
        cells = [cell for cell, letter in enumerate("".join(rows)) if letter in "SF"]
        for seed in range(100):
            cell, action = int(rng.choice(cells)), int(rng.integers(4))
            world.s, world.np_random = cell, np.random.default_rng([number, seed])
            there, reward, over, _, _ = world.step(action)
            noise = np.random.default_rng([number, seed])
            state = state_of(rows, cell, slippery=slippery)
            step = env.step(state, "player", ACTIONS[action], noise)
            found = (step.state.position, step.rewards["goal"], step.terminated)
            assert found == (int(there), reward, bool(over))
            assert noise.random() == world.np_random.random(), "equally many draws were made"
            slipped += step.info["slipped"]
    assert (slipped > 0) == slippery


@pytest.mark.parametrize("slippery", [False, True])
@pytest.mark.parametrize("size", [4, 9])
def test_the_transition_table_is_gymnasiums(size, slippery):
    rows = draw_rows(np.random.default_rng(size), size, 0.7, solvable=False)
    cells, probabilities = transitions(rows, slippery)
    for cell, by_action in gym_lake(rows, slippery).P.items():
        for action, outcomes in by_action.items():
            if len(outcomes) == 1 and slippery:  # gymnasium writes an ended cell's outcomes once
                assert set(cells[cell, action].tolist()) == {outcomes[0][1]}
                continue
            assert cells[cell, action].tolist() == [outcome[1] for outcome in outcomes]
            assert probabilities.tolist() == [outcome[0] for outcome in outcomes]


def test_there_are_3828_solvable_random_4x4_lakes():
    layouts = itertools.product("FH", repeat=14)
    letters = ("S" + "".join(layout) + "G" for layout in layouts)
    assert sum(distances_on(text, 4)[0] < np.inf for text in letters) == 3828


@pytest.mark.parametrize("slippery", [False, True])
def test_action_values_are_those_of_value_iteration(slippery):
    rng = np.random.default_rng(0)
    for rows in [STANDARD, *(draw_rows(rng, 5, 0.7, solvable=False) for _ in range(5))]:
        table = gym_lake(rows, slippery).P
        values = np.zeros(len(table))
        for _ in range(4000):
            q = np.array(
                [
                    [sum(p * (r + 0.99 * values[s] * (not over)) for p, s, r, over in table[c][a])
                     for a in range(4)]
                    for c in table
                ]
            )  # fmt: skip
            done, values = np.abs(q.max(axis=1) - values).max() < 1e-12, q.max(axis=1)
            if done:
                break
        np.testing.assert_allclose(action_values(rows, slippery), q, atol=1e-9)


def test_success_within_a_limit_is_the_published_optimum():
    found = [success_chances(STANDARD, True, limit)[limit, 0].max() for limit in (10, 50, 100)]
    np.testing.assert_allclose(found, [0.041, 0.546, 0.744], atol=5e-4)


def test_normalised_values_of_the_standard_lake_are_the_published_ones():
    table = advantages(STANDARD, True)
    found = [table[cell][action] for cell, action in ((0, 2), (2, 1), (10, 1))]
    assert found == pytest.approx([0.28, 0.20, 0.59], abs=0.006)
    assert [int(np.argmax(table[cell])) for cell in (0, 2, 10)] == [0, 3, 0]


def test_where_all_actions_are_worth_the_same_each_is_right():
    assert advantages(("SHF", "HFF", "FFG"), False)[0] == (1.0, 1.0, 1.0, 1.0)


def test_observation_is_the_shared_text():
    env = FrozenLake(FrozenLakeConfig(map=STANDARD))
    seen = env.observe(state_of(STANDARD, 6), "player")
    assert seen.text == (
        "lake\n r0c0 start r0c1 ice r0c2 ice r0c3 ice\n r1c0 ice r1c1 hole r1c2 ice r1c3 hole\n"
        " r2c0 ice r2c1 ice r2c2 ice r2c3 hole\n r3c0 hole r3c1 ice r3c2 ice r3c3 goal\n you r1c2"
    )
    assert seen.description == "LEFT r1c1 hole DOWN r2c2 ice RIGHT r1c3 hole UP r0c2 ice"
    assert seen.legal_actions == ("LEFT", "DOWN", "RIGHT", "UP")
    assert env.observe(state_of(STANDARD, 0), "player").description == (
        "LEFT edge DOWN r1c0 ice RIGHT r0c1 ice UP edge"
    )


def test_words_cover_everything_that_is_said_at_any_size():
    env = make_env("frozen-lake", size=16)
    seen = env.observe(env.reset(task_of(env)), "player")
    said = set(f"{seen.text} {seen.description} {' '.join(seen.legal_actions)}".split())
    assert said <= set(env.vocabulary())
    assert len(set(env.vocabulary())) == len(env.vocabulary())


def test_rewards_of_a_way_to_the_goal_and_of_a_fall():
    env, noise = FrozenLake(), np.random.default_rng(0)
    state, progress = state_of(STANDARD, 0), 0.0
    for action in env.shortest_path(state):
        step = env.step(state, "player", action, noise)
        progress, state = progress + step.rewards["progress"], step.state
        assert step.rewards["expert"] == pytest.approx(1.0)
    assert (step.terminated, step.truncated, env.score(state)) == (True, False, 1.0)
    assert step.rewards["goal"] == 1.0 and progress == 6.0
    fallen = env.step(state_of(STANDARD, 1), "player", "DOWN", noise)
    assert fallen.rewards == {"goal": 0.0, "fall": 1.0, "progress": 0.0, "expert": 0.0}
    assert (fallen.terminated, fallen.truncated, env.score(fallen.state)) == (True, False, 0.0)
    back = env.step(state_of(STANDARD, 4), "player", "UP", noise)
    assert back.rewards["progress"] == -1.0


def test_the_last_step_truncates_unless_it_terminates():
    env, noise = FrozenLake(), np.random.default_rng(0)
    cut = env.step(state_of(STANDARD, 0, limit=3, steps=2), "player", "UP", noise)
    assert (cut.terminated, cut.truncated) == (False, True)
    home = env.step(state_of(STANDARD, 14, limit=3, steps=2), "player", "RIGHT", noise)
    assert (home.terminated, home.truncated) == (True, False)
    with pytest.raises(EnvError, match="the episode is over"):
        env.step(cut.state, "player", "UP", noise)


def test_state_key_tells_cell_map_ice_and_steps_left_apart():
    env = FrozenLake()
    other = ("SFFF", "FHFH", "FFFF", "HFFG")
    states = [
        state_of(STANDARD, 0),
        state_of(STANDARD, 1),
        state_of(other, 0),
        state_of(STANDARD, 0, slippery=True),
        state_of(STANDARD, 0, steps=1),
    ]
    assert len({env.state_key(state, "player") for state in states}) == len(states)
    same = state_of(STANDARD, 0, limit=13, steps=1)
    assert env.state_key(same, "player") == env.state_key(states[0], "player")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(4, 8), ice=st.floats(0.6, 1.0))
def test_generated_tasks_are_solvable_and_limits_are_multiples(seed, size, ice):
    for start in ("corner", "random"):
        env = make_env("frozen-lake", size=size, frozen_probability=ice, start=start)
        data = env.generate(np.random.default_rng(seed))
        assert json.loads(json.dumps(data)) == data
        lake = lake_of(tuple(data["map"]))
        assert 0 < lake.distances[lake.start] < np.inf
        assert data["limit"] == 2 * lake.distances[lake.start]
        assert start == "random" or lake.start == 0
        assert lake.letters[-1] == "G" and lake.letters.count("S") == 1
        assert lake.letters[0] in "SF"


def test_random_starts_reach_every_cell_and_warmup_stands_off_the_start():
    env = make_env("frozen-lake", frozen_probability=1.0, start="random")
    drawn = [env.generate(np.random.default_rng(seed)) for seed in range(300)]
    assert {lake_of(tuple(data["map"])).start for data in drawn} == set(range(15))
    warm = make_env("frozen-lake", solvable=False)
    states = [warm.reset(task_of(warm, seed)) for seed in range(300)]
    assert all(state.letter in "SF" for state in states)
    assert 0.5 < np.mean([state.position != state.lake.start for state in states]) < 1.0
    assert any(state.lake.distances[state.position] == np.inf for state in states)
    step = warm.step(states[0], "player", "UP", np.random.default_rng(0))
    assert all(np.isfinite(value) for value in step.rewards.values())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), cell=st.integers(0, 14))
def test_canonical_ignores_start_mirror_image_and_dynamics(seed, cell):
    rows = draw_rows(np.random.default_rng(seed), 4, 0.7, solvable=False)
    mirrored = ["".join(column) for column in zip(*rows, strict=True)]
    letters = list("".join(rows).replace("S", "F"))
    moved = letters.copy()
    moved[cell] = "S" if letters[cell] == "F" else "H"
    turned = ["".join(moved[i : i + 4]) for i in range(0, 16, 4)]
    assert layout(rows) == layout(mirrored) == layout(turned)
    holed = letters.copy()
    holed[cell] = "F" if letters[cell] == "H" else "H"
    assert layout(rows) != layout(["".join(holed[i : i + 4]) for i in range(0, 16, 4)])


def test_a_fixed_map_is_played_as_given():
    env = make_env("frozen-lake", map=list(STANDARD), slippery=True, step_limit=16.67)
    assert env.single_task and not make_env("frozen-lake").single_task
    state = env.reset(task_of(env))
    assert (state.map, state.limit, state.slippery, state.position) == (STANDARD, 100, True, 0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"size": 3}, "size = 3"),
        ({"sise": 4}, "did you mean 'size'"),
        ({"map": ["SF", "FX"]}, r"replace \['X'\]"),
        ({"map": ["SF", "FGF"]}, "rows of one length"),
        ({"map": ["SF", "FF"]}, "at least one G"),
        ({"map": []}, "2 to 16 rows"),
        ({"map": ["SH", "HG"]}, "no way from S to G"),
        ({"map": ["SF", "FG"], "size": 4}, "size is for random maps"),
        ({"solvable": False, "start": "corner"}, "leave start out"),
    ],
)
def test_wrong_options_are_refused_with_the_cure(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_env("frozen-lake", **options)


def test_too_few_ice_is_said_at_the_draw():
    env = make_env("frozen-lake", size=16, frozen_probability=0.01)
    with pytest.raises(ConfigError, match="raise it, or lower size"):
        env.generate(np.random.default_rng(0))


def test_unknown_env_and_action_get_the_nearest_name():
    with pytest.raises(UnknownNameError, match="did you mean 'frozen-lake'"):
        make_env("frozenlake")
    env = make_env("frozen-lake")
    with pytest.raises(IllegalActionError, match="'DOWNE' is none of LEFT, DOWN, RIGHT, UP"):
        env.step(env.reset(task_of(env)), "player", "DOWNE", np.random.default_rng(0))


@pytest.mark.parametrize("data", [{"map": STANDARD}, {"map": STANDARD, "slippery": 0, "limit": 0}])
def test_data_that_are_no_lake_are_refused(data):
    with pytest.raises(DataError, match="task 't'"):
        FrozenLake().reset(Task(id="t", env="frozen-lake", seed=0, data=data))


def test_optimal_q_prefers_the_goal():
    state = state_of(STANDARD, 14)
    values = action_values(state.map, state.slippery)[state.position]
    assert values.tolist() == pytest.approx([0.99**2, 0.99, 1.0, 0.99**2])


def test_picture_shows_the_player_the_end_and_colours_if_asked():
    assert "H [S]" not in render_lake(state_of(STANDARD, 0))
    assert render_lake(state_of(STANDARD, 0)).startswith("[S] F  F  F\n F  H  F  H\n")
    assert render_lake(state_of(STANDARD, 15)).endswith("the goal")
    assert render_lake(state_of(STANDARD, 5)).endswith("fallen into a hole")
    assert "\x1b[" in render_lake(state_of(STANDARD, 5), colour=True)
    assert FrozenLake().render(state_of(STANDARD, 5)) == render_lake(state_of(STANDARD, 5))


def test_file_opens_with_the_sections_of_every_env():
    head = inspect.getmodule(FrozenLake).__doc__
    sections = ["Task:", "What each role sees:", "Actions:", "Rewards:", "End:", "Baselines:"]
    places = [head.index(section) for section in [*sections, "Example:"]]
    assert places == sorted(places)


def test_mirrored_lakes_have_their_goal_in_every_corner_and_stay_in_their_split():
    env = make_env("frozen-lake", mirrored=True, start="random")
    plain = make_env("frozen-lake")
    goals = set()
    for index in range(60):
        task = GeneratedTasks(env, "train", seed=3).task(index)
        goals.add("".join(task.data["map"]).index("G"))
        upright = min(
            (
                mirror(tuple(task.data["map"]), upside_down=down, left_right=right)
                for down in (False, True)
                for right in (False, True)
            ),
            key=lambda rows: "".join(rows).index("G") != 15,
        )
        assert plain.canonical({"map": upright}) == env.canonical(task.data)
        assert env.shortest_path(env.reset(task))
    assert goals == {0, 3, 12, 15}


def test_sizes_are_drawn_evenly_between_the_smallest_and_the_largest():
    tasks = GeneratedTasks(make_env("frozen-lake", size=4, largest=6), "train", seed=0).take(300)
    sizes = [len(task.data["map"]) for task in tasks]
    assert all(len(row) == n for n, t in zip(sizes, tasks, strict=True) for row in t.data["map"])
    assert all(70 < sizes.count(size) < 130 for size in (4, 5, 6))
    with pytest.raises(ConfigError, match="largest = 4 is below size = 5: raise it"):
        make_env("frozen-lake", size=5, largest=4)


def reflex_may_be_wrong(rows, cell):
    """By definition: a step that the reflex may take there is not the first of a shortest way."""
    lake = lake_of(rows)
    toward = {"DOWN", "RIGHT"}
    safe = [
        to
        for action, to in zip(ACTIONS, lake.moves[cell], strict=True)
        if action in toward and to != cell and lake.letters[to] != "H"
    ]
    return not safe or any(lake.distances[to] != lake.distances[cell] - 1 for to in safe)


def test_the_share_of_traps_is_kept_and_they_are_where_the_reflex_may_fail():
    def starts(**options):
        env = make_env("frozen-lake", start="random", frozen_probability=0.65, **options)
        rng, counts, trapped = np.random.default_rng(0), dict.fromkeys(ACTIONS, 0.0), 0
        for _ in range(1500):
            rows = tuple(env.generate(rng)["map"])
            lake = lake_of(rows)
            cell, moves = lake.start, lake.moves[lake.start]
            best = [a for a, to in enumerate(moves) if lake.distances[to] < lake.distances[cell]]
            for action in best:
                counts[ACTIONS[action]] += 1 / len(best) / 1500
            assert (cell in trap_cells(rows)) == reflex_may_be_wrong(rows, cell)
            trapped += cell in trap_cells(rows)
        return counts, trapped / 1500

    plain, few = starts()
    more, many = starts(traps=0.5)
    assert plain["LEFT"] + plain["UP"] < 0.12
    assert few < 0.2
    assert 0.55 < many < 0.65
    assert more["LEFT"] + more["UP"] > 0.25


def test_the_share_of_corners_is_kept_beside_that_of_traps():
    env = make_env("frozen-lake", start="random", traps=0.3, corners=0.4, frozen_probability=0.5)
    rng = np.random.default_rng(0)
    maps = [tuple(env.generate(rng)["map"]) for _ in range(2000)]
    cornered = sum(rows[0][0] == "S" for rows in maps) / 2000
    trapped = sum(lake_of(rows).start in trap_cells(rows) for rows in maps) / 2000
    assert 0.4 < cornered < 0.5
    assert 0.35 < trapped < 0.5
    with pytest.raises(ConfigError, match="corners = 0.4 are shares of random starts"):
        make_env("frozen-lake", corners=0.4)
    with pytest.raises(ConfigError, match="are shares of one whole"):
        make_env("frozen-lake", start="random", corners=0.6, traps=0.6)


def test_traps_that_cannot_be_are_refused():
    with pytest.raises(
        ConfigError, match="traps = 0.5 and corners = 0.0 are shares of random starts"
    ):
        make_env("frozen-lake", traps=0.5)
    with pytest.raises(ConfigError, match="is for random maps: leave it or the map out"):
        make_env("frozen-lake", map=["SF", "HG"], start="random", traps=0.5)
    env = make_env("frozen-lake", start="random", traps=1.0, frozen_probability=1.0)
    with pytest.raises(ConfigError, match="no 4x4 map with a dead end"):
        env.generate(np.random.default_rng(0))


def test_with_sight_the_player_reads_the_cells_around_it_and_no_others():
    env, rng = make_env("frozen-lake", size=6, sight=2), np.random.default_rng(0)
    for number in range(30):
        first = env.reset(task_of(env, number))
        cells = [cell for cell, letter in enumerate(first.lake.letters) if letter in "SF"]
        here = int(rng.choice(cells))
        state = state_of(first.map, here)
        seen = env.observe(state, "player")
        head, *lines, last = seen.text.split("\n")
        table = [line.split() for line in lines]
        assert (head, last, seen.description) == ("lake", f" you {state.lake.name(here)}", "")
        assert [len(line) for line in table] == [5] * 5
        assert table[2][2] == "you"
        for cell, letter in enumerate(state.lake.letters):
            down, right = cell // 6 - here // 6, cell % 6 - here % 6
            if max(abs(down), abs(right)) <= 2 and cell != here:
                names = {"S": "start", "F": "ice", "H": "hole", "G": "goal"}
                assert table[2 + down][2 + right] == names[letter]
        rows, columns = (min(i, 2) + min(5 - i, 2) + 1 for i in divmod(here, 6))
        assert sum(line.count("edge") for line in table) == 25 - rows * columns


def test_what_is_out_of_sight_changes_nothing():
    near, far = make_env("frozen-lake", sight=1), make_env("frozen-lake", sight=3)
    one, two = (
        state_of(("SFFF", "FFFF", "FFFF", "FFFG"), 0),
        state_of(("SFFF", "FFFF", "FFHF", "FFFG"), 0),
    )
    assert near.observe(one, "player") == near.observe(two, "player")
    assert far.observe(one, "player") != far.observe(two, "player")


def test_without_a_clock_all_turns_in_a_cell_are_compared():
    def keys(**options):
        env = make_env("frozen-lake", **options)
        places = [(0, 0), (0, 5), (1, 0)]
        rows = ("SFFF", "FFFF", "FFFF", "FFFG")
        return [
            env.state_key(state_of(rows, cell, steps=steps), "player") for cell, steps in places
        ]

    assert len(set(keys())) == 3
    early, late, elsewhere = keys(clock=False)
    assert early == late != elsewhere
