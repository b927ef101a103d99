"""Sampled actions have the policy's distribution, through runner, agent, engine and sampler."""

from collections import Counter

import numpy as np
import pytest
import torch

SAMPLES = 250


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.3])
def test_sampled_actions_have_the_policys_own_frequencies(learner, tmp_path, temperature):
    agents = {"player": {"temperature": temperature}}
    session = learner.load(half_trained(learner), 0, tmp_path / "run", agents=agents)
    episodes = learner.play(session, learner.states(), "once", SAMPLES)
    found = action_tokens(
        session.policies["main"].renderer, [episode.turns[0] for episode in episodes]
    )
    assert sum(sum(counts.values()) for counts in found.values()) > 0.8 * len(episodes)
    right, freedom = chi_square(session.policies["main"].model, found, temperature)
    wrong, _ = chi_square(session.policies["main"].model, found, 1.4 * temperature)
    assert freedom > 8
    assert right < freedom + 6 * np.sqrt(2 * freedom), (right, freedom)
    assert wrong > freedom + 6 * np.sqrt(2 * freedom), "too few samples to tell temperatures apart"


def test_recorded_logprobs_are_of_the_distribution_sampled(learner, tmp_path):
    agents = {"player": {"temperature": 0.7}}
    session = learner.load(learner.start(0), 0, tmp_path / "run", agents=agents)
    episodes = learner.play(session, learner.states(), "turns", 2)
    turns = [turn for episode in episodes for turn in episode.turns]
    for turn in turns:
        ids = [*turn.prompt_ids, *turn.completion_ids]
        begin = len(turn.prompt_ids)
        logprobs = logprobs_of(session.policies["main"].model, ids, 0.7)[begin - 1 : -1]
        own = logprobs[np.arange(len(turn.completion_ids)), list(turn.completion_ids)]
        assert turn.logprobs == pytest.approx(own, abs=1e-4)
    assert len(turns) > 20


def half_trained(learner):
    """Return weights whose actions are neither certain nor all equally probable."""
    weights = learner.folder / "half-trained" / "weights"
    if not weights.is_dir():
        session = learner.train(
            learner.start(0), 0, weights.parent / "run", trainer={"iterations": 15}
        )
        session.policies["main"].save(weights)
    return weights


def action_tokens(renderer, turns):
    """Count the tokens that follow "<answer>", by everything that stands before them."""
    (opening,) = renderer.completion_ids("<think> </think> <answer>")[2:3]
    found = {}
    for turn in turns:
        reply = turn.completion_ids
        if opening in reply[:-1]:
            place = reply.index(opening) + 1
            before = (*turn.prompt_ids, *reply[:place])
            found.setdefault(before, Counter())[reply[place]] += 1
    return found


def chi_square(model, found, temperature):
    """Return Pearson's statistic and its degrees of freedom; rare tokens are one class."""
    statistic = freedom = 0.0
    for before, counts in found.items():
        expected = np.exp(logprobs_of(model, before, temperature)[-1]) * sum(counts.values())
        observed = np.zeros(len(expected))
        observed[list(counts)] = list(counts.values())
        often = expected >= 5
        classes = np.append(expected[often], expected[~often].sum())
        seen = np.append(observed[often], observed[~often].sum())
        if classes[-1] < 5:  # too rare for a class of its own: the commonest takes it in
            most = int(classes.argmax())
            classes[most] += classes[-1]
            seen[most] += seen[-1]
            classes, seen = classes[:-1], seen[:-1]
        if len(classes) > 1:
            statistic += float(((seen - classes) ** 2 / classes).sum())
            freedom += len(classes) - 1
    return statistic, freedom


def logprobs_of(model, ids, temperature):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(ids)])).logits[0]
    return (logits.double() / temperature).log_softmax(-1).numpy()
