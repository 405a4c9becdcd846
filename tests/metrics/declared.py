"""Metrics of layers as tests hold them to their promises: how each is called, on what, and what it does not see.

A metric is a line of `METRICS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscope import metrics

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Metric:
    """`call` takes what `inputs` draws; `same` names changes of `CHANGES`; `low` and `high` take the shape."""

    call: Callable[..., Any]
    inputs: str
    same: str
    low: Callable[[int, int], float] = lambda n, d: -np.inf
    high: Callable[[int, int], float] = lambda n, d: np.inf


def one(n: int, d: int) -> float:
    return 1.0


def zero(n: int, d: int) -> float:
    return 0.0


def log_side(n: int, d: int) -> float:
    return float(np.log(min(n, d)))


def side(n: int, d: int) -> float:
    return float(min(n, d))


def centred_side(n: int, d: int) -> float:
    return float(min(n - 1, d))


def norm(part: str) -> Callable[..., Any]:
    return lambda tokens, mask=None: getattr(metrics.norms(tokens, mask), part)


SPACE = "rotation scale order"
"""Changes of the space or of the order of samples that say nothing of how the samples lie to each other."""
EACH = "rotation_each scale_each shift_each order swap"
"""The same, made to each of two sides on its own."""
ORDERS = np.stack([np.random.default_rng(i).permutation(9) for i in range(3)])

METRICS = {
    "matrix_entropy": Metric(metrics.matrix_entropy, "rows", f"{SPACE} row_scale", zero, log_side),
    "matrix_entropy raw": Metric(
        lambda z: metrics.matrix_entropy(z, rows="raw"),
        "rows",
        f"{SPACE} transpose",
        zero,
        log_side,
    ),
    "matrix_entropy raw S2": Metric(
        lambda z: metrics.matrix_entropy(z, 2.0, rows="raw"),
        "rows",
        f"{SPACE} transpose",
        zero,
        log_side,
    ),
    "matrix_entropy raw S0.5": Metric(
        lambda z: metrics.matrix_entropy(z, 0.5, rows="raw"),
        "rows",
        f"{SPACE} transpose",
        zero,
        log_side,
    ),
    "matrix_entropy centered": Metric(
        lambda z: metrics.matrix_entropy(z, rows="centered"),
        "rows",
        f"{SPACE} shift",
        zero,
        log_side,
    ),
    "dataset_entropy": Metric(
        metrics.dataset_entropy, "rows", f"{SPACE} row_scale", zero, log_side
    ),
    "effective_rank": Metric(metrics.effective_rank, "rows", f"{SPACE} transpose", one, side),
    "rankme": Metric(lambda z: metrics.rankme(z, 0.0), "rows", f"{SPACE} transpose", one, side),
    "anisotropy": Metric(
        metrics.anisotropy, "rows", f"{SPACE} shift", lambda n, d: 1 / centred_side(n, d), one
    ),
    "nesum": Metric(metrics.nesum, "rows", f"{SPACE} shift", one, centred_side),
    "alpha_req": Metric(lambda z: metrics.alpha_req(z, (1, 9)), "rows", f"{SPACE} shift", zero),
    "intrinsic_dimension": Metric(metrics.intrinsic_dimension, "rows", f"{SPACE} shift", zero),
    "prompt_entropy": Metric(
        metrics.prompt_entropy, "tokens", f"{SPACE} row_scale", zero, log_side
    ),
    "curvature": Metric(
        metrics.curvature, "tokens", "rotation scale shift reversal", zero, lambda n, d: np.pi
    ),
    "norm_mean": Metric(norm("mean"), "tokens", "rotation order", zero),
    "norm_median": Metric(norm("median"), "tokens", "rotation order", zero),
    "norm_max": Metric(norm("maximum"), "tokens", "rotation order", zero),
    "sink_share": Metric(norm("sink_share"), "tokens", SPACE, zero, one),
    "infonce": Metric(metrics.infonce, "pair", f"{SPACE} row_scale swap", zero),
    "infonce_bound": Metric(
        metrics.infonce_bound, "pair", f"{SPACE} row_scale swap", high=lambda n, d: float(np.log(n))
    ),
    "dime": Metric(
        lambda a, b: metrics.dime(a, b, permutations=ORDERS),
        "nine pairs",
        "rotation_each scale_each row_scale",
    ),
    "lidar": Metric(metrics.lidar, "views", "rotation shift sample_order order", one, centred_side),
    "cka": Metric(metrics.cka, "pair", EACH, lambda n, d: -1.0, one),
    "cka biased": Metric(lambda x, y: metrics.cka(x, y, debiased=False), "pair", EACH, zero, one),
    "cka rbf": Metric(
        lambda x, y: metrics.cka(x, y, "rbf", debiased=False), "pair", EACH, zero, one
    ),
    "cosine_similarity": Metric(
        lambda x, y: metrics.cosine_similarity(x, y).mean(-1),
        "pair",
        "rotation scale_each shift_each order swap",
        lambda n, d: -1.0,
        one,
    ),
    "angular_distance": Metric(
        lambda x, y: metrics.angular_distance(x, y).mean(-1),
        "pair",
        "rotation scale_each shift_each order swap",
        zero,
        one,
    ),
    "cca": Metric(metrics.cca, "tall pair", EACH, zero, one),
    "svcca": Metric(metrics.svcca, "tall pair", EACH, zero, one),
    "pwcca": Metric(metrics.pwcca, "tall pair", "scale_each shift_each order", zero, one),
    "procrustes": Metric(metrics.procrustes, "pair", EACH, zero, one),
    "rsa": Metric(metrics.rsa, "pair", "scale_each order swap", lambda n, d: -1.0, one),
    "rsa cosine": Metric(
        lambda x, y: metrics.rsa(x, y, "cosine", "pearson"),
        "pair",
        "rotation_each scale_each row_scale order swap",
        lambda n, d: -1.0,
        one,
    ),
    "pnka": Metric(lambda x, y: metrics.pnka(x, y).mean(-1), "pair", EACH, lambda n, d: -1.0, one),
    "mutual_knn": Metric(
        lambda x, y: metrics.mutual_knn(x, y, 3),
        "pair",
        "rotation_each scale_each row_scale order swap",
        zero,
        one,
    ),
}


def draw(inputs: str, rng: np.random.Generator) -> Arrays:
    n, d = (
        {"nine pairs": 9, "tall pair": 30}.get(inputs, int(rng.integers(5, 13))),
        int(rng.integers(3, 10)),
    )
    spread = rng.uniform(0.2, 3, d)
    if inputs == "views":
        return [rng.standard_normal((n, 1, d)) * spread + 0.3 * rng.standard_normal((n, 3, d))]
    rows = rng.standard_normal((n, d)) * spread + rng.standard_normal(d)
    return [rows, rows + rng.standard_normal((n, d))] if "pair" in inputs else [rows]
