"""The folder of states that `extract` writes, chunk by chunk, by any number of processes.

Each process takes the next chunk that nobody has; what is finished has a mark. The manifest is
written by whoever comes first, and again, with what is known of every chunk, by whoever finishes
the last one. Processes that share a folder need not know of each other, and may come and go.

`layerscope.extraction` has the format in its docstring.
"""

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.core import LayerscopeError, write_json
from layerscope.core.files import read_json
from layerscope.core.state_store import SHA256, StateStore, first_difference

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
MANIFEST = "states.json"
END = "end.json"
TOKENS = ""
"""What stands in the place of a pooling for the states of every token."""
LEFT = 3600
"""Seconds after which a half-written file is no longer that of a process at work."""
MODEL = ("name", "weights", "device", "dtype", "part", "blocks", "norm", "depth", "width")  # fmt: skip
DATA = ("name", "text_column", "label_column", "fingerprint", "tokens")
DECISIVE = ("layers", "site", "poolings", "store_dtype", "file_format", "chunk_rows")
"""What must match for two processes to write into one folder, besides the options."""


class StatesFolder:
    """The manifest of an extraction, and the store of its chunks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / MANIFEST).is_file():
            raise LayerscopeError(
                f"{str(path)!r} holds no states ({MANIFEST}): give the folder of an extraction"
            )
        self.manifest: dict[str, Any] = read_json(path / MANIFEST)
        if (written := self.manifest.get("format")) != FORMAT:
            raise LayerscopeError(
                f"{str(path)!r} holds states of format {written}: this layerscope reads {FORMAT}"
            )
        suffix = f".{self.manifest['file_format']}"
        self.store = StateStore(
            path, "chunks", "chunk", "done", suffix, digits=6, checksum=SHA256
        )

    @classmethod
    def open_or_start(cls, path: Path, manifest: Mapping[str, Any]) -> "StatesFolder":
        """Return the folder of these states, started where it is new.

        One that holds anything else is refused.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            names = [entry.name for entry in path.iterdir()]
        except OSError as error:
            raise LayerscopeError(
                f"{str(path)!r} cannot be written ({error.strerror}): name another folder with `out`"
            ) from error
        if MANIFEST not in names:
            others = [name for name in names if not name.startswith(".")]
            if others:
                raise LayerscopeError(
                    f"`out={str(path)!r}` holds {min(others)} and no states: name a new folder"
                )
            _write_first(path / MANIFEST, {"format": FORMAT, **manifest})
        folder = cls(path)
        folder._refuse_another(manifest)
        for place in (folder.store.files, folder.store.marks):
            place.mkdir(exist_ok=True)
        return folder

    def _refuse_another(self, manifest: Mapping[str, Any]) -> None:
        """Raise where a manifest is not that of this folder's states, naming the first thing that differs."""
        there = self.manifest
        groups = (
            ("model ", MODEL, there["model"], manifest["model"]),
            ("data ", DATA, there["data"], manifest["data"]),
            ("", DECISIVE, there, manifest),
            ("", manifest["options"], there["options"], manifest["options"]),
        )
        pairs = []
        for group, names, old, new in groups:
            pairs += [(f"{group}{name}", old.get(name), new[name]) for name in names]
        if differs := first_difference(pairs):
            raise LayerscopeError(
                f"{str(self.path)!r} holds other states ({differs}): name another folder with `out`"
            )

    def write_end(self, chunks: int) -> None:
        """Keep how many chunks the data have."""
        write_json(self.path / END, {"chunks": chunks}, self.store.writer)

    def total(self) -> int | None:
        """Return how many chunks there are to be, None where nobody knows yet."""
        if (self.path / END).is_file():
            return int(read_json(self.path / END)["chunks"])
        rows = self.manifest["data"].get("rows")
        return None if rows is None else -(-rows // self.manifest["chunk_rows"])

    def finish(self) -> None:
        """Mark the folder as whole, with what is known of each chunk, where all of them are there."""
        numbers = range(self.total() or 0)
        chunks = [*filter(None, map(self.store.facts, numbers))]
        if len(chunks) != self.total():
            return
        files = []
        for number, about in enumerate(chunks):
            kept = {name: about[name] for name in ("samples", "bytes", "sha256")}
            files.append({"name": self.store.path(number).name, **kept})
        names = ("samples", "tokens", "rows", "cut")
        whole = {name: total_of(chunks, name) for name in names}
        self.manifest["whole"] = {**whole, "broken": broken_in(chunks), "chunks": files}
        write_json(self.path / MANIFEST, self.manifest, self.store.writer)
        self.store.drop_leftovers(LEFT)


def total_of(chunks: Iterable[dict[str, Any]], name: str) -> int:
    """Return the sum of a number that is known of each chunk.

    >>> total_of([{"samples": 3}, {"samples": 4}], "samples")
    7
    """
    return sum(about[name] for about in chunks)


def broken_in(chunks: Iterable[dict[str, Any]]) -> list[Any]:
    """Return name and first layer of each sample with a NaN or an infinity."""
    return [entry for about in chunks for entry in about["broken"]]


@dataclass(frozen=True)
class ChunkTable:
    """The states of a chunk as they are written: names, labels, and a tensor for each pooling."""

    names: list[str]
    labels: list[str] | None
    layers: tuple[int, ...]
    states: "dict[str, Tensor]"
    offsets: list[int]
    ids: list[list[int]] | None

    def save(self, path: Path) -> None:
        """Write all of it, in the format of the folder."""
        if ".parquet" in path.name:
            self._save_parquet(path)
        else:
            self._save_safetensors(path)

    def _key(self, plain: str, pooling: str) -> str:
        return plain if len(self.states) == 1 else f"{plain}.{pooling}"

    def _save_safetensors(self, path: Path) -> None:
        import torch
        from safetensors.torch import save_file

        tensors = {}
        for name, states in self.states.items():
            tensors[self._key("states", name)] = states.contiguous()
        if TOKENS in self.states:
            tensors["offsets"] = torch.tensor(self.offsets)
            if self.ids is not None:
                flat = [number for row in self.ids for number in row]
                tensors["token_ids"] = torch.tensor(flat, dtype=torch.int64)
        samples = {"id": self.names}
        if self.labels is not None:
            samples["label"] = self.labels
        # one entry: of several the order may change
        save_file(tensors, path, {"samples": json.dumps(samples)})

    def _save_parquet(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {"id": pa.array(self.names, pa.string())}
        if self.labels is not None:
            columns["label"] = pa.array(self.labels, pa.string())
        if TOKENS in self.states and self.ids is not None:
            columns["token_ids"] = pa.array(self.ids, pa.list_(pa.int64()))
        for row, layer in enumerate(self.layers):
            for name, states in self.states.items():
                flat = pa.array(states[row].contiguous().flatten().numpy())
                vectors = pa.FixedSizeListArray.from_arrays(flat, states.shape[-1])
                if name == TOKENS:
                    offsets = pa.array(self.offsets, pa.int32())
                    vectors = pa.ListArray.from_arrays(offsets, vectors)
                columns[self._key(f"layer_{layer}", name)] = vectors
        pq.write_table(
            pa.table(columns),
            path,
            use_dictionary=False,
            compression="none",
            write_page_checksum=True,
            write_statistics=False,
        )


def _write_first(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a file that another process may be writing too: the first one stays."""
    mine = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    write_json(mine, facts)
    try:
        os.link(mine, path)
    except FileExistsError:
        pass
    except OSError:  # no links on this file system
        mine.replace(path)
    mine.unlink(missing_ok=True)
