"""Scores of layers on tasks."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerscope.core import LayerscopeError, Store, aside, choices, count
from layerscope.core.saved import typed
from layerscope.scores.files import refuse_duplicates
from layerscope.scores.grids import Grid, grids, summary, wide
from layerscope.scores.naming import VARIANT
from layerscope.show.document import Document
from layerscope.show.pushed import Saved

COLUMNS = {
    "model": "object", "revision": "object", "kind": "object", "layer": "Int64", "site": "object", "pooling": "object",
    "task": "object", "score": "float64", "stderr": "float64", "low": "float64", "high": "float64", "n": "Int64",
    "mix": "object", "gain": "float64", "gain_error": "float64", "weights": "object",
    "right": "object", "shifted_from": "object",
}  # fmt: skip
"""The long frame: a row for each model, layer and task; `kind` is `layer`, or `baseline` for the model as shipped, or
`mix` for a mix of layers: `mix` is its name, `gain` that over the best single layer, `weights` what
`truncate` takes; `low` and `high` are a 95 % interval, `n` the number of items judged; they and
`stderr` are empty where they are unknown. `right` says which of the `n` a
probe got right (base64 of packed bits), or what each contributes to another score (base64 of 32-bit
floats); under a shift `shifted_from` is the task whose probes are judged on these other samples."""
NEEDED = ("model", "layer", "task", "score")
STORE = Store(
    "evaluation",
    "evaluation.json",
    "run layerscope evaluate again",
    {"scores": COLUMNS},
)
ORIGINS = "models.json"


@dataclass(frozen=True)
class ModelOrigin:
    """What was given to load a model (None for one in memory), and L, its number of layers.

    `modality` is what the layers read, and `part` names them where the model has others. `tokens`
    is the mean length of the texts that were judged.
    """

    source: str | None
    depth: int
    modality: str = "text"
    part: str | None = None
    tokens: int | None = None


class Evaluation(Saved):
    """What `evaluate` returns and `open_evaluation` opens: a score per layer per task, in the scores' own units.

    >>> scores = pd.DataFrame({"model": "m", "layer": [1, 2, 3], "task": "topics", "score": [0.5, 0.7, 0.6]})
    >>> evaluation = layerscope.Evaluation(scores)
    >>> evaluation.table()
    task   topics
    layer
    1         0.5
    2         0.7
    3         0.6
    >>> evaluation.summary()[["best_layer", "best", "last"]]
       best_layer  best  last
    0           2   0.7   0.6
    """

    DOCUMENT = "layerscope.scores.document"

    def __init__(self, scores: pd.DataFrame, source: str = "memory") -> None:
        """Take a long frame with columns of `COLUMNS`, of which model, layer, task and score must be there.

        A score that is NaN is missing; a row without a layer is the baseline. Raises
        `LayerscopeError` for a missing column, infinite scores, two rows for one thing, and where
        no layer has a score.
        """
        self.source = source
        self.scores = _long(scores, source)
        self.failed: dict[str, str] = {}
        """Tasks that `evaluate` could not judge, each with the reason; empty for what was opened."""
        self.origins: dict[str, ModelOrigin] = {}
        """By model where it came from and how deep it is, as far as `evaluate` wrote it."""

    def __repr__(self) -> str:
        scores = self.scores
        models = count(len(scores[["model", "revision"]].drop_duplicates()), "model")
        layers = count(scores["layer"].nunique(), "layer")
        tasks = count(scores["task"].nunique(), "task")
        text = f"{self.source!r}: {models}, {layers}, {tasks}, {self.missing} missing"
        if self.failed:
            text += f", not scored: {', '.join(self.failed)}"
        return f"Evaluation({text})"

    @property
    def missing(self) -> int:
        """Number of (layer, task) pairs without a score, over all models."""
        return sum(grid.missing for grid in self.grids())

    def table(
        self,
        model: str | None = None,
        revision: str | None = None,
        *,
        site: str | None = None,
        pooling: str | None = None,
    ) -> pd.DataFrame:
        """Return scores as layer × task, a missing one as NaN.

        Rows are layers where one model, revision, site and pooling is left, else (model, revision,
        layer), with site and pooling between where there are several. The baseline is not a layer:
        see `baseline`.
        """
        rows = self.scores[self.scores["kind"] == "layer"].astype({"layer": "int64"})
        chosen = model, revision, site, pooling
        for column, value in zip(VARIANT, chosen, strict=True):
            if value is None:
                continue
            values = [*map(str, rows[column].dropna().unique())]
            if value not in values:
                raise LayerscopeError(
                    f"{column} {value!r} is not in this evaluation{choices(value, values or ['none'], 'it has')}"
                )
            rows = rows[rows[column] == value]
        distinct = rows[list(VARIANT)].nunique(dropna=False) > 1
        if not distinct.any():
            return wide(rows, ["layer"])
        distinct[["model", "revision"]] = True
        return wide(rows, [*distinct.index[distinct], "layer"])

    def baseline(self) -> pd.DataFrame:
        """Return the scores of the models as shipped: (model, revision) × task, without rows where none were given."""
        rows = self.scores[self.scores["kind"] == "baseline"]
        return wide(rows, ["model", "revision"])

    def summary(self) -> pd.DataFrame:
        """Return a row per model and revision (and site and pooling, where there are several).

        Columns, in the scores' own units: first, mean_over_layers, best, best_layer, last, oracle
        (the mean over tasks of each task's best layer), baseline; first_layer and last_layer say
        which layers these are; layers, tasks, missing are counts, left_out names layers. Layer 0,
        the embedding output, is not a candidate for the best layer. Averages run over the tasks
        present at every layer that is not left out; a layer with scores on less than 25 of 32 of the
        most tasks of a model is. `last` is the model's last layer, NaN where that is left out or was not
        scored.
        """
        return summary(self.grids())

    def grids(self) -> list[Grid]:
        """Return the scores of each model, revision, site and pooling as layer × task, with what is left out."""
        depths = {name: origin.depth for name, origin in self.origins.items()}
        return grids(self.scores, depths)

    def document(self, **related: pd.DataFrame) -> Document:
        """Return the best layer, a row for each model, of one model its layers by task, and what is `related`.

        That may be `correlations`, those of `correlate`, and `rules`, those of `rules_table`.
        """
        document: Document = self._shown_by().document(self, **related)
        return document

    def as_dict(self, **related: pd.DataFrame) -> dict[str, Any]:
        """Return answer, source, what is missing, summary and scores as JSON can hold them, and what is `related`.

        That may be `correlations` and `rules`, as in `document`.
        """
        entries: dict[str, Any] = self._shown_by().as_dict(self, **related)
        return entries

    def save(self, path: str | Path) -> Path:
        """Write the scores into a folder (Parquet and JSON) that `open_evaluation` reads, and return its path.

        An evaluation that is there is replaced; killed on the way, it leaves files that are
        refused. A folder that holds something else is refused.
        """
        facts = {"source": self.source, "models": self.origins}
        return STORE.save(path, facts, {"scores": self.scores})


def add_origin(folder: Path, name: str, origin: ModelOrigin) -> None:
    """Write a model's origin into an evaluation's folder, beside those that are there."""
    origins = read_origins(folder)
    before = origins.get(name, origin)
    origins[name] = replace(origin, tokens=origin.tokens or before.tokens)
    facts = {model: asdict(entry) for model, entry in origins.items()}
    text = json.dumps(facts, indent=2, ensure_ascii=False)
    aside(folder / ORIGINS, lambda part: part.write_text(text, encoding="utf-8"))


def read_origins(folder: Path) -> dict[str, ModelOrigin]:
    """Return origins by the model's name.

    There are none where the file is absent or damaged, as scores stand without it.
    """
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return origins_from(json.loads((folder / ORIGINS).read_text(encoding="utf-8")))
    return {}


def origins_from(facts: Mapping[str, Any]) -> dict[str, ModelOrigin]:
    """Return origins from what JSON held."""
    return {name: ModelOrigin(**entry) for name, entry in facts.items()}


def _long(scores: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return the rows with the columns and dtypes of `COLUMNS`, what is empty among the texts as None."""
    for name in NEEDED:
        if name not in scores:
            raise LayerscopeError(
                f"{source} has no column {name!r}: scores need {', '.join(NEEDED)}"
            )
    frame = scores
    if "kind" not in frame:
        kinds = np.where(scores["layer"].isna(), "baseline", "layer")
        frame = scores.assign(kind=kinds)
    frame = typed(frame, COLUMNS)
    frame["revision"] = frame["revision"].where(frame["revision"].notna(), "")
    layers = frame["kind"] == "layer"
    if not frame.loc[layers, "score"].notna().any():
        raise LayerscopeError(
            f"{source} has no score of any layer: give a score for each layer and task"
        )
    infinite = frame[np.isinf(frame["score"])]
    if len(infinite):
        row = infinite.iloc[0]
        raise LayerscopeError(
            f"{source}: the score of {row['model']} on {row['task']} is infinite: leave it out"
        )
    is_numbered = (frame["layer"] >= 0).fillna(False)
    wrong = frame[is_numbered != layers]
    if len(wrong):
        row = wrong.iloc[0]
        raise LayerscopeError(
            f"{source}: a row of kind {row['kind']!r} has the layer {row['layer']}: layers count from 0, and only the "
            "baseline has none"
        )
    keys = {
        "layer": (*VARIANT, "layer"),
        "baseline": ("model", "revision", "kind"),
        "mix": (*VARIANT, "mix"),
    }
    for kind, columns in keys.items():
        rows = frame[frame["kind"] == kind]
        refuse_duplicates(rows, (*columns, "task"), source)
    return frame
