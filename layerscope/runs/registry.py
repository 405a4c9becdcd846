"""Every metric that a run can hold, by name: what it is called, and the sets they are chosen in."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeVar, get_args

import pandas as pd

from layerscope import metrics, probes
from layerscope.core.errors import LayerscopeError, choices
from layerscope.metrics.metric import How, Metric as Metric, Needs as Needs, records
from layerscope.metrics.readings import FromReadings
from layerscope.show.plots import Meaning

H = TypeVar("H", bound=How)
ORDER = (
    "sinks", "prompt_entropy", "curvature", "zero_steps", "norm_mean", "norm_median", "norm_max",
    "sink_share", "dataset_entropy", "effective_rank", "rankme", "anisotropy", "intrinsic_dimension", "alpha_req",
    "nesum", "infonce", "infonce_bound", "lidar", "dime", "straightness",
    "cosine_similarity", "cka", "angular_distance", "cka_rbf", "cca",
    "svcca", "pwcca", "procrustes", "rsa", "pnka", "mutual_knn", "modality_gap", "label_probability",
    "layer_accuracy", "perplexity", "cross_entropy", "pair_spearman", "pair_accuracy", "nc1", "nc2_norms", "nc2_angles",
    "saturation_layer", "agreement", "saturated", "effective_depth", "linear_probe", "linear_probe_c", "knn_probe",
)  # fmt: skip
"""Metrics are shown in this order; one that is not listed follows those of its kind."""
SEVEN = (
    "prompt_entropy",
    "curvature",
    "dataset_entropy",
    "effective_rank",
    "infonce",
    "lidar",
    "dime",
)
"""The quality measures of Layer by Layer."""
DEFAULT = (
    *SEVEN, "infonce_bound", "cosine_similarity", "cka", "layer_accuracy", "perplexity", "saturation_layer",
    "saturated", "linear_probe", "knn_probe",
)  # fmt: skip
_KINDS = get_args(Needs)


def _position(metric: Metric) -> tuple[int, int]:
    """Return where a metric stands among all: by its kind, and there in the order of `ORDER`."""
    at = len(ORDER)
    if metric.name in ORDER:
        at = ORDER.index(metric.name)
    return _KINDS.index(metric.needs), at


KNOWN = {
    m.name: m
    for m in sorted(
        chain(records(metrics.__name__), records(probes.__name__)), key=_position
    )
}
"""Every record there is."""
TRAINED = {
    m.name: m
    for m in KNOWN.values()
    if isinstance(m.how, FromReadings) and m.how.compute is None
}
"""What a training measures at each evaluation beside the others: a run of `profile` has none of these."""
COUNTS = {m.name: m for m in KNOWN.values() if m.beside}
"""What stands in a run's table because of another metric or an option."""
METRICS = {name: m for name, m in KNOWN.items() if name not in (*TRAINED, *COUNTS)}
RANKS = {name: i for i, name in enumerate((*METRICS, *TRAINED, *COUNTS))}
SETS = {
    "default": tuple(name for name in METRICS if name in DEFAULT),
    "seven": tuple(name for name in METRICS if name in SEVEN),
    "all": tuple(METRICS),
}


CHOICES = {
    "rows=raw": "raw",
    "rows=centered": "centred",
    "biased": "biased",
    "uncentered": "uncentred",
}
"""What the parts of a variant are called in a title: those that are another choice than the default."""


def about(name: str) -> Metric:
    """Return what is known of a name in a run's table; an unknown one has its name alone."""
    return KNOWN.get(name) or Metric(name=name, title=name)


def rank(name: str) -> int:
    """Return the position of a metric in the order they are shown in."""
    return RANKS.get(name, len(RANKS))


def measured(kind: type[H]) -> Iterator[tuple[Metric, H]]:
    """Yield the metrics of one kind, each with how it is computed."""
    for metric in KNOWN.values():
        if isinstance(metric.how, kind):
            yield metric, metric.how


def named(metric: str, variant: str | None = None) -> str:
    """Return a metric's title, and before it the choices of its variant that are not the default."""
    return " ".join((*_chosen(variant), about(metric).title))


def file_name(metric: str, variant: str | None = None) -> str:
    """Return what a file of a metric is called, of another choice than the default by another name."""
    return "_".join((*_chosen(variant), metric))


def _chosen(variant: str | None) -> list[str]:
    return [CHOICES[part] for part in (variant or "").split(",") if part in CHOICES]


def titled(metric: str, variant: str | None = None, whole: bool = False) -> str:
    """Return what `named` does as one number for each layer, with the whole variant where it has several."""
    title = named(metric, variant)
    if about(metric).needs == "pairs":
        title += " to the last layer"
    if variant and whole:
        title += f" ({variant.replace(',', ', ')})"
    return title


def scale(metric: str) -> float:
    """Return the factor from a metric's values to the unit they are shown in."""
    if about(metric).unit == "%":
        return 100.0
    return 1.0


def meaning_of(metric: str, table: "pd.DataFrame | None" = None) -> Meaning:
    """Return what a metric means and where it comes from; of a run's `table` also its options."""
    record = about(metric)
    more = []
    if record.formula:
        more.append(("Formula", record.formula))
    if table is not None:
        variants = table.loc[table["metric"] == metric, "variant"].dropna().unique()
        if len(variants):
            more.append(("Options", "; ".join(variants).replace(",", ", ")))
    return Meaning(record.meaning, record.direction, record.source, tuple(more))


def is_scalar(key: str) -> bool:
    """Return whether a tensor of a shard holds one value per sample and layer."""
    return about(key.split(".")[0]).needs == "tokens"


def parse_key(key: str) -> tuple[str, str | None, str]:
    """Return (metric, variant, site) of a per-sample tensor's key."""
    metric, *variant, site = key.split(".")
    return metric, ".".join(variant) or None, site


def choose_metrics(metrics: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of the chosen metrics: those of a set (`SETS`), or names separated by commas."""
    if isinstance(metrics, str):
        metrics = filter(None, map(str.strip, metrics.split(",")))
    chosen: set[str] = set()
    for name in metrics:
        if name in TRAINED:
            raise LayerscopeError(
                f"metric {name!r} is measured in training alone, by `layerscope train`: leave it out"
            )
        if name not in SETS and name not in METRICS:
            raise LayerscopeError(
                f"metric {name!r} does not exist{choices(name, [*SETS, *METRICS], 'choose from')}"
            )
        chosen |= set(SETS.get(name, (name,)))
    return tuple(name for name in METRICS if name in chosen)
