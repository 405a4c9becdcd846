"""What exits save, counted in layers and in parameters."""

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64


def exit_speedup(counts: Array) -> float:
    """Return Σ L·mᵢ / Σ i·mᵢ, the speed-up in layers, from 1 (all leave at the last) to L.

    `counts` is `[L]`, the number of samples that leave after each layer from 1 on: none below 0,
    and one at least.

    Source: Tracing Representation Progression, the speed-up of figure 7.

    >>> exit_speedup(np.array([0, 20, 0, 10]))  # two thirds of the samples leave after 2 of 4 layers
    1.5
    """
    leaving = as_finite64(counts, "counts", 1)
    if leaving.ndim != 1 or (leaving < 0).any() or leaving.sum() == 0:
        raise LayerscopeError(
            f"counts {leaving.tolist()}: give how many samples leave after each layer, at least one"
        )
    depth = len(leaving)
    layers = leaving.new_tensor(range(1, depth + 1))
    return float(depth * leaving.sum() / (layers * leaving).sum())


def exit_parameters(
    hidden: int, classes: int, layers: int, base: int
) -> tuple[int, int, float]:
    """Return the parameters with one shared classifier, with one a layer, and the share that the shared one saves.

    `base` counts the model with one classifier; each of the other `layers` − 1 adds `hidden` ×
    `classes` and no bias.

    Source: Tracing Representation Progression, table 1.

    >>> shared, separate, saved = exit_parameters(hidden=768, classes=1000, layers=12, base=86_000_000)
    >>> separate - shared, round(saved, 3)
    (8448000, 0.089)
    """
    sizes = {"hidden": hidden, "classes": classes, "layers": layers, "base": base}
    for name, value in sizes.items():
        if value < 1:
            raise LayerscopeError(f"{name} is {value}: give at least 1")
    many = base + (layers - 1) * hidden * classes
    return base, many, 1 - base / many
