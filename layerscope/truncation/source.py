"""What is to be truncated: a model or the model of a run, opened, and refused where it cannot be written again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError
from layerscope.models import LayeredModel, Loaded, LoadOptions, Override, find_layers, load
from layerscope.models.encode import modalities_of
from layerscope.models.exit_heads import ExitHeads, exit_heads
from layerscope.models.hub import embedded
from layerscope.models.inspection import made_up_samples
from layerscope.models.weights import is_offloaded, is_quantised
from layerscope.profiling.reopening import check_unchanged, model_of, run_of
from layerscope.runs import Run
from layerscope.truncation.origin import whereabouts
from layerscope.truncation.trained import TrainedScores, trained_scores


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
    trained: TrainedScores | None = None

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
        """The pooling that goes with a plain model: that of the order, the scores, the run, or the model's own."""
        scored = None if self.run is None else str(self.run.info["pooling"][0])
        return self.pooling or self.scored or scored or self.model.pooling[0]

    @property
    def name(self) -> str:
        """The model's name as the run or its folder tells it."""
        return self.model.loaded.name

    @property
    def unit(self) -> str:
        """What one sample is called."""
        return {"audio": "sound"}.get(self.model.encoder.modality, self.model.encoder.modality)


def open_source(given: Any, processor: Any, override: Override, options: LoadOptions) -> Source:
    """Open a model, or the model of a run with the part, blocks and norm it was profiled with, in its own dtype.

    Another dtype of the options is taken; a model given as an object stays in its own.

    Raises:
        LayerscopeError: for what cannot be loaded, and for a plain module, a quantised model, an adapter that is not
            merged, or a model of remote code: none of these can be written so that transformers alone loads it.

    """
    run = run_of(given)
    if run is not None:
        given, override, options = model_of(run, override, options)
    saved = _saved_config(given, options) if isinstance(given, (str, Path)) else {}
    _check_config(saved, str(given))
    loaded = load(given, replace(options, as_stored=True), processor)
    _check_module(loaded)
    _check_dtype(given, options.dtype, loaded)
    model, samples = _found(loaded, override)
    if run is not None:
        check_unchanged(run, model, as_stored=options.dtype == "auto")
    named = given if isinstance(given, (str, Path)) else getattr(loaded.module.config, "_name_or_path", "")
    hub, beside = whereabouts(str(named), loaded.revision)
    if beside is None or not isinstance(given, (str, Path)):  # the weights of an object may be others by now
        return Source(model, samples, run, hub, beside)
    trained = trained_scores(beside, model.stack.depth)
    return Source(model, samples, run, hub, beside, heads=exit_heads(beside, loaded.module), trained=trained)


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


def _saved_config(source: str | Path, options: LoadOptions) -> dict[str, Any]:
    """Return a checkpoint's config.json, or nothing where the loader will say what is wrong with it."""
    from transformers import PretrainedConfig

    folder = Path(source).expanduser()
    try:
        found, _ = PretrainedConfig.get_config_dict(
            str(folder) if folder.exists() else embedded(str(source)),
            revision=options.revision,
            local_files_only=folder.exists(),
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
    if is_offloaded(module):
        raise LayerscopeError(f"some weights of {loaded.name} are offloaded: load it whole, without a device map")
    if is_quantised(module):
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


def _check_dtype(given: Any, asked: str, loaded: Loaded) -> None:
    """Refuse another dtype for an object: it is the caller's, and truncation shares its weights."""
    own = next((str(p.dtype).removeprefix("torch.") for p in loaded.module.parameters()), asked)
    if not isinstance(given, (str, Path)) and asked not in ("auto", own):
        raise LayerscopeError(f"{loaded.name} is loaded in {own}: convert it (.to(torch.{asked})), or give its name")
