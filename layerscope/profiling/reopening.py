"""The model of a run, for the verbs that take a run instead of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError
from layerscope.models import LayeredModel, LoadOptions, Override
from layerscope.models.checks import EMBEDDED
from layerscope.profiling.identity import states_fingerprint, weights_fingerprint
from layerscope.runs import Run, open_run


def run_of(given: Any) -> Run | None:
    """Return the run that was given, opened where it is a folder of one; None where a model was given."""
    if isinstance(given, Run):
        return given
    is_run = isinstance(given, (str, Path)) and (Path(given).expanduser() / "run.json").is_file()
    return open_run(Path(given).expanduser()) if is_run else None


def model_of(run: Run, override: Override, options: LoadOptions) -> tuple[str, Override, LoadOptions]:
    """Return where a run's model is, and how it was overridden and loaded; what is given now goes first.

    Raises `LayerscopeError` for a run of a model that was in memory, and for the history of a training.
    """
    run.need_states()
    source, asked = str(run.info["model"]["source"]), run.info["options"]
    if source == run.info["model"]["class"] or source == "SentenceTransformer":
        raise LayerscopeError(
            f"run {str(run.path)!r} was made of a model in memory ({source}): give the model itself, not the run"
        )
    override = Override(*(getattr(override, name) or asked.get(name) for name in ("part", "blocks", "norm")))
    is_local = Path(source).expanduser().exists() or source == EMBEDDED
    revision = options.revision or (None if is_local else run.info["model"].get("revision"))
    return source, override, replace(options, revision=revision)


def check_unchanged(run: Run, model: LayeredModel, *, as_stored: bool = False) -> None:
    """Raise where the model of a run is no longer what it was: its scores would be another model's.

    Weights are compared in the run's dtype: where they are in it, or `as_stored` and the run's is float32, which holds
    what is stored exactly.
    """
    there = run.info["model"]
    dtype = next((p.dtype for p in model.module.parameters()), torch.float32)
    same_dtype = there.get("dtype") == str(dtype).removeprefix("torch.")
    exact = torch.float32 if as_stored and there.get("dtype") == "float32" else None
    known = same_dtype or exact is not None
    if run.depth != model.stack.depth or (known and there.get("weights") != weights_fingerprint(model.module, exact)):
        raise LayerscopeError(
            f"the model of run {str(run.path)!r} ({there['source']}) has changed since: profile it again, "
            "or give the model without the run"
        )


def reusable(run: Run | None, model: LayeredModel, vectors: Iterable[tuple[int, str, str]]) -> Run | None:
    """Return the run if its states of these layers, sites and poolings are those that the model would give again."""
    if run is None or run.info["model"].get("states") != states_fingerprint(model):
        return None
    sites, poolings = run.info["model"]["sites"], run.info["pooling"]
    there = all(site in sites and pooling in poolings for _, site, pooling in vectors)
    return run if there and run.info["options"]["store_dtype"] == "float32" else None
