"""A model whose layers have been found: what runs a batch through it and names its layers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from layerscope.core import LayerscopeError
from layerscope.inputs import Corpus
from layerscope.models.capture import Visit, capture
from layerscope.models.encode import Encoder, TextEncoder
from layerscope.models.forward import Inputs, frame_mask, setting
from layerscope.models.lens import Lens
from layerscope.models.loaded import Loaded
from layerscope.models.pooling import Projection, Vectors, parse
from layerscope.models.stack import Stack
from layerscope.models.sublayers.watch import Sublayers, Tap


@dataclass(frozen=True)
class LayeredModel:
    """A model ready for the pass.

    `padding`: whether right padding leaves a sample's states unchanged; `batching`: whether the
    rest of the batch does. `lens` gives predictions, `scorer` one number of a sample. `projection`:
    on to the space that two towers share, if there is one.
    `rank`: of a state, 3 for tokens [B, T, D] and 2 where a sample is one vector; `tokens`: T in
    the probe. `attention`: where blocks give their weights, if a run visits these.
    """

    loaded: Loaded
    encoder: Encoder
    stack: Stack
    parts: tuple[str, ...]
    device: torch.device
    notes: tuple[str, ...]
    lens: Lens | None = None
    scorer: Lens | None = None
    pooling: tuple[str, ...] = ("mean",)
    causal: bool = False
    padding: bool = True
    batching: bool = True
    rank: int = 3
    tokens: int = 1
    projection: Projection | None = None
    sublayers: Sublayers = Sublayers()
    attention: tuple[Tap, ...] = ()

    @property
    def module(self) -> nn.Module:
        """The model itself."""
        return self.loaded.module

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.loaded.name

    @property
    def depth(self) -> int:
        """L, the number of its last layer."""
        return self.stack.depth

    @property
    def width(self) -> int:
        """Numbers of a state."""
        return self.stack.width

    @property
    def head(self) -> Lens | None:
        """What the model makes of a layer's states: predictions, or one number of a sample."""
        return self.lens or self.scorer

    @property
    def reads_pairs(self) -> bool:
        """Whether the model reads two texts together, as classifiers and rerankers do."""
        return self.head is not None and self.head.kind == "pooled"

    @property
    def is_sparse(self) -> bool:
        """Whether the model serves sparse vectors, which are made of the logits of its head."""
        return self.loaded.wrapper == "SparseEncoder"

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
        return tuple(range(self.depth + 1))

    @property
    def size(self) -> str:
        """How many layers there are, and how wide they are."""
        return f"{self.depth} layers of {self.width}"

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites of every layer."""
        if self.stack.norm:
            return ("raw", "normed")
        return ("raw",)

    @property
    def final(self) -> str:
        """The site that, at layer L, is the model's last layer."""
        return self.sites[-1]

    def run(self, inputs: Inputs, visit: Visit, until: int | None = None) -> None:
        """Run one batch on the model's device and visit every layer, and the taps that were asked for."""
        taps = (*self.sublayers.taps, *self.attention)
        capture(self.module, self.stack, inputs, visit, until, taps)

    def joins(self, length: int, longest: int) -> bool:
        """Return whether a sample may be padded to the longest of its batch without a change of its states."""
        return self.padding or length == longest

    def mask(self, inputs: Inputs, tokens: Tensor) -> Tensor | None:
        """Return which states of a batch are real, at the rate of the states."""
        if tokens.ndim == 2:
            return None
        return frame_mask(inputs.mask, tokens.shape[1], self.module)


def class_numbers(labels: Iterable[Any], model: LayeredModel) -> list[int | None]:
    """Return the class of a classifier that each label names, or is the number of; None where none is."""
    assert model.lens is not None
    named = setting(model.module, "id2label") or {}
    classes = {str(number): number for number in range(model.lens.classes)}
    for number, name in named.items():
        classes[str(name).lower()] = int(number)
    return [classes.get(str(label).lower()) for label in labels]


def truth_of(corpus: Corpus, model: LayeredModel) -> NDArray[Any]:
    """Return what is true of each sample: the number of its class, or where the model gives one number a number.

    Raises `LayerscopeError` for labels that are no classes of the model, or no numbers that differ.
    """
    labels = corpus.labels or ()
    if model.lens is not None and not model.is_sparse:
        numbers = class_numbers(labels, model)
        if None not in numbers:
            return np.array(numbers)
        label = labels[numbers.index(None)]
        raise LayerscopeError(
            f"label {label!r} is not a class of {model.name}: rename it, or leave the labels out"
        )
    has_names = any(isinstance(label, str) for label in labels)
    if has_names or len({*labels}) < 2:
        raise LayerscopeError(
            f"the labels of {corpus.name} are no scores that differ: name a column of numbers with `label_column`"
        )
    return np.array(labels, dtype=np.float64)


def vectors_for(model: LayeredModel, pooling: str, pairs: bool = True) -> Vectors:
    """Return what a run keeps of each sample; a pooling that the model has no token for is an error."""
    if model.rank == 2:
        return Vectors(("mean",))
    is_text = isinstance(model.encoder, TextEncoder)
    poolings = model.pooling
    if pooling != "auto":
        poolings = parse(pooling)
        tokenizer = getattr(model.encoder, "tokenizer", None)
        lacks_cls = is_text and getattr(tokenizer, "cls_token_id", None) is None
        if "cls" in poolings and lacks_cls:
            raise LayerscopeError(
                "pooling 'cls' needs a [CLS] token, and the tokenizer has none: take first, last or mean"
            )
    others: tuple[str, ...] = ()
    if pairs and model.reads_pairs:
        others = tuple(name for name in model.pooling if name not in poolings)
    elif pairs and model.causal and is_text:
        others = ("position",)
    return Vectors(poolings, others)
