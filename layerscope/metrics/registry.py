"""Every metric a run can hold: one line each, with what it is computed from and what it says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from layerscope.errors import LayerscopeError, choices

Needs = Literal["tokens", "pooled", "views", "pairs", "lens", "labels"]


@dataclass(frozen=True)
class Metric:
    """What a metric is called, what it is computed from, and how to read it."""

    name: str
    needs: Needs
    title: str
    reading: str
    source: str
    seven: bool = False
    """One of the seven quality measures of Layer by Layer."""


_SKEAN = "Skean et al. 2025, Layer by Layer"
_JIANG = "Jiang, Zhou, Zhu 2025, Tracing Representation Progression"

METRICS = {
    m.name: m
    for m in (
        Metric(
            "prompt_entropy",
            "tokens",
            "prompt entropy",
            "nats; low: a sample's tokens are compressed",
            _SKEAN,
            True,
        ),
        Metric("curvature", "tokens", "curvature", "radians; low: tokens follow a smooth path", _SKEAN, True),
        Metric("dataset_entropy", "pooled", "dataset entropy", "nats; high: samples spread out", _SKEAN, True),
        Metric("effective_rank", "pooled", "effective rank", "dimensions in use", "Roy, Vetterli 2007", True),
        Metric(
            "infonce",
            "views",
            "InfoNCE",
            "nats; low: views of a sample find each other",
            "van den Oord et al. 2018",
            True,
        ),
        Metric(
            "infonce_bound",
            "views",
            "InfoNCE bound",
            "nats of shared information at least",
            "van den Oord et al. 2018",
        ),
        Metric("lidar", "views", "LiDAR", "directions that tell samples apart", "Thilak et al. 2024", True),
        Metric(
            "dime",
            "views",
            "DiME",
            "nats; high: true pairs share more than random ones",
            "Skean et al. 2023",
            True,
        ),
        Metric("cosine_similarity", "pairs", "cosine", "1: two layers hold the same directions", _JIANG),
        Metric(
            "cka",
            "pairs",
            "CKA",
            "1: two layers hold the same geometry",
            "Kornblith et al. 2019; Song et al. 2012",
        ),
        Metric("layer_accuracy", "lens", "layer accuracy", "share right, read through the model's head", _JIANG),
        Metric(
            "perplexity",
            "lens",
            "perplexity",
            "low: the next token is expected",
            "exp of the mean negative log likelihood",
        ),
        Metric("saturation_layer", "lens", "saturation", "layer from which the prediction stays", _JIANG),
        Metric("saturated", "lens", "saturated", "share of predictions that no longer change", _JIANG),
        Metric("linear_probe", "labels", "linear probe", "cross-validated share right", "Alain, Bengio 2016"),
        Metric("knn_probe", "labels", "kNN probe", "cross-validated share right", "Cover, Hart 1967"),
    )
}


def choose_metrics(asked: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of the metrics asked for: "default" (all), "seven", or names with commas between."""
    names = [n.strip() for n in asked.split(",") if n.strip()] if isinstance(asked, str) else list(asked)
    chosen: dict[str, None] = {}
    for name in names:
        if name in ("default", "all"):
            chosen |= dict.fromkeys(METRICS)
        elif name == "seven":
            chosen |= {m.name: None for m in METRICS.values() if m.seven}
        elif name in METRICS:
            chosen[name] = None
        else:
            known = ["default", "seven", *METRICS]
            raise LayerscopeError(f"metric {name!r} does not exist{choices(name, known, 'choose from')}")
    return tuple(name for name in METRICS if name in chosen)
