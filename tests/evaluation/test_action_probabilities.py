"""A policy's probabilities by enumeration: by hand, and against what sampling finds."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from turnwise.agents import AgentConfig, messages_for
from turnwise.evaluation import policy_probabilities
from turnwise.evaluation.action_probabilities import BATCH, NEGLIGIBLE
from turnwise.types import Prompt

ANSWER, END = "<answer>", "</answer>"


class Talker:
    """A model given as a tree: what may follow what was said, with probabilities."""

    def __init__(self, renderer, prompt_tokens, tree):
        self.size = len(renderer.tokenizer)
        self.prompt, self.tree = prompt_tokens, tree
        self.stop = min(renderer.stop_ids)
        self.calls, self.asked = 0, []

    def row(self, said):
        row = np.full(self.size, -np.inf)
        for token, chance in self.tree(said, self.stop).items():
            row[token] = np.log(chance)
        return row

    def __call__(self, prefixes, room):
        self.calls += len(prefixes)
        self.asked.append([tuple(prefix[self.prompt :]) for prefix in prefixes])
        paths = []
        for prefix, most in zip(prefixes, room, strict=True):
            said, rows = list(prefix[self.prompt :]), []
            while len(rows) < most and (not rows or said[-1] != self.stop):
                rows.append(self.row(tuple(said)))
                said.append(int(rows[-1].argmax()))
            paths.append((tuple(said[len(said) - len(rows) :]), np.array(rows)))
        return paths


@pytest.fixture
def setting(lake, renderer, task_of):
    agent = AgentConfig(max_tokens=8)
    exact = lake.exact(task_of(lake))
    ids = {}
    for word in (ANSWER, END, "LEFT", "DOWN", "RIGHT", "UP", "edge"):
        (ids[word],) = renderer.tokenizer(word, add_special_tokens=False)["input_ids"][-1:]
    decisions = {name: exact.decisions[name] for name in ("r0c0", "r0c1")}

    def probabilities(tree, **options):
        text = lake.observe(decisions["r0c0"], "player").text
        length = len(renderer.prompt_ids(Prompt(messages=messages_for(agent, (), text))))
        talker = Talker(renderer, length, lambda said, stop: tree(said, stop, ids))
        return policy_probabilities(lake, decisions, agent, renderer, talker, **options), talker

    return probabilities


def answers(said, stop, ids):
    """LEFT 0.5, DOWN 0.3, nonsense 0.2; sometimes a word of thought before it."""
    if not said:
        return {ids[ANSWER]: 0.9, ids["edge"]: 0.1}
    if said[-1] == ids["edge"] and ids[ANSWER] not in said:
        return {ids[ANSWER]: 1.0}
    if said[-1] == ids[ANSWER]:
        return {ids["LEFT"]: 0.5, ids["DOWN"]: 0.3, ids["edge"]: 0.2}
    if said[-1] == ids[END]:
        return {stop: 1.0}
    return {ids[END]: 1.0}


def test_all_ways_to_say_an_action_are_summed(setting):
    found, talker = setting(answers, uncovered=0.0)
    for actions in found.probabilities.values():
        assert actions == {"LEFT": pytest.approx(0.5), "DOWN": pytest.approx(0.3)}
    assert found.uncovered == pytest.approx(0.0, abs=1e-12)
    assert talker.calls == 2 * 6  # as many as there are completions


def test_greedy_takes_the_most_probable_tokens_only(setting):
    found, talker = setting(answers, greedy=True)
    assert found.probabilities == {"r0c0": {"LEFT": 1.0}, "r0c1": {"LEFT": 1.0}}
    assert (found.uncovered, talker.calls) == (0.0, 2)


def test_what_is_not_followed_up_is_said(setting):
    found, talker = setting(answers, uncovered=0.3)
    assert talker.calls < 12
    for actions in found.probabilities.values():
        assert 0.7 <= sum(actions.values()) + 0.2 <= 1.0
    assert found.uncovered <= 0.3
    cut, talker = setting(answers, uncovered=0.0, most_paths=1)
    assert talker.calls == 2  # the first batch
    assert cut.uncovered == pytest.approx(1 - 0.9 * 0.5)


def test_a_reply_that_is_cut_is_a_completion(setting):
    endless = lambda said, stop, ids: {ids["edge"]: 1.0}  # noqa: E731
    found, _ = setting(endless)
    assert all(not actions for actions in found.probabilities.values())
    assert found.uncovered == 0.0


def test_a_reply_that_ends_early_is_a_completion(setting):
    """It says nothing in 3 cases of 10, ends before its answer does in 1 of 10, or says LEFT."""

    def early(said, stop, ids):
        if not said:
            return {ids[ANSWER]: 0.7, stop: 0.3}
        if said == (ids[ANSWER],):
            return {ids["LEFT"]: 6 / 7, stop: 1 / 7}
        return {stop: 1.0} if said[-1] == ids[END] else {ids[END]: 1.0}

    found, talker = setting(early, uncovered=0.0)
    for actions in found.probabilities.values():
        assert actions == {"LEFT": pytest.approx(0.6)}
    assert found.uncovered == pytest.approx(0.0, abs=1e-12)
    assert talker.calls == 2 * 3


def test_beginnings_are_followed_in_the_order_of_their_probability(setting):
    """A random model is asked as by a search that notes every beginning, whole, in its heap."""

    def random(said, stop, ids):
        words = [*ids.values(), stop]
        chances = np.random.default_rng([7, *said]).dirichlet(np.full(len(words), 0.4))
        chances[1] = chances[2]  # equally probable ones are followed in the order of their tokens
        return dict(zip(words, (chances / chances.sum()).tolist(), strict=True))

    _, talker = setting(random, uncovered=0.0, most_paths=500)
    heap, batches, asked = [(0.0, 0, ()), (0.0, 1, ())], talker.asked, []
    for _ in batches:
        taken = [heapq.heappop(heap) for _ in range(min(BATCH, len(heap)))]
        asked.append([said for _, _, said in taken])
        for cost, decision, said in taken:
            while len(said) < 8 and not (said and said[-1] == talker.stop):
                row = talker.row(said)
                best = int(row.argmax())
                for other in np.flatnonzero(row - cost > np.log(NEGLIGIBLE)).tolist():
                    if other != best:
                        heapq.heappush(heap, (cost - row[other], decision, (*said, other)))
                cost, said = cost - row[best], (*said, best)
    assert asked == batches
    assert sum(map(len, batches)) > 400
