"""Trees against one row at a time: log-probabilities, entropies, and every tensor's gradient."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.forest import ForestConfig, micro_batches
from turnwise.forest.choose import choose
from turnwise.types import TrainingSample

TREES = (
    "qwen3-sdpa", "qwen3-eager", "qwen3-window", "qwen3-lora", "llama", "gemma", "gemma2-eager",
    "gemma3-sdpa", "gemma3-eager", "mistral", "gpt2", "granite",
)  # fmt: skip
HYBRIDS = ("lfm2", "falcon-h1", "qwen3-next", "mamba", "bloom")
WHOLE = ForestConfig(break_even=100_000)
FEW_TARGETS = 2e-5
"""Of one target or two the gradient's rounding does not average out."""
LAYOUTS = ("packed", "padded")
PADDED = ("qwen3-window", "gemma2-eager", "gemma3-sdpa", "gemma3-eager", "mistral")
"""Windows or soft-caps: under a mask only."""


@pytest.fixture(autouse=True, scope="module")
def backward_on_cpus():
    """FlexAttention refuses gradients on CPUs, for which nothing is compiled; its definition has
    them, and tells whether its masks are right."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.attention.flex_attention, "_validate_device", lambda *_: None)
        yield


def naive(model, samples):
    """Log-probabilities and entropies of all targets: row by row, full forward, no padding."""
    logprobs, entropies = [], []
    for sample in samples:
        ids = torch.from_numpy(sample.token_ids)[None]
        targets = torch.from_numpy(sample.targets)
        heat = torch.from_numpy(sample.temperature)[targets]
        logits = model(input_ids=ids, use_cache=False).logits[0, targets - 1]
        every = (logits / heat[:, None]).log_softmax(-1)
        logprobs.append(every.gather(1, ids[0, targets, None])[:, 0])
        entropies.append(-(every.exp() * every).sum(-1))
    return torch.cat(logprobs), torch.cat(entropies)


def naive_places(samples):
    return [(i, int(t)) for i, sample in enumerate(samples) for t in sample.targets]


def weights(count):
    """Two random numbers for every occurrence, in the order of the samples."""
    return torch.from_numpy(np.random.default_rng(7).normal(size=(2, count))).float()


def gradients(model, loss):
    parameters = [p for p in model.parameters() if p.requires_grad]
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return {n: g for n, g in zip(names, found, strict=True) if g is not None}


def reference(model, samples, entropy="trained"):
    logprobs, entropies = naive(model, samples)
    w = weights(len(logprobs))
    loss = w[0] * logprobs + (w[1] * entropies if entropy == "trained" else 0)
    grads = gradients(model, loss.sum())
    return logprobs.detach(), entropies.detach(), grads


def scored(model, scorer, samples, batches=None, entropy="trained"):
    """The same three, by a scorer, summed over its micro-batches."""
    place = {where: i for i, where in enumerate(naive_places(samples))}
    logprobs, entropies = torch.full((2, len(place)), torch.nan)
    w, total = weights(len(place)), {}
    for batch in scorer.batches(samples) if batches is None else batches:
        at = [place[w] for w in zip(batch.row.tolist(), batch.position.tolist(), strict=True)]
        scores = scorer.score(model, batch, entropy=entropy)
        loss = (w[0, at] * scores.logprobs).sum()
        if entropy == "trained":
            loss = loss + (w[1, at] * scores.entropy).sum()
        for name, gradient in gradients(model, loss).items():
            total[name] = total[name] + gradient if name in total else gradient
        logprobs[at], entropies[at] = scores.logprobs.detach(), scores.entropy.detach()
    return logprobs, entropies, total


def differences(found, expected):
    """Largest difference of values, and of gradients in units of each tensor's norm."""
    values = max(float((f - e).abs().max()) for f, e in zip(found[:2], expected[:2], strict=True))
    assert found[2].keys() == expected[2].keys()
    largest = max(float(gradient.norm()) for gradient in expected[2].values())
    # Gradients that cancel to nothing (of GPT-2's key biases, say) hold only rounding. A float32's
    # is 1e-7 of the largest gradient, that is 1e-5 of a hundredth of it.
    slopes = [
        float((found[2][name] - gradient).norm()) / max(float(gradient.norm()), largest / 100)
        for name, gradient in expected[2].items()
    ]
    return values, max(slopes)


def assert_equal(found, expected, tolerance=1e-5):
    values, slopes = differences(found, expected)
    assert values <= 1e-4, values
    assert slopes <= tolerance, slopes


@st.composite
def forests(draw):
    """Rows that grow out of each other: shared prompts, nested turns, twins, temperatures."""
    seeds = st.integers(0, 10_000)
    rng = np.random.default_rng(draw(seeds))
    rows: list[list[int]] = [rng.integers(4, 41, draw(st.integers(8, 16))).tolist()]
    for _ in range(draw(st.integers(1, 6))):
        parent = rows[draw(st.integers(0, len(rows) - 1))]
        kept = draw(st.integers(0, len(parent)))
        rows.append(parent[:kept] + rng.integers(4, 41, draw(st.integers(0, 8))).tolist())
    samples = []
    for ids in rows:
        if len(ids) < 2:
            continue
        wanted = rng.random(len(ids)) < draw(st.sampled_from([0.15, 0.6, 1.0]))
        wanted[0], wanted[-1] = False, True
        samples.append(
            TrainingSample.of(
                policy="main", turns=(), token_ids=ids, turn_index=[-1] * len(ids),
                sampled_mask=wanted,
                temperature=rng.choice([0.7, 1.0], len(ids)),
            )
        )  # fmt: skip
    return samples


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TREES)
@given(samples=forests())
@settings(max_examples=20, deadline=None, derandomize=True)
def test_trees_equal_rows_one_by_one(models, name, layout, samples):
    model = models(name)
    scorer = choose(model, WHOLE)
    assert scorer.layout == ("padded" if name in PADDED else "packed")
    scorer = dataclasses.replace(scorer, layout=layout if name not in PADDED else "padded")
    assert_equal(scored(model, scorer, samples), reference(model, samples), FEW_TARGETS)


@pytest.mark.parametrize("name", TREES)
@given(samples=forests())
@settings(max_examples=8, deadline=None, derandomize=True)
def test_block_masks_give_the_same(models, name, samples):
    model = models(name)
    scorer = dataclasses.replace(choose(model, WHOLE), layout="blocked")
    assert_equal(scored(model, scorer, samples), reference(model, samples), FEW_TARGETS)


@pytest.mark.parametrize("name", [*HYBRIDS, "gemma2-eager", "qwen3-lora"])
@given(samples=forests())
@settings(max_examples=5, deadline=None, derandomize=True)
def test_flat_rows_equal_rows_one_by_one(models, name, samples):
    model = models(name)
    scorer = choose(model, ForestConfig(layout="auto" if name in HYBRIDS else "flat"))
    assert scorer.layout == "flat"
    assert_equal(scored(model, scorer, samples), reference(model, samples), FEW_TARGETS)
    own = dataclasses.replace(scorer, head="logits")
    assert_equal(scored(model, own, samples), reference(model, samples), FEW_TARGETS)


SPLITS = (
    {"token_budget": 40},
    {"mask_budget": 700},
    {"head_chunk": 41 * 5},
    {"head_chunk": 1},
    {"break_even": 1},
)


@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize("name", ["gemma2-eager", "qwen3-lora"])
@pytest.mark.parametrize("layout", ["tree", "flat"])
def test_splits_change_no_gradient(models, make_siblings, split, layout, name):
    model, samples = models(name), make_siblings()
    whole = choose(model, ForestConfig(layout=layout, break_even=100_000))
    cut = dataclasses.replace(whole, config=ForestConfig(layout=layout, **split))
    expected = reference(model, samples)
    assert_equal(scored(model, whole, samples), expected)
    assert_equal(scored(model, cut, samples), expected)
    matters = {"padded": {"token_budget", "mask_budget", "break_even"}}
    if set(split) & matters.get(whole.layout, {"token_budget"}):
        nodes = [sum(int(b.sizes.sum()) for b in s.batches(samples)) for s in (whole, cut)]
        parts = [len(s.batches(samples)) for s in (whole, cut)]
        assert nodes[1] > nodes[0] or parts[1] > parts[0]


def warm(samples):
    """Turn about, rows drawn at two temperatures, so that one parent has several heads."""
    return [
        dataclasses.replace(s, temperature=np.full(len(s.token_ids), (1.0, 0.7)[i % 2], np.float32))
        for i, s in enumerate(samples)
    ]


@pytest.mark.parametrize("name", ["gemma2-eager", "qwen3-lora", "llama"])
@pytest.mark.parametrize("layout", ["tree", "flat"])
@pytest.mark.parametrize("head_chunk", [41, 41 * 5, 1 << 20])
def test_heads_that_are_not_trained_are_computed_once(
    models, make_siblings, name, layout, head_chunk
):
    model, samples = copy.deepcopy(models(name)), warm(make_siblings())
    model.get_output_embeddings().requires_grad_(False)
    chosen = choose(model, ForestConfig(layout=layout))
    scorer = dataclasses.replace(chosen, config=ForestConfig(layout=layout, head_chunk=head_chunk))
    expected = reference(model, samples, "measured")
    rows = []
    hook = model.get_output_embeddings().register_forward_hook(
        lambda _m, _i, out: rows.append(out.shape[:-1].numel())
    )
    found = scored(model, scorer, samples, entropy="measured")
    hook.remove()
    assert_equal(found, expected)
    batches = scorer.batches(samples)
    assert sum(rows) == sum(len(batch.edge_head) for batch in batches)
    assert any(len(batch.edge_head) > len(batch.head_node) for batch in batches) == (
        layout == "tree"
    )


def one_batch(samples, layout="packed"):
    (batch,) = micro_batches(samples, WHOLE, layout)
    return batch


def wrong_plans(plan):
    """One key of one block exchanged for its neighbour; one key hidden; one shown to all."""
    first, *rest = plan.calls
    keys = first.keys.clone()
    keys[0, 3] += 1
    changed = [dataclasses.replace(first, keys=keys)]
    for added in (0.0, float("-inf")):
        hidden = first.hidden.clone()
        hidden[0, 25:, 24] = added
        changed.append(dataclasses.replace(first, hidden=hidden, masks={}))
    return [dataclasses.replace(plan, calls=(call, *rest)) for call in changed]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wrong_ancestor_bit_is_seen(models, make_siblings, layout):
    model, samples = models("qwen3-sdpa"), make_siblings(prompts=1, prompt=20)
    scorer, batch = choose(model, WHOLE), one_batch(samples, layout)
    expected = reference(model, samples)
    assert_equal(scored(model, scorer, samples, [batch]), expected)
    inner = next(n for n in range(22, 48) if batch.end[0, n] > n + 1)
    wrongs = []
    for change in (-1, 1):
        end = batch.end.clone()
        end[0, inner] += change
        wrongs.append(dataclasses.replace(batch, end=end))
    if batch.plan is not None:
        wrongs = [dataclasses.replace(batch, plan=plan) for plan in wrong_plans(batch.plan)]
    for wrong in wrongs:
        values, slopes = differences(scored(model, scorer, samples, [wrong]), expected)
        assert values > 1e-3
        assert slopes > 1e-3


def test_a_shifted_position_is_seen(models, make_siblings):
    model, samples = models("qwen3-sdpa"), make_siblings(prompts=1)
    scorer, batch, expected = choose(model, WHOLE), one_batch(samples), reference(model, samples)
    positions = batch.positions.clone()
    positions[0, 14] += 1
    wrong = dataclasses.replace(batch, positions=positions)
    values, slopes = differences(scored(model, scorer, samples, [wrong]), expected)
    assert values > 1e-3
    assert slopes > 1e-3


def test_a_wrong_row_index_is_seen(models, make_siblings):
    model, samples = models("qwen3-sdpa"), make_siblings(prompts=1)
    scorer, batch, expected = choose(model, WHOLE), one_batch(samples), reference(model, samples)
    edge = batch.edge.clone()
    last = len(edge) - 1
    other = next(at for at in range(last) if edge[at] != edge[last])
    edge[last] = edge[other]
    wrong = dataclasses.replace(batch, edge=edge)
    values, slopes = differences(scored(model, scorer, samples, [wrong]), expected)
    assert values > 1e-3
    assert slopes > 1e-3


def test_entropy_is_left_out_unless_asked_for(models, make_siblings):
    model, samples = models("qwen3-sdpa"), make_siblings(prompts=1)
    scorer = choose(model, WHOLE)
    (batch,) = scorer.batches(samples)
    without = scorer.score(model, batch, entropy="none")
    assert without.entropy.shape == (0,)
    assert torch.equal(without.logprobs, scorer.score(model, batch).logprobs)


def test_disabled_adapters_score_the_base(models, make_siblings):
    model, samples = models("qwen3-lora"), make_siblings(prompts=1)
    scorer = choose(model, WHOLE)
    (batch,) = scorer.batches(samples)
    with torch.no_grad():
        adapted = scorer.score(model, batch).logprobs
        with model.disable_adapter():
            bare = scorer.score(model, batch).logprobs
            expected = naive(model, samples)[0]
    assert (bare - expected).abs().max() < 1e-4
    assert (bare - adapted).abs().max() > 1e-2


@pytest.mark.parametrize("layout", ["tree", "flat"])
def test_the_head_runs_where_targets_are_in_bounded_chunks(models, make_siblings, layout):
    model, samples = models("llama"), make_siblings(prompts=2)
    limit = 41 * 6
    chosen = choose(model, ForestConfig(layout=layout))
    scorer = dataclasses.replace(chosen, config=ForestConfig(layout=layout, head_chunk=limit))
    shapes = []
    hook = model.lm_head.register_forward_hook(
        lambda _m, _i, out: shapes.append(out.flatten(0, -2).shape)
    )
    try:
        with torch.no_grad():
            batches = scorer.batches(samples)
            for batch in batches:
                scorer.score(model, batch)
    finally:
        hook.remove()
    assert all(rows * vocab <= limit for rows, vocab in shapes)
    parents = {
        tuple(s.token_ids[:t].tolist()) if layout == "tree" else (i, int(t))
        for i, s in enumerate(samples)
        for t in s.targets
    }
    assert sum(rows for rows, _ in shapes) == len(parents)
    assert len(parents) < sum(len(s.token_ids) for s in samples)
