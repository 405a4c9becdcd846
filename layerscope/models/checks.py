"""Look at a model folder before it is loaded, and turn the loaders' errors into one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from layerscope.errors import LayerscopeError


def check_folder(folder: Path, allow_pickle: bool) -> None:
    """Raise where a folder is no saved model with weights that may be loaded."""
    if not folder.exists():
        raise LayerscopeError(f"model folder {str(folder)!r} does not exist")
    if not folder.is_dir():
        raise LayerscopeError(
            f"model {str(folder)!r} is a file: give the folder that holds config.json and the weights"
        )
    if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json", "modules.json")):
        raise LayerscopeError(f"model folder {str(folder)!r} holds no config.json: is it a saved model?")
    weights = [p.name for p in folder.rglob("*") if p.suffix in (".safetensors", ".bin", ".pt", ".pth")]
    if not weights:
        raise LayerscopeError(
            f"model folder {str(folder)!r} holds no weights (*.safetensors): save the model there again"
        )
    if not any(name.endswith(".safetensors") for name in weights) and not allow_pickle:
        raise LayerscopeError(
            f"the weights in {str(folder)!r} are pickles ({weights[0]}), which can run code when loaded: "
            "convert them to safetensors, or trust them with --allow-pickle"
        )


@contextmanager
def clear_errors(source: str) -> Iterator[None]:
    """Turn the loaders' long errors into one line that names the model and the mend."""
    try:
        yield
    except LayerscopeError:
        raise
    except Exception as error:
        raise LayerscopeError(f"{source!r} {_what_failed(source, error)}") from error


def _what_failed(source: str, error: Exception) -> str:
    text = str(error)
    if "trust_remote_code" in text:
        return "runs code of its own when loaded: read it, then allow it with --trust-remote-code"
    if any(word in text for word in ("safetensors", ".bin")) and "no file named" in text:
        return "has no safetensors weights: convert them, or trust its pickles with --allow-pickle"
    if "ignore_mismatched_sizes" in text or "size mismatch" in text:
        return "has weights of other shapes than its config.json says: take both from the same checkpoint"
    if "deserializing header" in text or "SafetensorError" in type(error).__name__:
        return "has a damaged safetensors file: copy or download it again"
    if "model type" in text and "does not recognize" in text:
        return "is of a type that this transformers does not know: upgrade transformers, or see --trust-remote-code"
    if not Path(source).exists():
        if any(word in text for word in ("couldn't connect", "Connection", "offline", "Max retries", "resolve")):
            return "is no local folder, and the hub cannot be reached: check the name, or the network"
        if any(word in text for word in ("not a valid model identifier", "Repository Not Found", "404", "Repo id")):
            return "is neither a local folder nor a model on the hub: check the name (or its access token)"
    return f"cannot be loaded: {(text.strip().splitlines() or [type(error).__name__])[0][:200]}"
