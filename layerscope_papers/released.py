"""Values that the authors of Layer by Layer released, as recipes read them; they come with the package.

Their code departs from their paper: tokens are centred and scaled to unit length before entropies;
curvature is the angle between tokens, not between steps; InfoNCE has 2N − 1 candidates; LiDAR is an
entropy, not its exponential; DiME takes Grams of features; Gram entries are clamped. Verdicts on
these values hold for the measures as released.
"""

import numpy as np
import pandas as pd

from layerscope.scores import (
    Evaluation,
    line_on_impossible,
    merged,
    open_evaluation,
    open_metrics,
)
from layerscope_papers.assets import Assets

SCALES = {"published": None}
TASKS_OF = "mteb/"
FILES = ("", "_more", "_families")
PYTHIA = ("Pythia-14m", "Pythia-70m", "Pythia-160m", "Pythia-410m")
"""The sizes of Pythia with scores of every layer."""
SCORED = {model: model for model in (*PYTHIA, "mamba-370m")} | {
    "LLM2Vec-8B": "LLM2Vec-mntp-unsup-simcse-8B"
}
"""The models with scores of the last layer and of most others: names in claims, and as released."""
MAMBA = ("mamba-130m", "mamba-370m", "mamba-790m", "mamba-1.4b", "mamba-2.8b")
MOST_TASKS = 0.9
"""Share of the tasks on which a layer must have a score to be compared."""
PARAMETERS = {
    "Pythia-14m": 14.1e6, "Pythia-70m": 70.4e6, "Pythia-160m": 162.3e6, "Pythia-410m": 405.3e6, "Pythia-1b": 1.012e9,
    "Pythia-1.4b": 1.415e9, "Pythia-2.8b": 2.775e9,
}  # fmt: skip
"""Parameters by model, as its authors print them (Biderman et al. 2023, table 1; the suite's model cards)."""


def scores(assets: Assets) -> Evaluation:
    """Return the released scores of layers on MTEB tasks, in 0 … 1."""
    return merged(
        [
            open_evaluation(assets.published(f"mteb_scores{which}.csv.gz"))
            for which in FILES
        ]
    )


def metrics(assets: Assets) -> pd.DataFrame:
    """Return the released metrics by layer: model, revision, dataset, metric, variant, layer, value."""
    frames = [
        open_metrics(assets.published(f"metrics{which}.csv.gz")) for which in FILES
    ]
    return pd.concat(frames, ignore_index=True)


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of models at the end of their training."""
    return frame[frame["revision"].isin(("", "main"))]


def flagged(frame: pd.DataFrame) -> list[str]:
    """Return a sentence on impossible released entropies, if there are any."""
    line = line_on_impossible(frame)
    return [f"Released entropies with {line}."] if line else []


def curves(
    frame: pd.DataFrame, metric: str, variant: str, **about: str
) -> pd.DataFrame:
    """Return a metric as (model, revision, dataset) × layer; rows with an infinite value are left out."""
    rows = frame[(frame["metric"] == metric) & (frame["variant"] == variant)]
    for name, value in about.items():
        rows = rows[rows[name] == value]
    values = rows.pivot_table(
        index=["model", "revision", "dataset"],
        columns="layer",
        values="value",
        sort=False,
    ).sort_index(axis=1)
    return values[np.isfinite(values.where(values.notna(), 0.0)).all(axis=1)]


def blocks(curve: pd.Series) -> pd.Series:
    """Return a metric by layer without layer 0 and without layers that the model does not have.

    >>> blocks(pd.Series([9.0, 1.0, 2.0, np.nan])).tolist()
    [1.0, 2.0]
    """
    scored = curve.dropna()
    return scored[scored.index > 0]


def thirds(curve: pd.Series) -> pd.Series:
    """Return the mean of a curve over the first, the middle and the last third of its layers.

    >>> thirds(pd.Series([1, 2, 3, 4, 5, 6])).to_dict()
    {'first': 1.5, 'middle': 3.5, 'last': 5.5}
    """
    parts = np.array_split(curve, 3)
    return pd.Series(list(map(np.mean, parts)), index=["first", "middle", "last"])


def valleys(curves: pd.DataFrame) -> pd.Series:
    """Return the depth of the valley of each curve, a row by layer."""
    return curves.apply(valley, axis=1)


def valley(curve: pd.Series) -> float:
    """Return how far the middle third of the layers lies below the other two, on average; layer 0 does not count.

    >>> valley(pd.Series([9.0, 3.0, 1.0, 2.0]))
    1.5
    """
    of_third = thirds(blocks(curve))
    return float(of_third.drop("middle").mean() - of_third["middle"])
