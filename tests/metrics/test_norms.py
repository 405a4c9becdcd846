import numpy as np
import pytest
import references
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import Norms, norms

PARTS = ("mean", "median", "maximum", "sink_share")


def parts(found):
    return torch.stack([getattr(found, name) for name in PARTS])


def test_agrees_with_the_reference_for_any_mask(rng):
    tokens = rng.standard_normal((2, 6, 14, 9))
    tokens[:, :3, 2] *= 100
    mask = rng.random((6, 14)) < 0.7
    mask[:, 2] = True
    found = norms(tokens, mask)
    assert isinstance(found, Norms)
    for layer in range(2):
        want = np.array(
            [references.norms(z[m]) for z, m in zip(tokens[layer], mask, strict=True)]
        ).T
        np.testing.assert_allclose(parts(found)[:, layer], want, rtol=1e-12)
    assert (found.sink_share[:, :3] > 0).all() and (found.sink_share[:, 3:] == 0).all()


def test_a_sink_is_a_share_of_the_real_tokens():
    tokens = torch.ones(1, 6, 4)
    tokens[0, 0] *= 10.5
    assert norms(tokens).sink_share.item() == pytest.approx(1 / 6)
    assert norms(tokens, torch.tensor([[1, 1, 1, 1, 0, 0]])).sink_share.item() == pytest.approx(
        1 / 4
    )
    tokens[0, 0] /= 1.1
    assert norms(tokens).sink_share.item() == 0


def test_trap_10_norms_do_not_see_padding(rng):
    tokens = torch.from_numpy(rng.standard_normal((3, 9, 5)))
    filler = torch.full((3, 4, 5), torch.nan)
    mask = torch.arange(13).expand(3, 13)
    for padded, real in (
        (torch.cat([tokens, filler], 1), mask < 9),
        (torch.cat([filler, tokens], 1), mask >= 4),
    ):
        np.testing.assert_allclose(parts(norms(padded, real)), parts(norms(tokens)), rtol=1e-12)


def test_trap_11_no_token_and_one_token(rng):
    tokens = rng.standard_normal((2, 4, 3))
    found = norms(tokens, np.arange(4) < np.array([[0], [1]]))
    assert parts(found)[:, 0].isnan().all()
    size = np.linalg.norm(tokens[1, 0])
    np.testing.assert_allclose(parts(found)[:, 1], [size, size, size, 0])


def test_a_broken_sample_is_nan_and_spares_the_others(rng):
    tokens = torch.from_numpy(rng.standard_normal((3, 6, 4))).float()
    tokens[0, 2, 1], tokens[1, 5, 0] = torch.nan, torch.inf
    found = parts(norms(tokens))
    assert found[:, :2].isnan().all() and found[:, 2].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_trap_12_norms_of_half_precision_do_not_overflow(dtype):
    tokens = torch.full((1, 5, 64), 15_000.0, dtype=dtype)
    found = norms(tokens)
    assert found.mean.dtype == torch.float32
    np.testing.assert_allclose(parts(found)[:3, 0], 8.0 * float(tokens[0, 0, 0]), rtol=1e-6)


def test_errors():
    with pytest.raises(LayerscopeError, match=r"mask has shape \(2, 4\) and tokens \(2, 5, 3\)"):
        norms(np.ones((2, 5, 3)), np.ones((2, 4)))
    with pytest.raises(LayerscopeError, match=r"tokens has shape \(3,\)"):
        norms(np.ones(3))
