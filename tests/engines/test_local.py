import asyncio
import copy
from collections import Counter

import numpy as np
import pytest
import torch

from turnwise.engines import EngineConfig, LocalEngine, run
from turnwise.engines.local.model_runner import SHORT
from turnwise.engines.local.scheduler import draw
from turnwise.errors import ConfigError, EngineError
from turnwise.settings import parse

PROMPT = (5, 6, 7, 8, 9)


def prompts(count, lengths=(3, 40), seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(*lengths, count)
    return [tuple(rng.integers(3, 23, size).tolist()) for size in sizes]


def workload(tools, count=12, each=4, **options):
    """Groups as training makes them: `each` samples of every prompt."""
    return [
        tools.request(prompt, id=tools.turn(visit, sample), **options)
        for visit, prompt in enumerate(prompts(count))
        for sample in range(each)
    ]


def test_completions_follow_the_enumerated_distribution(make_engine, models, tools):
    engine, count, temperature = make_engine(max_rows=512), 4096, 1.5
    asked = [
        tools.request(PROMPT, id=tools.turn(i), temperature=temperature, max_tokens=2)
        for i in range(count)
    ]
    said = Counter(completion.token_ids for completion in tools.ask(engine, asked))
    with torch.no_grad():
        pairs = torch.cartesian_prod(torch.arange(23), torch.arange(23))
        rows = torch.cat([torch.tensor(PROMPT).expand(len(pairs), -1), pairs], 1)
        logprobs = (models("qwen3")(rows).logits[:, -3:-1] / temperature).log_softmax(-1)
    expected = logprobs.gather(2, pairs[:, :, None]).sum((1, 2)).exp().numpy() * count
    found = np.array([said[tuple(pair)] for pair in pairs.tolist()])
    common = expected > 5
    chi2 = ((found - expected) ** 2 / expected)[common].sum()
    degrees = common.sum()
    assert degrees > 50
    assert chi2 < degrees + 4 * np.sqrt(2 * degrees)


def test_iterations_visits_samples_streams_and_seeds_draw_differently(make_engine, tools):
    def said(seed=0, stream="train", **where):
        asked = tools.request(PROMPT, id=tools.turn(**where), stream=stream, max_tokens=24)
        return tools.ask(make_engine(seed=seed), [asked])[0].token_ids

    different = [
        said(),
        said(iteration=1),
        said(visit=1),
        said(sample=1),
        said(number=1),
        said(stream="evaluation"),
        said(stream="warmup"),
        said(seed=1),
    ]
    assert len(set(different)) == len(different)
    assert said() == said()


OTHER_WAYS = {
    "alone": {"max_rows": 1},
    "in sevens": {"max_rows": 7},
    "rows of their own": {"share_rows": False},
    "nothing remembered": {"prefix_megabytes": 0},
    "recomputed": {"cache": "none"},
}


@pytest.mark.parametrize("options", OTHER_WAYS.values(), ids=OTHER_WAYS.keys())
def test_equal_uniforms_give_equal_tokens_whatever_the_batching(
    make_engine, models, tools, options
):
    asked = workload(tools, max_tokens=16, temperature=0.8)
    reference = tools.ask(make_engine(max_rows=64), asked)
    other = tools.ask(make_engine(**options), asked)
    flips = 0
    for one, mine, theirs in zip(asked, reference, other, strict=True):
        pairs = list(zip(mine.token_ids, theirs.token_ids, strict=True))
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
        np.testing.assert_allclose(mine.logprobs[:same], theirs.logprobs[:same], atol=1e-4)
        if same < len(pairs):
            flips += 1
            assert tools.edges(models("qwen3"), one, mine, 0.8)[same] < 1e-4
    assert flips <= 1


def test_the_order_of_arrival_does_not_matter_to_the_bit(make_engine, tools):
    asked = workload(tools)
    shuffled = [asked[i] for i in np.random.default_rng(0).permutation(len(asked))]
    first = zip(asked, tools.ask(make_engine(max_rows=8), asked), strict=True)
    second = zip(shuffled, tools.ask(make_engine(max_rows=8), shuffled), strict=True)
    assert {one.id: said for one, said in first} == {one.id: said for one, said in second}


def test_two_runs_of_an_async_workload_are_equal_to_the_bit(make_engine, tools):
    async def episode(engine, visit, sample):
        """Several turns, each with a prompt that depends on the last completion."""
        prompt, said = prompts(20)[visit], []
        for number in range(4):
            await asyncio.sleep(0)
            one = tools.request(prompt, id=tools.turn(visit, sample, number=number))
            said.append(await engine.generate(one))
            prompt = (*prompt[:8], *said[-1].token_ids[-3:])
        return said

    def play():
        engine = make_engine(max_rows=32, stop_ids={3, 4})

        async def everything():
            return await asyncio.gather(
                *(episode(engine, visit, sample) for visit in range(10) for sample in range(4))
            )

        return run(everything(), engine), engine.metrics()

    assert play() == play()


def test_a_prompt_is_prefilled_once_per_group(make_engine, tools):
    engine = make_engine()
    asked = [tools.request(PROMPT, id=tools.turn(sample=i)) for i in range(8)]
    tools.ask(engine, asked)
    found = engine.metrics()
    assert found["engine/prompt_tokens"] == 8 * len(PROMPT)
    assert found["engine/prefill_tokens"] == len(PROMPT)
    assert engine.metrics()["engine/prompt_tokens"] == 0


def test_completions_that_said_the_same_share_a_row_until_they_part(make_engine, models, tools):
    asked = [
        tools.request(PROMPT, id=tools.turn(sample=i), temperature=0.5, max_tokens=12)
        for i in range(16)
    ]
    engine, apart = make_engine(), make_engine(share_rows=False)
    completions = tools.ask(engine, asked)
    assert [c.token_ids for c in tools.ask(apart, asked)] == [c.token_ids for c in completions]
    found, other = engine.metrics(), apart.metrics()
    beginnings = {c.token_ids[:length] for c in completions for length in range(1, 12)}
    assert found["engine/decode_tokens"] == len(beginnings)
    assert other["engine/decode_tokens"] == 16 * 11
    assert found["engine/prefill_tokens"] == other["engine/prefill_tokens"] == len(PROMPT)
    for completion in completions:
        true = tools.true_logprobs(models("qwen3"), PROMPT, completion.token_ids, 0.5)
        np.testing.assert_allclose(completion.logprobs, true, atol=1e-4)


def test_greedy_completions_of_one_prompt_are_computed_once(make_engine, tools):
    engine = make_engine()
    asked = [tools.request(PROMPT, id=tools.turn(sample=i), temperature=0.0) for i in range(8)]
    assert len({completion.token_ids for completion in tools.ask(engine, asked)}) == 1
    assert engine.metrics()["engine/decode_tokens"] == 7


def test_prompts_that_begin_alike_are_computed_once_from_where_they_differ(make_engine, tools):
    engine = make_engine()
    start = prompts(1, (40, 41))[0]
    first = [tools.request((*start, 5, 6), id=tools.turn(0))]
    later = [tools.request((*start, 9, visit), id=tools.turn(visit)) for visit in range(5, 15)]
    tools.ask(engine, first)
    assert engine.metrics()["engine/prefill_tokens"] == 42
    tools.ask(engine, later)
    assert engine.metrics()["engine/prefill_tokens"] == 10 * 2
    engine.end_iteration()
    tools.ask(engine, later)  # at once: one is computed whole, the others wait for it
    assert engine.metrics()["engine/prefill_tokens"] == 42 + 9


def test_prompts_that_are_done_with_are_not_read_again(make_engine, tools):
    engine = make_engine()
    rows = engine._lanes["main"].rows
    for turn in range(3):
        asked = [
            tools.request(prompt, id=tools.turn(i, turn))
            for i, prompt in enumerate(prompts(6, (SHORT + 2, 60), seed=turn))
        ]
        tools.ask(engine, asked)
        assert len(rows._prompt_lengths) == 6


def test_remembered_prompts_are_bounded_by_the_budget(make_engine, tools):
    engine = make_engine(prefix_megabytes=1)
    store = engine._lanes["main"].rows._store
    each = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, width, bytes
    for round_number in range(8):
        asked = [
            tools.request(prompt, id=tools.turn(i, round_number), max_tokens=1)
            for i, prompt in enumerate(prompts(40, (30, 90), seed=round_number))
        ]
        tools.ask(engine, asked)
        assert len(store) * each <= 1 << 20
    assert engine.metrics()["engine/prefill_tokens"] > (1 << 20) / each


def test_finished_rows_leave_at_once(make_engine, tools):
    engine = make_engine(drafts=False)
    limits = (1, 2, 4, 8)
    asked = [
        tools.request(prompt, id=tools.turn(visit), max_tokens=limit)
        for visit, (prompt, limit) in enumerate(zip(prompts(4), limits, strict=True))
    ]
    tools.ask(engine, asked)
    found = engine.metrics()
    assert found["engine/sampled_tokens"] == sum(limits)
    assert found["engine/decode_tokens"] == sum(limits) - len(limits)
    assert (found["engine/row_steps"], found["engine/steps"]) == (sum(limits), max(limits))


def test_new_requests_join_while_others_are_being_written(make_engine, tools):
    engine = make_engine(max_rows=4, drafts=False)
    tools.ask(engine, workload(tools, count=10, each=1, max_tokens=6))
    found = engine.metrics()
    assert found["engine/sampled_tokens"] == 60
    assert (found["engine/row_steps"], found["engine/steps"]) == (
        60,
        18,
    )  # 4 + 4 + 2 rows


def test_rows_that_have_written_nothing_move_up_too(make_engine, models, tools):
    """Many prompts come at the step in which some completions end and some siblings part."""
    engine = make_engine(max_rows=128)
    first = [
        tools.request([3 + i, 4, 5], id=tools.turn(i, s), max_tokens=m, temperature=0.3)
        for i, m in enumerate([2] * 7 + [3] * 7)
        for s in range(4)
    ]
    then = [tools.request([3 + i % 20, 9, i // 20], id=tools.turn(50 + i)) for i in range(80)]

    async def late(one):
        await engine.generate(tools.request([3], id=tools.turn(99, number=5), max_tokens=1))
        return await engine.generate(one)

    async def everything():
        return await asyncio.gather(*map(engine.generate, first), *map(late, then))

    for one, completion in zip(first + then, run(everything(), engine), strict=True):
        heat = one.sampling.temperature
        true = tools.true_logprobs(models("qwen3"), one.prompt_ids, completion.token_ids, heat)
        np.testing.assert_allclose(completion.logprobs, true, atol=1e-4)


def test_reasons_to_finish(make_engine, tools):
    stop = tools.ask(make_engine(), [tools.request(PROMPT)])[0].token_ids[3]
    engine = make_engine(stop_ids={stop}, context=12)
    stopped, cut, full, none = tools.ask(
        engine,
        [
            tools.request(PROMPT),
            tools.request(PROMPT, max_tokens=2),
            tools.request(prompts(1, (9, 10))[0], id=tools.turn(visit=4)),
            tools.request(prompts(1, (12, 13))[0], id=tools.turn(visit=5)),
        ],
    )
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids[-1] == stop and stopped.token_ids.count(stop) == 1
    assert (cut.finish_reason, len(cut.token_ids)) == ("length", 2)
    assert (full.finish_reason, len(full.token_ids)) == ("context", 3)
    assert (none.finish_reason, none.token_ids, none.logprobs) == ("context", (), ())


def test_the_whole_context_can_be_written(make_engine, tools):
    engine = make_engine("gpt2")  # learned positions: one too far is an error
    asked = [
        tools.request(prompt, id=tools.turn(visit), max_tokens=1000)
        for visit, prompt in enumerate(prompts(6, (2, 95)))
    ]
    for one, completion in zip(asked, tools.ask(engine, asked), strict=True):
        assert len(one.prompt_ids) + len(completion.token_ids) == 96
        assert completion.finish_reason == "context"


def test_evaluation_never_touches_a_training_stream(make_engine, tools):
    training = workload(tools)
    evaluation = workload(tools, stream="evaluation")
    alone = tools.ask(make_engine(), training)
    engine = make_engine()
    tools.ask(engine, evaluation)
    engine.end_iteration()
    assert tools.ask(engine, training) == alone


def test_new_weights_drop_what_the_old_weights_computed(make_engine, models, tools):
    engine = make_engine()
    asked = [tools.request(PROMPT, id=tools.turn(visit)) for visit in range(4)]
    before = tools.ask(engine, asked)
    weight = models("qwen3").lm_head.weight
    engine.metrics()
    with torch.no_grad():
        weight.neg_()
    try:
        engine.policy.version = 1
        engine.update_weights("main")
        after = tools.ask(engine, asked)
        assert engine.metrics()["engine/prefill_tokens"] == len(PROMPT)
        assert {completion.policy_version for completion in before} == {0}
        assert {completion.policy_version for completion in after} == {1}
        for completion in after:
            true = tools.true_logprobs(models("qwen3"), PROMPT, completion.token_ids)
            np.testing.assert_allclose(completion.logprobs, true, atol=1e-4)
    finally:
        with torch.no_grad():
            weight.neg_()


def test_a_new_version_is_never_answered_from_an_old_cache(make_engine, tools):
    engine = make_engine()
    tools.ask(engine, [tools.request(PROMPT)])
    engine.metrics()
    engine.policy.version = 1
    tools.ask(engine, [tools.request(PROMPT)])
    assert engine.metrics()["engine/prefill_tokens"] == len(PROMPT)


def test_no_new_weights_while_the_policy_writes(make_engine, tools):
    engine = make_engine()

    async def main():
        task = asyncio.ensure_future(engine.generate(tools.request(PROMPT)))
        await asyncio.sleep(0)
        with pytest.raises(AssertionError):
            engine.update_weights("main")
        await task
        engine.update_weights("main")

    run(main(), engine)


def test_policies_share_nothing(weights, models, tools):
    policies = {"a": weights(models("qwen3"), "a"), "b": weights(models("llama"), "b")}
    engine = LocalEngine(policies, EngineConfig(), 0)
    asked = [
        tools.request(PROMPT, id=tools.turn(visit), policy=name)
        for visit in range(5)
        for name in ("a", "b")
    ]
    completions = tools.ask(engine, asked)
    assert engine.metrics()["engine/prefill_tokens"] == 2 * len(PROMPT)
    for one, completion in zip(asked, completions, strict=True):
        true = tools.true_logprobs(policies[one.policy].model, PROMPT, completion.token_ids)
        np.testing.assert_allclose(completion.logprobs, true, atol=1e-4)


def test_prompts_are_forgotten_when_an_iteration_ends(make_engine, tools):
    for deterministic in (True, False):
        engine = make_engine(deterministic=deterministic)
        tools.ask(engine, [tools.request(PROMPT)])
        engine.end_iteration()
        engine.metrics()
        tools.ask(engine, [tools.request(PROMPT, id=tools.turn(1))])
        again = len(PROMPT) if deterministic else 1
        assert engine.metrics()["engine/prefill_tokens"] == again


@pytest.mark.parametrize("kept", [0, 1 << 28])
def test_little_memory_is_kept_between_iterations_and_much_is_not(
    make_engine, tools, monkeypatch, kept
):
    monkeypatch.setattr("turnwise.engines.local.model_runner.KEPT_BYTES", kept)
    engine = make_engine(drafts=False)
    rows, asked = engine._lanes["main"].rows, workload(tools)
    before = tools.ask(engine, asked)
    assert rows._prompts.slots and rows._own.slots
    engine.end_iteration()
    assert bool(rows._prompts.slots and rows._own.slots) == bool(kept)
    assert tools.ask(engine, asked) == before
    engine.end_iteration()
    assert tools.ask(engine, asked) == before


def test_a_cancelled_request_leaves_its_row(make_engine, tools):
    engine = make_engine(drafts=False)
    other = tools.request(prompts(1)[0], id=tools.turn(1), max_tokens=8)

    async def main():
        short = [
            asyncio.ensure_future(engine.generate(tools.request(PROMPT, id=tools.turn(0, i))))
            for i in range(3)
        ]
        kept = asyncio.ensure_future(engine.generate(other))
        await asyncio.sleep(0)
        engine.advance()
        for task in short:
            task.cancel()
        return await kept

    found, expected = run(main(), engine), tools.ask(make_engine(drafts=False), [other])[0]
    assert found.token_ids == expected.token_ids
    np.testing.assert_allclose(found.logprobs, expected.logprobs, atol=1e-5)
    assert engine.metrics()["engine/sampled_tokens"] == 3 + 8


def test_weights_that_diverged_fail_the_request_and_nothing_else(weights, models, tools):
    broken = copy.deepcopy(models("qwen3"))
    policy = weights(broken)
    engine = LocalEngine({"main": policy}, EngineConfig(), 0)
    with torch.no_grad():
        broken.lm_head.weight.fill_(torch.nan)
    with pytest.raises(EngineError, match="not finite"):
        tools.ask(engine, [tools.request(PROMPT)])
    broken.load_state_dict(models("qwen3").state_dict())
    policy.version = 1
    engine.update_weights("main")
    assert tools.ask(engine, [tools.request(PROMPT)])[0].finish_reason == "length"


def test_a_row_that_overflows_leaves_nothing_behind(make_engine, weights, models, tools):
    """Slots are used again: what is not finite there would reach later rows through 0 x nan."""
    model = copy.deepcopy(models("qwen3"))
    engine = LocalEngine({"main": weights(model)}, EngineConfig(), 0)
    with torch.no_grad():
        model.model.embed_tokens.weight[7] = torch.inf
    healthy = [tools.request((9, i), temperature=0.0, max_tokens=4) for i in range(10, 18)]
    expected = [tools.ask(make_engine(), [one])[0] for one in healthy]
    bad = [tools.request((5,), id=tools.turn(1, i), max_tokens=30) for i in range(6)]

    async def everything():
        writing = asyncio.ensure_future(
            engine.generate(tools.request((5, 6, 8), temperature=0.0, max_tokens=60))
        )
        ended = await asyncio.gather(*map(engine.generate, bad), return_exceptions=True)
        assert sum(isinstance(one, EngineError) for one in ended) > 3  # they said 7
        found = await asyncio.gather(*map(engine.generate, healthy))
        assert not writing.done()
        await asyncio.wait([writing])
        return found

    found = run(everything(), engine)
    for one, other in zip(found, expected, strict=True):
        assert one.token_ids == other.token_ids
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_after_an_error_in_a_step_it_begins_anew(make_engine, tools, monkeypatch):
    engine, asked = make_engine(), [tools.request(ids) for ids in prompts(2)]
    calls = []

    def short_of_memory(*args):
        calls.append(args)
        if len(calls) == 3:
            raise RuntimeError("out of memory")
        return draw(*args)

    monkeypatch.setattr("turnwise.engines.local.scheduler.draw", short_of_memory)

    async def one_after_the_other():
        first = asyncio.ensure_future(engine.generate(asked[0]))
        while engine.metrics()["engine/sampled_tokens"] == 0:
            await asyncio.sleep(0.001)
        return await asyncio.gather(first, engine.generate(asked[1]))

    with pytest.raises(RuntimeError, match="out of memory"):
        run(one_after_the_other(), engine)
    assert tools.ask(engine, asked) == tools.ask(make_engine(), asked)


def test_after_an_error_of_one_policy_the_others_begin_anew(weights, models, tools, monkeypatch):
    """What one policy admitted in the step in which another fails is forgotten, too."""
    policies = {"a": weights(models("qwen3"), "a"), "b": weights(models("llama"), "b")}
    engine = LocalEngine(policies, EngineConfig(drafts=False), 0)
    asked = [tools.request(PROMPT, policy=name) for name in policies]
    expected = tools.ask(engine, asked)
    engine.end_iteration()

    def short_of_memory(prompts):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(engine._lanes["b"].rows, "prefill", short_of_memory)
        with pytest.raises(RuntimeError, match="out of memory"):
            tools.ask(engine, asked)
    for name in policies:  # in the rows that were given up
        tools.ask(engine, [tools.request(PROMPT[::-1], policy=name)])
    assert tools.ask(engine, asked) == expected


def test_a_full_context_may_be_cancelled(make_engine, tools):
    engine = make_engine()

    async def main():
        task = asyncio.ensure_future(engine.generate(tools.request((5,) * 96)))
        await asyncio.sleep(0)
        task.cancel()
        engine.advance()
        await asyncio.wait([task])
        return task.cancelled()

    assert run(main(), engine)


def test_prompts_of_many_lengths_cost_one_row_of_logits_each(make_engine, models, tools):
    engine, shapes = make_engine(), []
    head = models("qwen3").get_output_embeddings()
    asked = [
        tools.request(range(3, 4 + size), id=tools.turn(size), max_tokens=1)
        for size in range(1, 18)
    ]
    with head.register_forward_hook(lambda module, given, found: shapes.append(found.shape)):
        tools.ask(engine, asked)
    assert sum(shape[0] * shape[1] for shape in shapes) == len(asked)


def test_mistakes_are_told(make_engine, tools):
    engine = make_engine()
    with pytest.raises(EngineError, match="unknown policy 'mian': did you mean 'main'"):
        tools.ask(engine, [tools.request(PROMPT, policy="mian")])
    with pytest.raises(EngineError, match="empty prompt"):
        tools.ask(engine, [tools.request(())])
    with pytest.raises(EngineError, match="max_tokens = 0: 1 or more"):
        tools.ask(engine, [tools.request(PROMPT, max_tokens=0)])
    with pytest.raises(ConfigError, match="did you mean 'max_rows'"):
        parse(EngineConfig, {"max_row": 3}, "engine")


def test_training_goes_on_after_sampling(make_engine, models, tools):
    tools.ask(make_engine(), workload(tools, count=2))
    model = models("qwen3")
    model(torch.tensor([PROMPT])).logits.square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())
    model.zero_grad()


def test_equal_tokens_with_other_media_are_other_prompts(make_engine, tools):
    engine = make_engine()
    asked = [tools.request(PROMPT, id=tools.turn(n), media=("a", "b")[:n]) for n in (0, 1, 1, 2)]
    tools.ask(engine, asked)
    assert engine.metrics()["engine/prefill_tokens"] == 3 * len(PROMPT)
    tools.ask(engine, [tools.request(PROMPT, id=tools.turn(3), media=("a",))])
    assert engine.metrics()["engine/prefill_tokens"] == 1
