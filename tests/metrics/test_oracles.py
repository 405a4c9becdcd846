"""Every stored reference value whose metric lives here, at the tolerance its row of the README asks for."""

import numpy as np
import pytest

from layerscope import metrics

ROWS = {"raw": "raw", "unit": "unit", "centred_unit": "centered"}
ALPHAS = {"alpha0_5": 0.5, "alpha1": 1.0, "alpha1_5": 1.5, "alpha2": 2.0}


def keys(oracle, *prefixes):
    found = [k for k in oracle if any(k.startswith(p + ".") for p in prefixes)]
    assert found
    return found


def test_matrix_entropy(oracle):
    for key in keys(oracle, "matrix_entropy"):
        _, rows, alpha, name = key.split(".")
        value = metrics.matrix_entropy(oracle[name], ALPHAS[alpha], ROWS[rows])
        assert value == pytest.approx(float(oracle[key]), rel=1e-8), key


def test_effective_rank(oracle):
    for key in keys(oracle, "effective_rank"):
        _, centre, name = key.split(".")
        value = metrics.effective_rank(oracle[name], center=centre == "centred")
        assert value == pytest.approx(float(oracle[key]), rel=1e-9), key


def test_prompt_entropy(oracle):
    for key in [k for k in keys(oracle, "prompt_entropy") if k.endswith("per_prompt")]:
        _, rows, _, name, _ = key.split(".")
        value = metrics.prompt_entropy(oracle[name].astype(np.float64), rows=ROWS[rows])
        np.testing.assert_allclose(value, oracle[key], rtol=1e-8, err_msg=key)
        single = metrics.prompt_entropy(oracle[name], rows=ROWS[rows])
        np.testing.assert_allclose(single, oracle[key], rtol=1e-5, atol=1e-5, err_msg=key)


def test_dataset_entropy(oracle):
    docs, mask = oracle["docs_20x8x16"].astype(np.float64), oracle["docs_mask_20x8"]
    masked = (docs * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    for key in keys(oracle, "dataset_entropy.mean_pool", "dataset_entropy.masked_mean_pool"):
        pooled = docs.mean(1) if ".mean_pool." in key else masked
        value = metrics.dataset_entropy(pooled, rows=ROWS[key.split(".")[2]])
        assert value == pytest.approx(float(oracle[key]), rel=1e-9), key


def test_curvature(oracle):
    for key in [k for k in keys(oracle, "curvature") if k.endswith("per_prompt")]:
        name = key.split(".")[-2]
        mask = oracle["docs_mask_20x8"] if ".masked." in key else None
        value = metrics.curvature(oracle[name].astype(np.float64), mask)
        np.testing.assert_allclose(value, oracle[key], rtol=1e-8, err_msg=key)
        np.testing.assert_allclose(metrics.curvature(oracle[name], mask), oracle[key], rtol=1e-4, err_msg=key)


def test_infonce(oracle):
    a, b = oracle["z1_40x20"], oracle["z2_40x20"]
    for way, pair in (("z1_to_z2", (a, b)), ("z2_to_z1", (b, a)), ("two_way_mean", (a, b))):
        tail = f"{way}.tau0_1.z1_40x20.z2_40x20"
        both = way == "two_way_mean"
        assert metrics.infonce(*pair, symmetric=both) == pytest.approx(float(oracle["infonce." + tail]), rel=1e-9)
        bound = metrics.infonce_bound(*pair, symmetric=both)
        assert bound == pytest.approx(float(oracle["infonce_bound." + tail]), rel=1e-9)


def test_dime(oracle):
    for key in keys(oracle, "dime"):
        _, alpha, first, second = key.split(".")
        orders = oracle[f"dime_permutations_5x{len(oracle[first])}"]
        value = metrics.dime(oracle[first], oracle[second], ALPHAS[alpha], orders)
        assert value == pytest.approx(float(oracle[key]), abs=1e-9), key


def test_lidar(oracle):
    for key in keys(oracle, "lidar"):
        _, _, eps, name = key.split(".")
        # The published epsilon is added to the eigenvalues before they are scaled.
        value = metrics.lidar(oracle[name], eps=1e-8 if eps == "eps1e-8" else 0.0)
        assert value == pytest.approx(float(oracle[key]), rel=1e-9), key


def test_linear_cka(oracle):
    for key in keys(oracle, "cka_linear"):
        _, kind, first, second = key.split(".")
        value = metrics.cka(oracle[first], oracle[second], debiased=kind == "debiased")
        assert value == pytest.approx(float(oracle[key]), rel=1e-8 if kind == "debiased" else 1e-9), key


def test_rbf_cka(oracle):
    names = {
        "sigma2_median_offdiag": "median_sq_offdiag",
        "sigma2_median_all": "median_sq_all",
        "sigma_median_distance": "median_distance",
    }
    for key in keys(oracle, "cka_rbf"):
        _, sigma, first, second = key.split(".")
        value = metrics.cka(oracle[first], oracle[second], kernel="rbf", debiased=False, bandwidth=names[sigma])
        assert value == pytest.approx(float(oracle[key]), rel=1e-9), key


def test_minibatch_cka(oracle):
    for key in keys(oracle, "cka_minibatch"):
        _, sizes, first, second = key.split(".")
        batch = int(sizes[1:].split("_")[0])
        value = metrics.cka_minibatch(oracle[first], oracle[second], batch)
        assert value == pytest.approx(float(oracle[key]), rel=1e-9), key


def test_cosine_similarity(oracle):
    for key in keys(oracle, "cosine_samplewise"):
        _, kind, first, second = key.split(".")
        value = metrics.cosine_similarity(oracle[first], oracle[second], center=kind == "centred")
        assert float(value.mean()) == pytest.approx(float(oracle[key]), rel=1e-9), key


def test_saturation_layer(oracle):
    layers = metrics.saturation_layer(oracle["pred_table_30x8"], first_layer=0)
    np.testing.assert_array_equal(layers, oracle["saturation_layer.per_sample.pred_table_30x8"])
