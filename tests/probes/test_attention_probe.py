"""Attention probing: the head against plain attention, what mean pooling cannot see, the same score twice."""

import numpy as np
import pytest
import torch
from tiny import one_thread

from layerscope.core.errors import LayerscopeError
from layerscope.probes import attention, attention_probe, linear_probe
from layerscope.probes.attention import HEADS, Ragged, Readers

__all__ = ["one_thread"]


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer steps: these tasks are easy."""
    monkeypatch.setattr(attention, "LEAST_STEPS", 60)
    monkeypatch.setattr(attention, "EPOCHS", 1)


def carried(n: int, seed: int = 0) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Samples of 6 to 10 tokens that all point at some class; only the marked one of them points at the sample's."""
    rng = np.random.default_rng(seed)
    labels, lengths = rng.integers(0, 3, n), rng.integers(6, 11, n)
    mark, *classes = 8 * np.linalg.qr(rng.standard_normal((24, 4)))[0].T
    samples = []
    for label, length in zip(labels, lengths, strict=True):
        shown = rng.integers(0, 3, length)
        tokens = 0.5 * rng.standard_normal((length, 24)) + np.array(classes)[shown]
        marked = rng.integers(length)
        tokens[marked] += mark + classes[label] - classes[shown[marked]]
        samples.append(tokens)
    return torch.from_numpy(np.concatenate(samples)).float(), lengths, labels


def means(tokens: torch.Tensor, lengths: np.ndarray) -> np.ndarray:
    return np.stack([part.mean(0).numpy() for part in tokens.split(lengths.tolist())])


def test_it_reads_what_one_token_carries_where_the_mean_cannot():
    tokens, lengths, labels = carried(180)
    found = attention_probe(tokens, lengths, labels)
    assert linear_probe(means(tokens, lengths), labels).high < 0.62
    assert found.low > 0.85 and found.n == 180 and len(found.folds) == 3
    assert found == attention_probe(tokens, lengths, labels)
    hazy = tokens + 3 * torch.randn(tokens.shape, generator=torch.Generator().manual_seed(0))
    assert attention_probe(hazy, lengths, labels) != attention_probe(hazy, lengths, labels, seed=1)


def test_noise_is_at_chance_and_rare_classes_are_left_out():
    labels = np.arange(90) % 3
    labels[:2] = 7
    tokens = torch.randn(180, 8, generator=torch.Generator().manual_seed(0))
    found = attention_probe(tokens, np.full(90, 2), labels)
    assert found.low < 1 / 3 < found.high
    assert (found.n, found.n_skipped) == (88, 2)


def test_a_head_is_attention_with_keys_and_values_over_real_tokens():
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randn(9, 16, generator=generator) * 3 + 1
    held = Ragged(tokens, [2, 7])
    mean, deviation = held.moments(torch.arange(2))
    assert torch.allclose(mean, tokens.mean(0), atol=1e-6)
    assert torch.allclose(deviation, tokens.std(0, correction=0), atol=1e-6)
    readers = Readers(mean, deviation, 4, 2, generator)
    for part in readers.parameters():
        part.data = torch.randn(part.shape, generator=generator)
    logits = readers(*held.batch(torch.arange(2)))
    for copy in range(2):
        key, value, out = (part[copy] for part in (readers.key, readers.value, readers.out))
        for sample, own in enumerate(tokens.split([2, 7])):
            plain = (own - mean) / deviation
            k, v = (
                torch.einsum("td,hds->hts", plain, key),
                torch.einsum("td,hds->hts", plain, value),
            )
            read = torch.nn.functional.scaled_dot_product_attention(
                readers.query[copy][:, None], k, v
            )
            expected = read.flatten() @ out.flatten(0, 1) + readers.bias[copy]
            assert torch.allclose(logits[copy, sample], expected, atol=1e-4)
    assert readers.query[0].shape == (HEADS, 2)


def test_a_feature_that_does_not_move_says_nothing():
    tokens, lengths, labels = carried(60)
    tokens[:, 5] = 1e4 + 1 / 3
    mean, deviation = Ragged(tokens, lengths).moments(torch.arange(60))
    readers = Readers(mean, deviation, 3, 1, torch.Generator().manual_seed(0))
    seen = (tokens - readers.mean) * readers.scale
    assert seen[:, 5].abs().max() < 0.02 and seen[:, 4].std() == pytest.approx(1, abs=0.01)


def test_wrong_input():
    tokens = torch.zeros(10, 4)
    with pytest.raises(LayerscopeError, match=r"shape \(10, 4\) and lengths add up to 9"):
        attention_probe(tokens, [4, 5], [0, 1])
    with pytest.raises(LayerscopeError, match="2 samples and labels"):
        attention_probe(tokens, [5, 5], [0])
    with pytest.raises(LayerscopeError, match="fewer than 2 classes have 3 members"):
        attention_probe(tokens, np.full(5, 2), [0, 0, 0, 1, 1])
    with pytest.raises(LayerscopeError, match="NaN or infinite"):
        attention_probe(tokens * torch.nan, np.full(5, 2), [0, 0, 0, 1, 1])
