"""Every metric that a run can hold, by name: what it is called, and the sets they are chosen in."""

from collections.abc import Iterable, Iterator
from inspect import signature
from itertools import chain
from typing import TypeVar, get_args

import pandas as pd

from layerscope import metrics, probes
from layerscope.core.errors import LayerscopeError, choices
from layerscope.metrics.metric import How, Metric as Metric, Needs as Needs, records
from layerscope.metrics.readings import FromReadings
from layerscope.probes.scores import FromLabels
from layerscope.show.numbers import number
from layerscope.show.plots import Meaning

H = TypeVar("H", bound=How)
ORDER = (
    "sinks", "prompt_entropy", "curvature", "zero_steps", "norm_mean", "norm_median", "norm_max",
    "sink_share", "dataset_entropy", "effective_rank", "rankme", "anisotropy", "intrinsic_dimension", "alpha_req",
    "nesum", "infonce", "infonce_bound", "lidar", "dime", "monotone_triples", "straightness",
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
_rank = {name: i for i, name in enumerate(ORDER)}
_found = chain(records(metrics.__name__), records(probes.__name__))
KNOWN = {
    m.name: m
    for m in sorted(
        _found, key=lambda m: (get_args(Needs).index(m.needs), _rank.get(m.name, 99))
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
    names = [*METRICS, *TRAINED, *COUNTS]
    return names.index(name) if name in names else len(names)


def measured(kind: type[H]) -> Iterator[tuple[Metric, H]]:
    """Yield the metrics of one kind, each with how it is computed."""
    yield from ((m, m.how) for m in KNOWN.values() if isinstance(m.how, kind))


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
    return f"{title} ({variant.replace(',', ', ')})" if variant and whole else title


def capital(title: str) -> str:
    """Return a title with a capital where that keeps the name: not of "kNN probe", and not of "α-ReQ"."""
    is_name = title[1:2].isupper() or not title[:1].isascii()
    return title if is_name else title[:1].upper() + title[1:]


def scale(metric: str) -> float:
    """Return the factor from a metric's values to the unit they are shown in."""
    return 100.0 if about(metric).unit == "%" else 1.0


def meaning_of(metric: str, table: "pd.DataFrame | None" = None) -> Meaning:
    """Return what a metric means and where it comes from; of a run's `table` also its options and how probes fitted."""
    record = about(metric)
    more = [("Formula", record.formula)] if record.formula else []
    if table is not None:
        rows = table[table["metric"] == metric]
        variants = rows["variant"].dropna().unique()
        if len(variants):
            more.append(("Options", "; ".join(variants).replace(",", ", ")))
        if isinstance(record.how, FromLabels):
            more.append(
                ("Folds", str(signature(record.how.probe).parameters["folds"].default))
            )
            more += _strengths(
                table[table["metric"] == f"{metric}_c"].sort_values("layer")
            )
    return Meaning(record.meaning, record.direction, record.source, tuple(more))


def _strengths(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Return the C of a probe at each layer, where it has one."""
    chosen = [
        f"{number(c)} at layer {layer}"
        for layer, c in zip(rows["layer"], rows["value"], strict=True)
    ]
    title = "C, the inverse strength of its regularisation"
    return [(title, ", ".join(chosen))] if chosen else []


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
