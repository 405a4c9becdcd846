"""What is to be truncated: a model or the model of a run, opened, and refused where it cannot be written again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError
from layerscope.models import LayeredModel, Loaded, LoadOptions, Override, find_layers, load
from layerscope.models.checks import embedded
from layerscope.models.encode import modalities_of
from layerscope.models.inspection import made_up_samples
from layerscope.models.weights import ExitHeads, exit_heads, is_offloaded, is_quantised
from layerscope.profiling.identity import check_unchanged, model_of, run_of
from layerscope.runs import Run
from layerscope.truncation.origin import LayerScores, scores_of_run, scores_of_training, whereabouts


@dataclass(frozen=True)
class Source:
    """A model whose layers are found, its made-up samples, and the run it came with.

    `hub` is its name there and `beside` the folder it was loaded from, where there is one. `pooling` is the one that
    was asked for, `scored` the one of the scores. `heads` are those of layers that have one of their own,
    `trained` what `train` measured of every layer.
    """

    model: LayeredModel
    samples: Sequence[Any]
    run: Run | None = None
    hub: str | None = None
    beside: Path | None = None
    pooling: str | None = None
    scored: str | None = None
    heads: ExitHeads | None = None
    trained: LayerScores | None = None

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
        """The pooling that goes with a plain model: the one asked for, that of the scores, the run's, or its own."""
        of_run = None if self.run is None else str(self.run.info["pooling"][0])
        return self.pooling or self.scored or of_run or self.model.pooling[0]

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.loaded.name

    @property
    def unit(self) -> str:
        """What one sample is called."""
        return {"audio": "sound"}.get(self.model.encoder.modality, self.model.encoder.modality)

    def scores(self, format: str) -> LayerScores | None:  # noqa: A002
        """Return the scores of layers as they are written: of states by a run, of the trained head by a training."""
        if self.run is not None:
            return scores_of_run(self.run, self.pooled_by)
        return None if format == "sentence-transformers" else self.trained


def open_source(given: Any, processor: Any, override: Override, options: LoadOptions) -> Source:
    """Open a model, or the model of a run with the part, blocks and norm it was profiled with, in its own dtype.

    Another dtype of the options is taken; a model given as an object stays in its own. Raises `LayerscopeError` for
    what cannot be loaded, and for a plain module, a quantised model, an adapter that is not merged, or a model of
    remote code: none of these can be written so that transformers alone loads it.
    """
    run = run_of(given)
    if run is not None:
        given, override, options = model_of(run, override, options)
    named = isinstance(given, (str, Path))
    if named:
        _check_config(str(given), options)
    loaded = load(given, replace(options, as_stored=True), processor)
    _check_module(loaded)
    own = next((str(p.dtype).removeprefix("torch.") for p in loaded.module.parameters()), options.dtype)
    if not named and options.dtype not in ("auto", own):  # the caller's own, whose weights truncation shares
        raise LayerscopeError(
            f"{loaded.name} is loaded in {own}: convert it (.to(torch.{options.dtype})), or give its name"
        )
    model, samples = _found(loaded, override)
    if run is not None:
        check_unchanged(run, model, as_stored=options.dtype == "auto")
    path = str(given) if named else str(getattr(loaded.module.config, "_name_or_path", ""))
    hub, beside = whereabouts(path, loaded.revision)
    source = Source(model, samples, run, hub, beside)
    if beside is None or not named:  # the weights of an object may be others by now
        return source
    trained = scores_of_training(beside, model.stack.depth)
    return replace(source, heads=exit_heads(beside, loaded.module), trained=trained)


def _found(loaded: Loaded, override: Override) -> tuple[LayeredModel, Sequence[Any]]:
    """Find the layers by samples that the part reads: of two towers one reads texts, the other images or sounds."""
    errors: list[LayerscopeError] = []
    for modality in modalities_of(loaded.module):
        try:
            read, samples = made_up_samples(loaded, modality)
            return find_layers(loaded, read, samples, override, max_length=None, prompt=""), samples
        except LayerscopeError as error:
            errors.append(error)
    raise errors[0]


def _check_config(source: str, options: LoadOptions) -> None:
    """Refuse a checkpoint by its config.json, where there is one; what else is wrong with it, the loader says."""
    from transformers import CONFIG_MAPPING, PretrainedConfig

    here = Path(source).expanduser().exists()
    path = str(Path(source).expanduser()) if here else embedded(source)
    try:
        saved, _ = PretrainedConfig.get_config_dict(path, revision=options.revision, local_files_only=here)
    except Exception:
        return
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
    from transformers import PretrainedConfig

    module, name = loaded.module, loaded.name
    home, kind = type(module).__module__, type(module).__name__
    if not isinstance(getattr(module, "config", None), PretrainedConfig):
        raise LayerscopeError(
            f"{kind} is a plain torch module: no config says its depth, so no standard checkpoint can hold it; "
            "give a transformers model or a SentenceTransformer"
        )
    if is_offloaded(module):
        raise LayerscopeError(f"some weights of {name} are offloaded: load it whole, without a device map")
    if is_quantised(module):
        raise LayerscopeError(f"{name} is quantised: truncate the model it was made from and quantise that")
    if any(type(child).__module__.startswith("peft.") for child in module.modules()):
        raise LayerscopeError(
            f"{name} has an adapter in its layers: merge it (merge_and_unload), save that and truncate it"
        )
    if not home.startswith("transformers."):
        raise LayerscopeError(
            f"{kind} is not one of transformers' own classes ({home}): a truncated model is to load without its code"
        )
