import math
from collections import Counter

import numpy as np
import pytest

from turnwise.engines import Completion, ScriptedEngine

TABLE = {(5, 2): 0.1, (5, 6, 2): 0.3, (7, 2): 0.6}


def test_plain_ids_are_said_and_certain(tools):
    engine = ScriptedEngine(lambda request: request.prompt_ids[:2])
    said = tools.ask(engine, [tools.request((3, 4, 5))])[0]
    assert said == Completion(
        token_ids=(3, 4), logprobs=(0.0, 0.0), finish_reason="stop", policy_version=0
    )


def test_long_replies_are_cut(tools):
    engine = ScriptedEngine(lambda request: [9] * 10)
    said = tools.ask(engine, [tools.request((1,), max_tokens=4)])[0]
    assert (len(said.token_ids), len(said.logprobs), said.finish_reason) == (4, 4, "length")


def test_a_table_is_drawn_from_by_its_probabilities(tools):
    engine = ScriptedEngine(lambda request: TABLE)
    count = 5000
    said = tools.ask(engine, [tools.request((1,), id=tools.turn(i)) for i in range(count)])
    found = Counter(completion.token_ids for completion in said)
    expected = {ids: weight * count for ids, weight in TABLE.items()}
    chi2 = sum((found[ids] - expected[ids]) ** 2 / expected[ids] for ids in TABLE)
    assert set(found) == set(TABLE)
    assert chi2 < 13.8  # 99.9th percentile at 2 degrees of freedom
    for completion in said[:50]:
        assert sum(completion.logprobs) == pytest.approx(math.log(TABLE[completion.token_ids]))


def test_a_table_in_which_a_completion_begins_another_is_refused(tools):
    engine = ScriptedEngine(lambda request: {(5,): 0.5, (4,): 0.2, (5, 6): 0.3})
    with pytest.raises(ValueError, match=r"\(5,\) begins \(5, 6\)"):
        tools.ask(engine, [tools.request((1,))])


def test_draws_depend_on_the_turn_the_stream_and_the_seed(tools):
    def said(seed=0, **options):
        engine = ScriptedEngine(
            lambda request: dict.fromkeys(np.ndindex(2, 2, 2, 2), 1.0), seed=seed
        )
        asked = [tools.request((1,), id=tools.turn(i), **options) for i in range(20)]
        return [completion.token_ids for completion in tools.ask(engine, asked)]

    assert said() == said()
    assert said() != said(seed=1)
    assert said() != said(stream="evaluation")


def test_greedy_takes_the_likeliest_token_each_time(tools):
    engine = ScriptedEngine(lambda request: {(5, 2): 0.3, (5, 6): 0.25, (7, 2): 0.45})
    said = tools.ask(engine, [tools.request((1,), temperature=0.0)])[0]
    assert said.token_ids == (5, 2)


def test_requests_are_answered_in_the_order_of_turns_and_versions_are_counted(tools):
    engine = ScriptedEngine(lambda request: (1,))
    tools.ask(engine, [tools.request((1,), id=tools.turn(i)) for i in (2, 0, 1)])
    assert [one.id.episode.visit for one in engine.requests] == [0, 1, 2]
    engine.update_weights("main")
    assert tools.ask(engine, [tools.request((1,))])[0].policy_version == 1
