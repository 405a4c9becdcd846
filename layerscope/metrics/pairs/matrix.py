"""One call for every similarity of every two layers."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from torch import Tensor

from layerscope.core.errors import LayerscopeError, near
from layerscope.metrics.arrays import check_choice
from layerscope.metrics.cca import Cca
from layerscope.metrics.cka import RbfCka
from layerscope.metrics.measure import Measure
from layerscope.metrics.mutual_knn import MutualKnn
from layerscope.metrics.pairs.blocks import States
from layerscope.metrics.pairs.cosines import mean_angles, mean_cosines
from layerscope.metrics.pairs.linear_cka import linear_cka
from layerscope.metrics.pairs.prepared import every_two
from layerscope.metrics.pnka import Pnka
from layerscope.metrics.procrustes import Procrustes
from layerscope.metrics.pwcca import Pwcca
from layerscope.metrics.rsa import Rsa
from layerscope.metrics.svcca import Svcca


def similarity_matrix(states: States, metric: str = "cka", *, others: States | None = None, **options: Any) -> Tensor:
    """Return the similarity of every two layers, `[L, L']` in float64.

    `states` is `[N, L, D]`, an array, a tensor, or an object with a shape and slices of rows; `others` is `[N, L',
    D']` of the same samples, as of another model, or None for all pairs of `states`. `metric` is the name of a
    similarity, `options` are those of its function, and [a, b] is its value for `states[:, a]` and layer b; of
    per-sample ones (`cosine_similarity`, `angular_distance`, `pnka`) the mean over the samples that have a value. Rows
    and columns of a layer that does not vary are NaN.

    Linear "cka", "cosine_similarity" and "angular_distance" read blocks of samples and take less than 1.5 GiB whatever
    N. The others prepare each layer as a whole and hold 1 GiB of prepared layers, or one if that is more: N x D
    numbers, for rbf "cka" N x N, for "rsa" N (N - 1) / 2; what more layers need is prepared again. Raises
    `LayerscopeError` for non-finite states, shapes and options.

    Source: Tracing Representation Progression, section 2; Kornblith et al. 2019; else that of the function.
    """
    check_choice(metric, "metric", (*READ_IN_BLOCKS, *PREPARED))
    measure = READ_IN_BLOCKS.get(metric) or PREPARED[metric]
    known = [name for name in signature(measure).parameters if name not in ("states", "others")]
    for name in options:
        if name not in known:
            takes = f"it takes {', '.join(known)}{near(name, known)}" if known else "it takes none"
            raise LayerscopeError(f"{metric} has no option {name!r}: {takes}")
    if metric in READ_IN_BLOCKS:
        return READ_IN_BLOCKS[metric](states, others, **options)
    return every_two(PREPARED[metric](**options), states, others)


def _cka(
    states: States,
    others: States | None,
    kernel: str = "linear",
    debiased: bool = True,
    bandwidth: str | float = "median_sq_offdiag",
) -> Tensor:
    check_choice(kernel, "kernel", ("linear", "rbf"))
    if kernel == "rbf":
        return every_two(RbfCka(debiased, bandwidth), states, others)
    return linear_cka(states, others, debiased)


READ_IN_BLOCKS: dict[str, Callable[..., Tensor]] = {
    "cka": _cka,
    "cosine_similarity": mean_cosines,
    "angular_distance": mean_angles,
}
PREPARED: dict[str, Callable[..., Measure]] = {
    "cca": Cca,
    "svcca": Svcca,
    "pwcca": Pwcca,
    "procrustes": Procrustes,
    "rsa": Rsa,
    "pnka": Pnka,
    "mutual_knn": MutualKnn,
}
