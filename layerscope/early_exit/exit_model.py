"""A classifier whose rows leave at the first exit that is sure of them, called as the classifier itself is."""

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Unpack
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)
from transformers.utils import ModelOutput

from layerscope.core import LayerscopeError, Loading, checked
from layerscope.early_exit.batch_compaction import (
    Decide,
    ExitForward,
    Outcome,
    Watch,
)
from layerscope.early_exit.calibration import Calibration, check_exits
from layerscope.early_exit.exit_report import ExitReport
from layerscope.early_exit.head_probe import find_head
from layerscope.early_exit.options import ModelOptions
from layerscope.early_exit.predictions import NEVER, check_threshold, sureness
from layerscope.early_exit.saving import (
    class_like,
    fingerprint,
    load_exits,
    save_exits,
)
from layerscope.models import (
    ExitHeads,
    Inputs,
    LayeredModel,
    Loaded,
    accepts,
    dtype_of,
    evaluating,
    find_layers,
    is_mean_head,
    load,
    made_up_samples,
)
from layerscope.models.forward import fitted
from layerscope.models.weights import exit_heads, heads_of, input_device
from layerscope.models.whereabouts import whereabouts

LOCKS: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
"""The lock of each model, whose blocks carry the hooks of one forward at a time."""


@dataclass
class ExitOutput(ModelOutput):  # type: ignore[misc]  # transformers is not typed
    """The output of each row of a batch, from the layer at which it left.

    `logits` [B, K], float32; `prediction` [B]; `exit_layer` [B], 1 … L; `confidence` [B], how sure
    the exit was; `loss` only where labels were given.

    >>> from layerscope.early_exit import ExitModel
    >>> model = ExitModel("tiny-bert")
    >>> output = model(**model.processor(["the food was good", "the staff were rude"], return_tensors="pt"))
    >>> output.logits.shape, output.exit_layer.tolist()
    (torch.Size([2, 2]), [3, 3])
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    prediction: Tensor | None = None
    exit_layer: Tensor | None = None
    confidence: Tensor | None = None


class IsLanguageModelError(LayerscopeError):
    """A language model, as `loaded`, was given where a classifier is needed."""

    def __init__(self, loaded: Loaded) -> None:
        name = type(loaded.module).__name__
        super().__init__(
            f"{name} continues texts, and an ExitModel classifies: `layerscope.exits` takes both"
        )
        self.loaded = loaded


class ExitModel(nn.Module):
    """A classifier of texts, images or sounds whose rows leave early, in batches of any size.

    It is called like the model it wraps, also in a `pipeline`. At each exit the model's own head
    reads the rows that are left; those it is sure enough of leave, the batch continues without them
    (and without the padding that only they needed), and the order is restored at the end. A row
    that leaves at layer k has the logits of the model that ends at layer k; a layer that `train`
    gave a head of its own is read by that. The wrapped model is unchanged between calls; calls from
    several threads wait for each other.

    Attributes:
        model: the classifier itself.
        exit_heads: the heads of layers that have one of their own, under their number; without any,
            one reads all.
        exits, threshold: where rows leave, and when: see below. processor, depth, classes: what
        reads its inputs, how many layers (L) and classes (K) it has.

    Example:
        >>> from layerscope.early_exit import ExitModel
        >>> model = ExitModel("tiny-bert", exits=[1, 2], threshold=0.5)
        >>> output = model(**model.processor(["the food was good"], return_tensors="pt"))
        >>> output.exit_layer.tolist()  # of two classes one has at least 0.5, so all leave at the first exit
        [1]

    """

    def __init__(
        self,
        model: Any,
        *,
        exits: Sequence[int] | None = None,
        threshold: float = NEVER,
        processor: Any = None,
        **loading: Unpack[Loading],
    ) -> None:
        """Wrap a classifier; until a threshold is given no row leaves it early.

        Raises `LayerscopeError` for a model without a head of classes, or whose blocks do not hold
        one entry a sample, for exits that are not its layers, and for a threshold out of range.

        Args:
            model: a hub name, a local folder, or a loaded transformers classifier; of a loaded one
                the layers have no heads of their own.
            exits: the layers to be checked, 1 … L − 1; None is all of them.
            threshold: from which a row leaves: 0 … 1; infinite is never.
            processor: tokenizer, image processor or feature extractor of a model given as an
                object.
            **loading: how the model is loaded, and where its layers are: `Loading`.

        """
        super().__init__()
        dtype = str(loading.get("dtype", "auto")).removeprefix("torch.")
        options = checked(
            _loading, {"loading": {**loading, "dtype": dtype}}, ModelOptions
        )
        if isinstance(model, ExitModel):
            raise LayerscopeError(
                "this is an ExitModel already: give its folder, or its `model`"
            )
        heads = ExitHeads("", {})
        loaded = load(model, options.load, processor)
        self._layered = find_layers(loaded, *made_up_samples(loaded), options.override)
        if self._layered.is_language_model:
            raise IsLanguageModelError(loaded)
        # the weights of an object may differ by now from those in its folder
        if isinstance(model, (str, Path)):
            beside = whereabouts(str(model), loaded.revision)[1]
            if beside is not None:
                heads = exit_heads(beside, loaded.module) or heads
        module: Any = self._layered.module
        self.model: Any = module
        self.override = options.override
        kind: Any = type(module)
        name = kind.__name__
        config = getattr(module, "config", None)
        # a token classifier to transformers, but it classifies texts
        if is_mean_head(config):
            names = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
            name = names.get(module.config.model_type, name)
        self.__class__ = class_like(ExitModel, kind, name)
        self.exit_heads = heads.modules(self.model)
        head = find_head(self._layered)
        self._head = replace(head, heads=self.exit_heads, path=heads.path)
        self.depth = self._layered.depth
        self.classes = self._head.lens.classes
        self.processor: Any = loaded.processor
        self.leave(exits, threshold)

    @property
    def layered(self) -> LayeredModel:
        """The model with its blocks found, on the device it is on now."""
        return replace(self._layered, device=self.device)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return input_device(self.model)

    def own_heads(self) -> ExitHeads:
        """Return the heads of layers that have one of their own; there are none where one head reads all."""
        layers = {int(layer): head for layer, head in self.exit_heads.items()}
        return heads_of(self._head.path, layers)

    def leave(
        self, exits: Sequence[int] | None = None, threshold: float = NEVER
    ) -> "ExitModel":
        """Set where rows leave, and when; returns the model. See the class for what is what."""
        self.calibration: Calibration | None = None
        if exits is None:
            exits = range(1, self.depth)
        self.exits = check_exits(exits, self.depth)
        self.threshold = check_threshold(threshold)
        return self

    def use(self, calibration: Calibration) -> "ExitModel":
        """Set exits and threshold of a calibration; raises for one that is another model's."""
        name = self.layered.name
        runs_in = dtype_of(self.model)
        if calibration.fingerprint != self.fingerprint():
            raise LayerscopeError(
                f"this calibration is of other weights than {name}'s: run layerscope exits on this model"
            )
        if calibration.dtype != runs_in:
            raise LayerscopeError(
                f"this calibration was made in {calibration.dtype}, and {name} runs in {runs_in}: calibrate it as it is"
            )
        self.leave(calibration.exits, calibration.threshold)
        self.calibration = calibration
        return self

    def fingerprint(self) -> str:
        """Return a sha256 (hex) that tells these weights from others, in whatever precision they are loaded."""
        return fingerprint(self.model, self.exit_heads)

    def save_pretrained(
        self, folder: str | Path, report: ExitReport | None = None
    ) -> Path:
        """Write the model with card, processor, heads and `early_exit.json`; transformers loads the plain model."""
        return save_exits(self, Path(folder).expanduser(), report)

    @classmethod
    def from_pretrained(
        cls, source: str | Path, *, revision: str | None = None, **options: Any
    ) -> "ExitModel":
        """Return an exit model as it was saved, from a folder or the hub; `options` are those of the class.

        Raises `LayerscopeError` where nothing says where rows leave, and where that was saved with
        other weights.
        """
        saved = load_exits(source, revision)
        model = cls(source, **{"revision": revision, **saved["override"], **options})
        if saved["fingerprint"] != model.fingerprint():
            raise LayerscopeError(
                f"the exits in {str(source)!r} are of other weights than lie there: run layerscope exits on this model"
            )
        calibration = saved["calibration"]
        if calibration is not None and calibration.dtype == dtype_of(model.model):
            return model.use(calibration)
        return model.leave(saved["exits"], saved["threshold"])

    def forward(self, *args: Any, **named: Any) -> Any:
        """Return an `ExitOutput`; the call is that of the wrapped model."""
        if args:  # a signature takes longer to read than an exit
            names = inspect.signature(self.model.forward).parameters
            named = dict(zip(names, args, strict=False)) | named
        labels = named.pop("labels", None)
        for name in ("output_hidden_states", "output_attentions"):
            if named.pop(name, False):
                raise LayerscopeError(
                    f"{name}: rows leave at different layers, call .model for what all layers hold"
                )
        tensors = {
            name: value
            for name, value in named.items()
            if isinstance(value, Tensor) and value.ndim
        }
        if not tensors:
            kind = type(self.model).__name__
            raise LayerscopeError(
                f"no tensor was given: call it as {kind} is called, such as model(**batch)"
            )
        inputs = Inputs(tensors, mask=tensors.get("attention_mask"))
        exits = () if self.threshold == NEVER else self.exits

        def is_sure(layer: int, logits: Tensor, rows: Tensor) -> Tensor:
            return sureness(logits, f"layer {layer}") >= self.threshold

        outcome = self.run(inputs, exits, is_sure, **named)
        # a copy: gradients of what follows could not start from a tensor of inference mode
        logits = outcome.logits.clone()
        sure = sureness(logits, "this model").to(logits.device, torch.float32)
        layers = outcome.layers.to(logits.device)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.float(), labels)
        return ExitOutput(loss, logits, logits.argmax(-1), layers, sure)

    @torch.inference_mode()
    def run(
        self,
        inputs: Inputs,
        exits: Sequence[int],
        decide: Decide,
        watch: Watch | None = None,
        /,
        **named: Any,
    ) -> Outcome:
        """Run one batch, as the model's encoder makes it, with other exits and with rows that leave by another rule.

        With no exits the model runs as it is, without hooks. For `decide` and `watch` see
        `layerscope.early_exit.batch_compaction`; `named` is what the model is called with besides.
        """
        arguments = {
            name: fitted(self.model, value)
            for name, value in {**inputs.named, **named}.items()
            if value is not None
        }
        if accepts(self.model, "use_cache"):
            arguments["use_cache"] = False

        def call() -> Any:
            return self.model(*inputs.args, **arguments)

        # hooks and evaluation mode stand on the model itself, which others may call at the same
        # time
        with (
            LOCKS.setdefault(self.model, Lock()),
            evaluating(self.model) if self.model.training else nullcontext(),
        ):
            forward = ExitForward(
                self._layered, self._head, inputs, exits, decide, watch
            )
            return forward.run(call)

    def __getattr__(self, name: str) -> Any:
        """Give what the wrapped model has, such as its config."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in ("model", "_modules"):  # not there yet, while it is made
                raise
            return getattr(self.model, name)


def _loading(**loading: Unpack[Loading]) -> None:
    """Declare how a model is loaded."""


_loading.__name__ = "ExitModel"  # as errors call it
