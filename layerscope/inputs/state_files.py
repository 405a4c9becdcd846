"""How states lie in files: a safetensors file a request, as vLLM writes them; NumPy arrays; what `extract` wrote.

All become `States`, which read some samples at a time. What differs is how a sample is found:

    vLLM       request-7.safetensors   hidden_states [T, layers, D], token_ids [T]: one sample
    NumPy      states.npy              [N, layers, D]: row 7, mapped to the file
    extract    chunks/000000.…         states [layers, n, D], of tokens with where each sample ends

Layers have numbers only where the files say so; else the user names them.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from layerscope.core import LayerscopeError, count, existing, first_line
from layerscope.inputs.corpus import row_numbers
from layerscope.inputs.state_folder import MANIFEST, StatesFolder
from layerscope.inputs.states import States

Layers = Sequence[int] | None


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Within, a file is read; one that is damaged, or that only code could read, is one line."""
    try:
        yield
    except (SafetensorError, OSError, ValueError, EOFError) as error:
        if "pickle" in str(error) or "Python objects" in str(error):
            raise LayerscopeError(
                f"{path} holds pickled objects, which can run code: save plain numbers"
            ) from error
        fault = f"is not a complete {path.suffix} file ({first_line(error)})"
        raise LayerscopeError(f"{path} {fault}: write or copy it again") from error


def _numbered(
    named: Layers, stated: Layers, there: int, where: Path
) -> tuple[int, ...]:
    """Return the numbers of the layers `there` are: those that the files state, which must be those that are named."""
    layers = list(stated or named or ())
    is_rising = layers == sorted({*layers})
    if is_rising and len(layers) == there and list(named or layers) == layers:
        return tuple(layers)
    held = count(there, "layer")
    if stated is not None:
        held += f" ({','.join(map(str, stated))})"
    raise LayerscopeError(
        f"{where} holds {held}: name each in rising order, such as `layers='0,8,16,24'`"
    )


def requests(where: Path, files: Sequence[Path], named: Layers) -> States:
    """Open what vLLM's hidden state connectors write: `token_ids` [T] and `hidden_states` [T, layers, D] a request."""
    tokens = list[Any]()
    shapes = list[list[int]]()
    for path in files:
        with _whole(path), safe_open(path, framework="pt") as file:
            if not {"token_ids", "hidden_states"} <= (keys := set(file.keys())):
                raise LayerscopeError(
                    f"{path} has no token_ids and hidden_states: it has {', '.join(sorted(keys))}"
                )
            tokens.append(file.get_tensor("token_ids").flatten().long().numpy())
            shapes.append(file.get_slice("hidden_states").get_shape())
        shape = shapes[-1]
        if len(shape) != 3 or shape != [len(tokens[-1]), *shapes[0][1:]]:
            raise LayerscopeError(
                f"{path}: hidden_states is {shape} beside {len(tokens[-1])} token_ids, and that of {files[0].name} "
                f"{shapes[0]}: give [tokens, layers, D], with the same layers and D in each"
            )
    layers = _numbered(named, None, shapes[0][1], where)

    def read(rows: Sequence[int]) -> list[Tensor]:
        states = []
        for row in rows:
            with _whole(files[row]), safe_open(files[row], framework="pt") as file:
                states.append(file.get_tensor("hidden_states").transpose(0, 1))
        return states

    note = f"the states of layer {layers[-1]}, too, are from before the final norm, as vLLM writes them (site raw)"
    names = tuple(path.stem for path in files)
    return States(where, names, layers, shapes[0][2], read, tokens, notes=(note,))


def arrays(where: Path, files: Sequence[Path], named: Layers) -> States:
    """Open one array [N, layers, D]."""
    path = files[0]
    with _whole(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype.kind not in "fiu":
        raise LayerscopeError(
            f"{path} holds {array.dtype}: save numbers as float32 or float16"
        )
    if len(files) > 1 or array.ndim != 3:
        raise LayerscopeError(
            f"{where} holds {count(len(files), 'array')}, {path.name} of shape {list(array.shape)}: "
            "give one array [N, layers, D], stacked with numpy.stack(arrays, 1)"
        )

    def read(rows: Sequence[int]) -> list[Tensor]:
        return list(torch.from_numpy(np.array(array[list(rows)])))

    names = row_numbers(len(array))
    layers = _numbered(named, None, array.shape[1], where)
    return States(where, names, layers, array.shape[2], read)


def extracted(where: Path, layers: Layers, pooling: str) -> States:
    """Open the safetensors that `layerscope extract` wrote: chunks of pooled states, or of every token's."""
    folder = StatesFolder(where)
    manifest = folder.manifest
    model = manifest["model"]
    if "whole" not in manifest:
        raise LayerscopeError(f"{where} is not finished: run layerscope extract again")
    if manifest["file_format"] == "parquet":
        raise LayerscopeError(
            f"{where} holds states as Parquet: extract them as safetensors"
        )
    if poolings := manifest["poolings"]:
        if pooling == "auto":
            pooling = poolings[0]
        if pooling not in poolings:
            raise LayerscopeError(
                f"{where} has no pooling {pooling!r}: it has {', '.join(poolings)}"
            )
    about = {
        "model": model["name"],
        "depth": model["depth"],
        "site": manifest["site"],
        "causal": model["language_model"],
        "pooling": pooling,
    }
    data = manifest["data"]
    whole = manifest["whole"]
    # texts may have become windows
    if whole["samples"] == whole["rows"] and data["modality"] != "text":
        about["fingerprint"] = data["fingerprint"]
    return replace(_chunks(folder, pooling, layers), about=about)


def _chunks(folder: StatesFolder, pooling: str, layers: Layers) -> States:
    """Open safetensors chunks: of a pooling, or of every token."""
    manifest = folder.manifest
    store = folder.store
    poolings = manifest["poolings"]
    key = "states"
    if len(poolings) > 1:
        key = f"states.{pooling}"
    names = list[str]()
    labels = list[str]()
    tokens = list[Any]()
    spans = []
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
        for row in rows:
            number, start, end = spans[row]
            with store.open(number) as file:
                vectors = file.get_slice(key)[:, start:end]
            if poolings:
                vectors = vectors[:, 0]
            states.append(vectors)
        return states

    stated = manifest["layers"]
    where = folder.path
    numbers = _numbered(layers, stated, len(stated), where)
    table = None
    if labels:
        table = pd.DataFrame({"label": labels})
    width = manifest["model"]["width"]
    return States(where, tuple(names), numbers, width, read, tokens or None, table)


READERS: dict[str, Callable[[Path, Sequence[Path], Layers], States]] = {
    ".safetensors": requests, ".npy": arrays,
}  # fmt: skip
"""How states are opened, by the ending of their files."""


def open_states(
    path: str | Path, layers: Layers = None, pooling: str = "auto"
) -> States:
    """Open the states in a folder or file: vLLM's requests, NumPy arrays, what `extract` wrote.

    `layers` are their numbers, where the files do not say them. Raises `LayerscopeError` for a
    folder that is empty or mixed, for damaged files, and for layers that do not fit. Of several
    poolings that `extract` wrote `pooling` is read, by default the first.

    >>> from layerscope.inputs.state_files import open_states
    >>> import numpy as np
    >>> np.save("states.npy", np.random.default_rng(0).standard_normal((20, 3, 8)))  # 20 samples at 3 layers
    >>> open_states("states.npy", layers=[0, 3, 6]).layers
    (0, 3, 6)
    """
    where = existing(path, "states")
    if (where / MANIFEST).is_file():
        return extracted(where, layers, pooling)
    files = [where]
    if where.is_dir():
        files = sorted(where.iterdir(), key=_in_order)
    kinds = {file.suffix for file in files} & {*READERS}
    if len(kinds) != 1:
        held = " and ".join(sorted(kinds)) or "no states"
        raise LayerscopeError(
            f"{where} holds {held}: give {' or '.join(READERS)} files, unpacked"
        )
    suffix = kinds.pop()
    kept = [file for file in files if file.suffix == suffix]
    states = READERS[suffix](where, kept, layers)
    if not states.names:
        raise LayerscopeError(f"{where} holds no sample: give one at least")
    return states


def _in_order(file: Path) -> str:
    """Return what sorts files by name, 2 before 10.

    >>> sorted([Path("request-10"), Path("request-2")], key=_in_order)[0].name
    'request-2'
    """
    return re.sub(r"\d+", lambda digits: digits[0].zfill(20), file.name)
