"""Look at a model folder before it is loaded, and turn the loaders' errors into one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from layerscope.core.errors import LayerscopeError, near, refuse_dangling, unreadable
from layerscope.models.hub import EMBEDDED

CONFIGS = ("config.json", "adapter_config.json", "modules.json")
POINTER = b"version https://git-lfs"


def check_name(source: str) -> None:
    """Raise where a model's name can be neither a folder's nor a hub model's."""
    if not source.strip():
        raise LayerscopeError(f"no model is named: give a hub name, a folder, or {EMBEDDED}")
    if "://" in source:
        name = "/".join(urlsplit(source).path.strip("/").split("/")[:2]) or "org/name"
        raise LayerscopeError(f"model {source!r} is a URL: give its name on the hub ({name}), or a folder")


def check_folder(folder: Path, allow_pickle: bool) -> None:
    """Raise where a folder is no saved model with whole weights that may be loaded."""
    refuse_dangling(folder)
    if not folder.exists():
        raise LayerscopeError(f"model folder {str(folder)!r} does not exist{near_folder(folder)}")
    if not folder.is_dir():
        raise LayerscopeError(
            f"model {str(folder)!r} is a file: give the folder that holds config.json and the weights"
        )
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise LayerscopeError(f"model folder {str(folder)!r} cannot be read ({error.strerror})") from error
    configs = [folder / name for name in CONFIGS if (folder / name).is_file()]
    if not configs:
        inside = sorted(path.parent.name for path in folder.glob("*/config.json"))
        why = f"give one of the models in it ({', '.join(inside[:3])})" if inside else "is it a saved model?"
        if (folder / "run.json").is_file():
            why = "it is a run of layerscope, give the model itself"
        raise LayerscopeError(f"model folder {str(folder)!r} holds no config.json: {why}")
    for path in configs:
        _check_config(path)
    _check_weights(folder, allow_pickle)


def near_folder(folder: Path) -> str:
    """Return `", did you mean X?"` for a folder beside one that does not exist, or an empty string."""
    try:
        beside = [path.name for path in folder.parent.iterdir() if path.is_dir()]
    except OSError:
        beside = []
    return near(folder.name, beside)


def _check_config(path: Path) -> None:
    """Raise where a model's own JSON cannot be read, or names a type that neither transformers nor the model brings."""
    found = _json(path)
    if path.name != "config.json" or (path.parent / "modules.json").is_file():
        return
    kind = found.get("model_type") if isinstance(found, dict) else None
    from transformers import CONFIG_MAPPING

    if kind is not None and kind not in CONFIG_MAPPING and "auto_map" not in found:
        raise LayerscopeError(
            f"{str(path)!r} is of a type that this transformers does not know ({kind}"
            f"{near(str(kind), CONFIG_MAPPING)}): upgrade transformers, or see `trust_remote_code`"
        )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise LayerscopeError(f"{str(path)!r} is not JSON: copy or download the model again") from error


def _check_weights(folder: Path, allow_pickle: bool) -> None:
    """Raise where weights are absent, pickled, or other than their own headers say; themselves they are not read."""
    from safetensors import SafetensorError, safe_open

    index = folder / "model.safetensors.index.json"
    found = _json(index) if index.is_file() else {}
    names = sorted(set(found.get("weight_map", {}).values())) if isinstance(found, dict) else []
    missing = [name for name in names if not (folder / str(name)).is_file()]
    if missing:
        raise LayerscopeError(
            f"model folder {str(folder)!r} lacks {missing[0]} ({len(missing)} of {len(names)} files of weights): "
            "copy or download it again"
        )
    weights = sorted(p for p in folder.rglob("*") if p.suffix in (".safetensors", ".bin", ".pt", ".pth"))
    if not weights:
        raise LayerscopeError(
            f"model folder {str(folder)!r} holds no weights (*.safetensors): save the model there again"
        )
    if not any(path.suffix == ".safetensors" for path in weights) and not allow_pickle:
        raise LayerscopeError(
            f"the weights in {str(folder)!r} are pickles ({weights[0].name}), which can run code when loaded: "
            "convert them to safetensors, or trust them with `allow_pickle=True`"
        )
    for path in folder.glob("*.safetensors"):
        try:
            with path.open("rb") as file:
                pointer = file.read(len(POINTER)) == POINTER
        except OSError as error:
            raise unreadable(path, error) from error
        if pointer:
            raise LayerscopeError(f"{str(path)!r} is a pointer of Git LFS, not the weights: run git lfs pull")
        try:
            with safe_open(path, framework="np"):
                pass
        except (SafetensorError, OSError) as error:
            raise LayerscopeError(f"{str(path)!r} is damaged or cut short: copy or download it again") from error


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
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        raise LayerscopeError(
            f"the model's {type(processor).__name__} cannot turn the samples into inputs ({reason}): "
            "check the files it was saved in"
        ) from error


def _what_failed(source: str, error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    if "trust_remote_code" in text:
        return "runs code of its own when loaded: read it, then allow it with `trust_remote_code=True`"
    if "no file named" in text and ("safetensors" in text or ".bin" in text):
        return "has no safetensors weights: convert them, or trust its pickles with `allow_pickle=True`"
    if "ignore_mismatched_sizes" in text or "size mismatch" in text:
        return "has weights of other shapes than its config.json says: take both from the same checkpoint"
    if "deserializing header" in text or "SafetensorError" in text:
        return "has a damaged safetensors file: copy or download it again"
    if "Unrecognized model" in text:
        return "names no model_type in its config: is it a transformers model's?"
    if "model type" in text and "does not recognize" in text:
        return "is of a type that this transformers does not know: upgrade transformers, or see `trust_remote_code`"
    if not Path(source).exists():
        if any(word in text for word in ("couldn't connect", "Connection", "offline", "Max retries", "resolve")):
            hint = near(source, (EMBEDDED,)) or near_folder(Path(source))
            return f"is no local folder, and the hub cannot be reached{hint or ': check the name, or the network'}"
        if any(word in text for word in ("not a valid model identifier", "Repository Not Found", "404", "Repo id")):
            return "is neither a local folder nor a model on the hub: check the name (or its access token)"
    return f"cannot be loaded: {' '.join(str(error).split())[:200] or type(error).__name__}"
