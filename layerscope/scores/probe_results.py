"""Scores of probes on disk: one file a task, written aside and renamed after every layer.

A file is kept as long as it is about the same weights, data and options; else it is begun anew. So
an evaluation that is killed goes on with the next layer, and one of other data never finds scores
that are not its own. Which samples a probe gets right is kept with each score, a bit a sample.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core import LayerscopeError, folder_name
from layerscope.core.saved import read_facts, write_facts

FOLDER = "probes"
KIND, AGAIN = "file of probe scores", "evaluate that task again"
Slot = tuple[int, str, str]
"""Layer, site and pooling of a score."""
MixSlot = tuple[str, str, str]
"""Name of a mix, site and pooling."""
VALUES = ("score", "stderr", "low", "high", "n")
BY_SAMPLE = "by_sample"
"""Where a score in a result of mteb has the values of its samples, packed."""
OF_MIXES = ("gain", "gain_error", "weights")
"""What a mix of layers has beside; its weights are `a=weight,b=weight` as text."""


class ProbeScores:
    """The scores of one task in a file, kept as long as its facts are these.

    They are model, revision, task, data, the `digest` of weights, data and options, and the task
    that it is `shifted_from`. Of several processes one `writes` them.
    """

    def __init__(
        self, folder: Path, facts: Mapping[str, str | None], writes: bool = True
    ) -> None:
        model = f"{facts['model']}-{str(facts['revision'])[:20]}"
        file = f"{folder_name(str(facts['task']))}.json"
        self.path = folder / FOLDER / folder_name(model) / file
        self.about = dict(facts)
        self.writes = writes
        self.rows: list[dict[str, Any]] = []
        # a file that is not whole, or of something else, is written anew
        with suppress(LayerscopeError):
            there = read_facts(self.path, KIND, AGAIN)
            if all(there.get(name) == value for name, value in facts.items()):
                self.rows = list(there["rows"])

    def has(self, kind: str, slot: Slot | MixSlot) -> bool:
        """Return whether the score of a layer or mix, at a site and of a pooling, is there, of this kind of row."""
        for row in self.rows:
            name = row.get("mix", row["layer"])
            if (row["kind"], name, row["site"], row["pooling"]) == (kind, *slot):
                return True
        return False

    def add(self, kind: str, slot: Slot | MixSlot, values: dict[str, Any]) -> None:
        """Take in a score of kind `layer`, `mix` or `baseline`, and write the file.

        `values` has those of `VALUES`, `strengths` (of the regularisation, by fold), `right` (by
        sample), and of a mix those of `OF_MIXES`.
        """
        name, site, pooling = slot
        row: dict[str, Any] = {
            "kind": kind,
            "layer": name,
            "site": site,
            "pooling": pooling,
        }
        row |= {key: values[key] for key in VALUES}
        if values["strengths"]:
            row["strengths"] = list(values["strengths"])
        if values["right"] is not None:
            row["right"] = packed(values["right"])
        if kind == "mix":
            row |= {"mix": name, "layer": None}
            row |= {key: values[key] for key in OF_MIXES}
        self.rows.append(row)
        if self.writes:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_facts(self.path, KIND, {**self.about, "rows": self.rows})


def packed(values: npt.NDArray[Any]) -> str:
    """Return values by sample as a text for a file of scores: a bit for each true or false, else 32-bit floats.

    >>> from layerscope.scores.probe_results import packed, unpacked
    >>> unpacked(packed(np.array([True, False, True])), n=3)
    array([1., 0., 1.])
    """
    of_values = np.packbits(values) if values.dtype == bool else values.astype("<f4")
    return b64encode(of_values.tobytes()).decode()


def unpacked(kept: str, n: int | None = None) -> npt.NDArray[np.float64]:
    """Return the values of n samples, 1 and 0 for true and false, from the text of `packed`.

    Without `n` they must be floats.
    """
    content = b64decode(kept)
    if n is None or len(content) == 4 * n:
        return np.frombuffer(content, "<f4").astype(np.float64)
    return np.unpackbits(np.frombuffer(content, np.uint8), count=n).astype(np.float64)


def refuse_other_data(folder: Path, task: str, data: str) -> None:
    """Raise where a folder holds scores of a task, mteb's or a probe's, on other data: one table would mix the two."""
    places = {
        f"results/**/{task}.json": "dataset_revision",
        f"{FOLDER}/*/{folder_name(task)}.json": "data",
    }
    for pattern, key in places.items():
        for path in folder.glob(pattern):
            there = data
            # one that is not whole is judged again
            with suppress(OSError, ValueError, AttributeError):
                there = json.loads(path.read_text(encoding="utf-8")).get(key)
            if there != data:
                raise LayerscopeError(
                    f"{str(folder)!r} holds scores of {task} on other data (another file, `samples` or `seed`): name "
                    "another `out`, so that one table does not mix them"
                )


def has_probes(folder: Path) -> bool:
    """Return whether a folder holds scores of probes."""
    return any((folder / FOLDER).glob("*/*.json"))


def read_probes(folder: Path) -> pd.DataFrame:
    """Return the scores of probes in a folder as a long frame.

    A file that is not whole is a `LayerscopeError`.
    """
    paths = sorted((folder / FOLDER).glob("*/*.json"))
    files = [read_facts(path, KIND, AGAIN) for path in paths]
    # what is shifted comes last
    files.sort(key=lambda file: file.get("shifted_from") or "")
    rows = []
    for file in files:
        names = ("model", "revision", "task", "shifted_from")
        about = {name: file.get(name) for name in names}
        rows += [about | row for row in file["rows"]]
    # C by fold stays there
    frame = pd.DataFrame(rows).drop(columns="strengths", errors="ignore")
    frame.loc[frame["kind"] == "baseline", ["layer", "site", "pooling"]] = None
    return frame.astype({"layer": "Int64", "n": "Int64"})
