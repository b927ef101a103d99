"""The floor under the frequency of actions: by hand, its options, and in a short training."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from turnwise.errors import ConfigError
from turnwise.recipe.schema import load_recipe
from turnwise.trainers import grpo
from turnwise.trainers.action_floor import COMMON, ENDS, MOST, STEP, ActionFloor
from turnwise.trainers.batches import batches_of
from turnwise.trainers.grpo import credit_of, update_all
from turnwise.trainers.loop import play_groups
from turnwise.types import Failure

MIX = (
    "sft_mix.rows=4",
    "sft_mix.spans.answer=1.0",
    "sft_mix.spans.action=0.2",
    "sft_mix.action_floor=0.5",
)


def actions(**counts):
    return [action for action, count in counts.items() for _ in range(count)]


def test_what_is_left_is_of_the_action_that_became_the_rarest():
    floor = ActionFloor(share=0.5)
    assert floor.learn(actions(up=50, down=25, left=25), 0.0) == 1.0
    assert floor.learn(actions(up=80, down=10, left=10), 0.0) == pytest.approx(0.4)
    assert floor.learn(actions(up=100), 0.0) == 0.0
    assert floor.start == {"up": 0.5, "down": 0.25, "left": 0.25}


def test_the_factor_grows_below_the_floor_and_falls_above_it_to_1():
    assert (ENDS, STEP, MOST) == (0.8, 1.5, 20.0)
    floor, factors = ActionFloor(share=0.5, start={"up": 0.5, "down": 0.5}), []
    for down in (24, 24, 24, 25, 30, 24, 50, 50, 50):  # of 100; the floor is 25
        floor.learn(actions(up=100 - down, down=down), 0.0)
        factors.append(floor.factor)
    assert factors == pytest.approx([1.5, 2.25, 3.375, 2.25, 1.5, 2.25, 1.5, 1.0, 1.0])


def test_the_factor_has_an_upper_bound():
    floor = ActionFloor(share=0.5, start={"up": 0.5, "down": 0.5})
    for _ in range(50):
        floor.learn(actions(up=10), 0.0)
    assert floor.factor == MOST


def test_the_floor_falls_in_a_straight_line_and_ends():
    for done, down, grows in ((0.0, 24, True), (0.4, 24, False), (0.4, 12, True), (0.8, 0, False)):
        floor = ActionFloor(share=0.5, start={"up": 0.5, "down": 0.5})
        floor.learn(actions(up=100 - down, down=down), done)
        assert (floor.factor > 1) == grows, (done, down)


def test_rare_actions_and_free_text_have_no_floor():
    floor = ActionFloor(share=0.5)
    floor.learn(actions(up=1000, odd=99), 0.0)
    assert COMMON * 1099 > 99
    assert floor.learn(actions(up=1000), 0.0) == pytest.approx(1099 / 1000)
    texts = ActionFloor(share=0.5)
    texts.learn([str(number) for number in range(200)], 0.0)
    assert texts.start == {}
    assert texts.learn(["new"] * 200, 0.0) > 0.5
    assert texts.factor == 1.0


def test_an_iteration_without_actions_is_below_the_floor_and_before_any_there_is_none():
    floor = ActionFloor(share=0.5)
    assert floor.learn([], 0.0) == 1.0
    assert floor.factor == 1.0
    floor.learn(actions(up=4, down=4), 0.0)
    assert floor.learn([], 0.0) == 0.0
    assert floor.factor == STEP


def test_a_state_is_restored_through_json():
    iterations = [actions(up=10 - n % 7, down=n % 7) for n in (5, 0, 1, 6, 0, 0)]
    whole = ActionFloor(share=0.5)
    left = [whole.learn(found, n / 10) for n, found in enumerate(iterations)]
    for place in range(len(iterations)):
        first, second = ActionFloor(share=0.5), ActionFloor(share=0.5)
        for n, found in enumerate(iterations[:place]):
            first.learn(found, n / 10)
        second.restore(json.loads(json.dumps(first.state())))
        assert second == first
        rest = [second.learn(f, n / 10) for n, f in enumerate(iterations) if n >= place]
        assert rest == left[place:]
        assert second == whole


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 2.0])
def test_a_floor_is_a_share(make_recipe, share):
    with pytest.raises(ConfigError, match=r"sft_mix\..*action_floor"):
        make_recipe(*MIX, f"sft_mix.action_floor={share}")


def test_a_floor_needs_random_actions_to_imitate(make_recipe):
    with pytest.raises(ConfigError, match=r"action_floor = 0.5 lets the weight of uniform actions"):
        make_recipe("sft_mix.rows=4", "sft_mix.spans.answer=1.0", "sft_mix.action_floor=0.5")


def test_who_takes_the_actions_out_of_the_mix_takes_the_floor(make_recipe, tmp_path):
    path = tmp_path / "mix.toml"
    path.write_text(make_recipe(*MIX).to_toml())
    with pytest.warns(UserWarning, match=r"no sft_mix.spans.action: left out .*action_floor"):
        mix = load_recipe(str(path), ["sft_mix.spans.action=0"]).sft_mix
    assert mix is not None and mix.action_floor is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = load_recipe(str(path), ["sft_mix.spans.action=0.3"]).sft_mix
    assert other is not None and other.action_floor == 0.5


def test_a_run_records_the_rarest_action_and_the_factor(train, speaking):
    session, records = train(speaking(*MIX, "trainer.iterations=3"))
    assert records[0]["policy/rarest_action"] == 1.0
    assert records[0]["sft_mix/factor"] == 1.0
    floor = session.trained["main"].floor
    assert sum(floor.start.values()) == pytest.approx(1.0, abs=0.1)


def test_without_a_floor_nothing_of_it_is_recorded(train, speaking):
    session, records = train(speaking())
    assert session.trained["main"].floor is None
    assert not any({"policy/rarest_action", "sft_mix/factor"} & set(each) for each in records)


def test_the_next_mix_has_a_larger_weight_where_an_action_was_too_rare(first_batch):
    session, plan, _ = first_batch(*MIX, "trainer.mismatch=ignore")
    trained = session.trained["main"]
    trained.floor.restore({"start": {"LEFT": 0.5, "GONE": 0.5}, "factor": 1.0})
    episodes = play_groups(session, plan, session.curriculum.visits(0))
    credit = credit_of(session, plan, episodes)
    found = [update_all(session, plan, episodes, credit, {}, 0)["main"] for _ in range(3)]
    assert [each["sft_mix/factor"] for each in found] == pytest.approx([1.0, 1.5, 2.25])
    assert [each["policy/rarest_action"] for each in found] == [0.0] * 3
    assert weights_of(session, plan, episodes, credit) == pytest.approx([0.0, 0.675, 1.0])
    trained.floor.factor = 1.0
    assert weights_of(session, plan, episodes, credit) == pytest.approx([0.0, 0.2, 1.0])


def weights_of(session, plan, episodes, credit):
    """Return the different weights of the mix's tokens in the next batch."""
    batch = batches_of(session, plan, episodes, credit, {}, 0)["main"]
    taught = [row for row in batch.samples if not row.turns]
    return sorted({w for row in taught for w in np.round(row.ce_weight, 6).tolist()})


@pytest.mark.parametrize(("iteration", "over"), [(4, 0.0), (0, 0.8)])
def test_the_floor_falls_with_the_iterations_and_with_the_time(
    first_batch, monkeypatch, iteration, over
):
    """At 80 % of either there is none, and the factor falls."""
    session, plan, _ = first_batch(*MIX, "trainer.mismatch=ignore", "trainer.iterations=5")
    monkeypatch.setattr(grpo, "training_share", lambda session, plan: over)
    floor = session.trained["main"].floor
    floor.restore({"start": {"LEFT": 0.5, "GONE": 0.5}, "factor": 3.0})
    episodes = play_groups(session, plan, session.curriculum.visits(0))
    update_all(session, plan, episodes, credit_of(session, plan, episodes), {}, iteration)
    assert floor.factor == pytest.approx(2.0)


def test_only_valid_replies_count_as_actions(first_batch):
    session, plan, _ = first_batch(*MIX)
    episodes = play_groups(session, plan, session.curriculum.visits(0))
    turns = [turn for each in episodes for turn in each.turns]
    found = grpo.actions_of(episodes, "main")
    assert found == [turn.action for turn in turns if turn.error is None]
    failure = Failure(kind="illegal_action", message="no")
    first = episodes[0].trajectories[0]
    broken = replace(first.turns[0], action="UP", error=failure)
    trajectory = replace(first, turns=(broken, *first.turns[1:]))
    episodes[0] = replace(episodes[0], trajectories=(trajectory,))
    assert len(grpo.actions_of(episodes, "main")) == len(found) - (first.turns[0].error is None)
