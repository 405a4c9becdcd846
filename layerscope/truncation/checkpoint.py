"""A truncated model as a transformers folder: written, loaded again by transformers alone, and compared."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from layerscope.core.errors import LayerscopeError
from layerscope.models.capture import evaluating
from layerscope.models.forward import forward, tensors_in
from layerscope.models.lens import logits_of
from layerscope.models.mean_head import as_configured, is_mean_head, seal_of, standard_class
from layerscope.truncation.agreement import Expected, agrees, base_of, close_in, difference, holds, last_states
from layerscope.truncation.depth import Depth, shallower
from layerscope.truncation.source import Source

HEAD, HEAD_STEPS = 1e-4, 8
"""Tolerance of logits in float32, and in steps of half precision."""


def write_checkpoint(source: Source, depth: Depth, expected: Expected, folder: Path) -> float:
    """Write config, safetensors and tokenizer or processor, and return how far its states are from the full model's.

    Raises `LayerscopeError` where what was written is not that layer.
    """
    built = depth.build(source.module, expected.layer)
    save(built, folder)
    save_processors(source, folder)
    return check_checkpoint(load_back(folder, built, source), source, expected)


def save(built: Any, folder: Path) -> None:
    """Write config and weights as they are held; ties between weights stay ties."""
    config = built.config
    if hasattr(config, "auto_map"):  # the code it names is not needed, and not beside it
        del config.auto_map
    built.save_pretrained(folder)


def save_processors(source: Source, folder: Path) -> None:
    """Write the tokenizer, image processor or feature extractor, and where there is one what joins them."""
    processor, module = source.model.loaded.processor, source.module
    path = getattr(module.config, "_name_or_path", "")
    if path and getattr(module, "main_input_name", "") != "input_ids":
        from transformers import AutoProcessor

        with suppress(Exception):  # most models have none: what reads their inputs is saved below
            AutoProcessor.from_pretrained(path).save_pretrained(folder)
    if hasattr(processor, "save_pretrained"):
        processor.save_pretrained(folder)


def load_back(folder: Path, built: Any, source: Source) -> nn.Module:
    """Load what was written as anyone would, in the dtype that the full model is compared in."""
    import transformers

    try:
        module, report = getattr(transformers, auto_class(built)).from_pretrained(
            folder, dtype=source.dtype, local_files_only=True, output_loading_info=True
        )
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0][:120]
        raise LayerscopeError(
            f"the truncated {source.name} does not load ({type(error).__name__}: {line}): nothing was written"
        ) from error
    module = as_configured(module)
    wrong = [key for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for key in report.get(kind) or ()]
    if is_mean_head(built.config):
        wrong = [key for key in wrong if key != seal_of(built.config)]
    if type(module) is not type(built) or wrong:
        what = f"as {type(module).__name__}" if not wrong else f"without {sorted(map(str, wrong))[0]}"
        raise LayerscopeError(f"the truncated {type(built).__name__} loads {what}: nothing was written")
    loaded: nn.Module = module.to(source.model.device)
    return loaded.eval()


@torch.inference_mode()
def check_checkpoint(module: nn.Module, source: Source, expected: Expected) -> float:
    """Return the largest difference of a truncated model's states; raise where they are not the full model's layer.

    Its output must show the states of that layer wherever the full model's shows those of its last; its blocks must
    give them; and its head must read from them what the full model's head does.
    """
    stack = shallower(source.model.stack, expected.layer)
    logits = expected.logits or (None,) * len(expected.inputs)
    apart = 0.0
    with evaluating(module):
        for inputs, states, predicted in zip(expected.inputs, expected.states, logits, strict=True):
            output = forward(base_of(module, stack), inputs)
            if expected.shown and not holds(output, states):
                near = min((difference(tensor, states) for tensor in tensors_in(output)), default=float("inf"))
                raise _another(source, expected.layer, "output", near)
            found = last_states(module, stack, inputs)
            apart = max(apart, difference(found, states))
            if not agrees(found, states):
                raise _another(source, expected.layer, "states", difference(found, states))
            own = None if predicted is None else logits_of(forward(module, inputs))
            if predicted is not None and not (
                own is not None and agrees(own, predicted, close_in(own.dtype, HEAD, HEAD_STEPS))
            ):
                near = float("inf") if own is None else difference(own, predicted)
                raise _another(source, expected.layer, "head", near)
    return apart


def _another(source: Source, layer: int, what: str, near: float) -> LayerscopeError:
    return LayerscopeError(
        f"the {what} of the truncated {source.name} differs from layer {layer} of the full model (by {near:.1e}): "
        "it cannot be a standard checkpoint, and nothing was written"
    )


@cache
def _auto_classes() -> dict[str, Any]:
    from transformers.models.auto import modeling_auto

    found = {name: getattr(modeling_auto, name) for name in dir(modeling_auto) if name.startswith("AutoModel")}
    # a class for pre-training may be that of another task too, which says more
    return {name: found[name] for name in sorted(found, key=lambda name: (name.endswith("PreTraining"), name))}


def auto_class(module: Any) -> str:
    """Return the name of transformers' own `AutoModel…` that loads a class, or the class itself where none does."""
    for name, auto in _auto_classes().items():
        kinds = auto._model_mapping.get(type(module.config), None) if auto._model_mapping is not None else None
        if standard_class(type(module)) in (kinds if isinstance(kinds, tuple) else (kinds,)):
            return name
    return type(module).__name__
