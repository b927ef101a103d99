"""Drafts: they change the number of passes and nothing else."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from turnwise.engines import EngineConfig, LocalEngine
from turnwise.engines.local.drafts import LONGEST, DraftIndex, Drafts, copies_of
from turnwise.errors import EngineError

STOP = frozenset({2})


def prompts(count, lengths=(3, 60), seed=0):
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(3, 23, n).tolist()) for n in rng.integers(*lengths, count)]


def workload(tools, *, iteration=0, names=("main",), temperatures=(0.7, 1.0, 0.0), **options):
    """Groups with unequal prompts, lengths and temperatures; siblings have unequal limits."""
    return [
        tools.request(
            prompt,
            id=tools.turn(visit, sample, iteration=iteration),
            policy=name,
            temperature=temperatures[visit % len(temperatures)],
            max_tokens=6 + (3 * visit + 5 * sample) % 20,
            **options,
        )
        for visit, prompt in enumerate(prompts(9))
        for sample in range(4)
        for name in names
    ]


def wrong(request, wrote, rows, most):
    return [3 + (len(wrote) + i) % 20 for i in range(min(most, 5))]


def cheats(completions):
    """Return a source of drafts that knows what is said, and errs now and then."""

    def draft(request, wrote, rows, most):
        said = completions[request.id, request.policy]
        begin = next(i for i in range(len(said) + 1) if said[max(0, i - LONGEST) : i] == wrote)
        cut = said[begin : begin + min(most, 1 + begin % 7)]
        ahead = [token for token in cut if token not in STOP]
        return ahead[: len(cut) - 1] + [4] * (begin % 2) if most > len(ahead) else ahead

    return draft


def forced(monkeypatch, source):
    monkeypatch.setattr(Drafts, "pay", lambda self, rows: True)
    monkeypatch.setattr(Drafts, "of", lambda self, *asked: source(*asked))


def same(asked, found, expected, models, tools, name="qwen3"):
    """All completions are equal, but for rounding that flips a draw at the edge of its interval."""
    flips = 0
    for one, mine, theirs in zip(asked, found, expected, strict=True):
        heat = one.sampling.temperature
        pairs = list(zip(mine.token_ids, theirs.token_ids, strict=False))
        alike = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        np.testing.assert_allclose(mine.logprobs[:alike], theirs.logprobs[:alike], atol=1e-4)
        if mine.token_ids == theirs.token_ids:
            assert mine.finish_reason == theirs.finish_reason
        else:
            flips += 1
            assert heat and tools.edges(models(name), one, mine, heat)[alike] < 1e-4
    assert flips <= 1


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "gpt2", "qwen3-lora", "mamba"])
@pytest.mark.parametrize("source", ["wrong", "right", "own"])
def test_completions_are_those_without_drafts(
    make_engine, models, tools, monkeypatch, name, source
):
    asked = workload(tools)
    plain = make_engine(name, drafts=False, stop_ids=STOP)
    expected = tools.ask(plain, asked)
    steps = plain.metrics()["engine/steps"]
    said = {(o.id, o.policy): c.token_ids for o, c in zip(asked, expected, strict=True)}
    if source != "own":
        forced(monkeypatch, wrong if source == "wrong" else cheats(said))
    engine = make_engine(name, stop_ids=STOP)
    for _ in range(3 if source == "own" else 1):
        same(asked, tools.ask(engine, asked), expected, models, tools, name)
        counted = engine.metrics()
        engine.end_iteration()
    assert counted["engine/drafted_tokens"] > 0
    if source == "wrong":
        assert counted["engine/accepted_tokens"] < counted["engine/drafted_tokens"] / 4
    else:
        assert counted["engine/steps"] < steps
        assert counted["engine/accepted_tokens"] > 0


@pytest.mark.parametrize("source", ["wrong", "right"])
@pytest.mark.parametrize("options", [{"max_rows": 5}, {"share_rows": False}, {"cache": "none"}])
def test_drafts_whatever_the_batching(make_engine, models, tools, monkeypatch, options, source):
    asked = workload(tools)
    expected = tools.ask(make_engine(drafts=False, stop_ids=STOP), asked)
    said = {(o.id, o.policy): c.token_ids for o, c in zip(asked, expected, strict=True)}
    forced(monkeypatch, wrong if source == "wrong" else cheats(said))
    found = tools.ask(make_engine(stop_ids=STOP, **options), asked)
    same(asked, found, expected, models, tools)


@pytest.mark.parametrize("source", ["wrong", "right"])
def test_adapters_in_one_pass_have_drafts_of_their_own(models, weights, tools, monkeypatch, source):
    first = models("qwen3-lora")
    team = {"a": weights(first, "a"), "b": weights(tools.adapted(first, 5), "b")}
    asked = workload(tools, names=("a", "b"))
    plain = LocalEngine(team, EngineConfig(drafts=False), 0)
    expected = tools.ask(plain, asked)
    said = {(o.id, o.policy): c.token_ids for o, c in zip(asked, expected, strict=True)}
    forced(monkeypatch, wrong if source == "wrong" else cheats(said))
    found = tools.ask(LocalEngine(team, EngineConfig(), 0), asked)
    same(asked, found, expected, models, tools)


def test_frequencies_are_the_policys_with_drafts(make_engine, models, tools, monkeypatch):
    """Chi-square of all completions of three tokens, with a draft that is often right."""
    prompt, count, heat = (5, 6, 7), 4096, 0.6
    with torch.no_grad():
        first = models("qwen3")(torch.tensor([prompt])).logits[0, -1].argmax().item()
    forced(monkeypatch, lambda request, wrote, rows, most: [first, first][:most])
    asked = [
        tools.request(prompt, id=tools.turn(i), temperature=heat, max_tokens=3)
        for i in range(count)
    ]
    engine = make_engine(max_rows=512)
    said = [completion.token_ids for completion in tools.ask(engine, asked)]
    assert engine.metrics()["engine/accepted_tokens"] > 0
    with torch.no_grad():
        triples = torch.cartesian_prod(*[torch.arange(23)] * 3)
        rows = torch.cat([torch.tensor(prompt).expand(len(triples), -1), triples], 1)
        logprobs = (models("qwen3")(rows).logits[:, -4:-1] / heat).log_softmax(-1)
    expected = logprobs.gather(2, triples[:, :, None]).sum((1, 2)).exp().numpy() * count
    codes = np.array(said) @ [23 * 23, 23, 1]
    found = np.bincount(codes, minlength=23**3)
    common = expected > 5
    chi2 = ((found - expected) ** 2 / expected)[common].sum()
    assert common.sum() > 50
    assert chi2 < common.sum() + 4 * np.sqrt(2 * common.sum())


def test_stop_tokens_and_limits_end_a_draft(make_engine, tools, monkeypatch):
    """Nothing is kept behind an end token or the limit, although the draft went on to there."""
    asked = [tools.request((5, 6, 7), max_tokens=12)]
    said = tools.ask(make_engine(drafts=False), asked)[0].token_ids
    stop = next(token for i, token in enumerate(said) if i > 2 and token not in said[:i])
    before = said.index(stop)
    forced(monkeypatch, lambda request, wrote, rows, most: list(said[len(wrote) : before])[:most])
    engine = make_engine(stop_ids={stop})

    def answer(engine, limit):
        engine.metrics()
        completion = tools.ask(engine, [tools.request((5, 6, 7), max_tokens=limit)])[0]
        counted = engine.metrics()
        assert counted["engine/steps"] == 1, "one pass, as the whole draft is right"
        assert counted["engine/drafted_tokens"] == counted["engine/accepted_tokens"]
        return completion

    ended = answer(engine, 12)
    assert ended.token_ids == said[: before + 1]
    assert ended.finish_reason == "stop"
    cut = answer(engine, before)
    assert cut.token_ids == said[:before] and cut.finish_reason == "length"
    full = answer(make_engine(context=3 + before), 12)
    assert full.token_ids == said[:before] and full.finish_reason == "context"


def test_a_draft_keeps_nothing_behind_logits_that_are_not_finite(
    weights, models, monkeypatch, tools
):
    """The draws from such logits are all the same, and a draft may foretell them."""
    broken = copy.deepcopy(models("qwen3"))
    engine = LocalEngine({"main": weights(broken)}, EngineConfig(), 0)
    with torch.no_grad():
        broken.lm_head.weight.fill_(torch.nan)
    forced(monkeypatch, lambda request, wrote, rows, most: [22, 22, 22][:most])
    with pytest.raises(EngineError, match="not finite at token 1 of"):
        tools.ask(engine, [tools.request((5, 6, 7))])


def test_equal_runs_have_equal_drafts_and_a_restored_one_too(make_engine, tools):
    def play(engine, iterations):
        said = []
        for iteration in iterations:
            said.append(tools.ask(engine, workload(tools, iteration=iteration)))
            engine.end_iteration()
        return said, engine.metrics()

    first, other = make_engine(stop_ids=STOP), make_engine(stop_ids=STOP)
    assert play(first, range(3)) == play(other, range(3))
    state = first.state()
    assert any(len(array) for array in state.values())
    resumed = make_engine(stop_ids=STOP)
    resumed.restore(state)
    assert play(resumed, range(3, 6)) == play(first, range(3, 6))
    fresh = play(make_engine(stop_ids=STOP), range(3, 6))
    assert fresh[1] != play(other, range(3, 6))[1], "the state makes no difference"


def test_an_evaluation_leaves_no_trace(make_engine, tools):
    asked = workload(tools, iteration=1)
    plain = make_engine(stop_ids=STOP)
    watched = make_engine(stop_ids=STOP)
    for engine in (plain, watched):
        tools.ask(engine, workload(tools))
        engine.end_iteration()
    tools.ask(watched, workload(tools, stream="evaluation"))
    watched.end_iteration()
    assert tools.ask(watched, asked) == tools.ask(plain, asked)


def test_streams_and_roles_learn_apart_and_only_training_is_kept(tools):
    def request(role="player", stream="train"):
        return tools.request((5, 6, 7), id=replace(tools.turn(), role=role), stream=stream)

    def guess(role="player", stream="train"):
        return drafts.of(request(role, stream), (), rows=1, most=8)

    drafts = Drafts(STOP, 100.0)
    assert not drafts.pay(1) and drafts.state() == {}
    for word, asked in enumerate((request(), request("guide"), request(stream="evaluation"))):
        for _ in range(3):
            drafts.learn([(asked, (10 + word, 20, 2))])
    assert [guess(), guess("guide"), guess(stream="evaluation")] == [[10, 20], [11, 20], [12, 20]]
    drafts.end_iteration()
    assert [guess(), guess("guide")] == [[10, 20], [11, 20]]
    assert not any(name.startswith("evaluation/") for name in drafts.state())
    assert guess(stream="evaluation") == []


def test_the_end_of_the_prompt_is_part_of_the_context(tools):
    drafts = Drafts(STOP, 100.0)
    asked = [tools.request((5, 6, last)) for last in (7, 8)]
    for _ in range(4):
        drafts.learn([(asked[0], (10, 11, 12, 2)), (asked[1], (10, 13, 14, 2))])
    found = [drafts.of(one, wrote, rows=1, most=8) for one in asked for wrote in ((), (10,))]
    assert found == [[10, 11, 12], [11, 12], [10, 13, 14], [13, 14]]


def test_equal_completions_of_one_step_are_learned_from_once(tools):
    once, often = Drafts(STOP, 100.0), Drafts(STOP, 100.0)
    one = (tools.request((5, 6, 7)), (10, 11, 2))
    once.learn([one])
    often.learn([one] * 8)
    for name, array in once.state().items():
        np.testing.assert_array_equal(array, often.state()[name])


def test_an_index_predicts_what_came_most_often_lately():
    index = DraftIndex(STOP)
    for _ in range(5):
        index.learn((10, 11), (5, 6, 7, 2))
    asked = {"threshold": 0.1, "most": 8}
    assert index.draft((10, 11), {}, **asked) == [5, 6, 7]
    assert index.draft((10, 11, 5), {}, **asked) == [6, 7]
    assert index.draft((10, 11), {}, threshold=0.1, most=2) == [5, 6]
    assert index.draft((10, 11), {}, threshold=1.0, most=8) == []
    for _ in range(6):
        index.learn((10, 11), (8, 9, 2))
    assert index.draft((10, 11), {}, **asked) == [8, 9]


def test_a_draft_ends_where_all_of_it_is_too_unlikely():
    """Each token is likely, given those before it; that all of many are right is less so."""
    index = DraftIndex(STOP)
    for _ in range(12):
        index.learn((10, 11), tuple(range(20, 50)))
    every = index.draft((10, 11), {}, threshold=0.1, most=99)
    assert every == list(range(20, 50))
    some = index.draft((10, 11), {}, threshold=0.9, most=99)
    assert some and some == every[: len(some)] and len(some) < len(every)


def test_what_stands_in_the_prompt_is_copied_where_that_comes_true():
    """A reply says a name and then its value, which only the prompt tells."""
    rng = np.random.default_rng(0)
    index = DraftIndex(STOP)

    def episode():
        values = rng.integers(20, 30, 3).tolist()
        prompt = (10, values[0], 11, values[1], 12, values[2], 3)
        return prompt, (10, values[0], 11, values[1], 12, values[2], 2)

    for _ in range(60):
        index.learn(*episode())
    prompt, reply = episode()
    assert index.draft(prompt, copies_of(prompt), threshold=0.3, most=9) == list(reply[:-1])


def test_a_policy_that_cannot_be_foretold_is_hardly_looked_at():
    rng = np.random.default_rng(0)
    drafts = Drafts(STOP, 1.0)
    index = DraftIndex(STOP)
    drafts._indexes["train", "player"] = index
    for _ in range(400):
        index.learn(tuple(rng.integers(3, 500, 9)), tuple(rng.integers(3, 500, 12)))
    assert sum(drafts.pay(20) for _ in range(80)) == 10
    size = len(index._entries)
    for _ in range(80):
        index.learn(tuple(rng.integers(3, 500, 9)), tuple(rng.integers(3, 500, 12)))
    assert len(index._entries) - size < 80 * 12 * 6 / 4


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr("turnwise.engines.local.drafts.MOST_CONTEXTS", 500)
    rng = np.random.default_rng(0)
    index = DraftIndex(STOP)
    for _ in range(300):
        index.learn((9, 9), (5, 6, 7, *rng.integers(3, 9, 5).tolist()))
    assert len(index._entries) + len(index._older) <= 2 * (500 + 6 * 8)
    assert index.draft((9, 9, 5), {}, threshold=0.1, most=1) == [6]


def test_prompts_of_finished_completions_are_not_kept_without_end(monkeypatch, tools):
    monkeypatch.setattr("turnwise.engines.local.drafts.MOST_COPIED", 500)
    drafts = Drafts(STOP, 100.0)
    for visit, prompt in enumerate(prompts(100, (20, 60))):
        asked = tools.request(prompt, id=tools.turn(visit))
        drafts.of(asked, (), 1, 8)
        drafts.learn([(asked, (5, 6, 2))])
        assert sum(map(len, drafts._copies)) < 500 + 60
    assert drafts._copies, "few of them are"


def test_the_state_of_roles_with_any_name_is_restored(tools):
    def learned(role):
        asked = tools.request((10, 11), id=replace(tools.turn(), role=role))
        drafts.learn([(asked, (5, 6, 7, 2))] * 3)
        return asked

    drafts, again = Drafts(STOP, 100.0), Drafts(STOP, 100.0)
    asked = [learned(role) for role in ("player", "black/white", "/", "entries 12")]
    again.restore(drafts.state())
    assert [again.of(each, (), 1, 8) for each in asked] == [[5, 6, 7]] * 4


def test_a_restored_index_goes_on_as_the_one_that_was_saved(monkeypatch):
    """Its generations of contexts, and the counts by which it rests, are part of its state."""
    monkeypatch.setattr("turnwise.engines.local.drafts.MOST_CONTEXTS", 700)
    monkeypatch.setattr("turnwise.engines.local.drafts.WINDOW", 64)
    rng = np.random.default_rng(0)
    index = DraftIndex(STOP)

    def episode():
        return (9, 9), tuple(rng.integers(20, 500, 12).tolist())

    for _ in range(12):
        index.learn((9, 9), (5, 6, 7, 2))
    while not index._older:
        index.learn(*episode())
    for _ in range(3):
        index.pays(1.0)
        index.learn(*episode())
    assert not index._entries, "it learns from few, and only the older generation knows anything"
    restored = DraftIndex(STOP)
    restored.restore(index.state())
    asked = {"threshold": 0.01, "most": 8}
    assert restored.draft((9, 9), {}, **asked) == index.draft((9, 9), {}, **asked) != []
    for _ in range(20):
        assert restored.pays(1.0) == index.pays(1.0)
        one = episode()
        index.learn(*one)
        restored.learn(*one)
        for name, array in index.state().items():
            np.testing.assert_array_equal(restored.state()[name], array, err_msg=name)
