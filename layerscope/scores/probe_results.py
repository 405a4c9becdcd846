"""Scores of probes on disk: one file a task, written aside and renamed after every layer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.core.saved import read_facts, write_facts
from layerscope.inputs.corpus import folder_name
from layerscope.scores.files import refuse_duplicates
from layerscope.scores.mteb_results import other_data

FOLDER = "probes"
KIND, AGAIN = "file of probe scores", "evaluate that task again"
Place = tuple[int, str, str]
"""Layer, site and pooling of a score."""
VALUES = ("score", "stderr", "low", "high", "n")


class ProbeScores:
    """The scores of one task, kept as long as they are of this `digest`: of the same weights, data and options."""

    def __init__(self, folder: Path, model: str, revision: str, task: str, data: str, digest: str) -> None:
        name = folder_name(f"{model}-{revision[:20]}")
        self.path = folder / FOLDER / name / f"{folder_name(task)}.json"
        self.about = {"model": model, "revision": revision, "task": task, "data": data, "digest": digest}
        self.rows: list[dict[str, Any]] = self._there()

    def find(self, place: Place, kind: str | None = None, any_pooling: bool = False) -> dict[str, Any] | None:
        """Return the score of a layer, site and pooling, of one kind of row or of either."""
        of = place[:2] if any_pooling else place
        rows = (row for row in self.rows if kind in (None, row["kind"]))
        return next((row for row in rows if (row["layer"], row["site"], row["pooling"])[: len(of)] == of), None)

    def add(self, kind: str, place: Place, values: dict[str, Any]) -> None:
        """Take in a score of kind `layer` or `baseline`, and write the file."""
        about = dict(zip(("layer", "site", "pooling"), place, strict=True))
        chosen = {"strengths": list(values["strengths"])} if values.get("strengths") else {}
        self.rows.append({"kind": kind, **about, **{name: values[name] for name in VALUES}, **chosen})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_facts(self.path, KIND, {**self.about, "rows": self.rows})

    def _there(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        try:
            found = read_facts(self.path, KIND, AGAIN)
        except LayerscopeError:  # it is judged again
            return []
        same = all(found[name] == value for name, value in self.about.items())
        return list(found["rows"]) if same else []


def refuse_other_data(folder: Path, task: str, data: str) -> None:
    """Raise where a folder holds scores of a task on other data: one table would mix the two."""
    for path in sorted((folder / FOLDER).glob(f"*/{folder_name(task)}.json")):
        try:
            there = read_facts(path, KIND, AGAIN)["data"]
        except LayerscopeError:  # not whole: it is judged again
            continue
        if there != data:
            raise LayerscopeError(other_data(folder, task))


def has_probes(folder: Path) -> bool:
    """Return whether a folder holds scores of probes."""
    return next((folder / FOLDER).glob("*/*.json"), None) is not None


def read_probes(folder: Path) -> pd.DataFrame:
    """Return the scores of probes in a folder as a long frame; a file that is not whole is a `LayerscopeError`."""
    frame = pd.DataFrame(list(_rows(folder)))
    frame = frame.drop(columns="strengths", errors="ignore")  # each fold's C stands in the file alone
    refuse_duplicates(frame, ("model", "revision", "kind", "layer", "site", "pooling", "task"), folder)
    return frame.astype({"layer": "Int64", "n": "Int64"})


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((folder / FOLDER).glob("*/*.json")):
        found = read_facts(path, KIND, AGAIN)
        about = {name: found[name] for name in ("model", "revision", "task")}
        for row in found["rows"]:
            blank = dict.fromkeys(("layer", "site", "pooling")) if row["kind"] == "baseline" else {}
            yield {**about, **row, **blank}
