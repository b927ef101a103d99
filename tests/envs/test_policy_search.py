"""The env of a searcher: its functions, its text and its reward, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from turnwise.envs import check_env, make_env
from turnwise.envs.policy_search import estimates
from turnwise.envs.policy_search.env import PolicySearchConfig
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
from turnwise.search.methods.evolution import COUNTED, SHOWN
from turnwise.types import Task


def params_of(tries):
    return frozenset(params for params, _ in tries)


def marks(levels, ordered, tries):
    """Return the marks where all tries count."""
    return estimates.marks(levels, ordered, tries, params_of(tries))


def describe(levels, ordered, tries):
    return description_text(levels, ordered, tries, params_of(tries))


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


def distance(one, other, ordered):
    return sum(0.375 * abs(a - b) if ordered else a != b for a, b in zip(one, other, strict=True))


def upper(change, tries, ordered):
    """Return the mean of a change's rank, given the tries, plus three standard deviations.

    The change and the tries are jointly normal; the inverse of their covariance gives both.
    """
    points = [change, *tries]
    joint = np.array([[math.exp(-distance(a, b, ordered) / 4) for b in points] for a in points])
    joint += np.diag([0.0] + [0.3] * len(tries))  # what is predicted has no noise
    ranks = [i - (len(tries) - 1) / 2 for i in range(len(tries))]
    size = math.sqrt(sum(r * r for r in ranks) / len(ranks)) or 1.0
    precise = np.linalg.inv(joint)
    mean = -sum(p * r / size for p, r in zip(precise[0, 1:], ranks, strict=True)) / precise[0, 0]
    return mean + 3 * math.sqrt(max(1 / precise[0, 0], 0.0))


def described(levels, ordered, tries):
    """Return, for each parameter, the values of its untried levels."""
    best, found = tries[-1], {}
    for place, own in enumerate(best):
        for level in range(levels):
            change = (*best[:place], level, *best[place + 1 :])
            if change not in tries and (not ordered or abs(level - own) == 1):
                found.setdefault(place, {})[level] = upper(change, tries, ordered)
    return found


def changed(params, levels, rng):
    """Return parameters with another level of one of them."""
    place, more = rng.integers(len(params)), 1 + rng.integers(levels - 1)
    return tuple(int(v + more * (i == place)) % levels for i, v in enumerate(params))


def test_the_marks_are_upper_estimates_of_the_ranks():
    rng = np.random.default_rng(0)
    for _ in range(60):
        count, levels, size = (int(v) for v in rng.integers([1, 2, 1], [9, 11, 17]))
        some = [tuple(rng.integers(levels, size=count).tolist()) for _ in range(size)]
        some += [changed(some[-1], levels, rng) for _ in range(size)]
        some.append(some[int(rng.integers(size))])
        for ordered in (False, True):
            found = marks(levels, ordered, [(params, float(i)) for i, params in enumerate(some)])
            exact = described(levels, ordered, some)
            assert found.keys() == exact.keys()
            most = max((v for values in exact.values() for v in values.values()), default=0)
            for place, (level, mark) in found.items():
                value = max(exact[place].values())
                assert exact[place][level] == pytest.approx(value)
                assert abs(max(9 - 4 * (most - value), 0) - mark) <= 0.5 + 1e-6


def test_the_description_by_hand():
    # tries at a distance of 1 from each other; the change to level 2 is at 1 from both
    pair = [((0,), 0.0), ((1,), 1.0)]
    assert described(3, False, [p for p, _ in pair]) == {0: {2: pytest.approx(
        3 * math.sqrt(1 - 2 * math.exp(-0.5) / (1.3 + math.exp(-0.25))))}}  # fmt: skip
    assert describe(3, False, pair) == "better p0=2 9"
    assert describe(3, False, [*pair, ((2,), 2.0)]) == ""  # nothing is untried
    assert describe(4, False, []) == ""
    assert describe(2, True, [((0, 1), 3.0)]) == "better p0=1 9 p1=0 9"


def test_parameters_are_in_rising_order_of_their_marks():
    rng = np.random.default_rng(1)
    for _ in range(40):
        tries = [(tuple(rng.integers(5, size=8).tolist()), float(i)) for i in range(12)]
        words = describe(5, False, tries).split()[1:]
        told = [int(mark) for mark in words[1::2]]
        assert told == sorted(told) and told[-1] == 9
        known = marks(5, False, tries)
        assert sorted(words[::2]) == sorted(f"p{i}={level}" for i, (level, _) in known.items())


def test_what_is_shown_and_what_counts_have_one_best_try():
    env = make_env("policy-search", shown=2, counted=6, described=True)
    tries = [[[i % 4, i // 4, 0], float(i in (1, 2, 3, 9))] for i in range(12)]
    state = env.reset(task(tries))
    assert state.shown[-1] == state.counted[-1] == ((1, 2, 0), 1.0)  # the latest of the equal ones
    assert len(state.counted) == 6 and len(state.shown) == 2
    *listed, told = env.observe(state, "player").text.splitlines()
    assert len(listed) == 3
    assert told == description_text(4, False, state.counted, state.known)
    firsts = [[[i, 0, 0], score] for i, score in enumerate([0.9, 0.1, 0.8, 0.3])]
    two = make_env("policy-search", shown=2, counted=3).reset(task(firsts))
    assert [p[0] for p, _ in two.counted] == [3, 2, 0]  # two thirds the best, and the latest
    assert set(two.shown) <= set(two.counted)


def test_what_was_tried_is_neither_promising_nor_new_though_it_does_not_count():
    env = make_env("policy-search", shown=2, counted=2)
    tries = [[[1], 0.1], [[0], 0.5], [[0], 0.9]]
    state = env.reset(task(tries, count=1, levels=3))
    assert (1,) not in params_of(state.counted)
    assert env.observe(state, "player").description == "better p0=2 9"
    step = env.step(state, "player", "p0=1", np.random.default_rng(0))
    assert step.rewards == {"improved": 0.0, "difference": -1.0}
    assert env.measures(step.state) == {"repeated": 1.0}


def test_a_try_whose_changes_were_all_tried_is_not_shown_if_a_worse_one_has_new_ones():
    around = [[[i, 0, 0], 0.1] for i in (1, 2)] + [[[0, i, 0], 0.2] for i in (1, 2)]
    around += [[[0, 0, i], 0.3] for i in (1, 2)]
    env = make_env("policy-search", described=True)
    state = env.reset(task([*around, [[0, 0, 0], 0.9]], levels=3))
    assert state.shown[-1] == state.counted[-1] == ((0, 0, 2), 0.3)
    assert ((0, 0, 0), 0.9) not in state.shown and (0, 0, 0) in state.known
    assert env.observe(state, "player").text.splitlines()[-1].startswith("better p")
    answer = env.baselines()["guided"](state, np.random.default_rng(0))
    step = env.step(state, "player", answer, np.random.default_rng(0))
    assert env.measures(step.state) == {"repeated": 0.0}
    state = env.reset(task([*around[1:], [[0, 0, 0], 0.9]], levels=3))
    assert state.shown[-1] == ((0, 0, 0), 0.9)  # p0=1 is new
    every = [[[a], float(a)] for a in (1, 0, 2)]
    assert [p for p, _ in env.reset(task(every, count=1, levels=3)).shown] == [(0,), (1,), (2,)]


def test_marks_of_equal_values_name_the_lowest_level_and_are_at_least_0():
    assert marks(5, False, [((0, 0), 0.0)]) == {0: (1, 9), 1: (1, 9)}
    some = "2020 2020 2010 2200 2100 2200 2002 1000 1010 1010 1020 1010 1100 0120 0000 0020 0000"
    tries = [(tuple(map(int, each)), float(i)) for i, each in enumerate([*some.split(), "0000"])]
    assert marks(3, False, tries) == {0: (2, 0), 1: (1, 7), 2: (1, 6), 3: (1, 9)}
    with pytest.raises(TypeError):
        marks(3, False, tries)[0] = (1, 1)  # pyright: ignore[reportIndexIssue]


def test_a_bad_answer_costs_no_more_than_a_repeat():
    env, function = make_env("policy-search"), {"family": "quadratic", "seed": 3}
    value = Function(family="quadratic", count=3, levels=9, seed=3).value
    every = sorted(np.ndindex(9, 9, 9), key=lambda params: value(tuple(map(int, params))))
    worst, best = ([int(v) for v in every[place]] for place in (0, -2))
    given = task([[best, 0.9]], function=function, levels=9, ordered=True)
    answer = " ".join(f"p{place}={level}" for place, level in enumerate(worst))
    step = env.step(env.reset(given), "player", answer, np.random.default_rng(0))
    assert step.rewards["difference"] == -1.0


def test_guided_changes_of_amounts_without_marks_are_small():
    tries = [((3, 4), 0.0), ((5, 4), 0.1), ((4, 3), 0.2), ((4, 5), 0.3), ((4, 4), 1.0)]
    rng = np.random.default_rng(0)
    assert not marks(9, True, tries)
    for _ in range(50):
        found = guided(tries, params_of(tries), 2, 9, True, rng)
        assert max(abs(v - 4) for v in found) <= 2


def test_the_numbers_of_tries_are_those_of_the_numeric_searches():
    config = PolicySearchConfig()
    assert (config.shown, config.counted) == (SHOWN, COUNTED) == (16, 48)
    with pytest.raises(ConfigError, match="set counted to 50 or more"):
        make_env("policy-search", shown=50)
    assert make_env("policy-search", shown=50, counted=50)
    with pytest.raises(ConfigError):
        make_env("policy-search", counted=257)


def test_histories_are_searches_that_see_what_is_shown():
    """The best try that is shown is changed; with two shown these are the best and the latest."""
    env = make_env("policy-search", shown=2, families=["chain"], least_params=16)
    for seed in range(10):
        data = env.generate(np.random.default_rng(seed))
        tries = [(tuple(params), score) for params, score in data["tries"]]
        for i in range(20, len(tries)):
            near = [p for p, _ in shown_of(tries[:i], 2)]
            assert any(sum(a == b for a, b in zip(tries[i][0], p, strict=True)) >= 2 for p in near)


def test_the_description_stands_in_the_prompt_or_is_for_the_thought():
    tries = [[[0, 1, 2], -1.0], [[1, 1, 1], 1.0]]
    plain, shown = (make_env("policy-search", described=each) for each in (False, True))
    one, two = (env.observe(env.reset(task(tries)), "player") for env in (plain, shown))
    assert one.description == describe(4, False, [(tuple(p), s) for p, s in tries])
    assert (two.text, two.description) == (f"{one.text}\n{one.description}", "")
    assert shown.observe(shown.reset(task([])), "player").text == "3 choices 4"


def test_the_best_and_the_latest_are_shown_in_rising_order():
    tries = [((i,), score) for i, score in enumerate([0.9, 0.1, 0.8, 0.3, 0.7, 0.2])]
    assert [p[0] for p, _ in shown_of(tries, 4)] == [5, 4, 2, 0]
    assert [p[0] for p, _ in shown_of(tries[:2], 4)] == [1, 0]
    equal = [((i,), float(i == 2)) for i in range(8)]
    assert [p[0] for p, _ in shown_of(equal, 4)] == [5, 6, 7, 2]
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


def test_a_guided_search_draws_parameters_by_their_marks():
    # level 3 of p2 goes with good tries, but the best try has level 0 by chance
    tries = [((i % 4, (i + 1) % 4, 3 * (i > 6), i % 3), float(i)) for i in range(12)]
    tries.append(((0, 0, 0, 0), 12.0))
    marked, rng, drawn = marks(4, False, tries), np.random.default_rng(0), 20000
    assert marked[2] == (3, 9)
    assert len({mark for _, mark in marked.values()}) > 1
    found = [guided(tries, params_of(tries), 4, 4, False, rng) for _ in range(drawn)]
    assert all(level in (0, marked[i][0]) for each in found for i, level in enumerate(each))
    weights = {place: math.exp(mark / 5) for place, (_, mark) in marked.items()}
    for place, weight in weights.items():
        # 1 to 4 draws with replacement, each one more with probability 0.7
        missed = 1 - weight / sum(weights.values())
        chances = [0.3, 0.21, 0.147, 0.343]
        some = sum(chance * missed**draws for draws, chance in enumerate(chances, start=1))
        share = np.mean([each[place] != 0 for each in found])
        assert abs(share - (1 - some)) < 0.02


def test_a_guided_search_of_exhausted_changes_changes_at_random():
    everything = [((a, b), float(a + b)) for a in (0, 1) for b in (0, 1)]
    rng = np.random.default_rng(0)
    assert not marks(2, False, everything)
    assert guided(everything, params_of(everything), 2, 2, False, rng) in {
        params for params, _ in everything
    }
    around = [((i, 0), 0.0) for i in range(1, 3)] + [((0, i), 0.0) for i in range(1, 3)]
    for _ in range(20):  # no single change is new
        tries = [*around, ((0, 0), 1.0)]
        assert 0 not in guided(tries, params_of(tries), 2, 3, False, rng)


@pytest.mark.parametrize("search", [evolved, guided])
def test_a_search_makes_a_new_try_where_one_is_left(search):
    rng = np.random.default_rng(1)
    tried = list(np.ndindex(3, 3, 3))
    for _ in range(40):
        some = [tuple(tried[i]) for i in rng.permutation(27)[:20]]
        shown = [(params, float(i)) for i, params in enumerate(some)]
        assert search(shown, frozenset(some), 3, 3, False, rng) not in some


def test_an_answer_without_a_change_names_the_first_and_long_names_are_read():
    assert answer_text((0, 1, 2), BEST) == "p0=0"
    shown = [((0,) * 256, 1.0)]
    last = (*(0,) * 100, *(1,) * 156)
    assert read_answer(answer_text(last, shown), 256, 2, shown) == last
    assert read_answer(answer_text(last, []), 256, 2, []) == last


def test_marks_end_at_0():
    # level 1 of p0 goes with the worst tries, level 2 of p1 with good ones
    tries = [((1, i % 2, i), float(i)) for i in range(8)]
    tries += [((0, 2, i), 8.0 + i) for i in range(8)] + [((0, 0, 9), 16.0)]
    assert marks(10, False, tries)[0][0] != 1
    two = [((1, i), float(i)) for i in range(1, 12)] + [((0, i), 20.0 + i) for i in range(12)]
    assert marks(2, False, [*two, ((0, 12), 40.0)])[0] == (1, 9)  # the only change is the best one


def test_a_guided_answer_names_the_most_promising_parameter_first():
    rng = np.random.default_rng(0)
    env = make_env("policy-search", described=True)
    for number in range(40):
        data = env.generate(np.random.default_rng(number))
        state = env.reset(Task(id="t", env="policy-search", seed=0, data=data))
        action = env.baselines()["guided"](state, rng)
        named = [word.split("=")[0] for word in action.split()]
        if state.shown and not estimates.marks(
            state.levels, state.ordered, state.counted, state.known
        ):
            continue  # every single change was tried
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
        assert max(abs(v - 4) for v in evolved(shown, params_of(shown), 2, 9, True, rng)) <= 2
    everything = [((a, b), 0.0) for a in (0, 1) for b in (0, 1)]
    assert evolved(everything, params_of(everything), 2, 2, False, rng) in {
        params for params, _ in everything
    }


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
