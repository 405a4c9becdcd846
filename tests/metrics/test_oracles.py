"""Every stored reference value whose metric lives here, at the tolerance its row of the README asks for."""

import re
from functools import partial

import numpy as np
import pytest

from layerscope import metrics
from layerscope.scores import statistics

ROWS = {"raw": "raw", "unit": "unit", "centred_unit": "centered"}
ALPHAS = {"alpha0_5": 0.5, "alpha1": 1.0, "alpha1_5": 1.5, "alpha2": 2.0}
EPSILONS = {"eps0": 0.0, "eps1e-5": 1e-5, "eps1e-7": 1e-7, "eps1e-8": 1e-8}
BEST = {
    "absolute_error": None,
    "within_eps_of_last": "last",
    "within_eps_of_best": "best",
}
BANDWIDTHS = {
    "sigma2_median_offdiag": "median_sq_offdiag",
    "sigma2_median_all": "median_sq_all",
    "sigma_median_distance": "median_distance",
}


def in_float64(values):
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def curvature(o, *parts):
    tokens = next(part for part in parts if isinstance(part, np.ndarray))
    mask = o["docs_mask_20x8"] if isinstance(parts[0], str) else None
    return metrics.curvature(tokens, mask)


def infonce(function, o, way, temperature, first, second):
    if way == "z2_to_z1":
        first, second = second, first
    return function(first, second, symmetric=way == "two_way_mean")


def dime(o, alpha, a, b):
    return metrics.dime(a, b, ALPHAS[alpha], o[f"dime_permutations_5x{len(a)}"])


def nc1(o, mean, states):
    labels = next(o[key] for key in o if key.endswith(f"labels_{len(states)}"))
    mean = mean.removeprefix("global_mean_of_")
    return metrics.neural_collapse(states, labels, global_mean=mean).nc1


def effective_depth(o, kind, epsilon, accuracies):
    tolerance = float(epsilon.removeprefix("eps").replace("_", "."))
    return metrics.effective_depth(accuracies, tolerance, BEST[kind])


def statistic(name, o, first, second):
    return statistics.STATISTICS[name](first[None], second[None])


FAMILIES = {
    "matrix_entropy": lambda o, rows, alpha, Z: metrics.matrix_entropy(
        Z, ALPHAS[alpha], ROWS[rows]
    ),
    "effective_rank": lambda o, centre, Z: metrics.effective_rank(
        Z, centre == "centred"
    ),
    "rankme": lambda o, eps, Z: metrics.rankme(Z, EPSILONS[eps]),
    "prompt_entropy": lambda o, rows, alpha, tokens, *rest: metrics.prompt_entropy(
        tokens, rows=ROWS[rows]
    ),
    "dataset_entropy": lambda o, pooling, rows, alpha, docs: metrics.dataset_entropy(
        docs.mean(1), rows=ROWS[rows]
    ),
    "curvature": curvature,
    "infonce": partial(infonce, metrics.infonce),
    "infonce_bound": partial(infonce, metrics.infonce_bound),
    "dime": dime,
    "lidar": lambda o, delta, eps, views: metrics.lidar(views, eps=EPSILONS[eps]),
    "cka_linear": lambda o, kind, x, y: metrics.cka(x, y, debiased=kind == "debiased"),
    "cka_rbf": lambda o, sigma, x, y: metrics.cka(
        x, y, "rbf", False, BANDWIDTHS[sigma]
    ),
    "cka_minibatch": lambda o, sizes, x, y: metrics.cka_minibatch(
        x, y, int(sizes[1:].split("_")[0])
    ),
    "cosine_samplewise": lambda o, kind, x, y: metrics.cosine_similarity(
        x, y, kind == "centred"
    ),
    "cca": lambda o, kind, x, y: metrics.cca(x, y),
    "svcca": lambda o, kind, x, y: metrics.svcca(x, y),
    "pwcca": lambda o, side, x, y: metrics.pwcca(x, y, side.removeprefix("from_")),
    "procrustes": lambda o, kind, x, y: metrics.procrustes(
        x, y, kind.replace("normalized_", "")
    ),
    "rsa": lambda o, rdm, compare, x, y: metrics.rsa(x, y, rdm, compare),
    "pnka": lambda o, x, y, *rest: metrics.pnka(x, y),
    "mutual_knn": lambda o, distance, k, x, y: metrics.mutual_knn(x, y, 10, distance),
    "saturation_layer": lambda o, kind, tops: metrics.saturation_layer(tops, 0),
    "effective_depth": effective_depth,
    "exit_speedup": lambda o, counts: metrics.exit_speedup(counts),
    "diversity": lambda o, text: metrics.diversity(text.tolist()),
    "nc1": nc1,
    "distance_correlation": partial(statistic, "dcor"),
    "spearman": partial(statistic, "spearman"),
    "kendall_tau_b": partial(statistic, "kendall"),
    "pearson": partial(statistic, "pearson"),
}
"""Each takes all that is stored and the parts of a key, names of arrays replaced by these."""
TOLERANCES = {
    "matrix_entropy": 1e-8,
    "prompt_entropy": 1e-8,
    "curvature": 1e-8,
    "cka_linear": 1e-8,
    "cca": 1e-8,
    "svcca": 1e-8,
    "rsa": 1e-8,
    "pwcca": 1e-7,
    "mutual_knn": 1e-15,
}
NOT_OURS = {
    "cka_rbf_sigma2": "the bandwidths inside cka_rbf, which no wrong one would give to 1e-9",
    "dime_(joint|permuted)_entropy": "the two terms of dime",
    "lidar_(entropy|eigenvalues)": "what lidar is the exponential of",
    "hsic_unbiased": "the three terms of cka_linear.debiased",
    r"cca\.correlations": "what cca.mean is the mean of",
    r"svcca\.kept_dimensions": "how many svcca.variance99 keeps",
    r"dataset_entropy\.(masked|tokens)": "the same of rows that are pooled otherwise before",
    "nc1_trace_ratio": "another definition of NC1, beside the one that is ours",
    "distance_correlation_u_squared": "another estimator of what distance_correlation is",
    "first_match_layer": "the first layer that agrees, whatever follows",
    r"procrustes\.(angular|squared_distance)\.": "what the distance is to other powers",
    r"infonce(_bound)?\.nt_xent\.": "another loss: both views among the negatives",
    r"distance_correlation\.(?!vec_)": "of samples with many features: ours is of two series",
    r"diversity\.pooled_counts": "of several texts together: ours is of one",
}


def ours(oracle):
    """Return the keys of the stored values whose metric lives here."""
    keys = (key for key in oracle if "." in key)
    return [key for key in keys if not any(re.match(each, key) for each in NOT_OURS)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_library_gives_the_stored_values(oracle, family):
    for key in ours(oracle):
        name, *parts = key.split(".")
        if name != family:
            continue
        # with an epsilon the oracle of LiDAR adds it before scaling, the paper after
        tolerance = 1e-5 if "eps1e-8" in parts else TOLERANCES.get(family, 1e-9)
        near_zero = 1e-9 if family == "dime" else 1e-12
        arguments = [
            in_float64(oracle[part]) if part in oracle else part for part in parts
        ]
        value = np.asarray(FAMILIES[family](oracle, *arguments))
        if oracle[key].ndim == 0:
            value = value.mean()
        np.testing.assert_allclose(
            value, oracle[key], rtol=tolerance, atol=near_zero, err_msg=key
        )


def test_every_stored_value_is_read_by_a_test_or_is_not_ours(oracle):
    assert {key.split(".")[0] for key in ours(oracle)} == {*FAMILIES}
    assert all(any(re.match(each, key) for key in oracle) for each in NOT_OURS)
