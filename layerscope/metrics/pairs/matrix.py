"""One call for every similarity of every two layers."""

from __future__ import annotations

from inspect import signature
from typing import Any

from torch import Tensor

from layerscope.core.errors import LayerscopeError, near
from layerscope.metrics.arrays import check_choice
from layerscope.metrics.metric import records
from layerscope.metrics.pairs.blocks import States
from layerscope.metrics.pairs.similarity import FromPairs


def similarity_matrix(states: States, metric: str = "cka", *, others: States | None = None, **options: Any) -> Tensor:
    """Return the similarity of every two layers, `[L, L']` in float64.

    `states` is `[N, L, D]`, an array, a tensor, or an object with a shape and slices of rows; `others` is `[N, L', D']`
    of the same samples, as of another model, or None for all pairs of `states`. `metric` is the name of a similarity,
    `options` are those of its function, and [a, b] is its value for `states[:, a]` and layer b, for per-sample ones
    (`cosine_similarity`, `angular_distance`, `pnka`) the mean over the samples that have a value. Rows and columns of a
    layer that does not vary are NaN.

    Linear "cka", "cosine_similarity" and "angular_distance" read blocks of samples and take less than 1.5 GiB whatever
    N. The others prepare each layer as a whole and hold 1 GiB of prepared layers, or one if that is more: N x D
    numbers, for rbf "cka" N x N, for "rsa" N (N - 1) / 2; the rest is prepared again.

    Source: Tracing Representation Progression, section 2; Kornblith et al. 2019; else that of the function.

    >>> from layerscope.metrics import similarity_matrix
    >>> states = np.random.default_rng(0).normal(size=(20, 4, 3))  # samples, layers, width
    >>> similarity_matrix(states).diagonal().round(decimals=3)
    tensor([1., 1., 1., 1.], dtype=torch.float64)
    """
    known = {record.name: record.how for record in records("layerscope.metrics") if isinstance(record.how, FromPairs)}
    check_choice(metric, "metric", tuple(known))
    how = known[metric]
    takes = [name for name in signature(how.compute).parameters if name not in ("states", "others")]
    for name in options:
        if name not in takes:
            listed = f"it takes {', '.join(takes)}{near(name, takes)}" if takes else "it takes none"
            raise LayerscopeError(f"{metric} has no option {name!r}: {listed}")
    return how.compute(states, others, **{**how.options, **options})
