"""The ant colony: what ants see and may do, who is paid, how episodes end, and its tasks."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest

from turnwise.envs import AntColony, AntColonyConfig, check_env, make_env
from turnwise.envs.ant_colony.grid import around, distances
from turnwise.envs.ant_colony.notes import noted_cell
from turnwise.envs.ant_colony.tiers import TIERS
from turnwise.envs.ant_colony.view import food_seen
from turnwise.errors import ConfigError, DataError, EnvError
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

RNG = np.random.default_rng(0)
PLAIN = {"tier": 0, "ticks": 30, "units": 2, "respawn": 0, "far": True}


def begun(rows, nest, food, ants=1, **data):
    """Return an env and the first state of a map, whose ants act in the order of their numbers."""
    env = AntColony(AntColonyConfig(tier=0, seats=max(ants, 1)))
    order = list(range(ants))
    known = {"rows": rows, "nest": nest, "food": food, "ants": ants, "order": order}
    task = Task(id="t", env=env.name, seed=0, data=PLAIN | known | data)
    return env, env.reset(task)


def played(env, state, *turns, rng=RNG):
    """Return the steps of turns, each of the ant that acts next."""
    steps = []
    for turn in turns:
        steps.append(env.step(state, env.acting(state)[0], turn, rng))
        state = steps[-1].state
    return steps


def played_by(env, state, first, second):
    """Return the steps of two ants, tick by tick, whichever of them acts first in each."""
    steps = {"ant-1": [], "ant-2": []}
    turns = {"ant-1": first, "ant-2": second}
    for number in range(len(first)):
        for _ in turns:
            (seat,) = env.acting(state)
            steps[seat].append(env.step(state, seat, turns[seat][number], RNG))
            state = steps[seat][-1].state
    return steps["ant-1"], steps["ant-2"], state


@pytest.mark.parametrize("tier", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"roles": "two", "scents": "shuffled", "clock": False}])
def test_the_contract_is_kept(tier, options):
    report = check_env(make_env("ant-colony", tier=tier, **options), tasks=2)
    assert report.longest <= TIERS[tier].ticks * TIERS[tier].ants


@pytest.mark.slow
@pytest.mark.parametrize("tier", [3, 4, 5, 6])
def test_the_contract_is_kept_on_large_maps(tier):
    check_env(make_env("ant-colony", tier=tier, ticks=30), tasks=1)


def seconds_of(call):
    """Return the processor time of a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


@pytest.mark.parametrize("tier", range(4))
def test_step_and_observe_take_less_than_100_microseconds(tier):
    """On a machine that counts to 1000 in 30 microseconds: other programs slow both."""
    env, turns = make_env("ant-colony", tier=tier), []
    player = env.baselines()["scent-user"]
    state = env.reset(GeneratedTasks(env, "train", 0).task(0))
    while not state.ended:
        (seat,) = env.acting(state)
        turns.append((state, seat, player(state, RNG)))
        state = env.step(*turns[-1], RNG).state

    def play():
        for state, seat, action in turns:
            env.observe(state, seat)
            env.step(state, seat, action, RNG)

    def count():
        total = 0
        for number in range(100_000):
            total += number

    # Each repeat counts right after it plays, so that both meet the same other programs.
    spent = [seconds_of(play) / max(1.0, seconds_of(count) / 3e-3) for _ in range(8)]
    assert min(spent) / len(turns) < 1e-4


@pytest.mark.slow
def test_a_turn_of_six_ants_for_300_ticks_costs_what_one_of_one_ant_costs():
    """Per ant-turn, on one map: the state does not grow with ticks or ants."""
    costs = {}
    for ants, ticks in ((1, 40), (6, 300)):
        env = make_env("ant-colony", tier=2, ants=ants, ticks=ticks, stacks=12, units=9)
        player, spent, turns = env.baselines()["random-walk"], 0.0, 0
        state = env.reset(GeneratedTasks(env, "train", 0).task(0))
        while not state.ended:
            (seat,) = env.acting(state)
            action = player(state, RNG)
            began = time.process_time()
            env.observe(state, seat)
            state = env.step(state, seat, action, RNG).state
            spent, turns = spent + time.process_time() - began, turns + 1
        costs[ants] = spent / turns
    assert costs[6] <= 1.5 * costs[1]


def test_an_ant_sees_two_cells_far_and_what_lies_there():
    env, state = begun(["....", ".#..", "....", "...."], [0, 0], [[2, 0, 2], [3, 3, 1]], ants=2)
    seen = env.observe(state, "ant-1")
    assert seen.legal_actions == ()
    assert seen.text.splitlines() == [
        "tier 0 turn 0 of 30",
        "at x0 y0 on nest carry none home 0",
        "nest here",
        "last nothing",
        "# # # # #",
        "# # # # #",
        "# # A . F",
        "# # . # .",
        "# # . . .",
        "scent food 0 0 0 0 0 home 0 0 0 0 0 alarm 0",
    ]
    assert seen.description == "empty food E 2 nest here wall N W"
    first = ("MOVE E\nSIGNAL FOOD", 'MOVE E\nREMEMBER "food x2 y0"\nFLY', "")
    *_, state = played_by(env, state, first[:2], ("MOVE E", "MOVE W"))
    lines = env.observe(state, "ant-1").text.splitlines()
    assert lines[0] == "tier 0 turn 2 of 30"
    assert lines[1:4] == [
        "at x2 y0 on food carry none home 0",
        "nest W 2",
        "last moved E noted invalid",
    ]
    assert lines[6] == "a . A . #"  # the other ant is in the nest
    assert lines[-2:] == ["scent food 0 0 0 0 2 home 0 0 0 0 0 alarm 0", "note 1 food x2 y0 here"]


def test_walls_hide_what_is_behind_them_from_tier_4_on():
    rows = [".....", ".....", "..#..", ".....", "....."]
    for far, hidden in ((True, "."), (False, "?")):
        env, state = begun(rows, [2, 3], [[2, 1, 1]], far=far)
        map_rows = env.observe(state, "ant-1").text.splitlines()[4:9]
        assert map_rows[0].split()[2] == ("F" if far else hidden)  # two steps north, past the wall
        assert map_rows[1].split()[2] == "#"
        assert env.observe(state, "ant-1").description.startswith(
            "empty food N 2" if far else "empty food none"
        )
    env, state = begun(rows, [0, 0], [[4, 4, 1]], far=False)
    state = played(env, state, "MOVE E", "MOVE E", "MOVE E")[-1].state
    assert "nest unseen" in env.observe(state, "ant-1").text


def test_scents_may_be_hidden_or_shuffled():
    env, state = begun(["...."] * 4, [0, 0], [[3, 3, 1]])
    state = played(env, state, *["SIGNAL FOOD"] * 4)[-1].state
    shown = env.observe(state, "ant-1").text
    assert "scent food 9 0 0 0 0" in shown
    for scents in ("hidden", "shuffled"):
        other = make_env("ant-colony", scents=scents)
        assert "scent food 0 0 0 0 0" in other.observe(state, "ant-1").text
    shuffled, shown = make_env("ant-colony", scents="shuffled"), set[str]()
    for _ in range(20):
        state = env.step(state, "ant-1", "SIGNAL FOOD", RNG).state
        shown.add(shuffled.observe(state, "ant-1").text.split("scent")[1])
    assert len(shown) > 1  # other cells are smelled in every tick


def test_food_is_carried_home_and_paid():
    env, state = begun(["...", "...", "..."], [0, 0], [[2, 0, 2]], ants=2)
    first = ("MOVE E", "MOVE E\nSIGNAL FOOD", "PICK_UP", "MOVE W", "MOVE W", "DEPOSIT")
    steps, others, end = played_by(env, state, first, ("MOVE S", "", "", "MOVE N", "", ""))
    paid = [dict(step.rewards) for step in steps]
    nearer = {"progress": 1.0, "time": 1.0, "valid_action": 1.0}
    assert paid[0] == {"exploration": 1.0} | nearer
    assert paid[2] == {"pick_up": 1.0, "time": 1.0, "valid_action": 1.0}
    assert paid[3] == nearer  # it was there before
    assert paid[5] == {"delivery": 1.0, "time": 1.0, "valid_action": 1.0}
    assert dict(steps[5].others) == {"ant-2": {"shared_delivery": 1.0}}
    assert (end.delivered, end.food, env.score(end)) == (1, {end.world.grid.cell(2, 0): 1}, 0.5)
    assert dict(others[1].rewards) == {"time": 1.0}  # a silent turn
    assert not steps[-1].terminated


def test_steps_away_take_the_reward_of_progress_back():
    env, state = begun(["....", ".##.", "....", "...."], [0, 0], [[0, 3, 1], [3, 1, 1]], ticks=60)
    steps = played(env, state, *["MOVE S", "MOVE N", "MOVE E", "MOVE W"] * 5)
    paid = [step.rewards.get("progress", 0.0) for step in steps]
    assert paid[:4] == [1.0, -1.0, 0.0, 0.0]  # east is away from one stack and nearer to the other
    assert sum(paid) == 0.0
    walk = [*["MOVE S"] * 3, "PICK_UP", *["MOVE E"] * 3, *["MOVE N"] * 3]
    assert [step.rewards.get("progress", 0.0) for step in played(env, state, *walk)] == [
        *[1.0] * 3, 0.0, *[-1.0] * 3, *[1.0] * 3
    ]  # fmt: skip  # with food the nest counts


def test_episodes_that_begin_anywhere_have_all_their_food_somewhere():
    env = make_env("ant-colony", tier=2, start="anywhere", ticks=5)
    cells, carried, home, searches = set(), [], [], []
    for number in range(200):
        task = GeneratedTasks(env, "train", 0).task(number)
        state = env.reset(task)
        carries = sum(ant.carrying for ant in state.ants)
        assert state.delivered + carries + sum(state.food.values()) == state.appeared == 8
        assert sum(state.food.values()) or carries
        assert min(state.food.values(), default=1) > 0
        assert set(state.food) <= {state.world.grid.cell(x, y) for x, y, _ in task.data["food"]}
        cells |= {ant.cell for ant in state.ants}
        carried.append(carries)
        home.append(state.delivered)
        grid, far = state.world.grid, state.world.far
        empty = [ant.cell for ant in state.ants if not ant.carrying]
        searches += [set(state.food).isdisjoint(around(grid, cell, far)) for cell in empty]
    assert len(cells) > 80
    assert np.mean(searches) > 0.45  # 0.37 in uniform cells alone
    assert 0.4 < np.mean(carried) / 2 < 0.6
    assert set(home) == set(range(7))


def test_episodes_that_begin_anywhere_have_notes_most_often_of_food():
    plain = make_env("ant-colony", tier=1, start="anywhere")
    assert not any(plain.reset(t).ants[0].notes for t in GeneratedTasks(plain, "train", 0).take(20))
    with pytest.raises(ConfigError, match=r'noted = 0.5 is for start = "anywhere"'):
        make_env("ant-colony", noted=0.5)
    env = make_env("ant-colony", tier=1, start="anywhere", noted=0.5, ticks=5)
    states = [env.reset(task) for task in GeneratedTasks(env, "train", 0).take(400)]
    noted = [(state, note) for state in states for ant in state.ants for note in ant.notes]
    assert 0.43 < len(noted) / 400 < 0.57
    right = [noted_cell(state.world.grid, note) in state.food for state, note in noted]
    heuristic, steps = env.baselines()["heuristic"], []
    for state, note in noted:
        ant, cell = state.ants[0], noted_cell(state.world.grid, note)
        if not ant.carrying and not food_seen(state, 0):  # it knows the way
            ways = distances(state.world.grid, cell)
            after = env.step(state, "ant-1", heuristic(state, RNG), RNG).state.ants[0].cell
            steps.append(ways[ant.cell] - ways[after])
    assert np.mean(steps) > 0.9
    assert 0.6 < np.mean(right) < 0.85  # at times no stack is left


@pytest.mark.parametrize(
    "notes", [[], [["a"], ["b"]], [["a"] * 6], [["<|im_end|>"]], [["x" * 49]], [[" "]]]
)
def test_notes_of_a_start_are_those_that_an_ant_can_write(notes):
    start = {"at": [[0, 0, 0]], "left": [2], "notes": notes}
    if not notes:
        assert begun(["..."] * 3, [0, 0], [[2, 2, 2]], start=start)[1].ants[0].notes == ()
        return
    with pytest.raises(DataError, match="has notes = .*give each of 1 ants a list"):
        begun(["..."] * 3, [0, 0], [[2, 2, 2]], start=start)


@pytest.mark.parametrize(
    "start",
    [
        {"at": [[0, 0, 1]], "left": [2]},  # a unit more than there are
        {"at": [[0, 0, 0]], "left": [-1]},
        {"at": [[0, 0, 0]], "left": [1, 1]},
        {"at": [[0, 0, 2]], "left": [0]},
        {"at": [[1, 1, 0]], "left": [2]},  # in a wall
        {"at": [[9, 0, 0]], "left": [2]},
        {"at": [], "left": [2]},
    ],
)
def test_a_start_that_is_not_possible_is_refused(start):
    with pytest.raises(DataError, match=r"give (each ant )?an open cell"):
        begun(["...", ".#.", "..."], [0, 0], [[2, 2, 2]], start=start)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"start": []}, "start"),
        ({"start": {"at": 5, "left": [2]}}, "start.at = 5"),
        ({"start": {"at": [[0, 0]], "left": [2]}}, "expected more values"),
        ({"start": {"at": [[0.9, 0, 0]], "left": [2]}}, "integer"),
        ({"start": {"at": [[0, 0, 0]]}}, "left"),
        ({"start": {"at": [[0, 0, 0]], "left": [2]}}, "no way leads there"),
        ({"start": {"at": [[2, 2, 0]], "left": [0]}}, "no food left"),
        ({"ticks": 0}, "ticks = 0"),
        ({"ticks": float("inf")}, "ticks"),
        ({"respawn": -1}, "respawn = -1"),
        ({"far": "false"}, "far"),
        ({"rows": None}, "rows"),
        ({"rows": [1, 2, 3]}, "rows"),
        ({"nest": [0, 0, 0]}, "nest"),
        ({"food": [[0, 2]]}, "expected more values"),
        ({"food": [[0, 2, 1], [0, 2, 1]]}, "a cell of its own"),
        ({"food": [[0, 2, -1]]}, "1 unit or more"),
        ({"food": [[0, 2, 0]]}, "1 unit or more"),
        ({"food": []}, "no food left"),
        ({"food": [[0, 0, 1]]}, "no way leads there"),
        ({"food": [[0, 2, 10**400]]}, "1 unit or more"),
    ],
)
def test_data_that_are_no_task_are_refused(data, said):
    plain = {"rows": [".#.", "##.", "..."], "nest": [2, 2], "food": [[0, 2, 2]], "ants": 1}
    task = Task(id="t", env="ant-colony", seed=0, data=PLAIN | plain | {"order": [0]} | data)
    with pytest.raises(DataError, match=said):
        make_env("ant-colony").reset(task)


def test_turns_are_enough_for_all_tiers_that_the_seats_can_play():
    # each tick has a turn of each ant, and as many replies may fail
    assert make_env("ant-colony", tier=0).turn_cap() == 2 * 60  # tier 1 has one ant, too
    assert make_env("ant-colony", tier=2, seats=2).turn_cap() == 2 * 2 * 90  # tier 3
    assert make_env("ant-colony", tier=0, seats=6).turn_cap() == 2 * 6 * 300
    assert make_env("ant-colony", tier=0, seats=2, ticks=6).turn_cap() == 2 * 2 * 6


def test_dropping_takes_the_reward_of_picking_up_back():
    env, state = begun(["...", "...", "..."], [0, 0], [[1, 0, 1]], ticks=60)
    steps = played(env, state, "MOVE E", *["PICK_UP", "DROP"] * 20)
    assert sum(step.rewards.get("pick_up", 0.0) for step in steps) == 0.0
    assert steps[-1].state.food == {steps[-1].state.world.grid.cell(1, 0): 1}
    home = played(env, steps[1].state, "MOVE W", "DROP")[-1]
    assert home.rewards["invalid_action"] == 1.0  # food is not dropped on the nest


def test_lines_beyond_the_slots_and_impossible_ones_are_invalid():
    env, state = begun(["...", "...", "..."], [0, 0], [[2, 2, 1]])
    for text, invalid, last in (
        ("MOVE E\nMOVE E", 1, ("moved E", "invalid")),
        ("MOVE N", 0, ("bumped N",)),
        ("PICK_UP\nDEPOSIT", 2, ("invalid", "invalid")),
        ("SIGNAL FOOD\nREINFORCE FOOD", 1, ("signalled", "invalid")),
        ("REINFORCE HOME\nFORGET 1\nMOVE S", 2, ("invalid", "invalid", "moved S")),
        ("MOVE E\nSIGNAL HOME\nFORGET 2\nMOVE E", 2, ("moved E", "signalled", "invalid")),
        ("nothing\x00 at all", 1, ("invalid",)),
    ):
        (step,) = played(env, state, text)
        assert step.rewards.get("invalid_action", 0.0) == invalid
        assert ("valid_action" in step.rewards) == (not invalid)
        ant = step.state.ants[0]
        assert (ant.last, ant.invalid) == (last, invalid)
    two = played(env, state, "MOVE E\nMOVE E", "MOVE W")[-1].state
    assert env.measures(two)["valid_actions"] == pytest.approx(2 / 3)


def test_notes_are_kept_deleted_and_limited():
    env, state = begun(["...", "...", "..."], [0, 0], [[2, 2, 1]])
    state = played(env, state, *[f'REMEMBER "note {n}"' for n in range(6)])[-1].state
    assert state.ants[0].notes == tuple(f"note {n}" for n in range(5))
    state = played(env, state, "FORGET 2")[-1].state
    assert state.ants[0].notes == ("note 0", "note 2", "note 3", "note 4")


def test_the_place_of_a_note_is_shown_as_it_is_seen_from_the_ant():
    env, state = begun(["." * 7] * 7, [0, 0], [[6, 6, 1], [0, 4, 1]])
    notes = ('MOVE N\nREMEMBER "food x6 y6"', 'REMEMBER "x0 y4, x1 y1"', 'REMEMBER "x7 y0"')
    state = played(env, state, *notes)[-1].state
    seen = env.observe(state, "ant-1")
    assert seen.text.splitlines()[-3:] == [
        "note 1 food x6 y6 E 6 S 6",
        "note 2 x0 y4, x1 y1 S 4",
        "note 3 x7 y0",  # beside the map
    ]
    assert seen.description == "empty food none nest here wall N W note S 4"


def noted(env, state, *turns):
    """Return what each turn is paid for its line of memory."""
    return [step.rewards.get("note") for step in played(env, state, *turns)]


def test_the_first_note_of_food_is_paid_and_others_cost_what_their_deletion_returns():
    env, state = begun(["." * 7] * 7, [0, 0], [[2, 0, 1], [0, 4, 1]])
    lines = ('REMEMBER "x2 y0"', 'REMEMBER "again x2 y0"', 'REMEMBER "good"')
    paid = noted(env, state, *lines, *["FORGET 3"] * 2, "FORGET 2", "FORGET 1", lines[0])
    assert paid == [1.0, -0.1, -0.1, 0.1, None, -1.0, -1.0, -0.1]
    paid = noted(env, state, "MOVE E", "MOVE E\n" + lines[0], "PICK_UP", "FORGET 1")
    assert paid == [None, 1.0, None, 0.1]
    # the end of the turn counts, and not the order of its lines
    paid = noted(env, state, "MOVE E", "MOVE E", lines[0] + "\nPICK_UP", "FORGET 1")
    assert paid == [None, None, -0.1, 0.1]


def test_no_cycle_of_lines_gains_by_notes_without_end():
    env, state = begun(["." * 5] * 5, [0, 0], [[2, 0, 1], [4, 4, 1]], ticks=90)
    farm = ('DROP\nREMEMBER "x2 y0"', "PICK_UP\nFORGET 1")
    paid = noted(env, state, "MOVE E", "MOVE E", "PICK_UP", *farm * 10)
    assert sum(filter(None, paid)) == pytest.approx(1.1)
    rng = np.random.default_rng(0)
    lines = ["PICK_UP", "DROP", *(f"FORGET {n}" for n in (1, 2)), 'REMEMBER "x2 y0"', "MOVE E"]
    lines += ['REMEMBER "x3 y0"', "MOVE W", 'REMEMBER "x4 y4"']
    for _ in range(50):
        turns = ["\n".join(rng.permutation(lines)[:3].tolist()) for _ in range(60)]
        assert sum(filter(None, noted(env, state, *turns))) <= 1.1 * 4  # of the cells with food


def test_exploration_is_paid_for_25_cells_at_most():
    env, state = begun(["." * 30] * 30, [0, 0], [[29, 29, 1]], ticks=100)
    steps = played(env, state, *["MOVE E"] * 28)
    assert sum(step.rewards.get("exploration", 0.0) for step in steps) == 25.0


def test_a_trail_is_paid_when_a_later_delivery_passes_over_it():
    env, state = begun(["....", "....", "....", "...."], [0, 0], [[2, 0, 3]], ants=2)
    out = ("MOVE E", "MOVE E", "PICK_UP", "MOVE W", "MOVE W", "DEPOSIT")
    wait = ("",) * len(out)
    laid = tuple(f"{move}\nSIGNAL FOOD" for move in out)
    steps, _, state = played_by(env, state, laid, wait)
    assert all("pheromone" not in step.rewards for step in steps)  # its own, of this trip
    _, steps, state = played_by(env, state, wait, out)
    assert dict(steps[-1].others) == {"ant-1": {"shared_delivery": 1.0, "pheromone": 1.0}}
    found = env.measures(state)
    assert (found["food"], found["deliveries_along"], found["trail_reuse"]) == (2.0, 1.0, 0.625)


def test_a_trip_to_a_stack_that_another_ant_has_emptied_counts_once():
    env, state = begun(["...", "...", "..."], [0, 0], [[1, 0, 1], [2, 2, 1]], ants=2)
    first, second = ("MOVE E", "PICK_UP", "MOVE S", "", ""), ("", "", "MOVE E", "MOVE W", "MOVE E")
    *_, state = played_by(env, state, first, second)
    assert env.measures(state)["duplicate_trips"] == 1.0


def test_all_food_at_home_terminates_and_the_last_tick_truncates():
    env, state = begun(["...", "...", "..."], [0, 0], [[1, 0, 1]], ticks=10)
    steps = played(env, state, "MOVE E", "PICK_UP", "MOVE W", "DEPOSIT")
    last = steps[-1]
    assert (last.terminated, last.truncated, env.score(last.state)) == (True, False, 1.0)
    assert last.rewards["time_left"] == pytest.approx(0.6)
    with pytest.raises(EnvError, match="the episode is over"):
        played(env, last.state, "MOVE E")
    waited = played(env, state, *[""] * 10)[-1]
    assert (waited.terminated, waited.truncated, env.score(waited.state)) == (False, True, 0.0)


def test_food_appears_again_at_every_respawn():
    env = make_env("ant-colony", tier=6, size=9, ants=1, stacks=3, ticks=60)
    state = env.reset(GeneratedTasks(env, "train", 0).task(0))
    appeared = [state.appeared]
    while not state.ended:
        state = env.step(state, "ant-1", "", RNG).state
        appeared.append(state.appeared)
    assert [appeared[t] for t in (0, 19, 20, 39, 40, 60)] == [9, 9, 12, 12, 15, 18]
    reached = distances(state.world.grid, state.world.nest)
    assert all(reached[cell] >= 2 for cell in state.food)


def test_ants_act_in_another_order_in_every_tick():
    env = make_env("ant-colony", tier=6, ticks=40)
    state, orders = env.reset(GeneratedTasks(env, "train", 0).task(0)), Counter()
    for _ in range(40):
        order = []
        for _ in range(6):
            order += env.acting(state)
            state = env.step(state, order[-1], "", RNG).state
        assert sorted(order) == sorted(env.seats)
        orders[order[0]] += 1
    assert len(orders) == 6


@pytest.mark.parametrize("tier", range(7))
def test_tasks_are_as_the_tier_says(tier):
    env, rules = make_env("ant-colony", tier=tier), TIERS[tier]
    for task in GeneratedTasks(env, "train", 0).take(3):
        state = env.reset(task)
        grid, reached = state.world.grid, distances(state.world.grid, state.world.nest)
        assert (grid.size, len(state.ants), len(state.food)) == (
            rules.size,
            rules.ants,
            rules.stacks,
        )
        assert all(reached[cell] >= 2 for cell in state.food)
        assert len(reached) >= 0.9 * len(grid.open)
        assert state.appeared == rules.stacks * rules.units
    assert len(env.seats) == rules.ants
    assert env.turn_cap() >= rules.ants * rules.ticks


def test_maps_that_are_symmetric_are_one_problem():
    env = make_env("ant-colony", tier=3)
    data = GeneratedTasks(env, "train", 0).task(0).data
    cells = np.array([list(row) for row in data["rows"]])
    size = len(cells)
    turned = dict(data)
    turned["rows"] = ["".join(row) for row in np.rot90(cells)]  # x, y -> y, size - 1 - x
    turned["nest"] = [data["nest"][1], size - 1 - data["nest"][0]]
    turned["food"] = [[y, size - 1 - x, units] for x, y, units in data["food"]]
    env.reset(Task(id="t", env=env.name, seed=0, data=turned))
    assert env.canonical(turned) == env.canonical(data)
    turned["nest"] = turned["food"][0][:2]
    assert env.canonical(turned) != env.canonical(data)


def test_splits_are_disjoint():
    env = make_env("ant-colony", tier=1)
    found = {}
    for split in ("train", "validation", "test"):
        source = GeneratedTasks(env, split, 0)
        assert not source.seen
        found[split] = {env.canonical(task.data) for task in source.take(60)}
    assert not found["train"] & found["test"] and not found["train"] & found["validation"]


def test_two_roles_share_the_seats():
    env = make_env("ant-colony", tier=4, roles="two")
    assert env.roles == ("scout", "carrier")
    assert dict(env.seats) == {"scout-1": "scout", "carrier-1": "carrier", "scout-2": "scout"}


def test_more_seats_than_ants_play_a_smaller_tier():
    large = make_env("ant-colony", tier=2)
    small = make_env("ant-colony", tier=0, seats=2)
    task = GeneratedTasks(make_env("ant-colony", tier=0), "train", 0).task(0)
    state = large.reset(task)
    assert large.observe(state, "ant-2").text == "tier 0 no ant"
    for _ in range(40):
        assert large.acting(state) == ("ant-1",)
        state = large.step(state, "ant-1", "", RNG).state
    assert state.ended and tuple(small.seats) == ("ant-1", "ant-2")
    with pytest.raises(DataError, match="1 to 1 ants"):
        many = GeneratedTasks(large, "train", 0).task(0)
        make_env("ant-colony", tier=0).reset(many)


def test_what_cannot_be_is_refused():
    rows = ["...", ".#.", "..."]
    for nest, food, what in (
        ([1, 1], [[0, 0, 1]], "an open cell"),
        ([0, 0], [[3, 0, 1]], "an open cell"),
        ([0, 0], [[1, 1, 1]], "an open cell"),
    ):
        with pytest.raises(DataError, match=what):
            begun(rows, nest, food)
    for wrong in (["..", "..."], ["x"], []):
        with pytest.raises(DataError, match="give a square"):
            begun(wrong, [0, 0], [])
    with pytest.raises(ConfigError, match="stacks = 12"):
        make_env("ant-colony", size=3, stacks=12).generate(np.random.default_rng(0))
