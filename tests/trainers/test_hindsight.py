"""Hindsight: which episodes become demonstrations, of which tasks, and the loop that imitates."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

import turnwise as tw
from turnwise.agents import AgentConfig
from turnwise.app.build import plan_of
from turnwise.envs import Relabelled, make_env
from turnwise.envs.guard import guarded
from turnwise.errors import ConfigError, EnvError, SandboxError
from turnwise.policies import PolicyConfig, load_policy
from turnwise.policies.schedule import learning_rate
from turnwise.recipe.schema import load_recipe
from turnwise.runs import (
    comparable,
    episode_file,
    read_episodes,
    read_metrics,
    recorded_iterations,
)
from turnwise.trainers import hindsight, resume
from turnwise.trainers.config import HindsightConfig
from turnwise.trainers.progress import Silent
from turnwise.trainers.relabelling import (
    Achieved,
    chosen,
    in_order,
    relabelled,
    rows_of,
    rows_of_each,
)
from turnwise.trainers.replay import Replay, Shown
from turnwise.types import Episode, EpisodeId, Sampling, Task, Trajectory, Turn, TurnId

TASK = Task(id="t", env="e", seed=0, data={"goal": 9})


def episode(number, actions, task=TASK, **ended):
    identity = EpisodeId(iteration=0, visit=0, task=task.id, member=number)
    turns = tuple(
        Turn(
            id=TurnId(episode=identity, role="player", turn=place),
            order=place,
            policy="main",
            policy_version=0,
            prompt_ids=(1,),
            completion_ids=(2,),
            logprobs=(0.0,),
            sampling=Sampling(),
            finish_reason="stop",
            text=action,
            action=action,
        )
        for place, action in enumerate(actions)
    )
    trajectory = Trajectory(role="player", seat="player", turns=turns)
    facts = {"terminated": True, "truncated": False, "score": 0.0} | ended
    return Episode(id=identity, task=task, trajectories=(trajectory,), **facts)


def achieved(number, problem, closeness, *actions):
    task = replace(TASK, data={"goal": problem})
    own = episode(number, actions)
    return Achieved(
        id=own.id,
        asked=own.task,
        task=task,
        actions=actions,
        problem=str(problem),
        closeness=closeness,
    )


def shown(found, seen=(), seed=0, **options):
    """The goals and the actions that an iteration shows, in their order."""
    config = HindsightConfig(**options)
    rng = np.random.default_rng(seed)
    rows = in_order(chosen(found, config, set(seen), rng), config, rng)
    return [(each.task.data["goal"], each.actions) for each in rows]


FOUND = [
    achieved(0, 1, 0.5, "long way"),
    achieved(1, 2, 0.2, "far"),
    achieved(2, 1, 0.5, "way"),
    achieved(3, 3, 0.9, "near"),
    achieved(4, 4, 0.7, "middle"),
]


def test_the_shortest_of_each_problem_is_shown_and_the_closest_last():
    assert shown(FOUND) == [(2, ("far",)), (1, ("way",)), (4, ("middle",)), (3, ("near",))]
    tie = [achieved(0, 1, 0.5, "one"), achieved(1, 1, 0.5, "two"), achieved(2, 1, 0.5, "a third")]
    assert shown(tie) == [(1, ("one",))], "the first of equally short ones"


def test_what_was_shown_is_not_shown_again_unless_asked():
    seen = {"1"}
    config = HindsightConfig()
    first = chosen(FOUND, config, seen, np.random.default_rng(0))
    assert [each.problem for each in first] == ["2", "3", "4"]
    assert seen == {"1", "2", "3", "4"}
    assert chosen(FOUND, config, seen, np.random.default_rng(0)) == []
    assert len(shown(FOUND, seen=seen, again=True)) == 4


def test_what_a_limit_leaves_out_was_not_shown():
    seen, config, rng = set(), HindsightConfig(), np.random.default_rng(0)
    parts = [[e.problem for e in chosen(FOUND, config, seen, rng, most=2)] for _ in range(3)]
    assert parts == [["4", "3"], ["2", "1"], []]
    assert seen == {"1", "2", "3", "4"}


def test_orders_at_random_differ_and_hold_the_same():
    orders = [shown(FOUND, order="random", seed=seed) for seed in range(6)]
    assert len({str(order) for order in orders}) > 1
    assert {str(sorted(order)) for order in orders} == {str(sorted(shown(FOUND)))}


def test_shuffled_tasks_are_those_of_other_episodes():
    """As a control: each task and each episode once, but not together."""
    found = [achieved(number, number, number / 20, f"to {number}") for number in range(20)]
    pairs = shown(found, relabel="shuffled")
    assert sorted(goal for goal, _ in pairs) == list(range(20))
    assert sorted(int(actions[0].split()[1]) for _, actions in pairs) == list(range(20))
    for seed in range(20):
        pairs = shown(found[: seed + 1], relabel="shuffled", seed=seed)
        assert len(pairs) == (seed + 1 if seed else 0), "a single one has no other"
        assert all(goal != int(actions[0].split()[1]) for goal, actions in pairs)
    assert len({str(shown(found, relabel="shuffled", seed=seed)) for seed in range(5)}) == 5


@pytest.mark.parametrize(
    ("share", "goals"), [(None, ["near"]), (0.5, ["middle", "near"]), (0.01, ["near"])]
)
def test_without_relabels_the_closest_are_shown_on_the_task_that_was_played(share, goals):
    pairs = shown(FOUND, relabel="none", best_share=share)
    assert pairs == [(9, (action,)) for action in goals]


def test_a_share_of_the_best_needs_a_choice_of_the_best():
    with pytest.raises(ConfigError, match="best_share = 0.5 is for relabel = 'none'"):
        load_recipe("frozen-lake", {"trainer": {"kind": "hindsight", "best_share": 0.5}})


LAKE = make_env("frozen-lake", map=["SFF", "FHF", "FFG"])


def lake_episode(number, *actions, **ended):
    data = LAKE.generate(np.random.default_rng(0))
    return episode(number, actions, Task(id="t", env="frozen-lake", seed=0, data=data), **ended)


def test_episodes_achieve_what_their_actions_reach():
    broken = tw.types.Failure(kind="env", message="it broke")
    found = relabelled(
        LAKE,
        [
            lake_episode(0, "RIGHT", "RIGHT"),
            lake_episode(1, "LEFT"),
            lake_episode(2, "DOWN", "DOWN", error=broken),
            lake_episode(3),
            lake_episode(4, "RIGHT", "LEFT", "DOWN", "UP", "RIGHT", "RIGHT"),
            lake_episode(5, "JUMP"),
        ],
    )
    assert [each.id.member for each in found] == [0, 4]
    assert found[0].problem == found[1].problem
    assert found[0].task.data["map"] == ["SFG", "FHF", "FFF"]
    assert [each.length for each in found] == [10, 25]


class Lake(type(LAKE)):
    """A lake whose episodes of two actions have a goal that `canonical` or `reset` cannot read."""

    def __init__(self, data, error=None):
        super().__init__()
        self.data, self.error = data, error

    def relabel(self, task, actions):
        if len(actions) > 1:
            if self.error is not None:
                raise self.error
            return Relabelled(data=self.data, actions=tuple(actions), closeness=0.5)
        return super().relabel(task, actions)


@pytest.mark.parametrize(
    "env",
    [Lake({"map": [3]}), Lake({1: 2, "map": 3}), Lake(None, SandboxError("a worker was lost"))],
)
def test_one_task_that_cannot_be_played_stops_no_run(tiny_policy, env):
    guard, agents = guarded(env, 60), {"player": AgentConfig()}
    policy = with_context(tiny_policy, 10_000)

    def rows(*episodes):
        found = relabelled(guard, episodes)
        draws = lambda *_: np.random.default_rng(0)  # noqa: E731
        return [len(each) for each in rows_of_each(found, guard, agents, policy, draws)]

    wrong, right = lake_episode(0, "RIGHT", "RIGHT"), lake_episode(1, "RIGHT")
    assert [count for count in rows(wrong, right) if count] == [1]
    with pytest.raises((EnvError, SandboxError), match=r"reset|canonical|a worker was lost"):
        rows(wrong)


def test_an_action_that_the_new_task_refuses_is_not_imitated(tiny_policy):
    task = Task(id="t", env="frozen-lake", seed=0, data=LAKE.generate(np.random.default_rng(0)))
    wrong = replace(achieved(0, 1, 0.5, "DOWN", "JUMP", "DOWN"), task=task)
    policy, agents = with_context(tiny_policy, 10_000), {"player": AgentConfig()}
    rows = rows_of(wrong, LAKE, agents, policy, lambda *_: np.random.default_rng(0))
    said = [tiny_policy.renderer.decode(r.token_ids[r.ce_weight > 0].tolist()) for r in rows]
    assert len(said) == 1 and "DOWN" in said[0]


def test_programs_that_draw_alike_achieved_one_problem():
    env = make_env("arc-draw", picture="9-vertical-lines")
    task = Task(id="t", env="arc-draw", seed=0, data=env.generate(np.random.default_rng(0)))
    programs = ("draw_vertical_line(img, 0, 1)", "draw_line(img, (0, 0), (8, 0), 1)")
    found = relabelled(env, [episode(n, [text], task) for n, text in enumerate(programs)])
    assert [each.actions for each in found] == [(text,) for text in programs]
    assert found[0].problem == found[1].problem
    (kept,) = chosen(found, HindsightConfig(), set(), np.random.default_rng(0))
    assert kept.actions == programs[:1]


def with_context(policy, tokens):
    policy = copy(policy)
    policy.context = tokens
    return policy


def test_rows_show_the_task_that_was_solved_and_the_actions(tiny_policy):
    (found,) = relabelled(LAKE, [lake_episode(0, "DOWN", "DOWN", "RIGHT")])
    renderer, agents = tiny_policy.renderer, {"player": AgentConfig()}
    policy = with_context(tiny_policy, 10_000)
    rows = rows_of(found, LAKE, agents, policy, lambda *_: np.random.default_rng(0))
    expected = [("DOWN", "r0c0"), ("DOWN", "r1c0"), ("RIGHT", "r2c0")]
    for row, (action, cell) in zip(rows, expected, strict=True):
        said = row.ce_weight > 0
        prompt = renderer.decode(row.token_ids[~said].tolist())
        reply = renderer.decode(row.token_ids[said].tolist())
        assert f"you {cell}" in prompt
        assert "r2c1 goal" in prompt
        assert f"<answer> {action} </answer>" in reply
        assert not row.sampled_mask.any()


def test_the_steps_of_a_demonstration_have_their_own_draws_and_its_prompts_the_past(tiny_policy):
    (found,) = relabelled(LAKE, [lake_episode(3, "DOWN", "DOWN", "RIGHT")])
    renderer, asked = tiny_policy.renderer, []

    def noise(identity, number):
        asked.append((identity, number))
        return np.random.default_rng(0)

    agents, policy = {"player": AgentConfig(history="full")}, with_context(tiny_policy, 10_000)
    rows = rows_of(found, LAKE, agents, policy, noise)
    assert asked == [(found.id, 0), (found.id, 1), (found.id, 2)]
    prompts = [renderer.decode(row.token_ids[row.ce_weight == 0].tolist()) for row in rows]
    assert [text.count("<answer> DOWN </answer>") for text in prompts] == [0, 1, 2]


def test_a_row_that_is_longer_than_the_context_is_left_out_and_what_follows_it(tiny_policy):
    (found,) = relabelled(LAKE, [lake_episode(0, "DOWN", "DOWN", "RIGHT")])
    agents = {"player": AgentConfig(history="full")}

    def rows(context):
        policy = with_context(tiny_policy, context)
        return rows_of(found, LAKE, agents, policy, lambda *_: np.random.default_rng(0))

    lengths = [len(row.token_ids) for row in rows(10_000)]
    assert lengths == sorted(set(lengths))
    assert len(rows(lengths[1])) == 2
    assert len(rows(lengths[1] - 1)) == 1
    assert rows(lengths[0] - 1) == []


@pytest.mark.parametrize(("last", "count"), [("JUMP", 1), ("RIGHT", 2)])
def test_what_follows_a_refused_action_or_the_end_has_no_rows(tiny_policy, last, count):
    """RIGHT reaches the goal; JUMP is no action."""
    (found,) = relabelled(LAKE, [lake_episode(0, "RIGHT", "RIGHT")])
    found = replace(found, actions=("RIGHT", last, "DOWN"))
    policy, agents = with_context(tiny_policy, 10_000), {"player": AgentConfig()}
    rows = rows_of(found, LAKE, agents, policy, lambda *_: np.random.default_rng(0))
    said = [policy.renderer.decode(row.token_ids[row.ce_weight > 0].tolist()) for row in rows]
    assert len(said) == count
    assert all("RIGHT" in each for each in said)


class NoteTo(Silent):
    """Keeps notes in a list."""

    def __init__(self, notes):
        self.note = notes.append


HINDSIGHT = (
    "trainer.kind=hindsight",
    "trainer.iterations=4",
    "trainer.batch_size=2",
    "optimizer.lr=1e-3",
)


def trained(make_recipe, make_session, folder, *more):
    recipe = make_recipe(*HINDSIGHT, *more)
    session = make_session(recipe, folder)
    back = resume(session)
    if back is None:
        session.save_start()
    done = hindsight.train_hindsight(session, plan_of(recipe), back)
    session.metrics.sync()
    return done, session, comparable(read_metrics(session.run.metrics))


def test_a_run_imitates_what_it_achieved(make_recipe, make_session, speaker, tmp_path):
    model = f"policies.main.model={speaker}"
    done, session, records = trained(make_recipe, make_session, tmp_path / "run", model)
    assert done
    assert [record["step"] for record in records if record["phase"] == "train"] == [1, 2, 3, 4]
    assert sum(record.get("hindsight/rows", 0.0) for record in records) > 0
    for record, number in zip(records, recorded_iterations(session.run.episodes), strict=True):
        played = read_episodes(episode_file(session.run.episodes, number)).episodes
        closest = max(each.closeness for each in relabelled(session.runner.env, played))
        assert record["hindsight/closest"] == closest > 0
    assert all((record["hindsight/rows"] > 0) == ("loss/ce" in record) for record in records)
    assert records[-1]["total/optimizer_steps"] > 4
    start = digest_of_start(session)
    assert session.policies["main"].digest() != start


def test_known_tasks_alone_are_told_once(make_recipe, make_session, tmp_path):
    session, notes = make_session(make_recipe(*HINDSIGHT), tmp_path / "run"), []
    session.progress = NoteTo(notes)
    none_new, seen = hindsight._NoneNew(session, told=False), {"a"}
    for iteration, (new, known) in enumerate([(0, set()), (1, seen), (0, seen), (0, seen)]):
        none_new.tell(iteration, new, known)
    (note,) = notes
    assert note.startswith("iteration 3 reached no task that was not demonstrated before: ")
    hindsight._NoneNew(session, told=True).tell(0, 0, seen)
    assert len(notes) == 1


def test_replayed_demonstrations_are_not_new(make_recipe, make_session, speaker, tmp_path):
    """A run whose later iterations reach known tasks alone says so, whatever it replays."""
    recipe = make_recipe(*HINDSIGHT, "trainer.replay=3", f"policies.main.model={speaker}")
    session, notes = make_session(recipe, tmp_path / "run"), []
    session.progress = NoteTo(notes)
    session.save_start()
    plan, known = plan_of(recipe), Shown(replay=Replay(count=3))
    visits = session.curriculum.visits(0)
    played = hindsight.play_groups(session, plan, visits)
    first, found = hindsight.demonstrations(session, plan.trainer, played, known, 0)
    assert found["hindsight/new"] == len(first) > 0
    again, found = hindsight.demonstrations(session, plan.trainer, played, known, 1)
    assert len(again) == min(3, len(first)) and found["hindsight/new"] == 0
    hindsight._NoneNew(session, told=False).tell(1, found["hindsight/new"], known.seen)
    assert notes


def test_a_step_has_so_many_demonstrations_whatever_their_lengths(
    make_recipe, make_session, speaker, tmp_path, monkeypatch
):
    real, steps, shown, told = hindsight.imitate_rows, [], [], []

    def imitate_rows(session, trained, rows, step):
        steps.append((step, len(rows)))
        told.append(real(session, trained, rows, step))
        return told[-1]

    chosen_by = hindsight.demonstrations

    def demonstrations(*args):
        found = chosen_by(*args)
        shown.append([len(rows) for rows in found[0]])
        return found

    monkeypatch.setattr(hindsight, "imitate_rows", imitate_rows)
    monkeypatch.setattr(hindsight, "demonstrations", demonstrations)
    two = ("trainer.passes=2", "trainer.again=true", f"policies.main.model={speaker}")
    two += ("optimizer.schedule=linear",)
    _, session, records = trained(make_recipe, make_session, tmp_path / "run", *two)
    pairs = [[sum(each[i : i + 2]) for i in range(0, len(each), 2)] for each in shown]
    assert max(count for each in shown for count in each) > 1, "some have several actions"
    assert [count for _, count in steps] == [count for each in pairs for count in each * 2]
    assert len({step for step, _ in steps}) == len(steps), "each step has dropout of its own"
    plan = plan_of(make_recipe(*HINDSIGHT, *two))
    most = plan.trainer.updates_per_batch
    assert all(2 * len(each) <= most for each in pairs), "the schedule of the rate ends with them"
    losses = [record["loss/ce"] for record in records if "loss/ce" in record]
    counts = [2 * len(each) for each in pairs if each]
    ends = np.cumsum(counts).tolist()
    parts = [told[end - count : end] for end, count in zip(ends, counts, strict=True)]
    assert losses == pytest.approx([np.mean([one["loss/ce"] for one in part]) for part in parts])
    tokens = sum(one["forest/tokens_distinct"] for one in told)
    assert records[-1]["total/trained_tokens"] == tokens > 0
    rate = learning_rate(plan.optimizer, len(steps) - 1, 4 * most)
    assert told[-1]["optim/lr"] == pytest.approx(rate)
    versions = {turn.policy_version for turn in last_turns(session)}
    assert versions == {sum(map(bool, pairs[:-1]))}, "the new weights play"


def last_turns(session):
    """The turns of the last iteration that is recorded."""
    last = max(recorded_iterations(session.run.episodes))
    episodes = read_episodes(episode_file(session.run.episodes, last)).episodes
    return [turn for each in episodes for turn in each.turns]


def test_no_passes_show_nothing():
    config = HindsightConfig(passes=0)
    past = Shown(replay=Replay(count=0))
    assert hindsight.demonstrations(None, config, FOUND, past, 0) == ([], {})
    assert past.seen == set() and not past.replay.kept
    with pytest.raises(ValueError, match=r"replay = 4 with passes = 0.*leave replay out"):
        HindsightConfig(passes=0, replay=4)


def test_demonstrations_of_earlier_iterations_are_shown_among_new_ones(
    make_recipe, make_session, speaker, tmp_path, monkeypatch
):
    model = f"policies.main.model={speaker}"
    plain = trained(make_recipe, make_session, tmp_path / "plain", model)[2]
    shown, orders = [], []

    def imitate(session, plan, policy, rows, iteration):
        shown.append([each[0].token_ids.tolist() for each in rows])
        return real(session, plan, policy, rows, iteration)

    def ordered(some, config, rng):
        orders.append([each.closeness for each in in_order(some, config, rng)])
        return in_order(some, config, rng)

    real = hindsight.imitate
    monkeypatch.setattr(hindsight, "imitate", imitate)
    monkeypatch.setattr(hindsight, "in_order", ordered)
    more = (model, "trainer.replay=3")
    done, _, records = trained(make_recipe, make_session, tmp_path / "run", *more)
    assert done and len(shown) == 4
    past = [[row for rows in shown[:number] for row in rows] for number in range(4)]
    assert [sum(row in old for row in new) for new, old in zip(shown, past, strict=True)] == [
        0, 3, 3, 3
    ]  # fmt: skip
    counts = [record["hindsight/rows"] for record in records if "hindsight/rows" in record]
    usual = [record["hindsight/rows"] for record in plain if "hindsight/rows" in record]
    assert counts[0] == usual[0] and counts[1] >= 3
    assert all(order == sorted(order) for order in orders), "replayed ones are among the others"


def digest_of_start(session):
    """The digest of the weights that training began with."""
    policy = load_policy("main", PolicyConfig(model=str(session.run.start("main")), device="cpu"))
    return policy.digest()


@pytest.mark.parametrize("replay", [0, 3])
def test_a_run_that_is_stopped_goes_on_to_the_same_numbers(
    make_recipe, make_session, speaker, tmp_path, monkeypatch, replay
):
    asked = (f"policies.main.model={speaker}", f"trainer.replay={replay}")
    _, whole, records = trained(make_recipe, make_session, tmp_path / "whole", *asked)
    real, calls = hindsight.imitate, []

    def imitate(session, *args):
        calls.append(1)
        if len(calls) == 2:
            session.stop.requested = "a test"
        return real(session, *args)

    with monkeypatch.context() as patched:
        patched.setattr(hindsight, "imitate", imitate)
        done, *_ = trained(make_recipe, make_session, tmp_path / "parts", *asked)
    assert not done
    done, session, again = trained(make_recipe, make_session, tmp_path / "parts", *asked)
    assert done
    assert again == records
    assert session.policies["main"].digest() == whole.policies["main"].digest()


def test_a_run_that_is_stopped_after_its_first_validation_goes_on_to_the_same_numbers(
    make_recipe, make_session, speaker, tmp_path, monkeypatch
):
    asked = (f"policies.main.model={speaker}", "evaluation.validate_start=true")
    _, whole, records = trained(make_recipe, make_session, tmp_path / "whole", *asked)
    real = hindsight.begun

    def begun(session, *args):
        found = real(session, *args)
        session.stop.requested = "a test"
        return found

    with monkeypatch.context() as patched:
        patched.setattr(hindsight, "begun", begun)
        done, _, first = trained(make_recipe, make_session, tmp_path / "parts", *asked)
    assert not done
    assert [record["step"] for record in first if record["phase"] == "train"] == [0]
    done, session, again = trained(make_recipe, make_session, tmp_path / "parts", *asked)
    assert done
    assert again == records
    assert session.policies["main"].digest() == whole.policies["main"].digest()


def test_a_run_ends_where_an_episode_has_the_score(make_recipe, make_session, tmp_path):
    _, _, records = trained(
        make_recipe, make_session, tmp_path / "run", "trainer.stop_at_score=0.0"
    )
    assert [record["step"] for record in records if record["phase"] == "train"] == [1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"optimizer.lr": "auto"}, 'whose rate "auto" does not follow: give'),
        ({"sft_mix": {"rows": 8}}, "without sft_mix"),
        ({"loss.kind": "gspo"}, "without loss"),
    ],
)
def test_what_hindsight_does_not_use_is_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        load_recipe("frozen-lake", {"trainer.kind": "hindsight", **settings})


def test_a_recipe_for_grpo_gives_up_what_hindsight_does_not_use():
    notes = []
    recipe = load_recipe("frozen-lake", {"trainer.kind": "hindsight"}, notes.append)
    assert isinstance(recipe.trainer, HindsightConfig)
    assert recipe.sft_mix is None
    assert "trainer.kind = 'hindsight': left out the recipe's trainer.minibatches = 4" in notes[0]


@pytest.mark.parametrize("settings", ["trainer.kind=hindsight", "trainer.hindsight={}"])
def test_episodes_that_begin_later_are_refused(settings):
    """Their actions were relabelled from the first state on, so that the goal was another one."""
    restarts = [settings, "curriculum.kind=restarts", "trainer.iterations=1"]
    with pytest.raises(ConfigError, match=r"begins episodes in later ones: set curriculum\.kind"):
        load_recipe("frozen-lake", restarts, lambda text: None)
    load_recipe("frozen-lake", [*restarts, "curriculum.share=0"], lambda text: None)


def test_an_env_that_cannot_relabel_is_refused():
    settings = {"trainer.kind": "hindsight"}
    with pytest.raises(ConfigError, match=r"env 'treasure' does not tell: write relabel\(task"):
        load_recipe("treasure", settings)
    with pytest.raises(ConfigError, match="the defaults for an env are for grpo: write a recipe"):
        tw.train("nano", env="frozen-lake", settings={"trainer.kind": "hindsight"})
