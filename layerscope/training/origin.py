"""Where the model of a training comes from: a name or a folder, a config alone, or an object."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from layerscope.core import LayerscopeError, go_offline_without_hub
from layerscope.models.checks import (
    EMBEDDED,
    check_folder,
    check_name,
    clear_errors,
    embedded,
    near_folder,
)
from layerscope.models.loaded import eager
from layerscope.models.loading import is_cross_encoder
from layerscope.models.weights import is_offloaded, is_quantised
from layerscope.models.whereabouts import Whence, whereabouts


@dataclass(frozen=True)
class Origin:
    """A model to start from: its name, source and config; `module` where it is an object."""

    name: str
    source: str = ""
    config: Any = None
    module: Any = None
    from_config: bool = False
    whence: Whence = (None, None)
    """Where the weights come from."""


def find(model: Any, *, from_config: bool) -> Origin:
    """Return where a model comes from; raises `LayerscopeError` where nothing is there."""
    if not isinstance(model, (str, Path)):
        return _of_object(model, from_config=from_config)
    source = embedded(str(model))
    check_name(source)
    path = Path(source).expanduser()
    name = path.name.removesuffix(".json")
    if path.name == "config.json":
        name = path.resolve().parent.name
    if from_config:
        if not path.is_file() and not (path / "config.json").is_file():
            raise LayerscopeError(
                f"{source!r} holds no config.json{near_folder(path)}: with `from_config=True` give a folder with one, "
                "or a JSON file"
            )
        source = str(path)
    elif path.exists() or source.startswith((".", "/", "~")):
        check_folder(path, allow_pickle=False)
        source = str(path)
    else:
        go_offline_without_hub()
    from transformers import AutoConfig

    with clear_errors(source):
        config = AutoConfig.from_pretrained(source)
    if model == EMBEDDED:
        name = EMBEDDED
    if from_config:
        return Origin(name, source, config, from_config=True)
    whence = whereabouts(str(model), None)
    return Origin(name, source, config, whence=whence)


def _of_object(model: Any, *, from_config: bool) -> Origin:
    """Return the origin of a model that was given as an object."""
    if is_cross_encoder(model):
        model = model.model
    model = eager(model)
    kind = type(model).__name__
    if from_config or not isinstance(model, torch.nn.Module):
        raise LayerscopeError(
            f"a {kind} cannot be trained here: give a torch module, a name or a folder"
        )
    config = getattr(model, "config", None)
    if config is None:
        return Origin(kind, module=model)
    if is_quantised(model) or is_offloaded(model):
        raise LayerscopeError(
            f"this {kind} is quantised or offloaded: give a whole model in floats"
        )
    source = getattr(config, "_name_or_path", "")
    name = Path(source).name or kind
    return Origin(name, source, config, model, whence=whereabouts(source, None))
