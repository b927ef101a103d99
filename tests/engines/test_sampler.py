import numpy as np
import pytest
import torch

from turnwise.engines.local.sampler import draw


def drawn(logits, uniforms, temperature=1.0, owner=None):
    logits = torch.as_tensor(logits)
    uniforms = np.asarray(uniforms, dtype=np.float64)
    owner = np.zeros(len(uniforms), dtype=np.int64) if owner is None else np.array(owner)
    heat = np.broadcast_to(np.float32(temperature), len(uniforms)).copy()
    return draw(logits, owner, uniforms, heat)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_frequencies_are_those_of_the_softmax(temperature):
    generator = np.random.default_rng(5)
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(3)) * 2
    count = 200_000
    tokens, logprobs = drawn(logits, generator.random(count), temperature)
    expected = (logits[0].double() / temperature).softmax(-1).numpy() * count
    found = np.bincount(tokens, minlength=12)
    common = expected > 5
    chi2 = ((found - expected) ** 2 / expected)[common].sum()
    assert chi2 < 31.3  # 99.9th percentile at 11 degrees of freedom
    exact = np.log(expected / count)[tokens]
    np.testing.assert_allclose(logprobs, exact, atol=1e-5)


def test_the_token_is_the_first_whose_cumulative_probability_exceeds_the_uniform():
    logits = torch.tensor([[0.25, 0.25, 0.5]]).log()
    tokens, _ = drawn(logits, [0.0, 0.2499, 0.25, 0.4999, 0.5, 0.99])
    assert tokens.tolist() == [0, 0, 1, 1, 2, 2]


def test_no_impossible_token_is_drawn_at_either_end():
    logits = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf, -200.0]])
    tokens, logprobs = drawn(logits, [0.0, 1.0, np.nextafter(1.0, 0.0)])
    assert tokens.tolist() == [1, 2, 2]
    assert np.isfinite(logprobs).all()


def test_greedy_takes_the_likeliest_token_and_reports_temperature_one():
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0]])
    tokens, logprobs = drawn(logits, [0.99], temperature=0.0)
    assert tokens.tolist() == [1]
    assert logprobs[0] == pytest.approx(logits.log_softmax(-1)[0, 1].item())


def test_members_draw_from_their_own_rows_at_their_own_temperatures():
    logits = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    owner = np.array([2, 0, 2, 3, 2, 0])
    heat = np.array([1.0, 0.5, 2.0, 1.0, 1.0, 0.0], dtype=np.float32)
    uniforms = np.random.default_rng(1).random(6)
    tokens, logprobs = draw(logits, owner, uniforms, heat)
    for member in range(6):
        alone = draw(
            logits[owner[member]][None],
            np.zeros(1, dtype=np.int64),
            uniforms[member : member + 1],
            heat[member : member + 1],
        )
        assert tokens[member] == alone[0][0]
        assert logprobs[member] == pytest.approx(alone[1][0], abs=1e-6)


def test_large_vocabularies_are_cut_into_chunks(monkeypatch):
    logits = torch.randn(7, 11, generator=torch.Generator().manual_seed(0))
    owner, heat = np.array([0, 1, 1, 2, 5, 6, 3]), np.ones(7, dtype=np.float32)
    uniforms = np.random.default_rng(1).random(7)
    whole = draw(logits, owner, uniforms, heat)
    monkeypatch.setattr("turnwise.engines.local.sampler.CHUNK", 22)
    parts = draw(logits, owner, uniforms, heat)
    assert whole[0].tolist() == parts[0].tolist()
    np.testing.assert_array_equal(whole[1], parts[1])


def test_logits_that_are_not_numbers_are_told_by_the_logprob():
    logits = torch.tensor([[0.0, torch.nan, 1.0]])
    tokens, logprobs = drawn(logits, [0.5])
    assert 0 <= tokens[0] < 3
    assert np.isnan(logprobs[0])


def test_half_precision_logits_are_drawn_from_in_float32():
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    tokens, logprobs = drawn(logits, [0.3])
    expected = logits.float().log_softmax(-1)[0, tokens[0]].item()
    assert logprobs[0] == pytest.approx(expected, abs=1e-6)
