"""Vectors that an index of the full model's understands, by healing or a linear map."""

import numpy as np
import pytest
import tiny
from sentence_transformers import SentenceTransformer
from shrinking.samples import QUIET, TEXTS, pairs, task_on

import layerscope
from layerscope import LayerscopeError
from layerscope.shrinking import open_shrunk
from layerscope.shrinking.same_space import fitted_map
from layerscope.shrinking.tasks import HELD

one_thread = tiny.one_thread


def test_vectors_that_an_old_index_understands(encoder, cli, tmp_path):
    """The weights of a map are kept only where they help: here they do, as nothing is healed."""
    (tmp_path / "data.txt").write_text("\n".join(TEXTS))
    call = ["shrink", encoder, "--data", tmp_path / "data.txt", "--speed", "0.01"]
    call += ["--max-loss", "90", "--minutes", "0"]
    plain, mapped = tmp_path / "plain", tmp_path / "mapped"
    assert cli(*call, "--out", plain).status == 0
    printed = cli(*call, "--same-space", "--out", mapped)
    assert printed.status == 0, printed.err
    assert "recall@10" in printed.out and "by a linear map" in printed.out
    before, after = open_shrunk(plain), open_shrunk(mapped)
    assert after.mapped and not before.mapped and after.recall > before.recall
    assert not after.healed and not before.healed
    full, cut, small = (
        SentenceTransformer(str(folder), device="cpu")
        for folder in (encoder, plain / "model", mapped / "model")
    )
    held = task_on(TEXTS, encoder).texts(HELD)
    old, cut_only, new = (model.encode(held) for model in (full, cut, small))
    np.testing.assert_allclose(np.linalg.norm(new, axis=1), 1, atol=1e-5)
    assert (old * new).sum(1).mean() > (old * cut_only).sum(1).mean()
    assert after.loss == pytest.approx(100 - 100 * (old * new).sum(1).mean(), abs=1e-3)


def test_a_linear_relation_is_found_and_a_large_ridge_changes_nothing_but_the_mean():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(500, 6)) + 3
    weights, bias = generator.normal(size=(6, 6)), generator.normal(size=6)
    wanted = vectors @ weights.T + bias
    found, constant = fitted_map(vectors, wanted, ridge=1e-4)
    np.testing.assert_allclose(found, weights, atol=0.01)
    np.testing.assert_allclose(constant, bias, atol=0.05)
    found, constant = fitted_map(vectors, wanted, ridge=1e6)
    np.testing.assert_allclose(found, np.eye(6), atol=0.01)
    np.testing.assert_allclose(constant, wanted.mean(0) - vectors.mean(0), atol=0.05)
    # between them it is the minimum of the errors and the ridge's penalty
    ridge = 0.5 * np.trace(np.cov(vectors.T, bias=True)) * 500 / 6
    found, constant = fitted_map(vectors, wanted, ridge=0.5)
    centered = vectors - vectors.mean(0)
    missed = vectors @ found.T + constant - wanted
    slope = missed.T @ centered + ridge * (found - np.eye(6))
    np.testing.assert_allclose(slope, 0, atol=1e-8)


def test_predictions_have_no_space(tmp_path):
    folder = tiny.saved(tiny.classifier(), tmp_path / "full")
    with pytest.raises(LayerscopeError, match="no dense vectors"):
        layerscope.shrink(folder, TEXTS, out=tmp_path / "out", same_space=True, **QUIET)
    language_model = tiny.saved(tiny.gpt2(), tmp_path / "gpt2", special=False)
    with pytest.raises(LayerscopeError, match="gives predictions: give texts"):
        layerscope.shrink(language_model, pairs(), out=tmp_path / "out", **QUIET)
