"""Every metric of layers in one table: on what it is computed, its reference, and what it promises."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import references

from layerscope import metrics

Bound = float | Callable[[int, int], float]


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


METRICS = {}


def log_samples(n, d):
    return float(np.log(n))


def log_side(n, d):
    return float(np.log(min(n, d)))


def side(n, d):
    return float(min(n, d))


def centred_side(n, d):
    return float(min(n - 1, d))


def least_share(n, d):
    return 1 / centred_side(n, d)


def declare(
    name,
    inputs,
    unchanged_by,
    bounds,
    flat=np.nan,
    **options,
):
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


def declare_part(name, part, unchanged_by, low, high, flat):
    """Add one of the values that a metric of tokens returns together."""
    METRICS[f"{name} {part}"] = Metric(
        lambda *layers: getattr(getattr(metrics, name)(*layers), part),
        lambda tokens: getattr(references, name)(tokens)[part],
        "tokens",
        unchanged_by,
        low,
        high,
        flat,
        tolerance=1e-12 if name == "norms" else 1e-8,
    )


SPACE = "rotation scale order"
"""Changes of the space or of the order of samples that say nothing of how the samples lie to each other."""
EACH = "rotation_each scale_each shift_each order swap"
"""The same, made to each of two sides on its own."""
OF_ROWS = {"unit": "row_scale", "raw": "transpose", "centered": "shift"}

for alpha in (0.5, 1.0, 2.0, np.inf):
    for rows, change in OF_ROWS.items():
        entropy = {"alpha": alpha, "rows": rows, "flat": 0.0}
        declare(
            "matrix_entropy", "rows", f"{SPACE} {change}", (0.0, log_side), **entropy
        )
        declare(
            "prompt_entropy",
            "tokens",
            f"{SPACE} {change}" if rows != "raw" else SPACE,
            (0.0, log_side),
            **entropy,
        )
declare("dataset_entropy", "rows", f"{SPACE} row_scale", (0.0, log_side), flat=0.0)
declare("effective_rank", "rows", f"{SPACE} transpose", (1.0, side), flat=1.0)
declare(
    "effective_rank",
    "rows",
    f"{SPACE} shift",
    (1.0, centred_side),
    flat=1.0,
    center=True,
)
declare("rankme", "rows", f"{SPACE} transpose", (1.0, side), flat=1.0, eps=0.0)
declare("rankme", "rows", SPACE, (1.0, np.inf), flat=None, eps=1e-3)
declare("anisotropy", "rows", f"{SPACE} shift", (least_share, 1.0))
declare("isotropy", "rows", f"{SPACE} shift", (0.0, np.inf))
declare("nesum", "rows", f"{SPACE} shift", (1.0, centred_side))
declare("alpha_req", "rows", f"{SPACE} shift", (0.0, np.inf), fit=(1, 9))
declare("alpha_req", "rows", f"{SPACE} shift", (0.0, np.inf), fit=(2, 4))
for discard in (0.0, 0.1):
    declare(
        "intrinsic_dimension", "rows", f"{SPACE} shift", (0.0, np.inf), discard=discard
    )
declare("curvature", "tokens", "rotation scale shift reversal", (0.0, np.pi))
for part in ("mean", "median", "maximum"):
    declare_part("norms", part, "rotation order", 0.0, np.inf, None)
declare_part("norms", "sink_share", SPACE, 0.0, 1.0, 0.0)
declare_part("valley", "entropy", SPACE, 0.0, 1.0, 0.0)
declare_part("valley", "first_singular", SPACE, 0.0, 1.0, 1.0)
declare_part("valley", "first_norm", "rotation scale", 0.0, np.inf, 1.0)
declare_part("valley", "largest_norm", SPACE, 1.0, np.inf, 1.0)

for temperature in (0.1, 1.0):
    declare(
        "infonce",
        "pair",
        f"{SPACE} row_scale swap",
        (0.0, np.inf),
        flat=None,
        temperature=temperature,
    )
declare(
    "infonce", "pair", f"{SPACE} row_scale", (0.0, np.inf), flat=None, symmetric=False
)
declare(
    "infonce_bound",
    "pair",
    f"{SPACE} row_scale swap",
    (-np.inf, log_samples),
    flat=None,
)
for alpha in (1.0, 2.0):
    declare(
        "dime",
        "two widths",
        "rotation_each scale_each row_scale",
        (-np.inf, np.inf),
        flat=0.0,
        alpha=alpha,
        permutations=3,
    )
declare(
    "lidar",
    "views",
    "rotation shift sample_order order",
    (1.0, centred_side),
    flat=None,
)
declare(
    "lidar",
    "views",
    "rotation shift sample_order order",
    (1.0, np.inf),
    flat=None,
    delta=1e-2,
    eps=1e-3,
)

declare("cka", "two widths", EACH, (-1.0, 1.0))
declare("cka", "two widths", EACH, (0.0, 1.0), debiased=False)
for debiased in (True, False):
    declare(
        "cka",
        "two widths",
        "rotation_each shift_each order swap",
        (-1.0, 1.0),
        kernel="rbf",
        debiased=debiased,
        bandwidth=10.0,
    )
for name, low in (("cosine_similarity", -1.0), ("angular_distance", 0.0)):
    declare(name, "pair", "rotation scale_each shift_each order swap", (low, 1.0))
    declare(
        name,
        "pair",
        "rotation scale_each order swap",
        (low, 1.0),
        flat=None,
        center=False,
    )
declare("cca", "tall pair", EACH, (0.0, 1.0))
for variance in (0.5, 0.99):
    declare("svcca", "tall pair", EACH, (0.0, 1.0), variance=variance)
for side_of_weights in ("first", "second"):
    declare(
        "pwcca",
        "tall pair",
        "scale_each shift_each order",
        (0.0, 1.0),
        weights_from=side_of_weights,
    )
declare("procrustes", "two widths", EACH, (0.0, 1.0))
declare("procrustes", "two widths", EACH, (0.0, np.inf), kind="distance")
for compare in ("spearman", "pearson"):
    for rdm in ("correlation", "cosine"):
        declare(
            "rsa",
            "two widths",
            "scale_each order swap" + " rotation_each row_scale" * (rdm == "cosine"),
            (-1.0, 1.0),
            rdm=rdm,
            compare=compare,
        )
declare("pnka", "two widths", EACH, (-1.0, 1.0))
declare(
    "linear_map",
    "two widths",
    "rotation_each scale_each shift_each order",
    (-np.inf, 1.0),
)
for distance in ("cosine", "euclidean"):
    declare(
        "mutual_knn",
        "two widths",
        "rotation_each scale_each order swap" + " row_scale" * (distance == "cosine"),
        (0.0, 1.0),
        k=3,
        distance=distance,
    )

WIDE, SQUARE, LONG = (8, 30), (12, 12), (90, 5)


def shape(rng):
    few = int(rng.integers(5, 13)), int(rng.integers(3, 10))
    return (few, WIDE, SQUARE, LONG)[rng.integers(4)]


def draw(inputs, rng):
    n, d = (40, int(rng.integers(3, 10))) if inputs == "tall pair" else shape(rng)
    spread = rng.uniform(0.2, 3, d)
    if inputs == "views":
        return [
            rng.standard_normal((n, 1, d)) * spread
            + 0.3 * rng.standard_normal((n, 3, d))
        ]
    rows = rng.standard_normal((n, d)) * spread + rng.standard_normal(d)
    if inputs in ("rows", "tokens"):
        return [rows]
    if inputs == "pair":
        return [rows, rows + rng.standard_normal((n, d))]
    width = int(rng.integers(3, 10))
    return [
        rows,
        rows @ rng.standard_normal((d, width)) + rng.standard_normal((n, width)),
    ]
