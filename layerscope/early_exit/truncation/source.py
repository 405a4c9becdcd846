"""What is to be truncated: a model or the model of a run, opened, and refused where it cannot be written again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from layerscope.errors import LayerscopeError
from layerscope.inspecting import made_up_samples
from layerscope.models import LayeredModel, Loaded, LoadOptions, Override, find_layers, load
from layerscope.models.exit_heads import ExitHeads, exit_heads
from layerscope.models.hub import EMBEDDED
from layerscope.profiling.reopening import check_unchanged, model_of, run_of
from layerscope.reports.depths import NAME, depths
from layerscope.runs import Run, open_run

HISTORY = "history"
"""Where `train` keeps what it measured."""


@dataclass(frozen=True)
class TrainedScores:
    """What `train` measured of every layer of a model, on so many samples of its evaluation data."""

    table: pd.DataFrame
    data: str
    samples: int

    def at(self, layer: int) -> tuple[float | None, float | None]:
        """Return the score of a layer and its standard error."""
        rows = self.table[self.table["layer"] == layer]
        return (None, None) if rows.empty else (float(rows["value"].iloc[0]), float(rows["stderr"].iloc[0]))


@dataclass(frozen=True)
class Source:
    """A model whose layers are found, its made-up samples, the run it came with, and the dtype of its checkpoint.

    `heads`: those of layers that have one of their own; `trained`: what `train` measured of every layer.
    """

    model: LayeredModel
    samples: Sequence[Any]
    dtype: torch.dtype
    run: Run | None = None
    hub: str | None = None
    heads: ExitHeads | None = None
    trained: TrainedScores | None = None

    @property
    def module(self) -> Any:
        """The transformers model itself."""
        return self.model.module

    @property
    def name(self) -> str:
        """The model's name as the run or its folder tells it."""
        return self.model.loaded.name

    @property
    def unit(self) -> str:
        """What one sample is called."""
        return {"audio": "sound"}.get(self.model.encoder.modality, self.model.encoder.modality)


def open_source(given: Any, processor: Any, override: Override, options: LoadOptions) -> Source:
    """Open a model, or the model of a run with the part, blocks and norm it was profiled with.

    Raises:
        LayerscopeError: for what cannot be loaded, and for a plain module, a quantised model, an adapter that is not
            merged, or a model of remote code: none of these can be written so that transformers alone loads it.

    """
    run = run_of(given)
    if run is not None:
        given, override, options = model_of(run, override, options)
    saved = _saved_config(given, options) if isinstance(given, (str, Path)) else {}
    _check_config(saved, str(given))
    loaded = load(given, options, processor)
    _check_module(loaded)
    modality, samples = made_up_samples(loaded.module)
    model = find_layers(loaded, modality, samples, override, max_length=None, prompt="")
    if run is not None:
        check_unchanged(run, model)
    hub = str(given) if isinstance(given, str) and given != EMBEDDED and not Path(given).expanduser().exists() else None
    folder = Path(given).expanduser() if isinstance(given, (str, Path)) else None
    found = (None, None) if folder is None else (exit_heads(folder), _trained(folder / HISTORY, model.stack.depth))
    return Source(model, samples, _dtype(saved, loaded.module), run, hub, *found)


def _trained(history: Path, depth: int) -> TrainedScores | None:
    """Return the scores that `train` kept beside its checkpoint."""
    if not (history / NAME).is_file():
        return None
    run = open_run(history)
    table = depths(run)
    if table is None or table.empty:
        return None
    return TrainedScores(table[table["depth"] == depth], run.info["data"]["name"], run.info["data"]["samples"])


def _saved_config(source: str | Path, options: LoadOptions) -> dict[str, Any]:
    """Return a checkpoint's config.json, or nothing where the loader will say what is wrong with it."""
    from transformers import PretrainedConfig

    folder = Path(source).expanduser()
    try:
        found, _ = PretrainedConfig.get_config_dict(
            str(folder) if folder.exists() else str(source), revision=options.revision, local_files_only=folder.exists()
        )
    except Exception:  # absent, damaged, or no hub: told by the loader, each in its own line
        return {}
    return dict(found)


def _check_config(saved: dict[str, Any], source: str) -> None:
    from transformers import CONFIG_MAPPING

    if saved.get("quantization_config"):
        raise LayerscopeError(
            f"{source!r} is quantised: a layer of it cannot be written and compared exactly, "
            "truncate the model it was made from and quantise that"
        )
    if saved.get("auto_map") and saved.get("model_type") not in CONFIG_MAPPING:
        raise LayerscopeError(
            f"{source!r} runs code of its own when loaded: a truncated model is to load without it, so it is refused"
        )


def _check_module(loaded: Loaded) -> None:
    module = loaded.module
    home, kind = type(module).__module__, type(module).__name__
    if not isinstance(getattr(module, "config", None), _config_class()):
        raise LayerscopeError(
            f"{kind} is a plain torch module: no config says its depth, so no standard checkpoint can hold it; "
            "give a transformers model or a SentenceTransformer"
        )
    if getattr(module, "hf_quantizer", None) is not None or getattr(module, "is_quantized", False):
        raise LayerscopeError(f"{loaded.name} is quantised: truncate the model it was made from and quantise that")
    if any(type(child).__module__.startswith("peft.") for child in module.modules()):
        raise LayerscopeError(
            f"{loaded.name} has an adapter in its layers: merge it (merge_and_unload), save that and truncate it"
        )
    if not home.startswith("transformers."):
        raise LayerscopeError(
            f"{kind} is not one of transformers' own classes ({home}): a truncated model is to load without its code"
        )


def _config_class() -> type:
    from transformers import PretrainedConfig

    return PretrainedConfig  # type: ignore[no-any-return]


def _dtype(saved: dict[str, Any], module: nn.Module) -> torch.dtype:
    """The dtype that a checkpoint is saved in: its own, however it was loaded."""
    told = saved.get("dtype") or saved.get("torch_dtype")
    found = getattr(torch, str(told).removeprefix("torch."), None)
    if isinstance(found, torch.dtype):
        return found
    return next((p.dtype for p in module.parameters()), torch.float32)
