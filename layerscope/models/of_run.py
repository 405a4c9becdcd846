"""The model of a run, from the run's `info`: how it was opened, and whether it is still what it was."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from layerscope.core import LayerscopeError
from layerscope.models.checks import EMBEDDED
from layerscope.models.identity import weights_fingerprint
from layerscope.models.layered import LayeredModel
from layerscope.models.options import LoadOptions, Override
from layerscope.models.weights import dtype_of


def as_in_run(
    info: Mapping[str, Any], override: Override, options: LoadOptions
) -> tuple[Override, LoadOptions]:
    """Return how the model of a run was overridden and loaded; what is given now goes first."""
    model = info["model"]
    options_then = info["options"]
    override = Override(
        part=override.part or options_then.get("part"),
        blocks=override.blocks or options_then.get("blocks"),
        norm=override.norm or options_then.get("norm"),
    )
    if model.get("chat"):
        options = replace(options, chat=True)
    source = str(model["source"])
    is_local = Path(source).expanduser().exists() or source == EMBEDDED
    if not is_local and options.revision is None:
        options = replace(options, revision=model.get("revision"))
    return override, options


def check_unchanged(
    run: str, info: Mapping[str, Any], model: LayeredModel, *, as_stored: bool = False
) -> None:
    """Raise where the model of a run is no longer what it was: its scores would be another model's.

    Weights are compared where they are in the run's dtype; `as_stored`, in float32 too, which holds
    them exactly.
    """
    profiled = info["model"]
    dtype = None
    if as_stored and profiled.get("dtype") == "float32":
        dtype = torch.float32
    changed = int(profiled["depth"]) != model.depth
    if dtype is not None or profiled.get("dtype") == dtype_of(model.module):
        changed |= profiled.get("weights") != weights_fingerprint(model.module, dtype)
    if changed:
        raise LayerscopeError(
            f"the model of run {run!r} ({profiled['source']}) has changed since: profile it again, "
            "or give the model without the run"
        )
