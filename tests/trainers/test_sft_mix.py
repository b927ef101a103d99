"""SftMix: the supervised rows of every update, and the weights of their tokens."""

from __future__ import annotations

import json

import numpy as np
import pytest

from turnwise.app import build
from turnwise.credit import Credit
from turnwise.errors import DataError
from turnwise.losses import make_loss
from turnwise.rollout import samples_from_episodes
from turnwise.trainers.batches import sft_mix_rows
from turnwise.trainers.minibatches import minibatches, parts_of
from turnwise.trainers.sft import rows_for
from turnwise.trainers.update import make_batch

SPANS = "sft_mix.spans={think=5.0,answer=1.0,action=0.5}"


def by_visit(samples):
    """Rows of one visit are one part, as where the group of a scheme is the whole batch."""
    nothing = Credit(advantages={}, groups=(), metrics={}, counted=frozenset())
    return parts_of(samples, nothing)


@pytest.fixture
def sft_mix(make_recipe, make_session):
    """`sft_mix(*overrides)`: the session and the rows of the SFT mix of its updates."""

    def make(*overrides):
        recipe = make_recipe(*overrides)
        session = make_session(recipe)
        return session, sft_mix_rows(session, build.plan_of(recipe), session.trained["main"])

    return make


def test_a_recipe_without_the_section_has_no_rows(sft_mix):
    assert sft_mix()[1] is None


def test_rows_are_those_after_the_warm_up_s(sft_mix, make_recipe):
    warmup = make_recipe().warmup
    session, rows = sft_mix("sft_mix.rows=4")
    shown = rows_for(session, session.trained["main"], "demonstrations")
    last = warmup.steps - 1
    seen = [row.token_ids.tolist() for row in shown.batch(last, warmup.batch_size)]
    following = [row.token_ids.tolist() for row in shown.batch(last + 1, warmup.batch_size)]
    mixed = [r.token_ids.tolist() for step in range(2) for r in rows.batch(step, 4)]
    assert mixed[: len(following)] == following
    assert not any(row in seen for row in mixed)


def test_rows_may_show_a_player_of_the_env(sft_mix):
    session, rows = sft_mix("sft_mix.rows=8", "sft_mix.player=optimal")
    shown = rows_for(session, session.trained["main"], "demonstrations", player="optimal")
    drawn = rows_for(session, session.trained["main"], "demonstrations")

    def ids(source):
        return [row.token_ids.tolist() for row in source.batch(0, 8)]

    assert ids(rows)[0] in [row.token_ids.tolist() for row in shown.batch(0, 64)]
    assert ids(shown) != ids(drawn)


def test_each_span_has_its_weight_and_the_rest_has_none(sft_mix):
    session, rows = sft_mix("sft_mix.rows=2", SPANS)
    (row,) = rows.batch(0, 1)
    start = len(row.token_ids) - len(
        session.policies["main"].renderer.completion_ids(
            session.policies["main"]
            .renderer.decode(row.token_ids.tolist())
            .partition("assistant\n")[2]
        )
    )
    words = [session.policies["main"].renderer.decode((index,)).strip() for index in row.token_ids]
    opens, closes = words.index("<answer>"), words.index("</answer>")
    assert not row.ce_weight[:start].any()
    assert set(row.ce_weight[start:opens].tolist()) == {5.0}
    assert row.ce_weight[opens] == row.ce_weight[closes] == row.ce_weight[-1] == 1.0
    assert set(row.ce_weight[opens + 1 : closes].tolist()) == {0.5}


def test_weights_go_in_a_straight_line_to_their_last_ones(sft_mix):
    """Over the iterations of the run: the first has `spans`, the last exactly `final`."""
    _, rows = sft_mix(
        "sft_mix.rows=2", SPANS, "sft_mix.final={think=1.0,action=0.0}", "trainer.iterations=5"
    )
    found = [rows.spans_at(step) for step in range(5)]
    assert [spans["think"] for spans in found] == [5.0, 4.0, 3.0, 2.0, 1.0]
    assert [spans["action"] for spans in found] == [0.5, 0.375, 0.25, 0.125, 0.0]
    assert {spans["answer"] for spans in found} == {1.0}
    weights = [set(rows.batch(step, 1)[0].ce_weight.tolist()) for step in (0, 4)]
    assert weights == [{0.0, 5.0, 1.0, 0.5}, {0.0, 1.0}]


def test_one_iteration_has_the_first_weights(sft_mix):
    _, rows = sft_mix(SPANS, "sft_mix.final={think=1.0}", "trainer.iterations=1")
    assert rows.spans_at(0) == {"think": 5.0, "answer": 1.0, "action": 0.5}


def test_without_spans_the_whole_reply_weighs_one(sft_mix):
    session, rows = sft_mix("sft_mix.rows=2")
    (row,) = rows.batch(3, 1)
    (plain,) = rows_for(
        session, session.trained["main"], "demonstrations", first=rows.rows.first
    ).batch(3, 1)
    assert row.ce_weight.tolist() == plain.ce_weight.tolist()
    assert set(row.ce_weight.tolist()) == {0.0, 1.0}


def test_spans_that_no_reply_has_are_refused(sft_mix, tmp_path):
    path = tmp_path / "plain.jsonl"
    path.write_text(json.dumps({"prompt": "you r0c0", "completion": "DOWN"}) + "\n")
    with pytest.raises(DataError, match="none of 1 replies has such a span"):
        sft_mix(f"sft_mix.data={path}", "sft_mix.spans={think=1.0}")


def test_a_token_that_decides_the_action_weighs_the_same_in_every_reply(sft_mix, tmp_path):
    """A blank is a token of its own before "16" and none before "8"; "go" begins "go north"."""
    actions = ["1", "8", "16", "12", "go", "go north", "go north east", "stay", " 7"]
    path = tmp_path / "actions.jsonl"
    texts = [f"<answer> {action} </answer>" for action in actions]
    rows = [json.dumps({"prompt": "you r0c0", "completion": text}) for text in texts]
    path.write_text("\n".join(rows) + "\n")
    _, rows = sft_mix(f"sft_mix.data={path}", "sft_mix.spans={answer=1.0,action=0.25}")
    found = {}
    for row in rows.batch(0, 4 * len(actions)):
        start = len(row.token_ids) - int((row.ce_weight > 0).sum())
        found[tuple(row.token_ids[start:].tolist())] = row.ce_weight[start:].tolist()
    assert len(found) == len(actions)
    for ids, weights in found.items():
        for other, others in found.items():
            if ids != other:
                pairs = zip(ids, other, strict=False)
                differs = next(at for at, (a, b) in enumerate(pairs) if a != b)
                assert weights[differs] == others[differs] == 0.25
        assert weights[0] == weights[-1] == 1.0


def test_rows_without_a_span_weigh_nothing_and_stop_nobody(sft_mix, tmp_path):
    """Batches are drawn: one that happens to have no such span is no mistake."""
    path = tmp_path / "mixed.jsonl"
    rows = [{"prompt": "you r0c0", "completion": "DOWN"}] * 3
    rows.append({"prompt": "you r0c0", "completion": "<think> edge </think>"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, rows = sft_mix(f"sft_mix.data={path}", "sft_mix.spans={think=1.0}")
    weighs = [rows.batch(step, 1)[0].ce_weight.any() for step in range(8)]
    assert sum(weighs) == 2  # the one in four, in each of two passes


@pytest.mark.parametrize("aggregation", ["token", "turn", "episode", "constant"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_mini_batches_share_the_rows_out_and_change_no_weight(
    sft_mix, make_episodes, aggregation, count
):
    _, rows = sft_mix("sft_mix.rows=5", SPANS)
    episodes, advantages = make_episodes(visits=4)
    played = samples_from_episodes(episodes, advantages)
    samples = [*played, *rows.batch(0, 5)]
    length = 50 if aggregation == "constant" else None
    loss = make_loss(aggregation=aggregation, constant_length=length)
    batch = make_batch(samples, loss, scale=count)
    parts = minibatches(by_visit(samples), count, np.random.default_rng(0))
    assert sorted(row for part in parts for row in part) == list(range(len(samples)))
    shares = [sum(not samples[row].turns for row in part) for part in parts]
    assert sum(shares) == 5
    assert max(shares) - min(shares) <= 1
    alone = make_batch(rows.batch(0, 5), make_loss(aggregation="token"))
    assert batch.columns["ce_weight"].sum() / count == pytest.approx(
        alone.columns["ce_weight"].sum()
    )
    without = make_batch(played, loss)
    tokens = len(without.columns["rl_weight"])
    assert batch.columns["rl_weight"][:tokens] / count == pytest.approx(
        without.columns["rl_weight"]
    )


def test_what_the_sft_mix_shows_is_learned_again(speaking, train):
    """The loss of the rows falls, which without them it does not."""
    options = ("optimizer.lr=3e-3", "trainer.iterations=8", "evaluation.every=8")
    _, records = train(speaking("sft_mix.rows=16", *options))
    _, plain = train(speaking(*options))
    ce = [record["loss/ce"] for record in records if not record["train/skipped"]]
    assert ce[-1] < 0.8 * ce[0]
    assert all(record["loss/ce"] == 0 for record in plain if not record["train/skipped"])
