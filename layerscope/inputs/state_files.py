"""How states lie in files: a safetensors file a request, as vLLM writes them; NumPy arrays; what `extract` wrote."""

import json
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from layerscope.core.errors import LayerscopeError, count, first_line
from layerscope.core.files import digest, json_object, once, read_json
from layerscope.inputs.states import ID, States

LAYER = re.compile(r"layer[_-]?(\d+)")
STATED = "eagle_aux_hidden_state_layer_ids"
"""What vLLM calls the layers in the configuration that asks for their states."""
BLOCK = 1024
"""Rows of a Parquet file that are unpacked at once."""
Layers = Sequence[int] | None


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Within, a file is read; one that is damaged, or that only code could read, is one line."""
    from pyarrow import ArrowException

    try:
        yield
    except LayerscopeError:
        raise
    except (
        SafetensorError,
        ArrowException,
        zipfile.BadZipFile,
        OSError,
        ValueError,
        EOFError,
    ) as error:
        if "pickle" in str(error) or "Python objects" in str(error):
            raise LayerscopeError(
                f"{path} holds pickled objects, which can run code: save plain numbers"
            ) from error
        fault = f"is not a complete {path.suffix} file ({first_line(error)})"
        raise LayerscopeError(f"{path} {fault}: write or copy it again") from error


def _numbered(asked: Layers, stated: Layers, there: int, where: Path) -> tuple[int, ...]:
    """Return the numbers of the layers `there` are: those that the files state, which must be those asked for."""
    layers = list((asked if stated is None else stated) or ())
    fault = f"holds {count(there, 'layer')}"
    if not layers:
        fault += " and does not say which: name them, such as `layers='0,8,16,24'`"
    elif asked is not None and list(asked) != layers:
        fault = f"says that its layers are {','.join(map(str, layers))}: leave `layers` out, or name the same"
    elif len(layers) != there:
        fault += (
            f", and {len(layers)} are named ({','.join(map(str, layers))}): name each with `layers`"
        )
    elif any(b <= a for a, b in zip(layers, layers[1:], strict=False)):
        fault = f"has layers named {','.join(map(str, layers))}: name them in rising order, as the states hold them"
    else:
        return tuple(layers)
    raise LayerscopeError(f"{where} {fault}")


def requests(where: Path, files: Sequence[Path], asked: Layers) -> States:
    """Open what vLLM's hidden state connectors write: `token_ids` [T] and `hidden_states` [T, layers, D] a request."""
    tokens, shapes = list[Any](), list[list[int]]()
    for path in files:
        with _whole(path), safe_open(path, framework="pt") as file:
            if not {"token_ids", "hidden_states"} <= (keys := set(file.keys())):
                raise LayerscopeError(
                    f"{path} has no token_ids and hidden_states: it has {', '.join(sorted(keys))}"
                )
            tokens.append(file.get_tensor("token_ids").flatten().long().numpy())
            shapes.append(file.get_slice("hidden_states").get_shape())
        length, shape = len(tokens[-1]), shapes[-1]
        if len(shape) != 3 or shape[0] != length:
            raise LayerscopeError(
                f"{path}: hidden_states is {shape}, and its own {length} token_ids need [{length}, layers, D]"
            )
        if shape[1:] != shapes[0][1:]:
            raise LayerscopeError(
                f"{path}: hidden_states is {shape}, and that of {files[0].name} {shapes[0]}: give the same layers and D"
            )
    layers = _numbered(asked, _stated(where), shapes[0][1], where)

    def read(rows: Sequence[int]) -> list[Tensor]:
        found = []
        for row in rows:
            with _whole(files[row]), safe_open(files[row], framework="pt") as file:
                found.append(file.get_tensor("hidden_states").transpose(0, 1))
        return found

    note = f"the states of layer {layers[-1]}, too, are from before the final norm, as vLLM writes them (site raw)"
    names = tuple(path.stem for path in files)
    return States(where, names, layers, shapes[0][2], read, tokens, notes=(note,))


def _stated(where: Path) -> Layers:
    """Return the layers that a JSON file beside the requests names, as the configuration that vLLM was given does."""
    for path in sorted(where.glob("*.json")):
        found = json_object(path) or {}
        for key in ("speculative_config", "draft_model_config", "hf_config"):
            found = found.get(key, found)
        if isinstance(layers := found.get(STATED), list):
            return layers
    return None


def arrays(where: Path, files: Sequence[Path], asked: Layers) -> States:
    """Open `layer_8.npy` [N, D] and its like, or one array [N, layers, D]; `labels.npy` may lie beside them."""
    found = {path.stem: _array(path) for path in files}
    labels = found.pop("labels", None)
    return _pooled(where, found, asked, None if labels is None else pd.DataFrame({"label": labels}))


def _pooled(where: Path, found: dict[str, Any], asked: Layers, table: Any = None) -> States:
    """Return pooled states of arrays by name, a layer each or one of all layers."""
    by_layer = {int(match[1]): stem for stem in found if (match := LAYER.fullmatch(stem))}
    stated = sorted(by_layer) or None
    stems = [by_layer[number] for number in stated or ()] or list(found)
    shapes = [list(found[stem].shape) for stem in stems]
    if (
        len(stems) != len(found)
        or not stems
        or len(shapes[0]) != (2 if stated else 3)
        or (len(stems) > 1 and not stated)
    ):
        there = (
            ", ".join(f"{stem} {list(array.shape)}" for stem, array in found.items())
            or "labels alone"
        )
        raise LayerscopeError(
            f"{where} holds {there:.80}: give layer_8 [N, D] and so on, or one array [N, layers, D]"
        )
    odd = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None:
        sizes = f"{stems[odd]} is {shapes[odd]} and {stems[0]} {shapes[0]}"
        raise LayerscopeError(
            f"{where}: {sizes}: give layers of one width, and of the same samples"
        )
    layers = _numbered(asked, stated, len(stems) if stated else shapes[0][1], where)

    def read(rows: Sequence[int]) -> list[Tensor]:
        taken = [torch.from_numpy(np.array(found[stem][list(rows)])) for stem in stems]
        return list(torch.stack(taken, 1) if stated else taken[0])

    return States(
        where, tuple(map(str, range(shapes[0][0]))), layers, shapes[0][-1], read, table=table
    )


def _array(path: Path) -> Any:
    is_labels = path.stem == "labels"
    with _whole(path):
        array = np.load(path, mmap_mode=None if is_labels else "r", allow_pickle=False)
    if array.dtype.kind not in "fiu" and not is_labels:
        raise LayerscopeError(f"{path} holds {array.dtype}: save numbers as float32 or float16")
    return array


def archive(where: Path, files: Sequence[Path], asked: Layers) -> States:
    """Open .npz files with the arrays that `arrays` takes: they are unpacked to a temporary folder, not to memory."""
    folder = TemporaryDirectory(prefix="layerscope-")
    for path in files:
        with _whole(path), zipfile.ZipFile(path) as packed:
            packed.extractall(folder.name)
    return replace(arrays(where, sorted(Path(folder.name).glob("*.npy")), asked), kept=folder)


def _tables(where: Path, files: Sequence[Path], asked: Layers) -> States:
    """Open the Parquet files of `extract`: a row a sample, lists in columns `layer_8` and so on, its id and label.

    The lists are unpacked to a temporary folder, some rows at a time.
    """
    from pyarrow.parquet import ParquetFile

    folder, frames = TemporaryDirectory(prefix="layerscope-"), list[pd.DataFrame]()
    widths: dict[str, int] = {}
    for path in files:
        with _whole(path), ParquetFile(path, page_checksum_verification=True) as file:
            columns = file.schema_arrow.names
            states = [name for name in columns if LAYER.fullmatch(name)]
            frames.append(
                file.read(columns=[name for name in columns if name not in states]).to_pandas()
            )
            for batch in file.iter_batches(BLOCK, columns=states):
                for name, column in zip(states, batch.columns, strict=True):
                    widths[name] = column.value_lengths()[0].as_py()
                    with Path(folder.name, name).open("ab") as unpacked:
                        np.asarray(column.flatten(), dtype=np.float32).tofile(unpacked)
    table = pd.concat(frames, ignore_index=True)
    found = {
        name: np.memmap(Path(folder.name, name), np.float32, "r").reshape(-1, width)
        for name, width in widths.items()
    }
    return replace(
        _pooled(where, found, asked, table), names=tuple(table[ID].astype(str)), kept=folder
    )


def _fingerprint(
    data: dict[str, Any], whole: dict[str, Any], options: dict[str, Any]
) -> dict[str, str]:
    """Return the fingerprint of images or sounds where all of them were extracted; texts may have become windows."""
    is_all = options["samples"] == "all" and whole["samples"] == whole["rows"]
    return {"fingerprint": data["fingerprint"]} if is_all and data["modality"] != "text" else {}


def extracted(where: Path, asked: Layers, pooling: str) -> States:
    """Open what `layerscope extract` wrote: chunks of pooled states, or in safetensors files of every token's."""
    known = read_json(where / "states.json")
    if "whole" not in known:
        raise LayerscopeError(
            f"{where} is not finished: run layerscope extract or layerscope merge again"
        )
    files = [
        _as_written(where / "chunks" / chunk["name"], chunk, known)
        for chunk in known["whole"]["chunks"]
    ]
    poolings, model = known["poolings"], known["model"]
    if poolings and pooling not in ("auto", *poolings):
        raise LayerscopeError(
            f"{where} has no pooling {pooling!r}: it has {', '.join(poolings) or 'every token'}"
        )
    about = {
        "model": model["name"],
        "depth": model["depth"],
        "site": known["site"],
        "causal": model["language_model"],
    }
    about["pooling"] = pooling if pooling != "auto" or not poolings else poolings[0]
    about |= _fingerprint(known["data"], known["whole"], known["options"])
    if known["file_format"] == "parquet":
        if not poolings:
            raise LayerscopeError(
                f"{where} holds the states of every token as Parquet, and these are read only from safetensors: "
                f"extract them in that format"
            )
        if len(poolings) != 1:
            raise LayerscopeError(
                f"{where} holds {len(poolings)} poolings as Parquet: extract one, or safetensors"
            )
        return replace(_tables(where, files, asked), about=about)
    names, labels, tokens = list[str](), list[str](), list[Any]()
    spans, key = (
        list[tuple[Path, int, int]](),
        f"states.{about['pooling']}" if len(poolings) > 1 else "states",
    )
    for path in files:
        with _whole(path), safe_open(path, framework="pt") as file:
            samples = json.loads(file.metadata()["samples"])
            ends = (
                range(len(samples["id"]) + 1) if poolings else file.get_tensor("offsets").tolist()
            )
            if not poolings:
                tokens += np.split(file.get_tensor("token_ids").numpy(), ends[1:-1])
        names, labels = names + samples["id"], labels + samples.get("label", [])
        spans += [(path, start, end) for start, end in pairwise(ends)]

    def read(rows: Sequence[int]) -> list[Tensor]:
        found = []
        for path, start, end in (spans[row] for row in rows):
            with _whole(path), safe_open(path, framework="pt") as file:
                found.append(file.get_slice(key)[:, start:end])
        return [states[:, 0] for states in found] if poolings else found

    layers = _numbered(asked, known["layers"], len(known["layers"]), where)
    table = pd.DataFrame({"label": labels}) if labels else None
    return States(
        where, tuple(names), layers, model["width"], read, tokens or None, table, about=about
    )


def _as_written(path: Path, chunk: dict[str, Any], manifest: dict[str, Any]) -> Path:
    """Return the file of a chunk, which must be what was written."""
    if path.is_file() and chunk.get("sha256") not in (None, once(digest, path)):
        command = manifest.get("command") or "the same command"
        raise LayerscopeError(
            f"{path} is damaged (it has changed since it was written): delete it, and make it again with {command}"
        )
    return path


READERS: dict[str, Callable[[Path, Sequence[Path], Layers], States]] = {
    ".safetensors": requests, ".npy": arrays, ".npz": archive,
}  # fmt: skip
"""How states are opened, by the ending of their files."""
