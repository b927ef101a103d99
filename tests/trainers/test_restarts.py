"""Training on episodes that begin in later states, and that are left before their end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnwise.app import build
from turnwise.app.stages import run_stages
from turnwise.errors import ConfigError
from turnwise.evaluation import evaluate
from turnwise.rollout import rollout_metrics
from turnwise.runs import read_episodes
from turnwise.tasks.openings import length_of
from turnwise.trainers.grpo import by_return, credit_of
from turnwise.trainers.loop import play_groups
from turnwise.trainers.progress import Silent

RESTARTS = (
    "curriculum={kind='restarts',share=0.5}",
    "trainer.tasks_per_iteration=6",
    "trainer.group_size=3",
)
GAE = ("credit.scheme=gae", "credit.state_key=observation")
WHOLE = (*RESTARTS, "trainer.iterations=3", "episodes.keep=-1")
PARTS = (*WHOLE, *GAE, "trainer.max_turns=2")


def test_moves_that_are_made_again_are_counted(speaking, make_session):
    recipe = speaking(*RESTARTS)
    session, plan = make_session(recipe), build.plan_of(recipe)
    session.save_start()
    first = play_groups(session, plan, session.curriculum.visits(0))
    steps = rollout_metrics(first)["rollout/env_steps"]
    assert session.totals["env_steps"] == steps > 0
    assert session.totals["state_resets"] == 0
    session.curriculum.learn(first, {})
    visits = session.curriculum.visits(1)
    later = [visit for visit in visits if visit.opening]
    assert len(later) == 3
    second = play_groups(session, plan, visits)
    assert sum(bool(episode.opening) for episode in second) == 3 * 3
    moves = sum(length_of(visit.opening) for visit in later)  # a group makes them once
    assert moves >= 3
    steps += rollout_metrics(second)["rollout/env_steps"] + moves
    assert session.totals["env_steps"] == steps
    assert session.totals["state_resets"] == 3 * 3


def test_a_uniform_curriculum_resets_to_no_state(speaking, train):
    _, records = train(speaking())
    assert [record["total/state_resets"] for record in records] == [0.0] * len(records)
    assert all("rollout/restarted_share" not in record for record in records)
    assert all("rollout/score" in record for record in records)


def test_a_run_begins_later_and_leaves_early(speaking, train):
    session, records = train(speaking(*PARTS, *GAE, "evaluation.every=3"))
    assert "rollout/restarted_share" not in records[0]
    assert [record["rollout/restarted_share"] for record in records[1:]] == [0.5, 0.5]
    assert [record["total/state_resets"] for record in records] == [0.0, 9.0, 18.0]
    steps = 0.0
    for iteration, record in enumerate(records):
        path = session.run.episodes / f"train-{iteration:06d}.jsonl"
        episodes = read_episodes(path).episodes
        assert len(episodes) == 18
        assert max(len(episode.turns) for episode in episodes) == 2
        assert any(episode.left for episode in episodes)
        assert all(episode.truncated for episode in episodes if episode.left)
        assert record["rollout/capped_share"] == 0.0
        fresh = [episode for episode in episodes if not episode.opening]
        assert ("rollout/score" in record) == (not any(episode.left for episode in fresh))
        openings = {episode.id.visit_id: length_of(episode.opening) for episode in episodes}
        steps += record["rollout/env_steps"] + sum(openings.values())
        assert record["total/env_steps"] == steps
        assert record["total/episodes"] == 18 * (iteration + 1)
    assert "validation/score" in records[-1]


def test_episodes_of_validation_are_played_to_their_end(speaking, make_session):
    recipe = speaking(*PARTS)
    session = make_session(recipe)
    session.save_start()
    tasks = session.validation.take(8)
    visits = session.curriculum.visits(0, count=1)
    trained = session.runner.collect(visits, "train", group_size=8)
    assert max(len(episode.turns) for episode in trained) <= 2
    found = evaluate(session.eval_runner, tasks, greedy=False)
    assert max(len(episode.turns) for episode in found.episodes) > 2
    assert not any(episode.left or episode.opening for episode in found.episodes)


@pytest.mark.parametrize("scheme", ["grpo", "gigpo", "rloo", "gae"])
def test_every_scheme_goes_with_restarts(speaking, train, scheme):
    _, records = train(speaking(*WHOLE, f"credit.scheme={scheme}"))
    assert len(records) == 3
    assert records[-1]["rollout/restarted_share"] == 0.5
    assert records[-1]["rollout/broken_share"] == 0.0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("credit.scheme=grpo",), "which scheme = 'grpo' would take for the end"),
        ((*GAE, "trainer.dynamic_sampling=true"), "judge episodes by their returns so far"),
        ((*GAE, "credit.filter_zero_variance=true"), "judge episodes by their returns so far"),
    ],
)
def test_what_takes_a_part_for_the_whole_is_refused(speaking, settings, said):
    with pytest.raises(ConfigError, match=said):
        speaking(*WHOLE, *settings, "trainer.max_turns=2")


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("branching = 'none'", "'served' has branching = 'none'"),
        ("blocking = True", "env 'served' is blocking, and waits in each"),
    ],
)
def test_an_env_that_cannot_go_back_has_no_later_beginnings(make_recipe, tmp_path, declared, said):
    (tmp_path / "served.py").write_text(
        "from turnwise.envs import FrozenLake\n\n\n"
        "class Served(FrozenLake):\n"
        "    name = 'served'\n"
        f"    {declared}\n"
    )
    with pytest.raises(ConfigError, match=said):
        make_recipe(*RESTARTS, f"env.name={tmp_path}/served.py:Served")


def test_dynamic_sampling_refills_with_visits_of_both_kinds(speaking, train):
    session, records = train(
        speaking(*WHOLE, "trainer.dynamic_sampling=true", "credit.scheme=grpo")
    )
    episodes = read_episodes(session.run.episodes / "train-000002.jsonl").episodes
    visits = {episode.id.visit: bool(episode.opening) for episode in episodes}
    assert [visits[number] for number in sorted(visits)] == [
        bool(number % 2) for number in sorted(visits)
    ]
    assert len(records) == 3


def test_curricula_are_told_advantages_by_the_return_of_trained_policies(speaking, make_session):
    recipe = speaking(*WHOLE, *GAE)
    session, plan = make_session(recipe), build.plan_of(recipe)
    session.save_start()
    episodes = play_groups(session, plan, session.curriculum.visits(0))
    credit = credit_of(session, plan, episodes)
    found = by_return(session, plan, episodes, credit)
    assert found == {turn: spans[""] for turn, spans in credit.advantages.items()}
    split = plan.credit.model_copy(update={"segments": {"think": "perception", "answer": "return"}})
    spans = {turn: {"think": 9.0, "answer": a} for turn, a in found.items()}
    segmented = replace(credit, advantages=spans)
    assert by_return(session, replace(plan, credit=split), episodes, segmented) == found
    session.trained = {}
    assert by_return(session, plan, episodes, credit) == {}


class Told(Silent):
    """Remembers the phases, and asks the run to stop when it has begun to explore."""

    def __init__(self, session):
        self.session, self.phases = session, []

    def begin(self, phase, *, done, total):
        self.phases.append((phase, total))

    def advance(self, done, metrics):
        self.session.stop.requested = "a test"


def test_a_run_that_is_stopped_while_it_explores_ends_there(speaking, make_session):
    recipe = speaking(*WHOLE, "curriculum.explore=400")
    session = make_session(recipe)
    session.progress = Told(session)
    assert not run_stages(session, recipe, build.plan_of(recipe), resumed=False)
    assert session.progress.phases == [("exploration", 400)]
    assert session.checkpoints.latest().checkpoint is None
    assert session.curriculum.state() == {"known": []}
    session.stop.requested, session.progress = None, Silent()
    assert run_stages(session, recipe, build.plan_of(recipe), resumed=True)
    assert session.totals["explored_steps"] == 400
