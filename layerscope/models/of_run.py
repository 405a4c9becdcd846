"""The model of a run, for verbs that take a run: where it is, and whether it is still what it was."""

from dataclasses import replace
from pathlib import Path

import torch

from layerscope.core import LayerscopeError
from layerscope.models.checks import EMBEDDED
from layerscope.models.identity import weights_fingerprint
from layerscope.models.layered import LayeredModel
from layerscope.models.options import LoadOptions, Override
from layerscope.models.weights import dtype_of
from layerscope.runs import Run


def model_of(
    run: Run, override: Override, options: LoadOptions
) -> tuple[str, Override, LoadOptions]:
    """Return where a run's model is, and how it was overridden and loaded; what is given now goes first.

    Raises `LayerscopeError` for a run of a model that was in memory, and for the history of a
    training.
    """
    if run.is_history:
        run.need_states()
    if not run.has_model:
        made = f"was made from states of {run.info['model']['states_from']!r}, without a model"
        raise LayerscopeError(f"run {str(run.path)!r} {made}: give the model itself")
    source = str(run.info["model"]["source"])
    options_then = run.info["options"]
    if not run.names_model:
        raise LayerscopeError(
            f"run {str(run.path)!r} was made from a model in memory ({source}): give the model itself"
        )
    override = Override(
        part=override.part or options_then.get("part"),
        blocks=override.blocks or options_then.get("blocks"),
        norm=override.norm or options_then.get("norm"),
    )
    if run.info["model"].get("chat"):
        options = replace(options, chat=True)
    is_local = Path(source).expanduser().exists() or source == EMBEDDED
    if not is_local and options.revision is None:
        options = replace(options, revision=run.info["model"].get("revision"))
    return source, override, options


def check_unchanged(run: Run, model: LayeredModel, *, as_stored: bool = False) -> None:
    """Raise where the model of a run is no longer what it was: its scores would be another model's.

    Weights are compared where they are in the run's dtype; `as_stored`, in float32 too, which holds
    them exactly.
    """
    there = run.info["model"]
    dtype = None
    if as_stored and there.get("dtype") == "float32":
        dtype = torch.float32
    changed = run.depth != model.depth
    if dtype is not None or there.get("dtype") == dtype_of(model.module):
        changed |= there.get("weights") != weights_fingerprint(model.module, dtype)
    if changed:
        raise LayerscopeError(
            f"the model of run {str(run.path)!r} ({there['source']}) has changed since: profile it again, "
            "or give the model without the run"
        )
