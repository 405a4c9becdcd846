"""Every metric that a run can hold, by name: what it is called, and the sets they are chosen in.

Metrics are found by their records, in the files of `metrics` and `probes`: a new one needs no line
here. A run's table may name one that this version does not know; it is shown by its bare name.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar, get_args

import pandas as pd

from layerscope import metrics, probes
from layerscope.core import LayerscopeError, choices
from layerscope.metrics.metric import How, Metric as Metric, Needs as Needs, records
from layerscope.metrics.pairs import FromPairs
from layerscope.metrics.readings import FromReadings
from layerscope.show import Meaning

H = TypeVar("H", bound=How)
ORDER = (
    "sinks", "prompt_entropy", "curvature", "zero_steps", "norm_mean", "norm_median", "norm_max",
    "sink_share", "dataset_entropy", "effective_rank", "rankme", "anisotropy", "isotropy", "intrinsic_dimension",
    "alpha_req", "nesum", "infonce", "infonce_bound", "lidar", "dime", "straightness",
    "cosine_similarity", "cka", "angular_distance", "cka_rbf", "cca",
    "svcca", "pwcca", "procrustes", "rsa", "pnka", "mutual_knn", "linear_map", "modality_gap", "label_probability",
    "layer_accuracy", "perplexity", "cross_entropy", "pair_spearman", "pair_accuracy", "nc1", "nc2_norms", "nc2_angles",
    "saturation_layer", "agreement", "saturated", "effective_depth", "linear_probe", "linear_probe_c", "knn_probe",
    "ridge_probe", "valley", "first_singular", "first_norm", "largest_norm", "first_attention", "causal_depth",
    "skip_prediction", "skip_later", "branch_cosine", "branch_norm",
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
    "saturated", "linear_probe", "knn_probe", "ridge_probe",
)  # fmt: skip


def _position(metric: Metric) -> tuple[int, int]:
    """Return where a metric stands among all: by its kind, and there in the order of `ORDER`."""
    names = (*ORDER, metric.name)
    return get_args(Needs).index(metric.needs), names.index(metric.name)


KNOWN: dict[str, Metric] = {}
"""Every record there is."""
TRAINED: dict[str, Metric] = {}
"""What a training measures at each evaluation beside the others: a run of `profile` has none of these."""
COUNTS: dict[str, Metric] = {}
"""What stands in a run's table because of another metric or an option."""
METRICS: dict[str, Metric] = {}
"""What `profile` can be asked for."""
for _metric in sorted(
    [*records(metrics.__name__), *records(probes.__name__)], key=_position
):
    KNOWN[_metric.name] = _metric
    if isinstance(_metric.how, FromReadings) and _metric.how.compute is None:
        TRAINED[_metric.name] = _metric
    elif _metric.beside:
        COUNTS[_metric.name] = _metric
    else:
        METRICS[_metric.name] = _metric
RANKS = [*METRICS, *TRAINED, *COUNTS]
SETS = {
    "default": tuple(name for name in METRICS if name in DEFAULT),
    "seven": tuple(name for name in METRICS if name in SEVEN),
    "all": tuple(name for name, m in METRICS.items() if m.needs != "forward"),
}
"""Those that change how the model runs are in no set: they are measured where they are named."""


CHOICES = {
    "rows=raw": "raw",
    "rows=centered": "centred",
    "biased": "biased",
    "uncentered": "uncentred",
}
"""What the parts of a variant are called in a title: those that are another choice than the default."""


def about(name: str) -> Metric:
    """Return what is known of a name in a run's table.

    An unknown one has its name alone.
    """
    return KNOWN.get(name) or Metric(name=name, title=name)


def rank(name: str) -> int:
    """Return the position of a metric in the order they are shown in.

    An unknown one comes last.
    """
    return [*RANKS, name].index(name)


def measured(kind: type[H]) -> Iterator[tuple[Metric, H]]:
    """Yield the metrics of one kind, each with how it is computed."""
    for metric in KNOWN.values():
        if isinstance(metric.how, kind):
            yield metric, metric.how


Similarity = FromPairs
"""A metric of two layers, which may be of different runs."""
SIMILARITIES = {metric.name: how for metric, how in measured(Similarity)}


def named(metric: str, variant: str | None = None) -> str:
    """Return a metric's title, and before it the choices of its variant that are not the default.

    >>> named("cka", "linear,debiased"), named("cka", "linear,biased")
    ('CKA', 'biased CKA')
    """
    return " ".join((*_chosen(variant), about(metric).title))


def file_name(metric: str, variant: str | None) -> str:
    """Return what a file of a metric is called, of another choice than the default by another name.

    >>> file_name("cka", "linear,debiased"), file_name("cka", "linear,biased")
    ('cka', 'biased_cka')
    """
    return "_".join((*_chosen(variant), metric))


def _chosen(variant: str | None) -> list[str]:
    return [CHOICES[part] for part in (variant or "").split(",") if part in CHOICES]


def titled(metric: str, variant: str | None, whole: bool = False) -> str:
    """Return what `named` does as one number for each layer, with the whole variant where it has several.

    >>> titled("cka", "linear,biased")
    'biased CKA to the last layer'
    """
    title = named(metric, variant)
    if about(metric).needs == "pairs":
        title += " to the last layer"
    if variant and whole:
        title += f" ({spaced(variant)})"
    return title


def spaced(variant: str | None) -> str:
    """Return a variant as a person reads it.

    >>> spaced("linear,debiased"), spaced(None)
    ('linear, debiased', '')
    """
    return (variant or "").replace(",", ", ")


def meaning_of(metric: str, table: pd.DataFrame | None = None) -> Meaning:
    """Return what a metric means and where it comes from; of a run's `table` also its options."""
    record = about(metric)
    more = []
    if record.formula:
        more = [("Formula", record.formula)]
    if table is not None:
        variants = table.loc[table["metric"] == metric, "variant"].dropna().unique()
        if len(variants):
            more.append(("Options", "; ".join(map(spaced, variants))))
    return Meaning(record.meaning, record.direction, record.source, tuple(more))


def is_scalar(key: str) -> bool:
    """Return whether a tensor of a shard holds one value per sample and layer.

    >>> is_scalar("curvature.raw"), is_scalar("raw.mean")
    (True, False)
    """
    return about(key.split(".")[0]).needs in ("tokens", "forward")


def parse_key(key: str) -> tuple[str, str | None, str]:
    """Return (metric, variant, site) of a per-sample tensor's key.

    >>> parse_key("prompt_entropy.alpha=1.5.raw"), parse_key("curvature.normed")
    (('prompt_entropy', 'alpha=1.5', 'raw'), ('curvature', None, 'normed'))
    """
    metric, *variant, site = key.split(".")
    return metric, ".".join(variant) or None, site


def choose_metrics(metrics: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of the chosen metrics: those of a set (`SETS`), or names separated by commas.

    They come in the order in which metrics are shown. Raises `LayerscopeError` for an unknown name.

    >>> choose_metrics("cka, curvature")
    ('curvature', 'cka')
    """
    if isinstance(metrics, str):
        metrics = filter(None, map(str.strip, metrics.split(",")))
    chosen = set()
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
