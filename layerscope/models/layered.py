"""A model whose layers have been found, and what one small probe says about how it must be run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.pairs import Ids
from layerscope.models.capture import Visit, capture, evaluating
from layerscope.models.encode import Encoder, TextEncoder, encoder_for, read_as
from layerscope.models.forward import Inputs, frame_mask
from layerscope.models.lens import Lens, find_lens, token_read
from layerscope.models.loading import Loaded
from layerscope.models.options import Override
from layerscope.models.pooling import Projection, Vectors, find_projection, parse
from layerscope.models.probe_forward import (
    PROBE_TOKENS,
    beginning,
    probe_sample,
    states_of,
    tested_in_batches,
)
from layerscope.models.stack import (
    Stack,
    check_norm,
    choose,
    find_stacks,
    is_decoder,
    module_at,
    tokens_read,
)
from layerscope.models.sublayers.find import find_sublayers
from layerscope.models.sublayers.watch import Sublayers
from layerscope.models.weights import input_device, is_quantised

PROBED = 8
"""A model is probed with this many of the samples."""
ROUNDING = {2: 4e-3, 4: 1e-5, 8: 1e-5}
"""Bytes of a number to the share of a state that rounding may change: some of its last places."""


@dataclass(frozen=True)
class LayeredModel:
    """A model ready for the pass.

    `padding`: whether right padding leaves a sample's states unchanged; `batching`: whether the
    rest of the batch does. `projection`: on to the space that two towers share, if there is one.
    `rank`: of a state, 3 for tokens [B, T, D] and 2 where a sample is one vector; `tokens`: T in
    the probe.
    """

    loaded: Loaded
    encoder: Encoder
    stack: Stack
    parts: tuple[str, ...]
    device: torch.device
    notes: tuple[str, ...]
    lens: Lens | None = None
    pooling: tuple[str, ...] = ("mean",)
    causal: bool = False
    padding: bool = True
    batching: bool = True
    rank: int = 3
    tokens: int = 1
    projection: Projection | None = None
    sublayers: Sublayers = Sublayers()

    @property
    def module(self) -> nn.Module:
        """The model itself."""
        return self.loaded.module

    @property
    def max_length(self) -> int | None:
        """Tokens of a text at most."""
        return getattr(self.encoder, "max_length", None)

    @property
    def is_language_model(self) -> bool:
        """Whether the model predicts the next token."""
        return self.causal and self.lens is not None and self.lens.kind == "tokens"

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers, 0..L; fewer where states are read that another engine wrote."""
        return tuple(range(self.stack.depth + 1))

    @property
    def size(self) -> str:
        """How many layers there are, and how wide they are."""
        return f"{self.stack.depth} layers of {self.stack.width}"

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites of every layer."""
        return ("raw", "normed") if self.stack.norm else ("raw",)

    @property
    def final(self) -> str:
        """The site that, at layer L, is the model's last layer."""
        return self.sites[-1]

    def run(self, inputs: Inputs, visit: Visit, until: int | None = None) -> None:
        """Run one batch on the model's device and visit every layer, and the sub-layers that were asked for."""
        capture(self.module, self.stack, inputs, visit, until, self.sublayers.taps)

    def joins(self, length: int, longest: int) -> bool:
        """Return whether a sample may be padded to the longest of its batch without a change of its states."""
        return self.padding or length == longest

    def mask(self, inputs: Inputs, tokens: Tensor) -> Tensor | None:
        """Return which states of a batch are real, at the rate of the states."""
        return None if tokens.ndim == 2 else frame_mask(inputs.mask, tokens.shape[1], self.module)


def find_layers(
    loaded: Loaded,
    modality: str,
    samples: Sequence[Any],
    override: Override = Override(),
    *,
    max_length: int | None = None,
    prompt: str = "",
    sublayers: bool = False,
) -> LayeredModel:
    """Find blocks, final norm and head of a model by a probe on a few samples, and test how it may be batched.

    With `sublayers` the model's runs visit what comes inside its blocks too; one in which nothing
    is found is refused.
    """
    module = loaded.module
    samples = [samples[i] for i in range(min(PROBED, len(samples)))]
    modality = read_as(modality, samples[0], module)
    processor = loaded.processor_for("text" if modality == "ids" else modality)
    length, prefix = max_length or loaded.max_length, prompt or loaded.prompt
    encoder = encoder_for(
        modality, processor, module, max_length=length, prompt=prefix, lack=loaded.lack
    )
    device = input_device(module)
    with evaluating(module):
        long = probe_sample(encoder, samples)
        short = beginning(long, 0.5)
        stack, parts = _find_stack(module, encoder.batch([long]).to(device), override)
        model = LayeredModel(loaded, encoder, stack, parts, device, (*loaded.notes, *stack.notes))
        long, alone, broken = _probed(model, long, samples)
        last, final = alone[f"raw.{stack.depth}"], alone[f"{model.final}.{stack.depth}"]
        inputs = encoder.batch([long]).to(device)
        _check_one(model, last, inputs)
        tokens = last.shape[1] if last.ndim == 3 else 1
        model = replace(model, rank=last.ndim, tokens=tokens, notes=(*model.notes, *broken))
        inputs = replace(inputs, mask=model.mask(inputs, last))
        lens, note = find_lens(module, stack, inputs, last, final)
        notes = (*model.notes, note) if note else model.notes
        model = replace(model, causal=_causal(model, long), lens=lens, notes=notes)
        if lens is None and model.rank == 3:
            model = replace(
                model, projection=find_projection(module, stack, modality, inputs, last)
            )
        model = replace(model, pooling=_own_pooling(model, inputs, last, samples))
        model = tested_in_batches(model, short, long, alone)
        if not sublayers:
            return model
        found = find_sublayers(module, stack, inputs)
        if not found.taps:
            raise LayerscopeError(
                f"no sub-layers were found in the blocks of {loaded.name}: leave `sublayers` out"
            )
        return replace(model, sublayers=found, notes=(*model.notes, *found.notes))


def _find_stack(
    module: nn.Module, inputs: Inputs, override: Override
) -> tuple[Stack, tuple[str, ...]]:
    if override.blocks is not None:
        module_at(module, override.blocks, "blocks")
    stacks = find_stacks(module, inputs, override.blocks)
    stack = choose(stacks, override.part)
    if override.norm is not None:
        if override.norm != "none":
            check_norm(module, stack, override.norm)
        stack = replace(stack, norm=None if override.norm == "none" else override.norm)
    return stack, tuple(each.part for each in stacks)


def _probed(
    model: LayeredModel, first: Any, samples: Sequence[Any]
) -> tuple[Any, dict[str, Tensor], list[str]]:
    """The first sample whose states are all finite, with them, or the first of all and a note on where it breaks."""
    if isinstance(model.encoder, TextEncoder):
        samples = [Ids(tuple(row[:PROBE_TOKENS])) for row in model.encoder.ids(samples) if row]
    states: dict[str, Tensor] = {}
    bad: list[str] = []
    for sample in (first, *samples):
        own = states_of(model, [sample])
        broken = [key for key, state in own.items() if not bool(torch.isfinite(state).all())]
        if not broken:
            return sample, own, []
        states, bad = states or own, bad or broken
    raw = [key.partition(".")[2] for key in bad if key.startswith("raw")]
    if not raw:
        why = f"the final norm ({model.stack.norm}) gives NaN or infinity for every sample of the probe"
        raise LayerscopeError(f"{why}: check its weights, or leave it out with `norm='none'`")
    return first, states, [f"layer {raw[0]} gives NaN or infinity for every sample of the probe"]


def _causal(model: LayeredModel, sample: Any) -> bool:
    """Whether a change of one token leaves the states before it alone, but for rounding (experts round by load)."""
    inputs = model.encoder.batch([sample])
    decodes = is_decoder(model.module, model.stack)
    name = "decoder_input_ids" if decodes else "input_ids"
    ids = inputs.named.get(name)
    if (
        decodes and ids is not None and ids.shape[1] < 2
    ):  # of a sound: its decoder reads the token that starts a text
        inputs = replace(inputs, named={**inputs.named, name: torch.arange(4)[None]})
        ids = inputs.named[name]
    if ids is None or ids.shape[1] < 2:
        return False
    middle, changed = ids.shape[1] // 2, ids.clone()
    others = ids[ids != ids[0, middle]]
    changed[0, middle] = others[0] if len(others) else (ids[0, middle] - 1).clamp_min(0)
    one = states_of(model, inputs)
    two = states_of(model, replace(inputs, named={**inputs.named, name: changed}))
    for key, states in one.items():
        before, after = states[:, :middle].float(), two[key][:, :middle].float()
        if bool(
            (
                (before - after).norm(dim=-1)
                > ROUNDING[states.dtype.itemsize] * before.norm(dim=-1)
            ).any()
        ):
            # activations quantised by a common range blur what was seen: there attention's own word
            # counts
            block = model.module.get_submodule(model.stack.blocks[0])
            declared = any(getattr(child, "is_causal", False) is True for child in block.modules())
            return is_quantised(model.module) and declared
    return True


def _check_one(model: LayeredModel, last: Tensor, inputs: Inputs) -> None:
    """Raise where a sample's states are not one row of states, or a text's not one for each token."""
    tokens = tokens_read(model.module, model.stack, inputs)
    gives = None
    if last.shape[0] != 1:
        gives = f"read a sample as {last.shape[0]} rows of states: its layers have no state of one sample"
    elif tokens is not None and last.ndim == 3 and last.shape[1] < tokens:
        gives = f"give {last.shape[1]} states for {tokens} tokens: its layers have no state of one token"
    if gives is not None:
        raise LayerscopeError(
            f"the blocks of the {model.stack.part} of {model.loaded.name} {gives}"
        )


def _own_pooling(
    model: LayeredModel, inputs: Inputs, last: Tensor, samples: Sequence[Any]
) -> tuple[str, ...]:
    """What `auto` means: the SentenceTransformer's own; the token a classifier or a tower reads; else the mean."""
    if model.loaded.pooling:
        return model.loaded.pooling
    if model.lens is not None and model.lens.kind == "pooled":
        return (token_read(model.lens.sample_logits, last, inputs),)
    if (
        model.projection is not None
    ):  # seen on a whole text, as a tower may read the token that ends it
        text = isinstance(model.encoder, TextEncoder)
        sample = next((s for s in samples if not text or model.encoder.lengths([s])[0] > 1), None)
        if sample is not None:
            inputs, states = (
                model.encoder.batch([sample]).to(model.device),
                states_of(model, [sample]),
            )
            return (
                token_read(model.projection.vectors, states[f"raw.{model.stack.depth}"], inputs),
            )
    return ("mean",)


def class_numbers(labels: Iterable[Any], model: LayeredModel) -> list[int | None]:
    """Return the class of a classifier that each label names, or is the number of; None where none is."""
    assert model.lens is not None
    named = getattr(getattr(model.module, "config", None), "id2label", None) or {}
    classes = {str(number): number for number in range(model.lens.classes)}
    classes |= {str(name).lower(): int(number) for number, name in named.items()}
    return [classes.get(str(label).lower()) for label in labels]


def vectors_for(model: LayeredModel, asked: str, pairs: bool = True) -> Vectors:
    """Return what a run keeps of each sample; a pooling that the model has no token for is an error."""
    if model.rank == 2:
        return Vectors(("mean",))
    poolings = model.pooling if asked == "auto" else parse(asked)
    is_text = isinstance(model.encoder, TextEncoder)
    lacks_cls = (
        is_text and getattr(getattr(model.encoder, "tokenizer", None), "cls_token_id", None) is None
    )
    if "cls" in poolings and asked != "auto" and lacks_cls:
        raise LayerscopeError(
            "pooling 'cls' needs a [CLS] token, and the tokenizer has none: take first, last or mean"
        )
    if pairs and model.lens is not None and model.lens.kind == "pooled":
        return Vectors(poolings, tuple(name for name in model.pooling if name not in poolings))
    return Vectors(poolings, ("position",) if pairs and model.causal and is_text else ())
