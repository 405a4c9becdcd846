"""A classifier whose rows leave at the first exit that is sure of them, called as the classifier itself is."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
from transformers.utils import ModelOutput

from layerscope.early_exit.calibration import Calibration, check_exits
from layerscope.early_exit.criteria import NEVER, Rule, check_criterion, check_threshold, sureness
from layerscope.early_exit.leaving import Decide, Outcome, Watch, run
from layerscope.early_exit.reading import find_tail
from layerscope.early_exit.saving import check_made_for, fingerprint, load_exits, save
from layerscope.errors import LayerscopeError
from layerscope.inspecting import made_up_samples
from layerscope.models import LayeredModel, LoadOptions, Override, find_layers, load
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs, accepts
from layerscope.models.lens import logits_of
from layerscope.models.mean_head import is_mean_head

KEPT = ("output_hidden_states", "output_attentions")


@dataclass
class ExitOutput(ModelOutput):  # type: ignore[misc]  # transformers is not typed
    """What each row of a batch says where it leaves.

    `logits` [B, K]; `prediction` [B]; `exit_layer` [B], 1 … L; `confidence` [B], float64, how sure the exit was by the
    model's criterion ("patience": its maximal probability); `loss` only where labels were given.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    prediction: Tensor | None = None
    exit_layer: Tensor | None = None
    confidence: Tensor | None = None


class ExitModel(nn.Module):
    """A classifier of texts, images or sounds whose rows leave early, in batches of any size.

    It is called as the model it wraps, in a `pipeline` as well. At each exit the model's own head reads the rows that
    are left; those that are sure enough leave, the batch goes on without them (and without the padding that only they
    needed), and the order is restored at the end. A row that leaves at layer k has the logits of the model that ends at
    layer k. The wrapped model is unchanged between calls; calls from several threads wait for each other.

    Attributes:
        model: the classifier itself.
        exits: the layers that are checked, 1 … L − 1.
        criterion: "confidence", "margin", "entropy" or "patience" (see `layerscope.early_exit.criteria`).
        threshold: a row leaves where the criterion reaches it; infinite: never.

    """

    def __init__(
        self,
        model: Any,
        *,
        exits: Sequence[int] | None = None,
        threshold: float = NEVER,
        criterion: str = "confidence",
        processor: Any = None,
        part: str | None = None,
        blocks: str | None = None,
        norm: str | None = None,
        revision: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        allow_pickle: bool = False,
    ) -> None:
        """Wrap a classifier; until a threshold is given no row leaves it early.

        Args:
            model: a hub name, a local folder, or a loaded transformers classifier.
            exits: the layers to be checked, 1 … L − 1; None is all of them.
            threshold: from which a row leaves: 0 … 1, of "patience" a whole number of exits; infinite is never.
            criterion: how sure an exit is.
            processor: tokenizer, image processor or feature extractor of a model given as an object.
            part: which stack of blocks, where a model has several.
            blocks: path of the module that holds the blocks, where the probe is not to decide.
            norm: path of the final norm, or "none".
            revision: of a hub model.
            device: where the model is run.
            dtype: of the weights.
            allow_pickle: load pickled weights.

        Raises:
            LayerscopeError: for a model without a head of classes, or whose blocks do not hold one entry a sample, for
                exits that are not its layers, and for a threshold that makes no sense.

        """
        super().__init__()
        options = LoadOptions(revision, dtype, device, False, allow_pickle)
        override = Override(part, blocks, norm)
        self._layered = _opened(model, processor, override, options)
        self.model: Any = self._layered.module
        self.override = override
        self.__class__ = _named_as(self.model)
        self._tail = find_tail(self._layered)
        self.leave(exits, threshold, criterion)

    @property
    def layered(self) -> LayeredModel:
        """The model with its blocks found, on the device it is on now."""
        return replace(self._layered, device=self.device)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    @property
    def depth(self) -> int:
        """L."""
        return self._layered.stack.depth

    @property
    def classes(self) -> int:
        """K."""
        lens = self._layered.lens
        assert lens is not None
        return lens.classes

    @property
    def trims(self) -> bool:
        """Whether a batch gets shorter when its longest rows leave."""
        return self._tail.layout.trims

    @property
    def processor(self) -> Any:
        """Tokenizer, image processor or feature extractor."""
        return self._layered.loaded.processor

    def leave(
        self, exits: Sequence[int] | None = None, threshold: float = NEVER, criterion: str = "confidence"
    ) -> ExitModel:
        """Set where rows leave, and when; returns the model. See the class for what is what."""
        check_criterion(criterion)
        self.calibration: Calibration | None = None
        self.exits = tuple(range(1, self.depth)) if exits is None else check_exits(exits, self.depth)
        self.threshold = check_threshold(threshold, criterion)
        self.criterion = criterion
        return self

    def use(self, calibration: Calibration) -> ExitModel:
        """Set exits, criterion and threshold of a calibration; raises for one that is another model's."""
        check_made_for(self, calibration)
        self.leave(calibration.exits, calibration.threshold, calibration.criterion)
        self.calibration = calibration
        return self

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the classifier's checkpoint with its processor and its exits into a folder, and return it."""
        return save(self, folder)

    @classmethod
    def from_pretrained(cls, source: str | Path, *, revision: str | None = None, **options: Any) -> ExitModel:
        """Return an exit model as it was saved, from a folder or the hub; `options` are those of the class.

        Raises `LayerscopeError` where nothing says where rows leave, and where it was said of other weights.
        """
        told = load_exits(source, revision)
        override = told["override"]
        given = {"part": override.part, "blocks": override.blocks, "norm": override.norm} | options
        model = cls(source, revision=revision, **given)
        if told["depth"] != model.depth or told["fingerprint"] != fingerprint(model.model):
            raise LayerscopeError(
                f"the exits in {str(source)!r} are of other weights than lie there: calibrate this model and save it"
            )
        model.leave(told["exits"], told["threshold"], told["criterion"])
        model.calibration = told["calibration"]
        return model

    @property
    def forward(self) -> Callable[..., Any]:  # type: ignore[override]  # read for its signature, as the wrapped one's is
        """The call of the wrapped model, with `ExitOutput` as its result."""

        @functools.wraps(self.model.forward)
        def forward(*args: Any, **named: Any) -> Any:
            return self._forward(*args, **named)

        return forward

    def _forward(self, *args: Any, labels: Tensor | None = None, return_dict: bool = True, **named: Any) -> Any:
        for name in KEPT:
            if named.pop(name, False):
                raise LayerscopeError(f"{name}: rows leave at different layers, call .model for what all layers hold")
        if args:  # a signature takes longer to read than an exit
            named = dict(zip(inspect.signature(self.model.forward).parameters, args, strict=False)) | named
        exits = () if self.threshold == NEVER else self.exits
        outcome = self.run(_inputs(named, self.model), exits, Rule(self.criterion, self.threshold), named=named)
        logits = outcome.logits
        sure = sureness(logits, self.criterion, "this model").to(logits.device, torch.float32)
        loss = None if labels is None else nn.functional.cross_entropy(logits.float(), labels)
        output = ExitOutput(loss, logits, logits.argmax(-1), outcome.layers.to(logits.device), sure)
        return output if return_dict else output.to_tuple()

    @torch.inference_mode()
    def run(
        self,
        inputs: Inputs,
        exits: Sequence[int],
        decide: Decide,
        watch: Watch | None = None,
        named: dict[str, Any] | None = None,
    ) -> Outcome:
        """Run one batch with other exits, and with rows that leave by another rule.

        Args:
            inputs: the batch, as the model's encoder makes it.
            exits: layers, ascending; with none the model runs as it is, without hooks.
            decide: called with layer, logits [b, K] and rows [b] after each exit; returns which leave.
            watch: is told the end of each stage (see `layerscope.early_exit.leaving`).
            named: what the model is called with besides, or instead where it is the same batch.

        """
        given = {k: v for k, v in {**inputs.named, **(named or {})}.items() if v is not None}
        if accepts(self.model, "use_cache"):
            given["use_cache"] = False

        def call() -> Any:
            return self.model(**given)

        with evaluating(self.model) if self.model.training else nullcontext():
            if not exits and watch is None:
                logits = logits_of(call())
                assert logits is not None
                return Outcome(logits, torch.full((len(logits),), self.depth))
            with _lock_of(self.model):
                return run(self._layered, self._tail, call, inputs, exits, decide, watch)

    def __getattr__(self, name: str) -> Any:
        """Give what the wrapped model has, such as its config."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "model":
                raise
            return getattr(self.model, name)


_LOCKS: WeakKeyDictionary[nn.Module, threading.Lock] = WeakKeyDictionary()


def _lock_of(module: nn.Module) -> threading.Lock:
    """Return the lock of a model, whose blocks carry the hooks of one forward at a time."""
    return _LOCKS.setdefault(module, threading.Lock())


@cache
def _class_named(name: str) -> type[ExitModel]:
    return type(name, (ExitModel,), {"__module__": __name__})


def _named_as(module: Any) -> type[ExitModel]:
    """Return the class of an exit model by the name of the classifier it stands for: a `pipeline` goes by names."""
    name = type(module).__name__
    if is_mean_head(module.config):  # a token classifier to transformers, but it classifies texts
        name = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.get(module.config.model_type, name)
    return _class_named(name)


def _opened(given: Any, processor: Any, override: Override, options: LoadOptions) -> LayeredModel:
    loaded = load(given, options, processor)
    modality, samples = made_up_samples(loaded.module)
    return find_layers(loaded, modality, samples, override, max_length=None, prompt="")


def _inputs(named: dict[str, Any], module: nn.Module) -> Inputs:
    """Return the tensors of a call as a batch; raises for one without rows or positions."""
    tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
    main = next(iter(tensors.values()), None)
    if main is None:
        raise LayerscopeError(f"no tensor was given: call it as {type(module).__name__} is called")
    if 0 in main.shape:
        what = "row" if main.shape[0] == 0 else "position"
        raise LayerscopeError(f"this batch {tuple(main.shape)} has no {what}: leave it out")
    return Inputs(tensors, mask=tensors.get("attention_mask"))
