"""The env of a searcher: its functions, its text and its reward, by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from turnwise.envs import check_env, make_env
from turnwise.envs.policy_search.functions import FAMILIES, Function, manifest
from turnwise.envs.policy_search.optimisers import evolved, guided
from turnwise.envs.policy_search.text import (
    answer_text,
    description_text,
    history_text,
    read_answer,
    read_levels,
    shown_of,
)
from turnwise.errors import ConfigError, DataError, IllegalActionError
from turnwise.types import Task


def task(tries, **more):
    data = {"count": 3, "levels": 4, "ordered": False, "tries": tries, **more}
    return Task(id="t", env="policy-search", seed=0, data=data)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_values_are_from_0_to_1_and_the_best_is_near_1(family):
    for seed in range(5):
        value = Function(family=family, count=3, levels=5, seed=seed).value
        found = [value(tuple(int(v) for v in p)) for p in np.ndindex(5, 5, 5)]
        assert min(found) >= 0
        assert 0.85 <= max(found) <= 1 + 1e-9
        assert len(set(np.round(found, 9))) > 2


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_function_is_its_seed(family):
    one, two = (Function(family=family, count=6, levels=4, seed=seed) for seed in (1, 2))
    points = [tuple(int(v) for v in p) for p in np.random.default_rng(0).integers(4, size=(50, 6))]
    again = Function(family=family, count=6, levels=4, seed=1).value
    assert [again(p) for p in points] == [one.value(p) for p in points]
    assert [two.value(p) for p in points] != [one.value(p) for p in points]


def test_no_family_is_a_task_of_the_search():
    from turnwise.search.tasks import TASKS

    words = " ".join(each.formula for each in FAMILIES.values()).lower()
    assert not set(FAMILIES) & set(TASKS)
    assert not [word for word in ("lake", "grid", "state", "cart", "car ") if word in words]
    assert [each["name"] for each in manifest(["chain"])] == ["chain"]


def test_the_text_by_hand():
    shown = [((0, 1, 2), -1.0), ((3, 3, 3), 0.0), ((1, 1, 1), 1.0)]
    assert history_text(3, 4, False, shown) == (
        "3 choices 4\n0 p0=0 p1=1 p2=2\n4 p0=3 p1=3 p2=3\n9 p0=1 p1=1 p2=1"
    )
    assert history_text(3, 9, True, []) == "3 amounts 9"
    assert history_text(3, 4, False, shown[:1]) == "3 choices 4\n0 p0=0 p1=1 p2=2"


def described(count, levels, ordered, shown):
    """Return the description of a history by exact sums, and the marks before rounding."""
    words, last = [], len(shown) - 1
    ranks = [Fraction(9 * i, max(last, 1)) - Fraction(9, 2) * (last > 0) for i in range(last + 1)]
    for place in range(count):
        good = []
        for level in range(levels):
            own = [r for (p, _), r in zip(shown, ranks, strict=True) if p[place] == level]
            good.append(sum(own, Fraction(0)) / (1 + len(own)))
        best = shown[-1][0][place]
        others = [v for v in range(levels) if v != best and (not ordered or abs(v - best) == 1)]
        for params, _ in shown:
            if sum(a != b for a, b in zip(params, shown[-1][0], strict=True)) == 1:
                others = [v for v in others if v != params[place]]
        if others:
            level = max(others, key=lambda v: good[v])
            words.append((f"p{place}", str(level), min(max(5 + good[level] - good[best], 0), 9)))
    return words


def changed(params, levels, rng):
    """Return parameters with another level of one of them."""
    place, more = rng.integers(len(params)), 1 + rng.integers(levels - 1)
    return tuple(int(v + more * (i == place)) % levels for i, v in enumerate(params))


def test_the_description_says_which_levels_go_with_better_tries():
    shown = [((0, 1, 2), -1.0), ((3, 3, 3), 0.0), ((1, 1, 1), 1.0)]
    # of ranks -4.5, 0 and 4.5: p0 has 2.25 at its level 1, and 0 at the untried level 2
    assert description_text(3, 4, False, shown) == "better p0=2 3 p2=0 3 p1=0 5"
    assert description_text(3, 4, True, shown) == "better p0=2 3 p2=0 3 p1=0 5"
    assert description_text(3, 4, False, []) == ""
    assert description_text(2, 2, True, [((0, 1), 3.0)]) == "better p0=1 5 p1=0 5"
    rng = np.random.default_rng(0)
    for _ in range(100):
        count, levels, tries = (int(v) for v in rng.integers([1, 2, 1], [17, 11, 17]))
        some = [(tuple(rng.integers(levels, size=count).tolist()), float(i)) for i in range(tries)]
        some += [(changed(some[-1][0], levels, rng), -1.0) for _ in range(tries)]
        some.sort(key=lambda each: each[1])
        for ordered in (False, True):
            words = description_text(count, levels, ordered, some).split()[1:]
            found = [
                (*pair.split("="), int(mark))
                for pair, mark in zip(words[::2], words[1::2], strict=True)
            ]
            assert [mark for *_, mark in found] == sorted(mark for *_, mark in found)
            in_order = sorted(found, key=lambda each: int(each[0][1:]))
            for mine, exact in zip(in_order, described(count, levels, ordered, some), strict=True):
                assert mine[:2] == exact[:2]
                assert abs(mine[2] - exact[2]) <= 0.5 + 1e-9


def test_the_description_stands_in_the_prompt_or_is_for_the_thought():
    tries = [[[0, 1, 2], -1.0], [[1, 1, 1], 1.0]]
    plain, shown = (make_env("policy-search", described=each) for each in (False, True))
    one, two = (env.observe(env.reset(task(tries)), "player") for env in (plain, shown))
    assert one.description == description_text(3, 4, False, [(tuple(p), s) for p, s in tries])
    assert (two.text, two.description) == (f"{one.text}\n{one.description}", "")
    assert shown.observe(shown.reset(task([])), "player").text == "3 choices 4"


def test_the_best_and_the_latest_are_shown_in_rising_order():
    tries = [((i,), score) for i, score in enumerate([0.9, 0.1, 0.8, 0.3, 0.7, 0.2])]
    assert [p[0] for p, _ in shown_of(tries, 4)] == [5, 4, 2, 0]
    assert [p[0] for p, _ in shown_of(tries[:2], 4)] == [1, 0]
    assert shown_of([], 4) == []


@pytest.mark.parametrize(
    "text", ["", "1 2", "1 2 3 0", "1 2 4", "1 2 x", "12 0", "1 2 -1", "1 2 \N{SUPERSCRIPT TWO}",
             "1 2 3" + " " * 500, "1" * 10**6],
)  # fmt: skip
def test_other_answers_are_illegal(text):
    with pytest.raises(IllegalActionError):
        read_levels(text, 3, 4)


BEST = [((3, 3, 3), 0.0), ((0, 1, 2), 1.0)]


@pytest.mark.parametrize(
    "text", ["", "p0", "p0=1 p0=1", "p0=1 p0=2", "p3=0", "p0=4", "p0=-1", "p00=1", "1 2 3", "P0=1",
             "p0=1 p1", "p0=\N{SUPERSCRIPT TWO}", "p0=1" + " " * 500, "p0=1 " * 10**6, "p0 1",
             "p0 = 1", "p0=01", "p0=1,p1=2", "p0==1", "=1", "p=1"],
)  # fmt: skip
def test_other_edits_are_illegal(text):
    with pytest.raises(IllegalActionError):
        read_answer(text, 3, 4, BEST)


def test_an_answer_changes_the_best_try_that_is_shown():
    assert read_answer("p1=3", 3, 4, BEST) == (0, 3, 2)
    assert read_answer(" p2=0\np0=3 ", 3, 4, BEST) == (3, 1, 0)
    assert read_answer("p2=0 p0=3 p1=1", 3, 4, []) == (3, 1, 0)
    with pytest.raises(IllegalActionError, match="without tries all parameters are needed"):
        read_answer("p1=3", 3, 4, [])
    for shown in ([], BEST):
        for params in np.ndindex(4, 4, 4):
            assert read_answer(answer_text(params, shown), 3, 4, shown) == params


def test_the_reward_is_the_share_of_what_was_missing():
    env = make_env("policy-search")
    function = Function(family="bandit", count=3, levels=4, seed=5)
    tries = [[[0, 0, 0], 0.4], [[1, 2, 3], 0.1]]
    state = env.reset(task(tries, function={"family": "bandit", "seed": 5}))
    best = max(function.value((0, 0, 0)), function.value((1, 2, 3)))
    assert state.best == pytest.approx(best)
    rng = np.random.default_rng(0)
    for params in np.ndindex(4, 4, 4):
        answer = " ".join(f"p{place}={level}" for place, level in enumerate(params))
        step = env.step(state, "player", answer, rng)
        gained = (function.value(params) - best) / (1 - best)
        assert step.rewards["improved"] == pytest.approx(max(0.0, gained))
        assert env.score(step.state) == step.rewards["improved"]
        tried = params in ((0, 0, 0), (1, 2, 3))
        assert step.rewards["difference"] == pytest.approx(-1.0 if tried else max(-1.0, gained))
    repeat = env.step(state, "player", "p0=1 p1=2 p2=3", rng)
    assert repeat.rewards["improved"] == 0.0
    assert env.measures(repeat.state) == {"repeated": 1.0}


def test_a_search_has_no_function_and_no_reward():
    env = make_env("policy-search")
    state = env.reset(task([[[0, 0, 0], -12.5]]))
    assert env.observe(state, "player").text == "3 choices 4\n0 p0=0 p1=0 p2=0"
    step = env.step(state, "player", "p1=1", np.random.default_rng(0))
    assert step.rewards["improved"] == 0.0


def test_evolution_beats_random_parameters():
    env, rng = make_env("policy-search"), np.random.default_rng(0)
    found = {"random": [], "evolution": []}
    for seed in range(200):
        data = env.generate(np.random.default_rng(seed))
        state = env.reset(Task(id=str(seed), env=env.name, seed=seed, data=data))
        for name, values in found.items():
            actions = [env.baselines()[name](state, rng) for _ in range(4)]
            steps = [env.step(state, "player", action, rng) for action in actions]
            values.append(np.mean([step.rewards["improved"] for step in steps]))
    difference = np.array(found["evolution"]) - np.array(found["random"])
    assert difference.mean() > 2 * difference.std() / 200**0.5


def test_a_guided_search_follows_the_highest_mark():
    # level 3 of p2 goes with good tries, but the best try has level 0 by chance
    tries = [((i % 4, (i + 1) % 4, 3 * (i > 6), i % 3), float(i)) for i in range(12)]
    shown = [*tries, ((0, 0, 0, 0), 12.0)]
    assert description_text(4, 4, False, shown).split()[-2:] == ["p2=3", "8"]
    rng = np.random.default_rng(0)
    share = {
        search: np.mean([search(shown, 4, 4, False, rng)[2] == 3 for _ in range(400)])
        for search in (evolved, guided)
    }
    assert share[evolved] < 0.35 and 0.6 < share[guided] < 0.9


@pytest.mark.parametrize("search", [evolved, guided])
def test_a_search_makes_a_new_try_where_one_is_left(search):
    rng = np.random.default_rng(1)
    tried = list(np.ndindex(3, 3, 3))
    for _ in range(40):
        some = [tuple(tried[i]) for i in rng.permutation(27)[:20]]
        shown = [(params, float(i)) for i, params in enumerate(some)]
        assert search(shown, 3, 3, False, rng) not in some


def test_an_answer_without_a_change_names_the_first_and_long_names_are_read():
    assert answer_text((0, 1, 2), BEST) == "p0=0"
    shown = [((0,) * 256, 1.0)]
    last = (*(0,) * 100, *(1,) * 156)
    assert read_answer(answer_text(last, shown), 256, 2, shown) == last
    assert read_answer(answer_text(last, []), 256, 2, []) == last


def test_marks_end_at_0_and_9():
    for levels, mark in (((1, 2, 0), 0), ((0, 2, 1), 9)):  # amounts: 0 has one neighbour
        levels = [level for level in levels for _ in range(5)]
        shown = [((level, i), float(i)) for i, level in enumerate(levels)]
        if mark == 9:  # the best try has the level of the worst ones
            shown.append(((0, 15), 15.0))
        words = description_text(2, 16, True, shown).split()
        assert words[words.index("p0=1") + 1] == str(mark)


def test_a_guided_answer_names_the_most_promising_parameter_first():
    rng = np.random.default_rng(0)
    env = make_env("policy-search", described=True)
    for number in range(40):
        data = env.generate(np.random.default_rng(number))
        state = env.reset(Task(id="t", env="policy-search", seed=0, data=data))
        action = env.baselines()["guided"](state, rng)
        named = [word.split("=")[0] for word in action.split()]
        if state.shown:
            words = env.observe(state, "player").text.splitlines()[-1].split()[1::2]
            order = [word.split("=")[0] for word in words]
            assert sorted(named, key=order.index, reverse=True) == named
        else:
            assert named == [f"p{i}" for i in range(state.count)]


def test_amounts_change_by_small_steps_and_small_tasks_end():
    rng = np.random.default_rng(0)
    shown = [((4, 4), 1.0)]
    for _ in range(100):
        assert max(abs(v - 4) for v in evolved(shown, 2, 9, True, rng)) <= 2
    everything = [((a, b), 0.0) for a in (0, 1) for b in (0, 1)]
    assert evolved(everything, 2, 2, False, rng) in {params for params, _ in everything}


def test_the_env_keeps_to_its_contract():
    check_env(make_env("policy-search", most_params=5))  # raises where it does not


def test_wrong_options_and_data_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'chain'"):
        make_env("policy-search", families=["chian"])
    with pytest.raises(ConfigError, match="exchange them"):
        make_env("policy-search", least_params=9, most_params=4)
    env = make_env("policy-search")
    wrong_levels = ([[[0, 4, 0], 1.0]], [[[0, -1, 0], 1.0]])
    no_scores = ([[[0, 0, 0], float("nan")]], [[[0, 0, 0], float("inf")]])
    for wrong in ([[[0, 0], 1.0]], [[0, 0, 0]], [["a", 1.0]], *wrong_levels, *no_scores):
        with pytest.raises(DataError, match="task 't'"):
            env.reset(task(wrong))


@pytest.mark.parametrize(
    "more",
    [
        *({"count": count} for count in (0, -1, float("inf"), 2.5, 10**400)),
        *({"levels": levels} for levels in (1, 11, float("inf"), "4")),
        {"ordered": "false"},
        *({"tries": [[[0, 0, 0], score]]} for score in (1e300, 10**400, "1")),
        *({"tries": [[each, 1.0]]} for each in ([0.9, 1.7, 2], "012", [0, 0, float("inf")])),
        *({"function": each} for each in ({}, "chain", {"family": "chian", "seed": 1})),
        {"function": {"family": "chain", "seed": -1}},
    ],
)
def test_data_that_are_no_task_are_refused(more):
    with pytest.raises(DataError, match="task 't'"):
        make_env("policy-search").reset(task(**{"tries": []} | more))
