"""Metamorphic relations: what is done to data, batches and precision, and what that does to every number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from sklearn.datasets import load_digits

from layerscope.inputs import open_corpus
from layerscope.runs.registry import METRICS

KEYS = ["metric", "variant", "layer", "site", "layer_b", "site_b", "pooling"]
STAYS = 2e-5
"""Share of a value that rounding may change in float32."""
COUNTED = ("monotone_triples",)
COARSE = {
    "pwcca": 3e-2,
    "rsa": 1e-4,
    "mutual_knn": 3e-2,
    "linear_probe": 0.1,
    "knn_probe": 0.1,
}
COARSE |= dict.fromkeys(COUNTED, 3e-2)
COARSE["linear_probe_c"] = float("inf")  # one step of a grid
OTHER = {"linear_probe_c": "labels"}
"""Weights of directions that hardly vary, ranks, neighbours, gaps of like numbers: they jump by the last place."""
LEAST = 1e-3
"""Below this a value is compared as it is, not as a share."""


@dataclass(frozen=True)
class Relation:
    """A change of a run, the shares by which each metric may change (None: it is drawn anew), and what must move."""

    name: str
    change: Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame] = (
        lambda frame, _: frame
    )
    options: dict[str, Any] = field(default_factory=dict)
    share: float = STAYS
    needs: dict[str, float | None] = field(default_factory=dict)
    metrics: dict[str, float | None] = field(default_factory=dict)
    moves: tuple[str, ...] = ()
    choice: bool = True
    texts: bool = False
    """Whether it is of texts and their tables alone."""

    def tolerance(self, metric: str) -> float | None:
        """Return the share of its value by which a metric may change, None where nothing is said of it."""
        if metric in self.metrics:
            return self.metrics[metric]
        needs = (
            METRICS[metric].needs if metric in METRICS else OTHER.get(metric, "tokens")
        )
        if needs in self.needs:
            return self.needs[needs]
        return (
            self.share if self.share == 0 else max(self.share, COARSE.get(metric, 0.0))
        )


def shuffled_rows(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return frame.iloc[rng.permutation(len(frame))].reset_index(drop=True)


def other_columns(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    more = frame.assign(
        id=range(len(frame)), note="nothing", weight=rng.random(len(frame))
    )
    return more[list(rng.permutation(more.columns))]


def renamed(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    names = list(frame["label"].unique())
    new = [f"{chr(97 + i)}{rng.integers(100)}" for i in rng.permutation(len(names))]
    return frame.assign(label=frame["label"].map(dict(zip(names, new, strict=True))))


def shuffled_labels(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return frame.assign(label=rng.permutation(frame["label"]))


def twice(frame: pd.DataFrame, _: np.random.Generator) -> pd.DataFrame:
    return pd.concat([frame, frame], ignore_index=True)


DRAWN = {"views": None}
DISCRETE = {
    "linear_probe": None,
    "linear_probe_c": None,
    "knn_probe": None,
    "mutual_knn": None,
    "layer_accuracy": None,
    "sinks": None,
    "sink_share": None,
    **dict.fromkeys(COUNTED),
}
"""Counts, which one rounding may move by a whole sample, token or neighbour."""
OF_COPIES = dict.fromkeys(
    (
        "cka",
        "cka_rbf",
        "rsa",
        "mutual_knn",
        "intrinsic_dimension",
        "alpha_req",
        "cca",
        "svcca",
        "pwcca",
    )
) | {"rankme": 1e-2}
"""What a second copy of each sample changes: neighbours, unbiased means, fits over ranks, how many samples CCA has."""
RELATIONS = [
    Relation("batches of one", options={"batch_size": 1}),
    Relation(
        "rows in another order",
        shuffled_rows,
        needs=DRAWN | {"labels": None},
        choice=False,
    ),
    Relation("labels with other names", renamed, share=0),
    Relation(
        "columns in another order, and more of them", other_columns, share=0, texts=True
    ),
    Relation(
        "labels of other samples",
        shuffled_labels,
        share=0,
        needs={"labels": None},
        moves=("linear_probe",),
        choice=False,
    ),
    Relation("float64", options={"dtype": "float64"}, share=1e-4),
    Relation(
        "bfloat16",
        options={"dtype": "bfloat16"},
        share=5e-2,
        needs={"lens": None},
        metrics=DISCRETE,
        choice=False,
    ),
    Relation(
        "every sample twice",
        twice,
        share=1e-4,
        needs=DRAWN | {"labels": None},
        metrics=OF_COPIES,
        moves=("cka",),
        choice=False,
    ),
    Relation("two threads", options={"threads": 2}),
    Relation("padding on the left", options={"side": "left"}, texts=True),
]


def labelled_texts(
    rng: np.random.Generator, classes: int = 3, each: int = 10
) -> pd.DataFrame:
    """Return short docstrings of Python's library, the module that each is of as its label."""
    frame = _docstrings()
    sizes = frame["label"].value_counts()
    chosen = rng.permutation(sizes[sizes >= each].index)[:classes]
    rows = [
        frame[frame["label"] == label].sample(
            each, random_state=int(rng.integers(2**31))
        )
        for label in chosen
    ]
    return (
        pd.concat(rows)
        .sample(frac=1, random_state=int(rng.integers(2**31)))
        .reset_index(drop=True)
    )


@cache
def _docstrings() -> pd.DataFrame:
    corpus = open_corpus("stdlib-docs")
    frame = pd.DataFrame(
        {"text": list(corpus.samples), "label": list(corpus.labels or ())}
    )
    frame["text"] = frame["text"].str.split().str[:20].str.join(" ")
    return frame.drop_duplicates("text")


def labelled_digits(
    rng: np.random.Generator, classes: int = 3, each: int = 10
) -> pd.DataFrame:
    """Return handwritten digits as images of 16 x 16, the number that each shows as its label."""
    data = load_digits()
    chosen = [
        rng.permutation(np.flatnonzero(data.target == c))[:each]
        for c in rng.permutation(10)[:classes]
    ]
    rows = rng.permutation(np.concatenate(chosen))
    grey = (data.images[rows].repeat(2, 1).repeat(2, 2) * 255 / 16).astype(np.uint8)
    images = [Image.fromarray(image).convert("RGB") for image in grey]
    return pd.DataFrame(
        {"image": images, "label": [f"number {i}" for i in data.target[rows]]}
    )


def differing(one: pd.DataFrame, two: pd.DataFrame, relation: Relation) -> list[str]:
    """Return the metrics of two runs' tables that differ by more than a relation allows, or stay where they move."""
    both = one.merge(
        two, on=KEYS, how="outer", suffixes=("", "_changed"), indicator=True
    )
    found = []
    for metric, rows in both.groupby("metric"):
        allowed = relation.tolerance(str(metric))
        if allowed is not None and (rows["_merge"] != "both").any():
            found.append(f"{metric} has other rows")
        elif allowed is not None and (worst := _worst(rows)) > allowed:
            found.append(
                f"{metric} changes by {worst:.1e} where {allowed:.0e} is allowed"
            )
        elif metric in relation.moves and _worst(rows) < 0.01:
            found.append(f"{metric} stays, and should move")
    return found


def _worst(rows: pd.DataFrame) -> float:
    before, after = (rows[name].to_numpy(float) for name in ("value", "value_changed"))
    if (np.isnan(before) != np.isnan(after)).any():
        return float("inf")
    return float(
        np.nanmax(
            np.abs(before - after) / np.maximum(np.abs(before), LEAST), initial=0.0
        )
    )


class threads:
    """Within, torch takes this many threads."""

    def __init__(self, number: int) -> None:
        self.number, self.before = number, torch.get_num_threads()

    def __enter__(self) -> None:
        torch.set_num_threads(self.number)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self.before)
