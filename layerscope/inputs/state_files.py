"""How states lie in files: a safetensors file a request, as vLLM writes them; NumPy arrays; what `extract` wrote."""

import json
import re
import zipfile
from collections import Counter
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
from layerscope.core.files import HELD, existing, json_object
from layerscope.inputs.state_folder import MANIFEST, StatesFolder
from layerscope.inputs.states import ID, States, files_in, listing_of

LAYER = re.compile(r"layer[_-]?(\d+)")
STATED = "eagle_aux_hidden_state_layer_ids"
"""What vLLM calls the layers in the configuration that asks for their states."""
BLOCK = 1024
"""Rows of a Parquet file that are unpacked at once."""
UNFINISHED = (".tmp", ".part", ".partial", ".incomplete")
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


def _numbered(named: Layers, stated: Layers, there: int, where: Path) -> tuple[int, ...]:
    """Return the numbers of the layers `there` are: those that the files state, which must be those asked for."""
    layers = list((named if stated is None else stated) or ())
    fault = f"holds {count(there, 'layer')}"
    if not layers:
        fault += " and does not say which: name them, such as `layers='0,8,16,24'`"
    elif named is not None and list(named) != layers:
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


def requests(where: Path, files: Sequence[Path], named: Layers) -> States:
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
    layers = _numbered(named, _stated(where), shapes[0][1], where)

    def read(rows: Sequence[int]) -> list[Tensor]:
        states = []
        for row in rows:
            with _whole(files[row]), safe_open(files[row], framework="pt") as file:
                states.append(file.get_tensor("hidden_states").transpose(0, 1))
        return states

    note = f"the states of layer {layers[-1]}, too, are from before the final norm, as vLLM writes them (site raw)"
    names = tuple(path.stem for path in files)
    return States(where, names, layers, shapes[0][2], read, tokens, notes=(note,))


def _stated(where: Path) -> Layers:
    """Return the layers that a JSON file beside the requests names, as the configuration that vLLM was given does."""
    for path in sorted(where.glob("*.json")):
        config = json_object(path) or {}
        for key in ("speculative_config", "draft_model_config", "hf_config"):
            config = config.get(key, config)
        if isinstance(layers := config.get(STATED), list):
            return layers
    return None


def arrays(where: Path, files: Sequence[Path], named: Layers) -> States:
    """Open `layer_8.npy` [N, D] and its like, or one array [N, layers, D]; `labels.npy` may lie beside them."""
    by_stem = {path.stem: _array(path) for path in files}
    labels = by_stem.pop("labels", None)
    return _pooled(
        where, by_stem, named, None if labels is None else pd.DataFrame({"label": labels})
    )


def _pooled(where: Path, by_stem: dict[str, Any], named: Layers, table: Any = None) -> States:
    """Return pooled states of arrays by name, a layer each or one of all layers."""
    by_layer = {int(match[1]): stem for stem in by_stem if (match := LAYER.fullmatch(stem))}
    stated = sorted(by_layer) or None
    stems = [by_layer[number] for number in stated or ()] or list(by_stem)
    shapes = [list(by_stem[stem].shape) for stem in stems]
    if (
        len(stems) != len(by_stem)
        or not stems
        or len(shapes[0]) != (2 if stated else 3)
        or (len(stems) > 1 and not stated)
    ):
        there = (
            ", ".join(f"{stem} {list(array.shape)}" for stem, array in by_stem.items())
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
    layers = _numbered(named, stated, len(stems) if stated else shapes[0][1], where)

    def read(rows: Sequence[int]) -> list[Tensor]:
        taken = [torch.from_numpy(np.array(by_stem[stem][list(rows)])) for stem in stems]
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


def archive(where: Path, files: Sequence[Path], named: Layers) -> States:
    """Open .npz files with the arrays that `arrays` takes: they are unpacked to a temporary folder, not to memory."""
    folder = TemporaryDirectory(prefix="layerscope-")
    for path in files:
        with _whole(path), zipfile.ZipFile(path) as packed:
            packed.extractall(folder.name)
    return replace(arrays(where, sorted(Path(folder.name).glob("*.npy")), named), kept=folder)


def _tables(folder: StatesFolder, layers: Layers) -> States:
    """Open the Parquet files of `extract`: a row a sample, lists in columns `layer_8` and so on, its id and label.

    The lists are unpacked to a temporary folder, some rows at a time.
    """
    from pyarrow.parquet import ParquetFile

    unpacked, frames = TemporaryDirectory(prefix="layerscope-"), list[pd.DataFrame]()
    widths: dict[str, int] = {}
    for number in range(len(folder.manifest["whole"]["chunks"])):
        path = folder.store.checked(number)
        with _whole(path), ParquetFile(path, page_checksum_verification=True) as file:
            columns = file.schema_arrow.names
            states = [name for name in columns if LAYER.fullmatch(name)]
            frames.append(
                file.read(columns=[name for name in columns if name not in states]).to_pandas()
            )
            for batch in file.iter_batches(BLOCK, columns=states):
                for name, column in zip(states, batch.columns, strict=True):
                    widths[name] = column.value_lengths()[0].as_py()
                    with Path(unpacked.name, name).open("ab") as vectors:
                        np.asarray(column.flatten(), dtype=np.float32).tofile(vectors)
    table = pd.concat(frames, ignore_index=True)
    arrays = {
        name: np.memmap(Path(unpacked.name, name), np.float32, "r").reshape(-1, width)
        for name, width in widths.items()
    }
    pooled = _pooled(folder.path, arrays, layers, table)
    return replace(pooled, names=tuple(table[ID].astype(str)), kept=unpacked)


def _fingerprint(manifest: dict[str, Any]) -> dict[str, str]:
    """Return the fingerprint of images or sounds where all of them were extracted; texts may have become windows."""
    data, whole = manifest["data"], manifest["whole"]
    is_all = whole["samples"] == whole["rows"]
    return {"fingerprint": data["fingerprint"]} if is_all and data["modality"] != "text" else {}


def extracted(where: Path, layers: Layers, pooling: str) -> States:
    """Open what `layerscope extract` wrote: chunks of pooled states, or in safetensors files of every token's."""
    folder = StatesFolder(where)
    manifest, model = folder.manifest, folder.manifest["model"]
    if "whole" not in manifest:
        raise LayerscopeError(f"{where} is not finished: run layerscope extract again")
    poolings = manifest["poolings"]
    if poolings and pooling not in ("auto", *poolings):
        raise LayerscopeError(f"{where} has no pooling {pooling!r}: it has {', '.join(poolings)}")
    about = {
        "model": model["name"],
        "depth": model["depth"],
        "site": manifest["site"],
        "causal": model["language_model"],
        "pooling": pooling if pooling != "auto" or not poolings else poolings[0],
        **_fingerprint(manifest),
    }
    if manifest["file_format"] == "parquet":
        if len(poolings) != 1:
            held = f"{len(poolings)} poolings" if poolings else "the states of every token"
            raise LayerscopeError(
                f"{where} holds {held} as Parquet, and only one pooling is read from that: extract safetensors"
            )
        return replace(_tables(folder, layers), about=about)
    return replace(_chunks(folder, about["pooling"], layers), about=about)


def _chunks(folder: StatesFolder, pooling: str, layers: Layers) -> States:
    """Open safetensors chunks: of a pooling, or of every token."""
    manifest, store = folder.manifest, folder.store
    poolings = manifest["poolings"]
    key = f"states.{pooling}" if len(poolings) > 1 else "states"
    names, labels, tokens = list[str](), list[str](), list[Any]()
    spans = list[tuple[int, int, int]]()
    for number in range(len(manifest["whole"]["chunks"])):
        with store.open(number) as file:
            samples = json.loads(file.metadata()["samples"])
            ends = list(range(len(samples["id"]) + 1))
            if not poolings:
                ends = file.get_tensor("offsets").tolist()
                tokens += np.split(file.get_tensor("token_ids").numpy(), ends[1:-1])
        names += samples["id"]
        labels += samples.get("label", [])
        spans += [(number, start, end) for start, end in pairwise(ends)]

    def read(rows: Sequence[int]) -> list[Tensor]:
        states = []
        for number, start, end in (spans[row] for row in rows):
            with store.open(number) as file:
                vectors = file.get_slice(key)[:, start:end]
                states.append(vectors[:, 0] if poolings else vectors)
        return states

    numbers = _numbered(layers, manifest["layers"], len(manifest["layers"]), folder.path)
    table = pd.DataFrame({"label": labels}) if labels else None
    width = manifest["model"]["width"]
    return States(folder.path, tuple(names), numbers, width, read, tokens or None, table)


READERS: dict[str, Callable[[Path, Sequence[Path], Layers], States]] = {
    ".safetensors": requests, ".npy": arrays, ".npz": archive,
}  # fmt: skip
"""How states are opened, by the ending of their files."""


def open_states(
    path: str | Path, layers: Sequence[int] | None = None, pooling: str = "auto"
) -> States:
    """Open the states in a folder or file: vLLM's requests, NumPy arrays, what `extract` wrote.

    `layers` are their numbers, where the files do not say them. Raises `LayerscopeError` for a
    folder that is empty, mixed or still being written, for damaged files, and for layers that do
    not fit. Of several poolings that `extract` wrote `pooling` is read, by default the first.

    >>> from layerscope.inputs.state_files import open_states
    >>> import numpy as np
    >>> np.save("states.npy", np.random.default_rng(0).standard_normal((20, 3, 8)))  # 20 samples at 3 layers
    >>> open_states("states.npy", layers=[0, 3, 6]).layers
    (0, 3, 6)
    """
    where = existing(path, "states")
    if (where / MANIFEST).is_file():
        return replace(extracted(where, layers, pooling), listing=listing_of(where))
    files = files_in(where)
    _refuse_unfinished(where, files)
    suffix = _one_kind(where, files)
    states = READERS[suffix](where, [file for file in files if file.suffix == suffix], layers)
    name, times = next(iter(Counter(states.names).most_common(1)), ("", 0))
    if times == 0:
        raise LayerscopeError(f"{where} holds no sample: give one at least")
    if times > 1:
        raise LayerscopeError(f"{where} holds sample {name!r} twice: give each once")
    return replace(states, listing=listing_of(where))


def _refuse_unfinished(where: Path, files: Sequence[Path]) -> None:
    names = {file.name for file in files}
    for file in files:  # vLLM makes a request's lock first, and leaves it there
        waits = file.suffix == ".lock" and file.stem not in names
        if file.suffix in UNFINISHED or file.name == HELD or waits:
            raise LayerscopeError(
                f"{where} is being written ({file.name}): wait for its writer, or delete that file"
            )


def _one_kind(where: Path, files: Sequence[Path]) -> str:
    """Return the ending of the files that hold states, which must be one."""
    endings = [file.suffix for file in files]
    kinds = [suffix for suffix in READERS if suffix in endings]
    if len(kinds) == 1:
        return kinds[0]
    packed = next((file.name for file in files if file.suffix in (".zst", ".gz")), None)
    if kinds:
        fault = f"holds {' and '.join(kinds)} files: give one kind"
    elif ".parquet" in endings:
        fault = (
            "holds Parquet, which is read as states only where `extract` wrote it: "
            f"give {', '.join(READERS)} files"
        )
    elif packed:
        fault = f"holds no states: unpack {packed} and the others first"
    else:
        fault = f"holds no states: give {', '.join(READERS)} files"
    raise LayerscopeError(f"{where} {fault}")
