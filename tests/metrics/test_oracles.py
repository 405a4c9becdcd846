"""Every stored reference value whose metric lives here, at the tolerance its row of the README asks for."""

import math
import re

import numpy as np
import pytest
import references
import torch

from layerscope import metrics
from layerscope.metrics.arrays import as_finite64, centred
from layerscope.metrics.cka import hsic
from layerscope.metrics.spectrum import entropy_of_spectrum
from layerscope.scores import statistics

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


def test_rankme(oracle):
    for key in keys(oracle, "rankme"):
        _, eps, name = key.split(".")
        value = metrics.rankme(oracle[name], eps={"eps1e-7": 1e-7, "eps1e-5": 1e-5}[eps])
        assert value == pytest.approx(float(oracle[key]), rel=1e-9), key


def test_prompt_entropy(oracle):
    for key in keys(oracle, "prompt_entropy"):
        _, rows, _, name, *_ = key.split(".")
        value = metrics.prompt_entropy(oracle[name].astype(np.float64), rows=ROWS[rows])
        if not key.endswith("per_prompt"):
            assert float(value.mean()) == pytest.approx(float(oracle[key]), rel=1e-8), key
            continue
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
    for key in keys(oracle, "dataset_entropy.tokens_centred_unit_then_mean_pool"):
        tokens = np.stack([references.rows_as(doc, "centered") for doc in docs])
        assert metrics.dataset_entropy(tokens.mean(1), rows="raw") == pytest.approx(
            float(oracle[key]), rel=1e-9
        ), key


def test_curvature(oracle):
    for key in keys(oracle, "curvature"):
        name = key.removesuffix(".per_prompt").split(".")[-1]
        mask = oracle["docs_mask_20x8"] if ".masked." in key else None
        value = metrics.curvature(oracle[name].astype(np.float64), mask)
        if not key.endswith("per_prompt"):
            assert float(value.mean()) == pytest.approx(float(oracle[key]), rel=1e-8), key
            continue
        np.testing.assert_allclose(value, oracle[key], rtol=1e-8, err_msg=key)
        np.testing.assert_allclose(
            metrics.curvature(oracle[name], mask), oracle[key], rtol=1e-4, err_msg=key
        )


def test_infonce(oracle):
    a, b = oracle["z1_40x20"], oracle["z2_40x20"]
    for way, pair in (("z1_to_z2", (a, b)), ("z2_to_z1", (b, a)), ("two_way_mean", (a, b))):
        tail = f"{way}.tau0_1.z1_40x20.z2_40x20"
        both = way == "two_way_mean"
        assert metrics.infonce(*pair, symmetric=both) == pytest.approx(
            float(oracle["infonce." + tail]), rel=1e-9
        )
        bound = metrics.infonce_bound(*pair, symmetric=both)
        assert bound == pytest.approx(float(oracle["infonce_bound." + tail]), rel=1e-9)


def test_dime(oracle):
    for key in keys(oracle, "dime"):
        _, alpha, first, second = key.split(".")
        orders = oracle[f"dime_permutations_5x{len(oracle[first])}"]
        value = metrics.dime(oracle[first], oracle[second], ALPHAS[alpha], orders)
        assert value == pytest.approx(float(oracle[key]), abs=1e-9), key


def test_lidar(oracle):
    for key in keys(oracle, "lidar", "lidar_entropy"):
        family, _, eps, name = key.split(".")
        # with an epsilon the oracle adds it before scaling, the paper after: they differ by its
        # size
        value = metrics.lidar(oracle[name], eps=1e-8 if eps == "eps1e-8" else 0.0)
        value = math.log(value) if family == "lidar_entropy" else value
        assert value == pytest.approx(float(oracle[key]), rel=1e-9 if eps == "eps0" else 1e-5), key


def test_parts_of_dime(oracle):
    """The joint entropies are `matrix_entropy` of rows whose products are those of both views: a Kronecker product."""
    for key in keys(oracle, "dime_joint_entropy", "dime_permuted_entropy"):
        family, alpha, first, second = key.split(".")
        a, b = (references.rows_as(oracle[name], "unit") for name in (first, second))
        orders = (
            oracle[f"dime_permutations_5x{len(a)}"]
            if family == "dime_permuted_entropy"
            else [np.arange(len(a))]
        )
        joint = np.stack(
            [np.einsum("nd,ne->nde", a, b[order]).reshape(len(a), -1) for order in orders]
        )
        values = metrics.matrix_entropy(joint, ALPHAS[alpha], rows="raw")
        np.testing.assert_allclose(values, np.atleast_1d(oracle[key]), rtol=1e-9, err_msg=key)


def test_the_spectrum_of_lidar(oracle):
    for key in keys(oracle, "lidar_eigenvalues"):
        spectrum = torch.from_numpy(oracle[key]).clamp(min=0)
        rank = min(len(spectrum), len(oracle[key.split(".")[-1]]) - 1)
        value = float(metrics.lidar(oracle[key.split(".")[-1]]))
        assert value == pytest.approx(
            float(entropy_of_spectrum(spectrum[:rank]).exp()), rel=1e-9
        ), key


def test_linear_cka(oracle):
    for key in keys(oracle, "cka_linear"):
        _, kind, first, second = key.split(".")
        value = metrics.cka(oracle[first], oracle[second], debiased=kind == "debiased")
        assert value == pytest.approx(
            float(oracle[key]), rel=1e-8 if kind == "debiased" else 1e-9
        ), key


def test_rbf_cka(oracle):
    names = {
        "sigma2_median_offdiag": "median_sq_offdiag",
        "sigma2_median_all": "median_sq_all",
        "sigma_median_distance": "median_distance",
    }
    for key in keys(oracle, "cka_rbf"):
        _, sigma, first, second = key.split(".")
        value = metrics.cka(
            oracle[first], oracle[second], kernel="rbf", debiased=False, bandwidth=names[sigma]
        )
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


def holds(value, oracle, key, **tolerance):
    """Stored arrays are float32, and 64-bit copies of them must give the same."""
    np.testing.assert_allclose(value, oracle[key], err_msg=key, **tolerance)


def test_unbiased_hsic(oracle):
    for key in keys(oracle, "hsic_unbiased"):
        *_, first, second = key.split(".")
        x, y = (centred(as_finite64(oracle[name], name)) for name in (first, second))
        norms_x, norms_y = x.square().sum(-1), y.square().sum(-1)
        inner = (x.mT @ y).square().sum()
        value = hsic(inner, norms_x @ norms_y, norms_x.sum(), norms_y.sum(), len(x))
        holds(value, oracle, key, rtol=1e-8)


def test_cca(oracle):
    for key in keys(oracle, "cca"):
        _, kind, first, second = key.split(".")
        function = metrics.cca if kind == "mean" else metrics.canonical_correlations
        for kept in (np.float32, np.float64):
            value = function(oracle[first].astype(kept), oracle[second].astype(kept))
            holds(value, oracle, key, rtol=1e-8)


def test_svcca(oracle):
    for key in keys(oracle, "svcca"):
        *_, first, second = key.split(".")
        if key.startswith("svcca.kept_dimensions"):
            kept = [metrics.kept_dimensions(oracle[name]) for name in (first, second)]
            np.testing.assert_array_equal(kept, oracle[key], err_msg=key)
        else:
            holds(metrics.svcca(oracle[first], oracle[second]), oracle, key, rtol=1e-8)


def test_pwcca(oracle):
    for key in keys(oracle, "pwcca"):
        _, side, first, second = key.split(".")
        value = metrics.pwcca(oracle[first], oracle[second], side.removeprefix("from_"))
        holds(value, oracle, key, rtol=1e-7)


def test_procrustes(oracle):
    for key in keys(oracle, "procrustes"):
        _, kind, first, second = key.split(".")
        value = metrics.procrustes(oracle[first], oracle[second], kind.replace("normalized_", ""))
        holds(value, oracle, key, rtol=1e-9)


def test_rsa(oracle):
    for key in keys(oracle, "rsa"):
        _, rdm, compare, first, second = key.split(".")
        holds(metrics.rsa(oracle[first], oracle[second], rdm, compare), oracle, key, rtol=1e-8)


def test_pnka(oracle):
    for key in keys(oracle, "pnka"):
        value = metrics.pnka(*(oracle[name] for name in key.split(".")[1:3]))
        holds(value if key.endswith("per_point") else value.mean(), oracle, key, rtol=1e-9)


def test_mutual_knn(oracle):
    for key in keys(oracle, "mutual_knn"):
        _, distance, _, first, second = key.split(".")
        value = metrics.mutual_knn(oracle[first], oracle[second], 10, distance)
        holds(value, oracle, key, rtol=1e-15)


def test_distance_correlation(oracle):
    for key in [key for key in keys(oracle, "distance_correlation") if ".vec_" in key]:
        _, first, second = key.split(".")
        value = statistics.distance_correlation(
            oracle[first].astype(float)[None], oracle[second].astype(float)[None]
        )
        holds(value[0], oracle, key, rtol=1e-9)


@pytest.mark.parametrize(
    ("metric", "function", "options"),
    [
        ("cka", metrics.cka, {}),
        ("cka", metrics.cka, {"kernel": "rbf", "debiased": False}),
        ("cca", metrics.cca, {}),
        ("svcca", metrics.svcca, {}),
        ("pwcca", metrics.pwcca, {}),
        ("procrustes", metrics.procrustes, {}),
        ("rsa", metrics.rsa, {}),
        ("pnka", metrics.pnka, {}),
        ("mutual_knn", metrics.mutual_knn, {}),
        ("angular_distance", metrics.angular_distance, {}),
        ("cosine_similarity", metrics.cosine_similarity, {}),
    ],
)
def test_hard_inputs_as_layers(oracle, metric, function, options):
    names = ["x_60x24", "y_60x24", "hard_offset_60x24", "hard_sink_60x24", "hard_constant_60x24"]
    states = np.stack([oracle[name] for name in names], 1)
    values = metrics.similarity_matrix(states, metric, **options)
    want = [
        [np.mean(np.asarray(function(oracle[a], oracle[b], **options))) for b in names]
        for a in names
    ]
    np.testing.assert_allclose(values, want, atol=1e-8)


def test_saturation_layer(oracle):
    layers = metrics.saturation_layer(oracle["pred_table_30x8"], first_layer=0)
    np.testing.assert_array_equal(layers, oracle["saturation_layer.per_sample.pred_table_30x8"])
    assert float(layers.double().mean()) == pytest.approx(
        float(oracle["saturation_layer.mean.pred_table_30x8"])
    )


def test_correlations(oracle):
    names = {"spearman": "spearman", "kendall_tau_b": "kendall", "pearson": "pearson"}
    found = [k for k in keys(oracle, *names) if ".vec_" in k]
    assert len(found) == 6
    for key in found:
        family, first, second = key.split(".")
        value = statistics.STATISTICS[names[family]](
            oracle[first].astype(np.float64), oracle[second].astype(np.float64)
        )
        assert float(value) == pytest.approx(float(oracle[key]), rel=1e-9), key


UNREAD = {
    r"cka_rbf_sigma2\.": "the bandwidths inside cka_rbf, which no wrong one would give to 1e-9",
    r"nc1_trace_ratio\.": "another definition of NC1, beside the one that is ours",
    r"distance_correlation_u_squared\.": "another estimator of what distance_correlation is",
    r"distance_correlation\.(?!vec_)": "of samples with many features: ours is of two series",
    r"first_match_layer\.": "what saturation_layer is not: the first layer that agrees, whatever follows",
    r"infonce(_bound)?\.nt_xent\.": "another loss: both views among the negatives",
}
READ_ELSEWHERE = ("diversity.", "effective_depth.", "exit_speedup.", "nc1.")  # in test_exit_metrics


def test_every_reference_value_is_read_by_a_test(oracle, request):
    """Stands last: the tests above have read what they test."""
    ran = {item.originalname for item in request.session.items if item.path == request.path}
    if not {name for name in globals() if name.startswith("test_")} <= ran:
        pytest.skip("some tests of this file were not asked for")
    unread = {
        key for key in oracle if "." in key and not key.startswith(READ_ELSEWHERE)
    } - oracle.read
    excepted = {reason: {key for key in unread if re.match(reason, key)} for reason in UNREAD}
    assert unread == set().union(*excepted.values())
    assert all(excepted.values()), "an exception that is none"
