"""A folder of states, written chunk by chunk by any number of processes; the room's docstring has its format."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from layerscope.core.checked_json import unchanged
from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside, digest, json_object, read_json, unwritable, write_json
from layerscope.extraction.reading import TOKENS
from layerscope.profiling.identity import first_difference

FORMAT = 1
MANIFEST = "states.json"
END = "end.json"
WORKER = ".worker-"
SUFFIX = {"safetensors": ".safetensors", "parquet": ".parquet"}
MODEL = ("name", "weights", "device", "dtype", "part", "blocks", "norm", "depth", "width")
DATA = ("name", "text_column", "label_column", "fingerprint", "tokens")
DECISIVE = ("layers", "site", "poolings", "store_dtype", "file_format", "chunk_rows")
"""What must match for two processes to write into one folder, besides the options."""


class StatesFolder:
    """The files of an extraction: their names, how they are written, and which are finished."""

    def __init__(self, path: Path) -> None:
        self.path, self.writer = path, f".{uuid.uuid4().hex[:12]}"
        if not (path / MANIFEST).is_file():
            raise LayerscopeError(
                f"{str(path)!r} holds no states ({MANIFEST}): give the folder of an extraction"
            )
        self.manifest: dict[str, Any] = read_json(path / MANIFEST)
        if (written := self.manifest.get("format")) != FORMAT:
            raise LayerscopeError(
                f"{str(path)!r} holds states of format {written}: this layerscope reads {FORMAT}"
            )
        self.suffix = SUFFIX[self.manifest["file_format"]]

    @classmethod
    def open_or_start(cls, path: Path, manifest: Mapping[str, Any]) -> "StatesFolder":
        """Return the folder of these states, started where it is new; one that holds anything else is refused."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            there = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")}
        except OSError as error:
            raise LayerscopeError(
                f"{str(path)!r} cannot be written ({error.strerror}): name another folder with `out`"
            ) from error
        if MANIFEST not in there:
            if there:
                raise LayerscopeError(
                    f"`out={str(path)!r}` holds {min(there)} and no states: name a new folder"
                )
            _write_first(path / MANIFEST, {"format": FORMAT, **manifest})
        folder = cls(path)
        folder.refuse_another(manifest)
        for name in ("chunks", "done"):
            (path / name).mkdir(exist_ok=True)
        return folder

    def refuse_another(self, manifest: Mapping[str, Any], where: str = "here") -> None:
        """Raise where a manifest is not that of this folder's states, naming the first thing that differs."""
        there = self.manifest
        pairs = [
            (f"model {name}", there["model"].get(name), manifest["model"][name]) for name in MODEL
        ]
        data = there["data"] | {
            "tokens": there["data"].get("tokens") or manifest["data"]["tokens"]
        }  # as an older one
        pairs += [(f"data {name}", data.get(name), manifest["data"][name]) for name in DATA]
        pairs += [(name, there.get(name), manifest[name]) for name in DECISIVE]
        pairs += [
            (name, there["options"].get(name), value) for name, value in manifest["options"].items()
        ]
        if differs := first_difference(pairs, where):
            raise LayerscopeError(
                f"{str(self.path)!r} holds other states ({differs}): name another folder with `out`"
            )

    def chunk(self, number: int) -> Path:
        """Return the file of a chunk."""
        return self.path / "chunks" / f"{number:06d}{self.suffix}"

    def mark(self, number: int) -> Path:
        """Return the file that says what is known of a chunk, and that it is whole."""
        return self.path / "done" / f"{number:06d}.json"

    def facts(self, number: int) -> dict[str, Any] | None:
        """Return what is known of a chunk, or None where it is not finished or was cut since."""
        with suppress(OSError):
            found = json_object(self.mark(number))
            if (
                found is not None
                and unchanged(found)
                and self.chunk(number).stat().st_size == found["bytes"]
            ):
                return found
        return None

    def is_finished(self, number: int) -> bool:
        """Return whether a chunk is there in full."""
        return self.facts(number) is not None

    def finished(self) -> list[int]:
        """Return the numbers of the chunks that are there in full."""
        return list(filter(self.is_finished, self.marked()))

    def marked(self) -> list[int]:
        """Return the numbers of the chunks that were finished once."""
        return sorted(int(path.stem) for path in (self.path / "done").glob("[0-9]*.json"))

    def write(self, number: int, table: "ChunkTable", facts: Mapping[str, Any]) -> None:
        """Write a chunk: its states first, then the file that says it is whole."""
        path = self.chunk(number)
        aside(
            path,
            table.save_parquet if self.suffix == ".parquet" else table.save_safetensors,
            self.writer,
        )
        facts = {**facts, "bytes": path.stat().st_size, "sha256": digest(path)}
        write_json(self.mark(number), facts, self.writer)

    def take(self, number: int, other: "StatesFolder") -> None:
        """Bring a finished chunk of another folder into this one."""
        aside(self.chunk(number), partial(shutil.copyfile, other.chunk(number)), self.writer)
        write_json(self.mark(number), other.facts(number) or {}, self.writer)

    def drop(self, number: int) -> None:
        """Take a chunk away, so that it is computed again."""
        for path in (self.mark(number), self.chunk(number)):
            path.unlink(missing_ok=True)

    def write_end(self, chunks: int) -> None:
        """Keep how many chunks the data have."""
        write_json(self.path / END, {"chunks": chunks}, self.writer)

    def total(self) -> int | None:
        """Return how many chunks there are to be, None where nobody knows yet."""
        if (self.path / END).is_file():
            return int(read_json(self.path / END)["chunks"])
        rows = self.manifest["data"].get("rows")
        return None if rows is None else -(-rows // self.manifest["chunk_rows"])

    def finish(self, chunks: list[dict[str, Any]]) -> None:
        """Mark the folder as whole, with what is known of each chunk."""
        files = [
            {
                "name": self.chunk(i).name,
                **{name: own[name] for name in ("samples", "bytes", "sha256")},
            }
            for i, own in enumerate(chunks)
        ]
        sums = {
            name: sum(own[name] for own in chunks) for name in ("samples", "tokens", "rows", "cut")
        }
        broken = [entry for own in chunks for entry in own["broken"]]
        self.manifest["whole"] = {**sums, "broken": broken, "chunks": files}
        write_json(self.path / MANIFEST, self.manifest, self.writer)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Within, this process is known to be writing; its mark is its own, and no other process waits for it."""
        mark = FileLock(self.path / f"{WORKER}{self.writer[1:]}.lock", timeout=0)
        with suppress(OSError):  # a file system without locks
            mark.acquire()
        try:
            yield
        finally:
            mark.release()
            with suppress(OSError):
                Path(mark.lock_file).unlink(missing_ok=True)

    def refuse_writers(self) -> None:
        """Raise where a process is still writing; take away what killed ones left."""
        for mark in self.path.glob(f"{WORKER}*.lock"):
            try:
                with FileLock(mark, timeout=0):
                    mark.unlink(missing_ok=True)
            except Timeout:
                raise LayerscopeError(
                    f"{str(self.path)!r} is being written: merge it when its workers are done"
                ) from None
            except OSError:  # a file system without locks
                continue
        for part in (
            part
            for folder in (".", "chunks", "done")
            for part in (self.path / folder).glob(".*.part")
        ):
            part.unlink(missing_ok=True)


class ChunkTable:
    """The states of a chunk as they are written: names, labels, and a tensor for each pooling."""

    def __init__(
        self,
        names: list[str],
        labels: list[str] | None,
        layers: tuple[int, ...],
        states: dict[str, Tensor],
        offsets: list[int],
        ids: list[list[int]] | None,
    ) -> None:
        self.names, self.labels, self.layers, self.states = names, labels, layers, states
        self.offsets, self.ids = offsets, ids

    def _key(self, plain: str, pooling: str) -> str:
        return plain if len(self.states) == 1 else f"{plain}.{pooling}"

    def save_safetensors(self, path: Path) -> None:
        """Write all as one safetensors file."""
        from safetensors.torch import save_file

        tensors = {
            self._key("states", name): states.contiguous() for name, states in self.states.items()
        }
        if TOKENS in self.states:
            tensors["offsets"] = torch.tensor(self.offsets)
            if self.ids is not None:
                tensors["token_ids"] = torch.tensor(
                    [number for row in self.ids for number in row], dtype=torch.int64
                )
        about = {"id": self.names} | ({} if self.labels is None else {"label": self.labels})
        save_file(
            tensors, path, {"samples": json.dumps(about)}
        )  # one entry: of several the order may change

    def save_parquet(self, path: Path) -> None:
        """Write a row for each sample."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns: dict[str, Any] = {"id": pa.array(self.names, pa.string())}
        if self.labels is not None:
            columns["label"] = pa.array(self.labels, pa.string())
        if TOKENS in self.states and self.ids is not None:
            columns["token_ids"] = pa.array(self.ids, pa.list_(pa.int64()))
        for row, layer in enumerate(self.layers):
            for name, states in self.states.items():
                own = states[row].contiguous()
                vectors = pa.FixedSizeListArray.from_arrays(
                    pa.array(own.flatten().numpy()), own.shape[-1]
                )
                if name == TOKENS:
                    vectors = pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32()), vectors)
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
    own = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    write_json(own, facts)
    try:
        with suppress(FileExistsError):
            os.link(own, path)
    except OSError:  # no links on this file system
        own.replace(path)
        return
    try:
        own.unlink()
    except OSError as error:
        raise unwritable(own, error) from error
