"""Every stored reference value whose metric lives here, at the tolerance its row of the README asks for."""

import re

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


def dataset_entropy(o, pooling, rows, alpha, name):
    pooled = o[name].astype(np.float64).mean(1)
    return metrics.dataset_entropy(pooled, rows=ROWS[rows])


def curvature(o, *parts):
    name = next(part for part in parts if part in o)
    mask = o["docs_mask_20x8"] if "masked" in parts else None
    return metrics.curvature(o[name].astype(np.float64), mask)


def infonce(function):
    def computed(o, way, temperature, first, second):
        if way == "z2_to_z1":
            first, second = second, first
        return function(o[first], o[second], symmetric=way == "two_way_mean")

    return computed


def orders(o, name):
    return o[f"dime_permutations_5x{len(o[name])}"]


def nc1(o, mean, name):
    labels = o[name.replace("features", "labels").rsplit("x", 1)[0]]
    mean = mean.removeprefix("global_mean_of_")
    return metrics.neural_collapse(o[name], labels, global_mean=mean).nc1


def effective_depth(o, kind, epsilon, name):
    tolerance = float(epsilon.removeprefix("eps").replace("_", "."))
    return metrics.effective_depth(o[name], tolerance, BEST[kind])


def statistic(name):
    def computed(o, first, second):
        series = (o[part].astype(np.float64)[None] for part in (first, second))
        return statistics.STATISTICS[name](*series)[0]

    return computed


FAMILIES = {
    "matrix_entropy": lambda o, rows, alpha, name: metrics.matrix_entropy(
        o[name], ALPHAS[alpha], ROWS[rows]
    ),
    "effective_rank": lambda o, centre, name: metrics.effective_rank(
        o[name], centre == "centred"
    ),
    "rankme": lambda o, eps, name: metrics.rankme(o[name], EPSILONS[eps]),
    "prompt_entropy": lambda o, rows, alpha, name, *rest: metrics.prompt_entropy(
        o[name].astype(np.float64), rows=ROWS[rows]
    ),
    "dataset_entropy": dataset_entropy,
    "curvature": curvature,
    "infonce": infonce(metrics.infonce),
    "infonce_bound": infonce(metrics.infonce_bound),
    "dime": lambda o, alpha, a, b: metrics.dime(
        o[a], o[b], ALPHAS[alpha], orders(o, a)
    ),
    "lidar": lambda o, delta, eps, name: metrics.lidar(o[name], eps=EPSILONS[eps]),
    "cka_linear": lambda o, kind, x, y: metrics.cka(
        o[x], o[y], debiased=kind == "debiased"
    ),
    "cka_rbf": lambda o, sigma, x, y: metrics.cka(
        o[x], o[y], "rbf", False, BANDWIDTHS[sigma]
    ),
    "cka_minibatch": lambda o, sizes, x, y: metrics.cka_minibatch(
        o[x], o[y], int(sizes[1:].split("_")[0])
    ),
    "cosine_samplewise": lambda o, kind, x, y: metrics.cosine_similarity(
        o[x], o[y], kind == "centred"
    ),
    "cca": lambda o, kind, x, y: metrics.cca(o[x], o[y]),
    "svcca": lambda o, kind, x, y: metrics.svcca(o[x], o[y]),
    "pwcca": lambda o, side, x, y: metrics.pwcca(
        o[x], o[y], side.removeprefix("from_")
    ),
    "procrustes": lambda o, kind, x, y: metrics.procrustes(
        o[x], o[y], kind.replace("normalized_", "")
    ),
    "rsa": lambda o, rdm, compare, x, y: metrics.rsa(o[x], o[y], rdm, compare),
    "pnka": lambda o, x, y, *rest: metrics.pnka(o[x], o[y]),
    "mutual_knn": lambda o, distance, k, x, y: metrics.mutual_knn(
        o[x], o[y], 10, distance
    ),
    "saturation_layer": lambda o, kind, name: metrics.saturation_layer(o[name], 0),
    "effective_depth": effective_depth,
    "exit_speedup": lambda o, name: metrics.exit_speedup(o[name]),
    "diversity": lambda o, name: metrics.diversity(o[name].tolist()),
    "nc1": nc1,
    "distance_correlation": statistic("dcor"),
    "spearman": statistic("spearman"),
    "kendall_tau_b": statistic("kendall"),
    "pearson": statistic("pearson"),
}
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
        value = np.asarray(FAMILIES[family](oracle, *parts))
        if oracle[key].ndim == 0:
            value = value.mean()
        np.testing.assert_allclose(
            value, oracle[key], rtol=tolerance, atol=near_zero, err_msg=key
        )


def test_every_stored_value_is_read_by_a_test_or_is_not_ours(oracle):
    assert {key.split(".")[0] for key in ours(oracle)} == {*FAMILIES}
    assert all(any(re.match(each, key) for key in oracle) for each in NOT_OURS)
