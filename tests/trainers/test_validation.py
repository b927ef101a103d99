"""Validation chooses the weights, those of the start among them, and how they play."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from turnwise.errors import ConfigError
from turnwise.trainers import validation
from turnwise.trainers.session import resume
from turnwise.trainers.validation import Validation

BOTH = ("evaluation.decoding=validated", "evaluation.validate_start=true")
OPEN = (
    "env.options={slippery=true,frozen_probability=0.9,step_limit=8}",
    "env.training.start=none",
    "evaluation.every=1",
    "evaluation.validation_tasks=30",
)


@pytest.mark.parametrize(
    ("greedy", "sampled", "doubt", "decoding"),
    [
        (0.1, 0.2, 0.05, "sampled"),
        (0.1, 0.2, 0.15, "greedy"),
        (0.2, 0.1, 0.0, "greedy"),
        (0.1, 0.1, 0.0, "greedy"),
    ],
)
def test_greedy_is_chosen_unless_sampling_is_clearly_better(greedy, sampled, doubt, decoding):
    for scores in ({"greedy": greedy, "sampled": sampled}, {"sampled": sampled, "greedy": greedy}):
        found = Validation(scores=scores, doubt=doubt)
        assert (found.decoding, found.score) == (decoding, scores[decoding])
    for name in ("greedy", "sampled"):
        assert Validation(scores={name: 0.1}).decoding == name


def test_the_doubt_is_the_error_of_the_lead_by_task(speaking, train, monkeypatch):
    """One task of 30 that sampling alone solves is no reason to sample; five are."""
    for solved, decoding in ((1, "greedy"), (5, "sampled")):

        def played(runner, tasks, *, greedy, number, solved=solved):
            right = 0 if greedy else solved
            scores = (1.0,) * right + (0.0,) * (len(tasks) - right)
            return SimpleNamespace(scores=scores, score=sum(scores) / len(scores))

        monkeypatch.setattr(validation, "evaluate", played)
        session, _ = train(speaking(*BOTH, *OPEN, "trainer.iterations=1"))
        assert session.checkpoints.best().meta["decoding"] == decoding


def test_the_start_is_validated_in_both_ways_and_its_choice_is_kept(speaking, train):
    session, records = train(speaking(*BOTH, *OPEN, "trainer.iterations=2"))
    assert [record["step"] for record in records] == [0, 1, 2]
    for record in records:
        greedy, sampled = record["validation/greedy"], record["validation/sampled"]
        assert record["validation/score"] in (greedy, sampled)
        assert record["validation/score"] >= greedy
    best = session.checkpoints.best()
    chosen = next(record for record in records if record["step"] == best.step)
    assert best.score == max(record["validation/score"] for record in records)
    assert best.score == chosen[f"validation/{best.meta['decoding']}"]


def test_weights_that_training_ruins_give_way_to_those_of_the_start(speaking, train):
    ruin = ("optimizer={lr=1.0}", "trainer.iterations=2", "trainer.mismatch=ignore")
    session, records = train(speaking(*BOTH, "evaluation.decoding=sampled", *OPEN, *ruin))
    assert records[0]["validation/score"] > 0
    assert records[-1]["validation/score"] == 0
    assert session.checkpoints.best().step == 0


def test_a_run_goes_on_from_the_validated_start_without_validating_it_again(
    speaking, train, make_session
):
    session, records = train(speaking(*BOTH, *OPEN, "trainer.iterations=1"))
    start = next(iter(session.checkpoints.directory.glob("*-train-0")))
    for later in session.checkpoints.directory.glob("*-train-1"):
        later.rename(later.with_name(f".deleting-{later.name}"))
    back = resume(session)
    assert back is not None
    assert (start.name, back.step, back.score) == (
        "000001-train-0", 0, records[0]["validation/score"]
    )  # fmt: skip


def test_one_way_to_play_is_validated_by_default_and_the_start_is_not(speaking, train):
    _, records = train(speaking(*OPEN, "trainer.iterations=1"))
    assert [record["step"] for record in records] == [1]
    assert "validation/sampled" not in records[0]


def test_sampled_validation_is_not_the_greedy_one(speaking, train):
    found = {}
    for decoding in ("greedy", "sampled", "validated"):
        recipe = speaking(*OPEN, "trainer.iterations=1", f"evaluation.decoding={decoding}")
        _, (record,) = train(recipe)
        found[decoding] = record
    both = found["validated"]
    assert both["validation/greedy"] == found["greedy"]["validation/score"]
    assert both["validation/sampled"] == found["sampled"]["validation/score"]
    assert both["validation/greedy"] != both["validation/sampled"]


def test_what_is_computed_cannot_choose_how_to_play(speaking):
    with pytest.raises(ConfigError, match="set decoding to 'greedy' or 'sampled'"):
        speaking("evaluation.validation=exact", "evaluation.decoding=validated")
