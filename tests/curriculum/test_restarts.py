"""Visits that begin in states of earlier episodes: which, how often, and after a resume."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest

import turnwise as tw
from turnwise.curriculum import CURRICULA, RestartsConfig, RestartsCurriculum, UniformCurriculum
from turnwise.curriculum.archive import Archive
from turnwise.curriculum.restarts import EXPLORING, PART
from turnwise.envs import make_env
from turnwise.errors import BrokenEnvError, ConfigError, IllegalActionError, StuckEnvError
from turnwise.rollout.draws import Draws
from turnwise.seeding import generator
from turnwise.settings import parse
from turnwise.tasks import GeneratedTasks
from turnwise.tasks.openings import length_of, replayed
from turnwise.types import (
    Episode,
    EpisodeId,
    Failure,
    Moves,
    Sampling,
    Trajectory,
    Turn,
    TurnId,
)
from turnwise.utils.hashes import short_hash


def lakes(seed=0):
    return GeneratedTasks(make_env("frozen-lake", start="random"), "train", seed)


TASK = lakes().task(3)


def curriculum(share=0.5, *, tasks=None, per_iteration=8, **options):
    config = RestartsConfig(share=share, **options)
    return RestartsCurriculum(tasks or lakes(), per_iteration, config)


def uniform(per_iteration=8):
    return UniformCurriculum.of(lakes(), per_iteration)


def moves(*words, iteration=0, visit=0, member=0, seat="player"):
    episode = EpisodeId(iteration=iteration, visit=visit, task=TASK.id, member=member)
    return Moves(episode=episode, actions=tuple((seat, word) for word in words))


def episode(*acted, opening=(), error=None, iteration=0, visit=0, member=0, task=TASK):
    """Return an episode of turns in order, each (what is seen, the action) or (.., .., seat).

    Without an action the reply was invalid; without anything seen it answered a question.
    """
    one = EpisodeId(iteration=iteration, visit=visit, task=task.id, member=member)
    turns = []
    for order, (seen, action, *seat) in enumerate(acted):
        role = seat[0] if seat else "player"
        turns.append(
            Turn(
                id=TurnId(episode=one, role=role, turn=sum(t.id.role == role for t in turns)),
                order=order,
                phase="act" if seen else "ask",
                policy="main",
                policy_version=0,
                prompt_ids=(),
                completion_ids=(),
                logprobs=(),
                sampling=Sampling(),
                finish_reason="stop",
                text="",
                action=action,
                seen=seen,
                error=Failure(kind="parse", message="no") if seen and action is None else None,
            )
        )
    seats = sorted({turn.id.role for turn in turns})
    return Episode(
        id=one,
        task=task,
        trajectories=tuple(
            Trajectory(role=s, seat=s, turns=tuple(t for t in turns if t.id.role == s))
            for s in seats
        ),
        terminated=True,
        truncated=False,
        score=0.0,
        error=error,
        opening=opening,
    )


def walk(*cells, action="go", **place):
    return episode(*((cell, action) for cell in cells), **place)


def known(made):
    """Return (seat, what is seen) -> (opening, visits) of a curriculum's states."""
    twin = curriculum()
    twin.restore(json.loads(json.dumps(made.state())))
    return {cell: (each.opening, each.visits) for cell, each in twin._archive._known.items()}


def learned(*episodes, **options):
    made = curriculum(**options)
    made.learn(episodes, {})
    return made


def test_the_recipe_names_it_and_its_options_are_checked():
    assert CURRICULA["restarts"][0] is RestartsConfig
    for wrong in ({"share": 1.5}, {"share": -0.1}, {"states": 0}, {"explore": -1}, {"shares": 1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            parse(RestartsConfig, wrong, "curriculum")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_before_anything_is_learned_visits_are_those_of_the_uniform_curriculum(share):
    made = curriculum(share)
    for iteration in range(3):
        assert made.visits(iteration) == uniform().visits(iteration)
        refill = {"first": 8, "count": 5}
        assert made.visits(iteration, **refill) == uniform().visits(iteration, **refill)
    assert made.state() == {"known": []}
    with pytest.raises(ValueError, match="at most 512 visits"):
        made.visits(0, first=512, count=1)


def test_a_share_of_none_changes_nothing_whatever_is_known():
    made = learned(walk("a", "b", "c"), share=0.0)
    assert made.visits(1) == uniform().visits(1)
    assert made.beginning(generator(0, "any")) is None


@pytest.mark.parametrize(
    ("share", "later"),
    [(0.25, [3, 7]), (0.5, [1, 3, 5, 7]), (0.75, [1, 2, 3, 5, 6, 7]), (1.0, list(range(8)))],
)
def test_a_share_of_the_visits_begins_later_evenly_spread(share, later):
    made = learned(walk("a", "b", "c"), share=share)
    visits = made.visits(1)
    assert [visit.visit for visit in visits if visit.opening] == later
    assert [(visit.iteration, visit.visit) for visit in visits] == [(1, n) for n in range(8)]
    fresh = uniform().visits(1)
    for visit, plain in zip(visits, fresh, strict=True):
        assert visit == plain or (visit.opening and visit.task == TASK)


@pytest.mark.parametrize("share", [0.1, 0.29, 1 / 3, 0.6, 0.7, 0.9])
def test_any_share_holds_over_many_visits(share):
    made = learned(walk("a", "b", "c"), share=share)
    visits = made.visits(1, count=500)
    assert sum(bool(visit.opening) for visit in visits) == pytest.approx(500 * share, abs=1)


def test_a_share_holds_over_iterations_of_a_single_visit():
    made = learned(walk("a", "b", "c"), share=0.5, per_iteration=1)
    later = [bool(made.visits(n)[0].opening) for n in range(8)]
    assert later == [False, True] * 4


def test_visits_are_a_function_of_iteration_number_and_what_was_learned():
    played = [walk(*"abcdefgh"), walk(*"axyz", member=1)]
    one, other = learned(*played, share=1.0), learned(*played, share=1.0)
    before = [one.visits(iteration) for iteration in range(1, 5)]
    assert other.visits(4) == before[3]
    assert one.visits(4, first=2, count=3) == before[3][2:5]
    assert one.visits(1) == before[0], "what was asked for before does not matter"
    assert len({visit.opening for visits in before for visit in visits}) > 5
    assert [v.opening for v in before[0]] != [v.opening for v in before[1]]
    of_seed = RestartsCurriculum(lakes(seed=1), 8, RestartsConfig(share=1.0))
    of_seed.learn(played, {})
    assert [v.opening for v in of_seed.visits(1)] != [v.opening for v in before[0]]


def test_the_states_between_are_remembered_with_the_moves_to_them():
    """Not the first one, in which any fresh task begins, nor the one in which nobody acted."""
    made = learned(episode(("a", "r"), ("b", "l"), ("c", "u"), iteration=2, visit=5, member=1))
    own = {"iteration": 2, "visit": 5, "member": 1}
    assert known(made) == {
        ("player", "b"): ((moves("r", **own),), 1),
        ("player", "c"): ((moves("r", "l", **own),), 1),
    }


def test_a_later_beginning_is_told_as_its_opening_and_the_moves_after_it():
    opening = (moves("r", "l", iteration=1), moves("u", iteration=2, visit=3))
    made = learned(
        episode(("p", "d"), ("q", "d"), ("r", "d"), opening=opening, iteration=4, member=2)
    )
    own = {"iteration": 4, "member": 2}
    assert known(made) == {
        ("player", "p"): (opening, 1),  # a visit of the state that it began in
        ("player", "q"): ((*opening, moves("d", **own)), 1),
        ("player", "r"): ((*opening, moves("d", "d", **own)), 1),
    }


def test_the_state_that_an_episode_begins_in_counts_where_it_comes_back_to_it():
    made = learned(walk("a", "b", "a", "b"))
    assert known(made) == {
        ("player", "b"): ((moves("go"),), 1),
        ("player", "a"): ((moves("go", "go"),), 1),
    }


def test_visits_are_counted_once_an_episode():
    made = learned(walk("a", "b", "b", "b", "c"), walk("a", "b", member=1))
    made.learn([walk("z", "b", "c", iteration=1)], {})
    counts = {seen: visits for (_, seen), (_, visits) in known(made).items()}
    assert counts == {"b": 3, "c": 2}


def test_the_way_with_the_fewest_steps_is_kept_and_of_equal_ones_the_latest():
    made = learned(walk("a", "b", "c", "d"))
    made.learn([walk("a", "d", member=1), walk("a", "x", "b", "c", member=2)], {})
    found = known(made)
    assert found["player", "d"] == ((moves("go", member=1),), 2)
    assert found["player", "c"] == ((moves("go", "go"),), 2), "three steps are more than two"
    made.learn([walk("q", "c", opening=(moves("up", member=8),), member=3)], {})
    latest = ((moves("up", member=8), moves("go", member=3)), 3)
    assert known(made)["player", "c"] == latest, "two steps again, of which one is the opening's"
    longer = (moves("up", "up", member=8),)
    made.learn([walk("q", "c", opening=longer, member=4)], {})
    assert known(made)["player", "c"] == (latest[0], 4)


def test_a_shorter_way_leads_to_the_state_of_its_own_task():
    """Other problems may show the same: the task goes with the way."""
    other = lakes().task(4)
    made = learned(walk("a", "b", "c"), walk("x", "c", task=other), share=1.0)
    found = {
        (visit.task.id, length_of(visit.opening)) for n in range(10) for visit in made.visits(n)
    }
    assert found == {(TASK.id, 1), (other.id, 1)}
    for visit in made.visits(3):
        assert {part.episode.task for part in visit.opening} == {visit.task.id}


def test_invalid_replies_and_questions_are_no_moves():
    made = learned(
        episode(("", "?"), ("a", "r"), ("b", None), ("b", "l"), ("", None), ("c", None), ("c", "u"))
    )
    assert known(made) == {
        ("player", "b"): ((moves("r"),), 1),
        ("player", "c"): ((moves("r", "l"),), 1),
    }
    unread = learned(episode(("a", "r"), ("b", None)))
    assert known(unread) == {}, "nobody acted in b"


def test_broken_episodes_are_not_learned_from_and_failed_ones_are():
    for kind, states in (("env", 0), ("engine", 0), ("parse", 2), ("context", 2)):
        error = Failure(kind=kind, message="no")
        made = learned(episode(("a", "r"), ("b", "l"), ("c", "u"), ("d", None), error=error))
        assert len(known(made)) == states


def test_moves_of_several_seats_are_made_in_the_order_of_play():
    made = learned(
        episode(("a", "1", "one"), ("b", "2", "two"), ("a", "3", "one"), ("b", "4", "two"))
    )
    one = EpisodeId(iteration=0, visit=0, task=TASK.id, member=0)
    acted = (("one", "1"), ("two", "2"), ("one", "3"))
    assert known(made) == {
        ("two", "b"): ((Moves(episode=one, actions=acted[:1]),), 1),
        ("one", "a"): ((Moves(episode=one, actions=acted[:2]),), 1),
    }


def test_seats_that_see_the_same_are_in_states_of_their_own():
    made = learned(episode(("x", "1", "one"), ("a", "2", "one"), ("a", "3", "two")))
    assert set(known(made)) == {("one", "a"), ("two", "a")}


def visited(**counts):
    """Return a curriculum that knows states with these numbers of visits."""
    made = curriculum(share=1.0, per_iteration=16)
    for name, count in counts.items():
        made.learn([walk("start", name, action=name, member=n) for n in range(count)], {})
    return made


def test_rarely_visited_states_are_begun_from_more_often():
    """1 / sqrt(1), 1 / sqrt(4) and 1 / sqrt(16): 4, 2 and 1 of 7."""
    made = visited(often=16, seldom=4, once=1)
    drawn = Counter(
        visit.opening[0].actions[0][1] for n in range(1, 501) for visit in made.visits(n)
    )
    total = 500 * 16
    for name, share in (("once", 4 / 7), ("seldom", 2 / 7), ("often", 1 / 7)):
        error = (share * (1 - share) / total) ** 0.5
        assert drawn[name] / total == pytest.approx(share, abs=4 * error)


def test_games_of_random_play_begin_in_states_that_were_found_before_the_run():
    made = explored(Corridor(), 600, share=1.0)
    begun = [made.beginning(generator(n, "game")) for n in range(50)]
    made.learn([walk("a", "b", "c")], {})
    assert [made.beginning(generator(n, "game")) for n in range(50)] == begun
    openings = {opening for _, opening in begun}
    assert len(openings) > 3
    assert {m.episode.iteration for opening in openings for m in opening} == {EXPLORING}
    half = explored(Corridor(), 600, share=0.5)
    nothing = sum(half.beginning(generator(n, "game")) is None for n in range(2000))
    assert nothing / 2000 == pytest.approx(0.5, abs=0.05)
    assert learned(walk("a", "b")).beginning(generator(0, "game")) is None
    assert uniform().beginning(generator(0, "game")) is None


def test_a_state_that_is_begun_from_again_and_again_is_drawn_less():
    made = learned(walk("a", "b"), walk("c", "d"), share=1.0, per_iteration=1)
    before = known(made)["player", "b"]
    begun = [episode(("b", "x"), opening=before[0], iteration=n, member=0) for n in range(1, 9)]
    made.learn(begun, {})
    assert known(made)["player", "b"] == (before[0], before[1] + 8)


def test_a_state_that_cannot_be_come_to_again_is_forgotten():
    made = learned(walk("a", "b"), walk("c", "d", member=1), share=1.0)
    way = known(made)["player", "b"][0]
    broken = replace(
        episode(opening=way, iteration=3), error=Failure(kind="env", message="it differs")
    )
    made.learn([broken], {})
    assert set(known(made)) == {("player", "d")}


def test_a_failure_of_the_engine_forgets_no_state():
    made = learned(walk("a", "b"), walk("c", "d", member=1), share=1.0)
    way = known(made)["player", "b"][0]
    away = Failure(kind="engine", message="the server was away")
    made.learn([replace(episode(opening=way, iteration=3), error=away)], {})
    assert set(known(made)) == {("player", "b"), ("player", "d")}


def test_states_beyond_the_cap_of_the_env_are_no_beginnings():
    env = Corridor()
    env.max_turns = 5
    made = explored(env, 600)
    assert max(length_of(each.opening) for each in made._archive._known.values()) < 5


def test_the_most_visited_states_are_forgotten_and_of_those_the_oldest():
    made = learned(walk(*"abcde"), states=3)
    assert [seen for _, seen in known(made)] == ["c", "d", "e"]
    made.learn([walk("x", "d", iteration=1), walk("x", "f", iteration=1)], {})
    assert [seen for _, seen in known(made)] == ["c", "e", "f"], "d was visited twice"
    made.learn([walk("x", "d", iteration=2), walk("x", "g", iteration=2)], {})
    assert [seen for _, seen in known(made)] == ["f", "d", "g"], "d is new again"
    assert known(made)["player", "d"][1] == 1


def test_what_was_learned_goes_on_after_a_resume_as_if_there_was_none():
    played = [
        [walk(*"abcd"), walk("a", "x", "b", member=1)],
        [walk("b", "y", opening=(moves("go"),), iteration=1), walk("a", "d", iteration=1)],
        [walk(*"azyd", iteration=2)],
    ]
    whole = curriculum(share=0.5, states=5)
    for place, episodes in enumerate(played):
        whole.learn(episodes, {})
        resumed = curriculum(share=0.5, states=5)
        resumed.learn([walk("other", "states")], {})
        resumed.restore(json.loads(json.dumps(whole.state())))
        for n in range(20):
            assert resumed.visits(n) == whole.visits(n)
        later, again = curriculum(share=0.5, states=5), resumed
        later.restore(whole.state())
        for rest in played[place + 1 :]:
            later.learn(rest, {})
            again.learn(rest, {})
        assert later.state() == again.state()
        assert later.visits(9) == again.visits(9)


def test_the_uniform_curriculum_has_nothing_to_remember():
    made = uniform()
    made.learn([walk("a", "b")], {})
    made.restore({})
    assert made.state() == {}
    assert made.visits(1) == uniform().visits(1)


@dataclass(frozen=True)
class At:
    cell: int
    slips: int = 0


class Corridor(tw.Env):
    """A walk to the right, of which one step in four slips back; the right end is the last cell."""

    name = "corridor"
    components = {"pay": "agent"}  # noqa: RUF012
    length = 12
    steps = 0

    def generate(self, rng):
        return {"number": int(rng.integers(2**31))}

    def reset(self, task):
        return At(0)

    def observe(self, state, role):
        return tw.Observation(text=f"cell {state.cell}", legal_actions=("go", "stay"))

    def step(self, state, role, action, noise):
        self.steps += 1
        slips = noise.random() < 0.25
        cell = max(0, state.cell - 1) if slips else state.cell + (action == "go")
        over = cell == self.length
        after = At(cell, state.slips + slips)
        return tw.Step(state=after, rewards={"pay": float(over)}, terminated=over, truncated=False)

    def score(self, state):
        return 0.0


def explored(env, explore, **options):
    tasks = GeneratedTasks(env, "train", 0)
    made = RestartsCurriculum(tasks, 8, RestartsConfig(explore=explore, **options))
    made.begin(json.loads(json.dumps(made.explore(DRAWS, always))))
    return made


def always(done, total):
    return True


DRAWS = Draws(seed=0, stream="train", common_noise=True).of_step


def test_without_exploring_nothing_is_known_before_the_run():
    env = Corridor()
    assert explored(env, 0).state() == {"known": []}
    assert env.steps == 0


def test_random_play_finds_states_and_the_moves_to_them():
    """Half of the games go on from known states, so that they come further than one game does."""
    env = Corridor()
    made = explored(env, 600, share=1.0)
    assert env.steps == 600
    found = made._archive._known
    assert len(found) >= 8
    for (seat, seen), each in found.items():
        assert {moves.episode.iteration for moves in each.opening} == {EXPLORING}
        assert {moves.episode.task for moves in each.opening} == {each.task.id}
        assert all(len(moves.actions) < PART for moves in each.opening)
        state = replayed(env, each.task, each.opening, DRAWS)
        assert (seat, short_hash(env.observe(state, seat).text)) == ("player", seen)
    assert any(len(each.opening) > 1 for each in found.values())
    visits = made.visits(0)
    assert all(visit.opening for visit in visits), "the first iteration begins later, too"


def test_exploring_is_a_function_of_the_seed():
    one, other = explored(Corridor(), 300), explored(Corridor(), 300)
    assert one.state() == other.state()
    tasks = GeneratedTasks(Corridor(), "train", 1)
    of_seed = RestartsCurriculum(tasks, 8, RestartsConfig(explore=300))
    of_seed.begin(of_seed.explore(DRAWS, always))
    assert of_seed.state() != one.state()


def test_exploring_remembers_no_more_states_than_are_wanted():
    made = explored(Corridor(), 600, states=3)
    assert len(made.state()["known"]) == 3


@pytest.mark.parametrize("error", [BrokenEnvError, IllegalActionError])
def test_a_game_that_the_env_breaks_ends_there_and_exploring_goes_on(error):
    class Fragile(Corridor):
        def step(self, state, role, action, noise):
            if state.cell == 3:
                self.steps += 1
                raise error("broken")
            return super().step(state, role, action, noise)

    env = Fragile()
    made = explored(env, 200)
    assert env.steps == 200
    cells = {short_hash(f"cell {n}") for n in range(4)}
    assert {seen for _, seen, *_ in made.state()["known"]} <= cells


def test_exploring_an_env_that_never_steps_comes_to_an_end():
    class Never(Corridor):
        def random_action(self, state, role, rng):
            raise BrokenEnvError("broken")

    assert explored(Never(), 50).state() == {"known": []}


def test_exploring_tells_how_far_it_is_and_ends_when_asked():
    """Then nothing was found: a run that goes on later finds the same as one that was not asked."""
    env, told = Corridor(), []

    def goes_on(done, total):
        told.append((done, total))
        return done < 100

    made = RestartsCurriculum(GeneratedTasks(env, "train", 0), 8, RestartsConfig(explore=600))
    assert made.explore(DRAWS, goes_on) == {}
    assert told[0] == (0, 600) and 100 <= told[-1][0] < 100 + PART
    assert env.steps == told[-1][0]


def test_what_is_found_does_not_replace_what_was_learned():
    made = explored(Corridor(), 300)
    before = made.state()
    made.begin({"known": before["known"][:1], "steps": 10})
    assert made.state() == before
    rng = generator(0, "games")
    games = [made.beginning(rng) for _ in range(20)]
    assert len({way for game in games if game for _, way in [game]}) == 1


def test_a_task_that_the_env_lists_is_the_same_after_a_resume():
    """Not one that went through JSON, which has no tuples."""

    class Listed(Corridor):
        def tasks(self, split):
            return [{"place": (n, n + 1)} for n in range(40)]

        def canonical(self, data):
            return repr(data["place"])

    whole = explored(Listed(), 300)
    made = RestartsCurriculum(GeneratedTasks(Listed(), "train", 0), 8, RestartsConfig())
    made.restore(json.loads(json.dumps(whole.state())))
    tasks = {each.task.id: each.task for each in made._archive._known.values()}
    assert tasks == {each.task.id: each.task for each in whole._archive._known.values()}
    assert {type(task.data["place"]) for task in tasks.values()} == {tuple}


def test_an_env_that_hangs_stops_the_run():
    class Stuck(Corridor):
        def step(self, state, role, action, noise):
            raise StuckEnvError("stuck")

    with pytest.raises(StuckEnvError):
        explored(Stuck(), 50)


def test_what_was_explored_is_restored_like_what_was_learned():
    whole = explored(Corridor(), 300)
    resumed = RestartsCurriculum(GeneratedTasks(Corridor(), "train", 0), 8, RestartsConfig())
    resumed.restore(json.loads(json.dumps(whole.state())))
    for n in range(5):
        assert resumed.visits(n) == whole.visits(n)


def gains(played, *values):
    """Return advantages of an episode's turns, in their order."""
    turns = sorted(played.turns, key=lambda turn: turn.order)
    return {t.id: v for t, v in zip(turns, values, strict=False) if v is not None}


def gain(made):
    return {seen: each.gain for (_, seen), each in made._archive._known.items()}


def test_the_largest_advantage_in_a_state_is_remembered():
    first, second = walk(*"abcd"), walk(*"abd", member=1)
    made = curriculum()
    made.learn([first, second], gains(first, 9.0, 2.0, -1.0, 0.5) | gains(second, 0.0, 3.0, 1.5))
    assert gain(made) == {"b": 3.0, "c": 0.0, "d": 1.5}
    assert gain(restored(made)) == gain(made)


def restored(made):
    twin = curriculum()
    twin.restore(json.loads(json.dumps(made.state())))
    return twin


def test_an_advantage_is_forgotten_by_halves_while_its_state_is_visited():
    first, again = walk(*"abc"), walk(*"ab", member=1)
    made = curriculum()
    made.learn([first], gains(first, None, 4.0, 2.0))
    made.learn([again], gains(again, None, -1.0))
    assert gain(made) == {"b": 2.0, "c": 2.0}
    made.learn([again], gains(again, None, 1.5))
    assert gain(made) == {"b": 1.5, "c": 2.0}
    made.learn([again], {})
    assert gain(made)["b"] == 0.75, "turns that were not trained have no advantage"


def test_half_of_the_draws_go_by_the_rank_of_the_advantage():
    """Ranks 1, 2 and 3 weigh 1, 1/2 and 1/3; e and f have none, and all were visited once."""
    one = walk(*"abcdef")
    made = curriculum()
    made.learn([one], gains(one, None, 0.1, 50.0, 3.0, 0.0, -2.0))
    rare, whole = 0.5 / 5, 1 + 1 / 2 + 1 / 3
    ranked = [1 / 3, 1.0, 1 / 2, 0.0, 0.0]
    expected = [rare + 0.5 * each / whole for each in ranked]
    assert made._archive.probabilities().tolist() == pytest.approx(expected)


def test_the_least_probable_states_are_forgotten():
    one, two = walk(*"abcd"), walk(*"abcd", member=1)
    made = curriculum(states=2)
    made.learn([one, two, walk("x", "e", member=2)], gains(one, None, None, 1.0))
    assert set(gain(made)) == {"c", "e"}, "c has an advantage, and e was visited once"


def test_an_archive_of_one_state_draws_it():
    archive = Archive()
    assert len(archive) == 0
    archive.visited(("player", "a"), TASK, (moves("go"),))
    drawn = archive.draw(np.random.default_rng(0))
    assert (drawn.task, drawn.opening, drawn.visits, len(archive)) == (TASK, (moves("go"),), 1, 1)
