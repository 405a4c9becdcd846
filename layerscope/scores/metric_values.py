"""Values of metrics by layer: published ones, or those of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from layerscope.core import LayerscopeError, existing
from layerscope.scores.files import is_csv, read_csv, refuse_duplicates

if TYPE_CHECKING:
    from layerscope.runs import Run

    Metrics: TypeAlias = pd.DataFrame | Run | str | Path

PUBLISHED = ("model", "dataset", "metric", "layer", "value")
NAMES = {"entropy_sentence": "prompt_entropy", "entropy_dataset": "dataset_entropy"}
"""What the authors of Layer by Layer call a metric in their published values, and its name here."""
CURVE = ("model", "revision", "corpus", "metric", "variant", "site", "pooling")
"""What one metric by layer is about."""
PLAIN = "raw"
"""The variant of the authors' values that is not normalised."""
ENTROPIES = ("dataset_entropy", "prompt_entropy")
DIVIDED = ("maxEntropy", "logN", "logD")
"""Variants of the authors' entropies that are divided by the largest there can be."""
ROUNDING = 1e-3
COLUMNS = ("model", "revision", "dataset", "metric", "variant", "site", "pooling", "layer", "value")  # fmt: skip


def open_metrics(path: "str | Path | Run") -> pd.DataFrame:
    """Open metrics by layer: a CSV with the columns of `PUBLISHED` (revision, normalization too), or a run.

    Returns a long frame: model, revision, dataset, metric, variant (`normalization` of a CSV),
    site, pooling, layer (Int64) and value; an empty value is NaN. The authors' names of metrics
    become those of `layerscope.metrics`. Of a run only metrics of single layers are taken. Raises
    `LayerscopeError` for a path that holds no metrics.

    >>> from layerscope.scores import open_metrics
    >>> open_metrics("metrics.csv")[["model", "dataset", "metric", "layer", "value"]].head(2)
       model dataset           metric  layer  value
    0  small    wiki  dataset_entropy      0   2.00
    1  small    wiki  dataset_entropy      1   1.84
    """
    from layerscope.runs import Run, open_run  # runs import torch

    if isinstance(path, Run):
        return _of_run(path)
    file = existing(path, "metrics")
    if file.is_dir():
        return _of_run(open_run(file))
    if not is_csv(file):
        raise LayerscopeError(
            f"{file} holds no metrics: give a CSV ({', '.join(PUBLISHED)}) or a run folder"
        )
    frame = read_csv(file, PUBLISHED, ("revision", "normalization"))
    frame = frame.rename(columns={"normalization": "variant"})
    keys = ("model", "revision", "dataset", "metric", "variant", "layer")
    refuse_duplicates(frame, keys, file)
    frame["metric"] = frame["metric"].replace(NAMES)
    frame["revision"] = frame["revision"].fillna("")
    return frame.assign(site=None, pooling=None)[list(COLUMNS)]


def corpus_averages(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return metrics by layer, averaged over the datasets of a corpus.

    The data sets of MTEB's tasks (`mteb/…`) are one corpus, `tasks`; every other data set is a
    corpus of its own. At each layer the mean runs over the data sets that have a value there;
    `datasets` counts them. Columns: those of `CURVE`, layer, value, datasets.

    >>> from layerscope.scores import corpus_averages, open_metrics
    >>> corpus_averages(open_metrics("metrics.csv"))[["model", "corpus", "layer", "value", "datasets"]].head(2)
       model corpus  layer  value  datasets
    0  small   wiki      0   2.00         1
    1  small   wiki      1   1.84         1
    """
    task = metrics["dataset"].str.startswith("mteb/")
    keyed = metrics.assign(corpus=metrics["dataset"].where(~task, "tasks"))
    values = keyed.groupby([*CURVE, "layer"], sort=False, dropna=False)["value"]
    frame = values.agg(value="mean", datasets="count").reset_index()
    for key in CURVE:
        frame[key] = frame[key].astype(object).where(frame[key].notna(), None)
    return frame


def one_variant(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return one variant of each metric: `raw` where a metric has it, else its first.

    >>> from layerscope.scores import one_variant
    >>> frame = pd.DataFrame({"metric": "prompt_entropy", "variant": ["maxEntropy", "raw"], "value": [0.4, 2.1]})
    >>> one_variant(frame)["value"].tolist()
    [2.1]
    """
    # an empty variant is one, too
    variants = metrics["variant"].fillna("")
    by_metric = variants.groupby(metrics["metric"])
    is_plain = variants == PLAIN
    has_plain = is_plain.groupby(metrics["metric"]).transform("any")
    return metrics[is_plain | (~has_plain & (variants == by_metric.transform("first")))]


def line_on_impossible(metrics: pd.DataFrame) -> str:
    """Return a line on how many entropies are impossible, and the one furthest beyond its bound; empty if none is.

    The entropy of N rows of D features is 0 … log min(N, D), and 0 … 1 where it was divided by
    that. What it was divided by, the ratio of the two variants of one measurement, is the bound
    of the one that was not. The authors of Layer by Layer clamp the entries of the Gram matrix, so
    that some of their values lie beyond.

    >>> from layerscope.scores import line_on_impossible
    >>> about = {"model": "m", "revision": "", "dataset": "d", "metric": "dataset_entropy", "layer": 3}
    >>> values = {"raw": 13.8, "maxEntropy": 2.0}
    >>> frame = pd.DataFrame([about | {"variant": name, "value": value} for name, value in values.items()])
    >>> line_on_impossible(frame.assign(site=None, pooling=None))[:60]
    'impossible values: 2, such as dataset_entropy (raw) 13.8 of '
    """
    keys = ["model", "revision", "dataset", "metric", "layer", "site", "pooling"]
    entropies = metrics[metrics["metric"].isin(ENTROPIES)]
    divided = entropies[entropies["variant"].isin(DIVIDED)].assign(bound=1.0)
    plain = entropies[entropies["variant"] == PLAIN]
    bounds = divided[[*keys, "value"]]
    plain = plain.merge(bounds, on=keys, suffixes=("", "_divided"))
    plain["bound"] = plain["value"] / plain["value_divided"]
    bounded = pd.concat([plain, divided], ignore_index=True)
    values = bounded["value"]
    is_beyond = (values > bounded["bound"] * (1 + ROUNDING)) | (values < -ROUNDING)
    if not is_beyond.any():
        return ""
    most = bounded.loc[values[is_beyond].idxmax()]
    return (
        f"impossible values: {is_beyond.sum():,}, such as {most['metric']} ({most['variant']}) {most['value']:.4g} of "
        f"{most['model']} at layer {most['layer']} on {most['dataset']}, whose maximum is {most['bound']:.4g}; they "
        "are used as they are"
    )


def curves(metrics: "Metrics") -> pd.DataFrame:
    """Return metrics by layer as `corpus_averages` does, whatever they are given as."""
    if not isinstance(metrics, pd.DataFrame):
        metrics = open_metrics(metrics)
    if "corpus" in metrics:
        return metrics
    for name in COLUMNS:
        if name not in metrics:
            raise LayerscopeError(
                f"the frame of metrics has no column {name!r}: give what open_metrics returns"
            )
    return corpus_averages(metrics)


def _of_run(run: "Run") -> pd.DataFrame:
    table = run.at()
    rows = table[table["layer"].notna() & table["layer_b"].isna()]
    model = run.info["model"]
    rows = rows.assign(
        model=str(model["name"]),
        revision=str(model.get("revision") or ""),
        dataset=str(run.info["data"]["name"]),
    )
    return rows[list(COLUMNS)].reset_index(drop=True)
