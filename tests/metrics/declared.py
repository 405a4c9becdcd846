"""Every metric of layers in one table: on what it is computed, its reference, and what it promises."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import references

from layerscope import metrics

Arrays = list[np.ndarray]
Bound = Callable[[int, int], float]


@dataclass(frozen=True)
class Metric:
    """`inputs` is drawn by `draw`, `unchanged_by` names changes of `CHANGES`, bounds take the shape.

    `flat` is the value where no row (of the first side) differs from another, None where that is no special case.
    """

    call: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: str
    unchanged_by: str
    low: Bound
    high: Bound
    flat: float | None
    tolerance: float


METRICS: dict[str, Metric] = {}


def none(n: int, d: int) -> float:
    return np.inf


def minus_one(n: int, d: int) -> float:
    return -1.0


def zero(n: int, d: int) -> float:
    return 0.0


def one(n: int, d: int) -> float:
    return 1.0


def pi(n: int, d: int) -> float:
    return np.pi


def log_samples(n: int, d: int) -> float:
    return float(np.log(n))


def log_side(n: int, d: int) -> float:
    return float(np.log(min(n, d)))


def side(n: int, d: int) -> float:
    return float(min(n, d))


def centred_side(n: int, d: int) -> float:
    return float(min(n - 1, d))


def least_share(n: int, d: int) -> float:
    return 1 / centred_side(n, d)


def declare(
    name: str,
    inputs: str,
    unchanged_by: str,
    bounds: tuple[Bound, Bound],
    flat: float | None = np.nan,
    **options: Any,
) -> None:
    """Add a metric with some options; the reference has its name and takes the same."""
    key = " ".join([name, *(f"{option}={value}" for option, value in options.items())])
    METRICS[key] = Metric(
        partial(getattr(metrics, name), **options),
        partial(getattr(references, name), **options),
        inputs,
        unchanged_by,
        *bounds,
        flat,
        tolerance=1e-6 if options.get("alpha", 1) < 1 else 1e-8,
    )


def declare_norm(part: str, unchanged_by: str, high: Bound, flat: float | None) -> None:
    index = ("mean", "median", "maximum", "sink_share").index(part)
    METRICS[f"norms {part}"] = Metric(
        lambda tokens, mask=None: getattr(metrics.norms(tokens, mask), part),
        lambda tokens: references.norms(tokens)[index],
        "tokens",
        unchanged_by,
        zero,
        high,
        flat,
        tolerance=1e-12,
    )


SPACE = "rotation scale order"
"""Changes of the space or of the order of samples that say nothing of how the samples lie to each other."""
EACH = "rotation_each scale_each shift_each order swap"
"""The same, made to each of two sides on its own."""
OF_ROWS = {"unit": "row_scale", "raw": "transpose", "centered": "shift"}

for alpha in (0.5, 1.0, 2.0, np.inf):
    for rows, change in OF_ROWS.items():
        entropy = {"alpha": alpha, "rows": rows, "flat": 0.0}
        declare("matrix_entropy", "rows", f"{SPACE} {change}", (zero, log_side), **entropy)
        declare(
            "prompt_entropy",
            "tokens",
            f"{SPACE} {change}" if rows != "raw" else SPACE,
            (zero, log_side),
            **entropy,
        )
declare("dataset_entropy", "rows", f"{SPACE} row_scale", (zero, log_side), flat=0.0)
declare("effective_rank", "rows", f"{SPACE} transpose", (one, side), flat=1.0)
declare("effective_rank", "rows", f"{SPACE} shift", (one, centred_side), flat=1.0, center=True)
declare("rankme", "rows", f"{SPACE} transpose", (one, side), flat=1.0, eps=0.0)
declare("rankme", "rows", SPACE, (one, none), flat=None, eps=1e-3)
declare("anisotropy", "rows", f"{SPACE} shift", (least_share, one))
declare("nesum", "rows", f"{SPACE} shift", (one, centred_side))
declare("alpha_req", "rows", f"{SPACE} shift", (zero, none), fit=(1, 9))
declare("alpha_req", "rows", f"{SPACE} shift", (zero, none), fit=(2, 4))
for discard in (0.0, 0.1, 0.5):
    declare("intrinsic_dimension", "rows", f"{SPACE} shift", (zero, none), discard=discard)
declare("curvature", "tokens", "rotation scale shift reversal", (zero, pi))
declare_norm("mean", "rotation order", none, None)
declare_norm("median", "rotation order", none, None)
declare_norm("maximum", "rotation order", none, None)
declare_norm("sink_share", SPACE, one, 0.0)

for temperature in (0.05, 0.1, 1.0):
    declare(
        "infonce",
        "pair",
        f"{SPACE} row_scale swap",
        (zero, none),
        flat=None,
        temperature=temperature,
    )
declare("infonce", "pair", f"{SPACE} row_scale", (zero, none), flat=None, symmetric=False)
declare(
    "infonce_bound",
    "pair",
    f"{SPACE} row_scale swap",
    (lambda n, d: -np.inf, log_samples),
    flat=None,
)
for alpha in (1.0, 1.5, 2.0):
    declare(
        "dime",
        "two widths",
        "rotation_each scale_each row_scale",
        (lambda n, d: -np.inf, none),
        flat=0.0,
        alpha=alpha,
        permutations=3,
    )
declare("lidar", "views", "rotation shift sample_order order", (one, centred_side), flat=None)
declare(
    "lidar",
    "views",
    "rotation shift sample_order order",
    (one, none),
    flat=None,
    delta=1e-2,
    eps=1e-3,
)

declare("cka", "two widths", EACH, (minus_one, one))
declare("cka", "two widths", EACH, (zero, one), debiased=False)
for debiased in (True, False):
    declare(
        "cka",
        "two widths",
        "rotation_each shift_each order swap",
        (minus_one, one),
        kernel="rbf",
        debiased=debiased,
        bandwidth=10.0,
    )
for name, low in (("cosine_similarity", minus_one), ("angular_distance", zero)):
    declare(name, "pair", "rotation scale_each shift_each order swap", (low, one))
    declare(name, "pair", "rotation scale_each order swap", (low, one), flat=None, center=False)
declare("cca", "tall pair", EACH, (zero, one))
for variance in (0.5, 0.9, 0.99, 1.0):
    declare("svcca", "tall pair", EACH, (zero, one), variance=variance)
for side_of_weights in ("first", "second"):
    declare(
        "pwcca",
        "tall pair",
        "scale_each shift_each order",
        (zero, one),
        weights_from=side_of_weights,
    )
declare("procrustes", "two widths", EACH, (zero, one))
declare("procrustes", "two widths", EACH, (zero, pi), kind="angular")
declare("procrustes", "two widths", EACH, (zero, none), kind="distance")
declare("procrustes", "two widths", EACH, (zero, none), kind="squared_distance")
for compare in ("spearman", "pearson"):
    for rdm in ("correlation", "cosine"):
        declare(
            "rsa",
            "two widths",
            "scale_each order swap" + " rotation_each row_scale" * (rdm == "cosine"),
            (minus_one, one),
            rdm=rdm,
            compare=compare,
        )
declare("pnka", "two widths", EACH, (minus_one, one))
for distance in ("cosine", "euclidean"):
    declare(
        "mutual_knn",
        "two widths",
        "rotation_each scale_each order swap" + " row_scale" * (distance == "cosine"),
        (zero, one),
        k=3,
        distance=distance,
    )

WIDE, SQUARE, LONG = (8, 30), (12, 12), (90, 5)


def shape(rng: np.random.Generator) -> tuple[int, int]:
    few = int(rng.integers(5, 13)), int(rng.integers(3, 10))
    return (few, WIDE, SQUARE, LONG)[rng.integers(4)]


def draw(inputs: str, rng: np.random.Generator) -> Arrays:
    n, d = (40, int(rng.integers(3, 10))) if inputs == "tall pair" else shape(rng)
    spread = rng.uniform(0.2, 3, d)
    if inputs == "views":
        return [rng.standard_normal((n, 1, d)) * spread + 0.3 * rng.standard_normal((n, 3, d))]
    rows = rng.standard_normal((n, d)) * spread + rng.standard_normal(d)
    if inputs in ("rows", "tokens"):
        return [rows]
    if inputs == "pair":
        return [rows, rows + rng.standard_normal((n, d))]
    width = int(rng.integers(3, 10))
    return [rows, rows @ rng.standard_normal((d, width)) + rng.standard_normal((n, width))]
