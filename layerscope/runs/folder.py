"""The run folder: written shard by shard by one process at a time; a killed run resumes where it stopped.

run.json                    everything to repeat the run
plan.parquet                every row and the batch it is computed in, fixed before the first one
shards/00000.safetensors    what is kept of a few batches
shards/00000.json           its checksum, written last: a shard without one is not finished
tables/pooled.parquet       the rows of a kind of metrics, as soon as they are known
tables/samples.….parquet    values of single samples
log.jsonl                   when it was started, resumed, and what went wrong on the way
"""

import json
import shutil
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core import LayerscopeError, aside, write_json
from layerscope.core.files import (
    digest,
    foreign,
    read_json,
    read_parquet,
    unwritable,
    write_parquet,
)
from layerscope.core.state_store import StateStore
from layerscope.show.numbers import amount

FORMAT = 1
PLANNED = {"sample", "name", "view", "length", "batch", "shard", "offset"}
MEASURED = {"metric", "layer", "site", "value"}
COLUMNS = {
    "metric": "object", "variant": "object", "part": "object", "layer": "Int64", "site": "object",
    "layer_b": "Int64", "site_b": "object", "pooling": "object", "value": "float64", "stderr": "float64",
    "n": "Int64", "n_skipped": "Int64", "step": "Int64",
}  # fmt: skip
"""The long frame: a row for each metric, layer (and second layer), site and pooling, and step of a training."""

OWN = {
    ".lock",
    "log.jsonl",
    "plan.parquet",
    ".plan.parquet.part",
    ".run.json.part",
    "shards",
    "tables",
    "stream",
}
"""What may lie in a folder where a run is started: what a run that was killed early leaves."""

FILES = (
    "run.json",
    "plan.parquet",
    "log.jsonl",
    "depths.csv",
    "shards/[0-9]*",
    "tables/*.parquet",
)
"""What a run has, and the history of a training."""


class RunFolder:
    """The files of one run: their names, how they are written, and which are finished.

    >>> from pathlib import Path
    >>> from layerscope.runs import RunFolder
    >>> folder = RunFolder(Path("runs/minilm"))
    >>> folder.read_table(folder.tables()[0]).columns[:3].tolist()
    ['metric', 'variant', 'part']
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = StateStore(path, "shards", "shard")
        self.manifest = read_json(path / "run.json")
        written = self.manifest.get("format")
        parts = map(self.manifest.get, ("model", "data", "options"))
        is_run = all(isinstance(part, dict) for part in parts)
        if not isinstance(written, int) or not is_run:
            raise LayerscopeError(
                f"{str(path / 'run.json')!r} is not a run of layerscope: choose another folder"
            )
        if written > FORMAT:
            raise LayerscopeError(
                f"run folder {str(path)!r} was written by a newer layerscope (format {written}): upgrade"
            )
        self.plan: pd.DataFrame = read_parquet(path / "plan.parquet", PLANNED).drop(
            columns="key", errors="ignore"
        )
        if self.manifest.get("plan") not in (None, digest(path / "plan.parquet")):
            raise foreign(path / "plan.parquet")

    @classmethod
    def create(
        cls, path: Path, manifest: dict[str, Any], plan: pd.DataFrame
    ) -> "RunFolder":
        """Start a run folder with its manifest and plan.

        Shards and tables left without a manifest are deleted.
        """
        refuse_other_files(path)
        for pattern in ("shards/*.safetensors", "shards/*.json", "tables/*.parquet"):
            (path / pattern).parent.mkdir(parents=True, exist_ok=True)
            for left in path.glob(pattern):
                left.unlink()
        aside(path / "plan.parquet", lambda p: write_parquet(p, plan))
        write_json(
            path / "run.json",
            {"format": FORMAT, **manifest, "plan": digest(path / "plan.parquet")},
        )
        return cls(path)

    @staticmethod
    def exists(path: Path) -> bool:
        """Return whether a run was started there."""
        return (path / "run.json").is_file()

    def files(self) -> list[str]:
        """Return the run's own files, without what else lies in its folder, such as a page."""
        paths = []
        for pattern in FILES:
            paths += sorted(self.path.glob(pattern))
        return [path.relative_to(self.path).as_posix() for path in paths]

    @property
    def shards(self) -> list[int]:
        """Numbers of all shards of the plan."""
        return sorted(int(s) for s in self.plan["shard"].unique())

    def is_finished(self, shard: int) -> bool:
        """Return whether a shard is there in full."""
        return self.store.is_finished(shard)

    def drop_damaged(self) -> list[str]:
        """Remove shards and tables that are not what was written, so that they are computed again, and name them."""
        self.store.drop_leftovers()
        dropped = [f"shard {shard}" for shard in self.store.drop_damaged()]
        for name in self.tables():
            try:
                self.read_table(name)
            except LayerscopeError:
                self._table(name).unlink()
                dropped.append(f"table {name}")
        return dropped

    def write_shard(self, shard: int, tensors: dict[str, Tensor]) -> None:
        """Write one shard."""
        self.store.write(shard, tensors)

    def drop_states(self) -> None:
        """Leave in the shards the values of samples, and none of their vectors."""
        for shard in self.shards:
            kept = {}
            with self.shard(shard) as file:
                for key in sorted(file.keys()):
                    values = file.get_tensor(key)
                    if values.ndim < 3:
                        kept[key] = values
            self.write_shard(shard, kept)

    def rows(self, shard: int) -> pd.DataFrame:
        """The rows of the plan in a shard, in the order of its tensors."""
        return self.plan[self.plan["shard"] == shard]

    @property
    def originals(self) -> pd.DataFrame:
        """The rows of the plan that are samples as they are, and no views of them."""
        return self.plan[self.plan["view"] == 0]

    @property
    def copies(self) -> NDArray[np.bool_]:
        """Which rows of the plan are exact copies of an earlier sample."""
        marked = self.plan.get("copy", np.zeros(len(self.plan)))
        return np.asarray(marked, dtype=bool)

    def labels(self) -> pd.Series | None:
        """Return the labels of the samples that probes may judge, each distinct one once.

        It is None where there are none.
        """
        if "label" not in self.plan:
            return None
        is_original = self.plan["view"] == 0
        return self.plan.loc[is_original & ~self.copies, "label"]

    def broken(self) -> NDArray[np.int64]:
        """Return for every row of the plan the first layer with a NaN or an infinity, −1 where all are finite."""
        first = np.full(len(self.plan), -1)
        for shard in self.shards:
            with self.shard(shard) as file:
                first[self.rows(shard).index] = file.get_tensor("broken").numpy()
        return first

    def finite(self) -> NDArray[np.bool_]:
        """Return which rows of the plan have no NaN and no infinity in their states."""
        return self.broken() < 0

    def shard(self, shard: int) -> AbstractContextManager[Any]:
        """Open a shard for reading its tensors one by one.

        One that is not what was written is refused.
        """
        return self.store.open(shard)

    def sample_keys(self) -> list[str]:
        """Return the keys of what is kept of samples, such as `raw.mean`; of their views there is less."""
        keys = []
        for shard in self.shards[:1]:  # the samples come before their views
            with self.shard(shard) as file:
                keys = sorted(file.keys())
        return keys

    def sample_values(self, key: str) -> Tensor:
        """Return the values `[…, n]` of all samples, or of those of their tokens, in the order of the plan."""
        shards = []
        for shard in self.originals["shard"].unique():
            with self.shard(shard) as file:
                shards.append(file.get_tensor(key))
        return torch.cat(shards, -1)

    def has_table(self, name: str) -> bool:
        """Return whether a metric's rows are there."""
        return self._table(name).is_file()

    def write_table(
        self, name: str, frames: pd.DataFrame | Iterable[pd.DataFrame]
    ) -> None:
        """Keep a metric's rows, given whole or in parts."""
        aside(self._table(name), lambda p: write_parquet(p, frames))

    def read_table(self, name: str) -> pd.DataFrame:
        """Return a metric's rows."""
        return read_parquet(self._table(name), MEASURED, COLUMNS)

    def tables(self) -> list[str]:
        """Names of the tables that are there."""
        return sorted(p.stem for p in (self.path / "tables").glob("*.parquet"))

    def log(self, event: str, **facts: object) -> None:
        """Append one line to the run's log."""
        entry = {"time": round(time.time(), 3), "event": event, **facts}
        line = json.dumps(entry, ensure_ascii=False)
        try:
            with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            raise unwritable(self.path / "log.jsonl", error) from error

    def events(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the log's lines, or those of one kind; half a line is no line."""
        path = self.path / "log.jsonl"
        entries = []
        if path.is_file():
            for line in path.read_text("utf-8", "replace").splitlines():
                with suppress(ValueError):
                    entries.append(json.loads(line))
        return [entry for entry in entries if event in (None, entry["event"])]

    def _table(self, name: str) -> Path:
        return self.path / "tables" / f"{name}.parquet"


def refuse_other_files(path: Path) -> None:
    """Raise where a folder that holds no run holds anything else."""
    others = {file.name for file in path.glob("*")} - OWN
    if others:
        raise LayerscopeError(
            f"folder {str(path)!r} holds other files ({min(others)}) and no run: choose a new folder with `out`"
        )


def need_room(
    path: Path,
    size: int,
    mend: str = "take fewer `samples`, `store_dtype='float16'`, or another `out`",
) -> None:
    """Refuse states of `size` bytes that do not fit on the disk of their folder."""
    above = (path, *path.absolute().parents)
    there = next(folder for folder in above if folder.exists())
    free = shutil.disk_usage(there).free
    if size > free:
        raise LayerscopeError(
            f"the states take {amount(size)} and {str(path)!r} has {amount(free)} free: {mend}"
        )


def packed(key: str, vectors: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return vectors [..., D] as they are stored: in float16 as directions, with each norm beside them in float32.

    A massive activation overflows half precision; its direction times √D does not.
    """
    vectors = vectors.float()
    if dtype == torch.float32:
        return {key: vectors}
    norm = vectors.norm(dim=-1, keepdim=True)
    norm = norm.clamp_min(torch.finfo(torch.float32).tiny)
    scale = vectors.shape[-1] ** 0.5
    directions = (vectors / norm * scale).to(dtype)
    return {key: directions, f"{key}.norm": norm / scale}


def unpacked(file: Any, key: str, index: Any, keys: set[str]) -> Tensor:
    """Return stored vectors in float32, `index` applied to the stored tensor.

    `keys` are all keys of the file: where it has `KEY.norm` too, `packed` took the norms apart.
    """
    vectors: Tensor = file.get_slice(key)[index]
    if f"{key}.norm" not in keys:
        return vectors
    norm: Tensor = file.get_slice(f"{key}.norm")[index]
    return vectors.float() * norm
