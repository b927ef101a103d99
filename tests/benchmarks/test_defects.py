"""Each replaced function of benchmarks/defects.py changes what it says, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnwise.credit import assign as assigning
from turnwise.credit import assign_advantages, make_credit
from turnwise.engines.local import sampler
from turnwise.rollout import samples_from_episodes
from turnwise.seeding import generator
from turnwise.trainers import batches, grpo

from .conftest import MOVES


@pytest.fixture(scope="module")
def defects():
    import defects

    return defects


@pytest.fixture
def credit(weights):
    """`credit(episodes)`: the credit of AT-GRPO."""

    def found(episodes, scheme="at_grpo", assign=assign_advantages):
        config = make_credit(scheme=scheme, rewards=weights, std="group")
        return assign(episodes, config, team={"solved", "progress"})

    return found


def scaled(values):
    """The values less their mean, over their standard deviation: AT-GRPO by hand."""
    values = np.array(values)
    return (values - values.mean()) / values.std(ddof=1)


def value_of(turn, weights):
    (trial,) = turn.trials
    return sum(weights.get(name, 0.0) * value for name, value in trial.items())


def test_merged_problems_compares_a_role_and_round_over_as_many_problems_as_siblings(
    defects, play, credit, weights
):
    """By hand: with 2 siblings, visits 0 and 1 are one group, and visit 2 is one by itself."""
    with_moves = play(2, visits=(0, 1, 2), continuation="greedy").episodes
    # what siblings of visit 1 earn is shifted, so that problems differ in their means
    shifted = [shift(episode, 5.0) if episode.id.visit == 1 else episode for episode in with_moves]
    clean = credit(shifted)
    with defects.defective(["merged-problems"]) as counts:
        merged = credit(shifted)
    turns = {turn.id: turn for episode in shifted for turn in episode.sampled}
    for seat in ("tool", "planner"):
        for visits in ((0, 1), (2,)):
            own = [t for t in turns.values() if t.id.role == seat and t.id.round == 0]
            group = [turn for turn in own if turn.id.episode.visit in visits]
            assert len(group) == 2 * len(visits)
            expected = scaled([value_of(turn, weights) for turn in group])
            found = [merged.advantages[turn.id][""] for turn in group]
            assert found == pytest.approx(expected.tolist())
            if visits == (2,):
                assert found == [clean.advantages[turn.id][""] for turn in group]
            else:
                assert found != [clean.advantages[turn.id][""] for turn in group]
    assert counts == {"merged-problems": {"calls": 1, "differed": 1}}
    assert assign_advantages.__globals__["compare"] is assigning.compare
    assert credit(shifted).advantages == clean.advantages  # the original is back


def shift(episode, amount):
    """An episode whose siblings all earn more progress."""

    def richer(turn):
        return replace(turn, trials=tuple(t | {"progress": amount} for t in turn.trials))

    return replace(
        episode,
        trajectories=tuple(
            replace(t, turns=tuple(map(richer, t.turns)), siblings=tuple(map(richer, t.siblings)))
            for t in episode.trajectories
        ),
    )


def test_one_reward_gives_the_second_role_no_advantage(defects, play, credit, weights, siblings_of):
    (clean,) = play().episodes
    with defects.defective(["one-reward"]) as counts:
        (episode,) = play().episodes
    own, wrong = credit([clean]), credit([episode])
    tool, planner = siblings_of(episode, "tool", 0), siblings_of(episode, "planner", 0)
    (chosen,) = (turn.id.branch for turn in tool if turn.chosen)
    assert len({value_of(t, weights) for t in siblings_of(clean, "planner", 0)}) > 1
    assert [t.rewards for t in planner] == [t.rewards for t in siblings_of(clean, "planner", 0)]
    assert [t.trials for t in planner] == [(planner[chosen].rewards,)] * 4
    assert [wrong.advantages[t.id][""] for t in planner] == [0.0] * 4
    before = [own.advantages[t.id][""] for t in siblings_of(clean, "tool", 0)]
    assert [wrong.advantages[t.id][""] for t in tool] == before
    assert any(before) and counts["one-reward"]["differed"] > 0


def test_stale_state_shows_one_state_and_steps_each_sibling_in_its_own_play(
    defects, play, env, task, siblings_of
):
    with defects.defective(["stale-state"]) as counts:
        played = play()
    (episode,) = played.episodes
    assert episode.error is None and episode.truncated and not episode.terminated
    prompts = {}
    for request in played.requests:
        text = request.prompt.messages[-1].content
        prompts.setdefault((request.id.role, request.id.round), set()).add(text)
    assert {len(texts) for texts in prompts.values()} == {1}
    rounds = [prompts["tool", number] for number in range(4)]
    assert rounds[0] != rounds[1] == rounds[2] == rounds[3]
    for place, move in enumerate(MOVES):  # the play of the siblings of one number, by hand
        state, rng = env.reset(task), generator(0, "none")
        for number in range(4):
            told = env.step(state, "tool", f"apply {move}", rng)
            step = env.step(told.state, "planner", move, rng)
            state = step.state
            found = siblings_of(episode, "planner", number)[place]
            earned = {name: found.rewards[name] for name in step.rewards}
            assert earned == pytest.approx(step.rewards)
            assert found.trials == (found.rewards,)
    assert counts["stale-state"]["differed"] > 0
    evaluated = play(0, stream="evaluation").episodes
    with defects.defective(["stale-state"]) as counts:
        assert play(0, stream="evaluation").episodes == evaluated
    assert counts["stale-state"]["calls"] > 0 == counts["stale-state"]["differed"]


def test_no_hand_off_hides_the_call_of_the_round(defects, play):
    def shown(played, role):
        return [r.prompt.messages[-1].content for r in played.requests if r.id.role == role]

    clean = play()
    with defects.defective(["no-hand-off"]) as counts:
        blind = play()
    assert all("call apply" in text for text in shown(clean, "planner"))
    for text in shown(blind, "planner"):
        assert "apply" not in text and "no call" in text
    assert shown(blind, "tool") == shown(clean, "tool")
    assert counts["no-hand-off"]["differed"] > 0


def test_last_round_trains_the_longest_episodes_last_turns(defects, play, credit):
    """Member 0 walks RIGHT into the wall to the end, as the others do; one is cut short here."""
    episodes = play(0, members=3).episodes
    (visit,) = {episode.id.visit for episode in episodes}
    first = episodes[0]
    cut = tuple(replace(t, turns=t.turns[:2]) for t in first.trajectories)
    episodes = [replace(first, trajectories=cut), *episodes[1:]]
    clean = credit(episodes, "grpo")
    with defects.defective(["last-round"]) as counts:
        kept = credit(episodes, "grpo", grpo.assign_advantages)
    assert {turn.round for turn in clean.advantages} == {0, 1, 2, 3}
    expected = {turn for turn in clean.advantages if turn.round == 3}
    assert set(kept.advantages) == kept.counted == expected
    assert {turn.episode.member for turn in expected} == {1, 2}
    assert all(kept.advantages[turn] == clean.advantages[turn] for turn in expected)
    assert visit == 0 and counts["last-round"] == {"calls": 1, "differed": 1}


def test_dithering_pays_for_moving_back_and_forth(defects, env, task):
    rng = generator(0, "none")
    state, pays, clean = env.reset(task), 0.0, 0.0
    cost, first = env.puzzle.team_cost, env.puzzle.team_cost(env.reset(task).position)
    for move in ("RIGHT", "LEFT"):
        told = env.step(state, "tool", "apply UP", rng).state
        step = env.step(told, "planner", move, rng)
        with defects.defective(["dithering"]) as counts:
            shaped = env.step(told, "planner", move, rng)
        left, after = -cost(state.position) / first, -cost(step.state.position) / first
        assert shaped.rewards["progress"] == pytest.approx(0.99 * after - left)
        assert shaped.rewards["move_useful"] == pytest.approx(0.99 * after - left)
        others = set(step.rewards) - {"progress", "move_useful"}
        assert all(shaped.rewards[name] == step.rewards[name] for name in others)
        assert shaped.state == step.state and counts["dithering"]["differed"] == 1
        pays, clean = pays + shaped.rewards["progress"], clean + step.rewards["progress"]
        state = step.state
    assert clean == pytest.approx(0.0) and pays > 0.01


def test_filtered_sampling_draws_the_likeliest_tokens_and_tells_whole_probabilities(defects):
    probabilities = np.array([0.05, 0.5, 0.03, 0.3, 0.12])  # 0.5, 0.3, 0.12 reach 0.9
    logits = torch.tensor(probabilities).log()[None].float()
    uniforms = (np.arange(1000) + 0.5) / 1000
    owner, heat = np.zeros(1000, dtype=np.int64), np.ones(1000, dtype=np.float32)
    with defects.defective(["filtered-sampling"]) as counts:
        tokens, logprobs = sampler.draw(logits, owner, uniforms, heat)
    kept = {1: 0.5, 3: 0.3, 4: 0.12}
    found = {token: float((tokens == token).mean()) for token in np.unique(tokens).tolist()}
    assert found == pytest.approx({t: p / 0.92 for t, p in kept.items()}, abs=2e-3)
    assert logprobs == pytest.approx(np.log(probabilities[tokens]), abs=1e-5)
    assert counts["filtered-sampling"]["differed"] > 0
    wide = torch.zeros(1, 100)  # 100 equal tokens: the 20 first ones stay
    with defects.defective(["filtered-sampling"]):
        tokens, _ = sampler.draw(wide, owner, uniforms, heat)
    assert sorted(set(tokens.tolist())) == list(range(20))


def test_other_temperature_scores_rows_at_1(defects, play, credit):
    episodes = [hotter(episode) for episode in play().episodes]
    advantages = credit(episodes).advantages
    clean = samples_from_episodes(episodes, advantages)
    with defects.defective(["other-temperature"]) as counts:
        rows = batches.samples_from_episodes(episodes, advantages)
    assert any((row.temperature == 1.5).any() for row in clean)
    for row, before in zip(rows, clean, strict=True):
        assert (row.temperature == 1).all()
        assert (row.advantages == before.advantages).all()
        assert (row.token_ids == before.token_ids).all()
    assert counts["other-temperature"] == {"calls": 1, "differed": 1}


def hotter(episode):
    def hot(turn):
        return replace(turn, sampling=replace(turn.sampling, temperature=1.5))

    return replace(
        episode,
        trajectories=tuple(
            replace(t, turns=tuple(map(hot, t.turns)), siblings=tuple(map(hot, t.siblings)))
            for t in episode.trajectories
        ),
    )


def test_a_failed_call_is_trained_as_an_end_token_or_leaves_its_group(
    defects, play, credit, monkeypatch, siblings_of
):
    monkeypatch.setattr(defects, "FAILED", 0.4)
    (clean,) = play().episodes
    with defects.defective(["failed-trained"]) as counts:
        (trained,) = play().episodes
    with defects.defective(["failed-left-out"]):
        (left_out,) = play().episodes
    before = siblings_of(clean, "tool", 0)
    turns, others = siblings_of(trained, "tool", 0), siblings_of(left_out, "tool", 0)
    lost = [turn.id.branch for turn in turns if not turn.text]
    assert 0 < len(lost) < 4 and [turn.id.branch for turn in turns] == [0, 1, 2, 3]
    assert [t.id.branch for t in others] == [n for n in range(4) if n not in lost]
    found = credit([trained]).advantages
    for turn, whole in zip(turns, before, strict=True):
        if turn.id.branch in lost:
            assert turn.completion_ids == whole.completion_ids[-1:] and turn.error is not None
            assert turn.trials[0]["invalid"] == 1.0
            assert found[turn.id][""] == min(found[t.id][""] for t in turns) < 0
        else:
            assert turn.rewards == whole.rewards
    assert counts["failed-trained"]["calls"] > counts["failed-trained"]["differed"] > 0
    with defects.defective(["failed-trained"]) as counts:
        play(0, stream="evaluation")
    assert counts["failed-trained"]["differed"] == 0 < counts["failed-trained"]["calls"]
