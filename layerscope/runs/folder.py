"""The run folder: written shard by shard, so that a killed run goes on where it stopped.

Layout: `run.json` (everything to repeat the run), `plan.parquet` (every row and the batch it is computed in, fixed
before the first batch), `shards/NNNNN.safetensors` with `NNNNN.json` (its checksum, written last: a shard without one
is not finished), `tables/METRIC.parquet` (each metric's rows as soon as they are known), `log.jsonl`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from layerscope.errors import LayerscopeError

FORMAT = 1


class RunFolder:
    """Files of one run; knows names, writing aside and renaming, and what is finished."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest: dict[str, Any] = _read_json(path / "run.json")
        if self.manifest.get("format", 0) > FORMAT:
            raise LayerscopeError(
                f"run folder {str(path)!r} was written by a newer layerscope (format {self.manifest['format']}): upgrade"
            )
        self.plan: pd.DataFrame = _read_parquet(path / "plan.parquet")

    @classmethod
    def create(cls, path: Path, manifest: dict[str, Any], plan: pd.DataFrame) -> RunFolder:
        """Start a run folder with its manifest and plan."""
        for name in ("shards", "tables"):
            (path / name).mkdir(parents=True, exist_ok=True)
        _aside(path / "plan.parquet", lambda p: plan.to_parquet(p, index=False))
        text = json.dumps({"format": FORMAT, **manifest}, indent=2, ensure_ascii=False)
        _aside(path / "run.json", lambda p: p.write_text(text, encoding="utf-8"))
        return cls(path)

    @staticmethod
    def exists(path: Path) -> bool:
        """Return whether a run was started there."""
        return (path / "run.json").is_file()

    @property
    def shards(self) -> list[int]:
        """Numbers of all shards of the plan."""
        return sorted(int(s) for s in self.plan["shard"].unique())

    def is_finished(self, shard: int) -> bool:
        """Return whether a shard is there in full."""
        return self._shard(shard).is_file() and self._checksum(shard).is_file()

    def damaged(self) -> list[int]:
        """Return the finished shards whose bytes are not those that were written."""
        return [
            shard
            for shard in self.shards
            if self.is_finished(shard) and _digest(self._shard(shard)) != _read_json(self._checksum(shard)).get("sha256")
        ]

    def discard(self, shard: int) -> None:
        """Forget a shard, so that it is computed again."""
        self._checksum(shard).unlink(missing_ok=True)
        self._shard(shard).unlink(missing_ok=True)

    def write_shard(self, shard: int, tensors: dict[str, Tensor]) -> None:
        """Write one shard: its tensors first, then the checksum that says it is whole."""
        ready = {key: tensor.contiguous() for key, tensor in tensors.items()}
        _aside(self._shard(shard), lambda p: save_file(ready, p))
        digest = json.dumps({"sha256": _digest(self._shard(shard))})
        _aside(self._checksum(shard), lambda p: p.write_text(digest, encoding="utf-8"))

    def rows(self, shard: int) -> pd.DataFrame:
        """The rows of the plan that stand in a shard, in the order of its tensors."""
        return self.plan[self.plan["shard"] == shard]

    @contextmanager
    def shard(self, shard: int) -> Iterator[Any]:
        """Open a shard for reading its tensors one by one."""
        try:
            with safe_open(self._shard(shard), framework="pt") as file:
                yield file
        except (SafetensorError, OSError) as error:
            raise LayerscopeError(
                f"shard {shard} of {str(self.path)!r} cannot be read ({error}): run the same command to compute it again"
            ) from error

    def has_table(self, name: str) -> bool:
        """Return whether a metric's rows are there."""
        return self._table(name).is_file()

    def write_table(self, name: str, frame: pd.DataFrame) -> None:
        """Keep a metric's rows."""
        _aside(self._table(name), lambda p: frame.to_parquet(p, index=False))

    def read_table(self, name: str) -> pd.DataFrame:
        """Return a metric's rows."""
        return _read_parquet(self._table(name))

    def tables(self) -> list[str]:
        """Names of the tables that are there."""
        return sorted(p.stem for p in (self.path / "tables").glob("*.parquet"))

    def log(self, event: str, **facts: object) -> None:
        """Append one line to the run's log."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, **facts}, ensure_ascii=False)
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def events(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the log's lines, or those of one kind."""
        path = self.path / "log.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        # a killed process may leave half a line
        entries = [json.loads(line) for line in lines if line.endswith("}")]
        return [entry for entry in entries if event in (None, entry["event"])]

    def _shard(self, shard: int) -> Path:
        return self.path / "shards" / f"{shard:05d}.safetensors"

    def _checksum(self, shard: int) -> Path:
        return self.path / "shards" / f"{shard:05d}.json"

    def _table(self, name: str) -> Path:
        return self.path / "tables" / f"{name}.parquet"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a run folder for this process alone; a second process is refused."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = (path / ".lock").open("w")
    except OSError as error:
        raise LayerscopeError(f"run folder {str(path)!r} cannot be written ({error.strerror}): choose another with --out") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise LayerscopeError(
            f"another process is writing to {str(path)!r}: wait for it, or choose another folder with --out"
        ) from None
    try:
        yield
    finally:
        file.close()


def need_room(path: Path, size: int) -> None:
    """Refuse a run whose states (bytes) do not fit on the disk of its folder."""
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if size > free:
        raise LayerscopeError(
            f"the states take {size / 1e9:.1f} GB and {str(path)!r} has {free / 1e9:.1f} GB free: "
            "take fewer --samples, --store-dtype float16, or another --out"
        )


def _aside(path: Path, write: Any) -> None:
    """Write beside the file and rename: a reader sees the whole file or none."""
    part = path.with_name(f".{path.name}.part")
    try:
        write(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise LayerscopeError(
            f"{str(path)!r} cannot be written ({error.strerror or error}): make room, then run the same command to go on"
        ) from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LayerscopeError(f"{str(path.parent)!r} is no run folder: it has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise LayerscopeError(f"{str(path)!r} cannot be read ({error}): start the run again in another folder") from error
    if not isinstance(found, dict):
        raise LayerscopeError(f"{str(path)!r} is not what layerscope wrote there: start the run again in another folder")
    return found


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except FileNotFoundError:
        raise LayerscopeError(f"{str(path)!r} is missing: start the run again in another folder") from None
    except Exception as error:  # pyarrow raises many kinds
        line = (str(error).splitlines() or [""])[0]
        raise LayerscopeError(f"{str(path)!r} cannot be read ({line}): start the run again in another folder") from error


def packed(key: str, vectors: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return vectors [..., D] as they are stored: in float16 as directions, with each norm beside them in float32.

    A massive activation overflows half precision; its direction times √D does not.
    """
    if dtype == torch.float32:
        return {key: vectors.float()}
    norm = vectors.float().norm(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    scale = vectors.shape[-1] ** 0.5
    return {key: (vectors.float() / norm * scale).to(dtype), f"{key}.norm": norm / scale}


def unpacked(file: Any, key: str, index: Any, keys: set[str]) -> Tensor:
    """Return stored vectors in float32, `index` applied to the stored tensor."""
    vectors: Tensor = file.get_slice(key)[index]
    if f"{key}.norm" not in keys:
        return vectors
    norm: Tensor = file.get_slice(f"{key}.norm")[index]
    return vectors.float() * norm


def as_array(rows: object) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return row numbers as an array of integers."""
    return np.asarray(rows, dtype=np.int64)
