"""What is to be truncated: a model or the model of a run, opened, and what is known of it beside its weights."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from layerscope.core import LayerscopeError
from layerscope.models import (
    ExitHeads,
    LayeredModel,
    Loaded,
    LoadOptions,
    Override,
    dtype_of,
    find_layers,
    load,
    made_up_samples,
    modalities_of,
)
from layerscope.models.of_run import as_in_run, check_unchanged
from layerscope.models.weights import exit_heads, is_offloaded, is_quantised
from layerscope.models.whereabouts import TERMS, whereabouts
from layerscope.runs import Run
from layerscope.runs.opening import run_of
from layerscope.truncation.mixing import Weights


@dataclass(frozen=True)
class Source:
    """A model whose layers are found, its made-up samples, the run it came with, its name on the `hub` and its folder.

    `pooling` is the one that was asked for, or that of the scores by which a layer was chosen;
    `heads` are those of layers that have one of their own, if there are any.
    """

    model: LayeredModel
    samples: Sequence[Any]
    run: Run | None
    hub: str | None
    beside: Path | None
    tokens: int | None
    """Mean length of the data that its layers were judged on, in tokens; None where it is unknown."""
    pooling: str | None = None
    heads: ExitHeads = ExitHeads("", {})
    mix: Weights | None = None
    """The weights of the layers that the truncated model is to mix; None where it ends at one."""
    dim: int | None = None
    """How many of the first dimensions its vectors keep; None is all."""

    @property
    def module(self) -> Any:
        """The transformers model itself."""
        return self.model.module

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return next((p.dtype for p in self.module.parameters()), torch.float32)

    @property
    def pooled_by(self) -> str:
        """The pooling that goes with a plain model: the one asked for, the run's, or its own."""
        if self.pooling is None and self.run is not None:
            return str(self.run.info["pooling"][0])
        return self.pooling or self.model.pooling[0]

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def unit(self) -> str:
        """What one sample is called."""
        modality = self.model.encoder.modality
        return {"audio": "sound"}.get(modality, modality)


def open_source(
    model_or_run: Any, processor: Any, override: Override, options: LoadOptions
) -> Source:
    """Open a model, or that of a run as it was profiled, in its own dtype, or the one of the options.

    Raises `LayerscopeError` for what cannot be loaded, and for models that transformers alone could
    not load again.
    """
    run = run_of(model_or_run)
    if run is not None:
        model_or_run = run.model_source()
        override, options = as_in_run(run.info, override, options)
    named = isinstance(model_or_run, (str, Path))
    loaded = load(model_or_run, replace(options, as_stored=True), processor)
    _check_module(loaded)
    dtype = dtype_of(loaded.module)
    # the weights of an object are the caller's, which truncation shares
    if not named and options.dtype not in ("auto", dtype):
        raise LayerscopeError(
            f"{loaded.name} is loaded in {dtype}: convert it (.to(torch.{options.dtype})), or give its name"
        )
    model, samples = _found(loaded, override)
    tokens = None
    if run is not None:
        check_unchanged(
            str(run.path), run.info, model, as_stored=options.dtype == "auto"
        )
        tokens = mean_length(run)
    path = str(model_or_run)
    if not named:
        path = str(getattr(loaded.module.config, "_name_or_path", ""))
    hub, beside = whereabouts(path, loaded.revision)
    source = Source(model, samples, run, hub, beside, tokens)
    if beside is not None and named:  # the weights of an object may be others by now
        heads = exit_heads(beside, loaded.module) or source.heads
        source = replace(source, heads=heads)
    return source


def _found(loaded: Loaded, override: Override) -> tuple[LayeredModel, Sequence[Any]]:
    """Find the layers by samples that the part reads: of two towers one reads texts, the other images or sounds."""
    errors: list[LayerscopeError] = []
    for modality in modalities_of(loaded.module):
        try:
            read, samples = made_up_samples(loaded, modality)
            return find_layers(loaded, read, samples, override), samples
        except LayerscopeError as error:
            errors.append(error)
    raise errors[0]


def _check_module(loaded: Loaded) -> None:
    """Raise for a model that transformers alone could not load again."""
    from transformers import PretrainedConfig

    module = loaded.module
    home = type(module).__module__
    kind = type(module).__name__
    children = module.modules()
    refusal = ""
    if not isinstance(getattr(module, "config", None), PretrainedConfig):
        refusal = (
            f"{kind} is a plain torch module: no config says its depth, so no standard checkpoint can hold it; give a "
            "transformers model or a SentenceTransformer"
        )
    elif is_offloaded(module):
        refusal = f"some weights of {loaded.name} are offloaded: load it whole, without a device map"
    elif is_quantised(module):
        refusal = f"{loaded.name} is quantised: truncate the model it was made from and quantise that"
    elif any(type(child).__module__.startswith("peft.") for child in children):
        refusal = f"{loaded.name} has an adapter in its layers: merge it (merge_and_unload), save that and truncate it"
    elif not home.startswith("transformers."):
        refusal = (
            f"{kind} is not one of transformers' own classes ({home}), and a truncated model must load without other "
            "code"
        )
    if refusal:
        raise LayerscopeError(refusal)


def mean_length(run: Run) -> int | None:
    """Return the mean number of tokens of a run's texts, None for what has no tokens."""
    lengths = run.folder.originals["length"]
    if run.info["data"]["modality"] != "text" or not len(lengths):
        return None
    return max(1, round(float(lengths.mean())))


def copy_terms(beside: Path | None, folder: Path) -> None:
    """Copy the licence and the notices that lie beside a model."""
    if beside is None:
        return
    for path in chain.from_iterable(map(beside.glob, TERMS)):
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
