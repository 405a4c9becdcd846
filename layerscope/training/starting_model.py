"""The model a training starts from: a checkpoint with the head of the task, or random weights of a config."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.utils import ModelOutput

from layerscope.core import LayerscopeError, listed
from layerscope.models import LoadOptions, is_mean_head, setting, without_bars
from layerscope.models.checks import clear_errors
from layerscope.models.loading import sentence_transformer
from layerscope.models.mean_head import as_configured, mean_headed
from layerscope.models.processors import load_processor
from layerscope.training.options import SENTENCES, TAGGING, TASKS, Settings
from layerscope.training.origin import Origin


@dataclass(frozen=True)
class Start:
    """The model a training starts from, what reads its inputs, its classes in its order, and notes for the user."""

    module: Any
    processor: Any
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


class PlainClassifier(torch.nn.Module):
    """A plain module of classes, called as the Trainer calls a model: its rows by name, with labels, a loss out."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(
        self, inputs: torch.Tensor, labels: torch.Tensor | None = None
    ) -> ModelOutput:
        """Return the logits `[B, K]` of rows `[B, D]`, with the cross-entropy of labels `[B]`, if any."""
        logits = self.module(inputs)
        if labels is None:
            return ModelOutput(logits=logits)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        return ModelOutput(loss=loss, logits=logits)


def start(
    origin: Origin,
    classes: tuple[str, ...] | None,
    settings: Settings,
    processor: Any,
) -> Start:
    """Return the model of the settings' task with the head it needs, what reads its inputs, its classes, and notes."""
    if settings.task == SENTENCES:
        encoder = open_encoder(origin, settings)
        return Start(encoder, encoder.tokenizer)
    if origin.module is not None and origin.config is None:
        return Start(PlainClassifier(origin.module), None, classes)
    notes: list[str] = []
    module = origin.module
    order = None
    if module is None:
        module, order = _made(origin, classes, settings, notes)
    elif classes is not None:
        order = _classes_of(module.config, classes, origin.name)
    if processor is None or isinstance(processor, (str, Path)):
        processor = _processor(str(processor or origin.source), module)
    _pad(module, processor, notes)
    _keep_every_layer(module, notes)
    return Start(module, processor, order, tuple(notes))


def open_encoder(origin: Origin, settings: Settings) -> Any:
    """Return a SentenceTransformer, made with mean pooling where a model is none."""
    from sentence_transformers import SentenceTransformer

    encoder = origin.module
    if encoder is None:
        options = LoadOptions(dtype="float32", device=settings.device)
        try:
            with without_bars():
                encoder = sentence_transformer(origin.source, options)
        except LayerscopeError as error:
            raise LayerscopeError(
                f"{origin.name} is not a sentence encoder: {error}"
            ) from error
    elif not isinstance(encoder, SentenceTransformer):
        raise LayerscopeError(
            f"a {type(encoder).__name__} is not a sentence encoder: give a SentenceTransformer, or a name"
        )
    if settings.max_length is not None:
        encoder.max_seq_length = settings.max_length
    encoder[0].auto_model.config._name_or_path = origin.name  # the name in the history
    return encoder


def _keep_every_layer(module: Any, notes: list[str]) -> None:
    """Switch off the dropping of whole layers at random, as every layer is an exit."""
    dropped = False
    for owner in (module.config, *module.modules()):
        for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
            if getattr(owner, name, None):
                setattr(owner, name, 0.0)
                dropped = True
    if dropped:
        notes.append("layerdrop is off: every layer is an exit")


def _made(
    origin: Origin,
    classes: tuple[str, ...] | None,
    settings: Settings,
    notes: list[str],
) -> tuple[Any, tuple[str, ...] | None]:
    """Return a model made of a config or a checkpoint with the head of the task, and its classes in its order."""
    task = settings.task
    config = origin.config
    order = None
    mean = _takes_mean(origin, task, settings.head)
    auto = _auto(config, TAGGING if mean else task, origin.name)
    kinds = auto._model_mapping[type(config)]
    if not isinstance(kinds, tuple):
        kinds = (kinds,)
    trained = (
        not origin.from_config
        and settings.head != "new"
        and mean == is_mean_head(config)
        and _architecture(config) in [kind.__name__ for kind in kinds]
    )
    if classes is not None:
        order = classes
        if trained:
            order = _classes_of(config, classes, origin.name)
        per_sample = not mean and task != TAGGING
        config.problem_type = "single_label_classification" if per_sample else None
        config.num_labels = len(order)
        config.id2label = dict(enumerate(order))
        config.label2id = {name: number for number, name in enumerate(order)}
    torch.manual_seed(settings.seed)
    module, fresh = _loaded(auto, origin)
    if mean:
        mean_headed(module)
        notes.append("head: linear, over the mean of the tokens")
    if origin.from_config:
        notes.append(f"every weight is random, seed {settings.seed}")
    elif not trained and classes is not None:
        fresh |= _renewed(module)
    if fresh:
        notes.append(
            f"freshly initialised, seed {settings.seed}: {', '.join(sorted(fresh))}"
        )
    module.config._name_or_path = origin.name  # the name in the history
    return as_configured(module), order


def _loaded(auto: Any, origin: Origin) -> tuple[Any, set[str]]:
    """Return a model of random weights or of a checkpoint, and the names of the latter's fresh weights."""
    with without_bars(), clear_errors(origin.source):
        if origin.from_config:
            return auto.from_config(origin.config), set()
        module, info = auto.from_pretrained(
            origin.source,
            config=origin.config,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    mismatched = [name for name, *_ in info["mismatched_keys"]]
    return module, {*info["missing_keys"], *mismatched}


def _renewed(module: Any) -> set[str]:
    """Give a head new weights, where an old one of the same shape was loaded too, and return their names."""
    for name, child in module.named_children():
        if name != module.base_model_prefix:
            for part in child.modules():
                part._is_hf_initialized = False
                for tensor in part.parameters(recurse=False):
                    tensor._is_hf_initialized = False
                module._init_weights(part)
    base = f"{module.base_model_prefix}."
    return {name for name, _ in module.named_parameters() if not name.startswith(base)}


def _auto(config: Any, task: str, name: str) -> Any:
    """Return transformers' class of models with the head of a task; raise where this model has none."""
    import transformers

    auto = getattr(transformers, TASKS[task])
    if type(config) not in auto._model_mapping:
        raise LayerscopeError(
            f"{name} ({config.model_type}) has no head for {task} in transformers: choose another `task`, or model"
        )
    decodes = not sees_both_sides(config) or getattr(config, "is_decoder", False)
    if task == "causal-lm" and not decodes:
        raise LayerscopeError(
            f"{name} ({config.model_type}) sees both sides of a token and cannot learn to predict the next one"
        )
    return auto


def sees_both_sides(config: Any) -> bool:
    """Return whether the model of a config reads what follows a token too."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    return type(config) in MODEL_FOR_MASKED_LM_MAPPING


def _takes_mean(origin: Origin, task: str, head: str) -> bool:
    """Whether the head reads the mean of the tokens, made of a token classifier.

    A text encoder's own head reads one token, often through a pooler, and only the last layer
    learns to gather a sample there: shallow layers stay at chance. So a fresh head of an encoder
    reads the mean.
    """
    from transformers import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING as TOKENS

    config = origin.config
    possible = task == "classification" and type(config) in TOKENS
    if head == "mean" and not possible:
        raise LayerscopeError(
            f"head 'mean' is for classification of texts, and {origin.name} ({config.model_type}) has none for the "
            f"task {task}: try `head='own'`"
        )
    if head != "auto" or not possible or not sees_both_sides(config):
        return head == "mean"
    trained = _architecture(config).endswith("SequenceClassification")
    return origin.from_config or not trained or is_mean_head(config)


def _architecture(config: Any) -> str:
    """Return the class that a checkpoint was saved with, empty where it does not say."""
    return str((getattr(config, "architectures", None) or [""])[0])


def _classes_of(config: Any, classes: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the classes of a trained head in its order; labels must be among them, or be their numbers."""
    names = tuple(str(config.id2label[number]) for number in sorted(config.id2label))
    numbers = tuple(map(str, range(len(names))))
    unnamed = names == tuple(f"LABEL_{number}" for number in numbers)
    allowed = numbers if unnamed and {*numbers} & {*classes} else names
    unknown = [label for label in classes if label not in allowed]
    if unknown:
        raise LayerscopeError(
            f"label {unknown[0]!r} is not one of the {len(names)} classes of {name} ({listed(names)}): rename it, or "
            "train a fresh head with `head='new'`"
        )
    return allowed


def _processor(source: str, module: Any) -> Any:
    """Return what reads the model's inputs; images without a processor are resized to its size, scaled to -1 … 1."""
    file = Path(source)
    if file.is_file():
        source = str(file.parent.resolve())
    try:
        processor = load_processor(source, module, {})
    except LayerscopeError as error:
        raise LayerscopeError(f"{error}, or name one with `processor`") from error
    if processor is not None or setting(module, "num_channels", 3) != 3:
        return processor
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    size = setting(module, "image_size", 224)
    if isinstance(size, int):
        size = size, size
    return ViTImageProcessorPil(
        size=dict(zip(("height", "width"), size, strict=True)),
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )


def _pad(module: Any, tokenizer: Any, notes: list[str]) -> None:
    """Let a tokenizer and model that know no padding, which a batch needs, pad with the end of a text."""
    if not hasattr(tokenizer, "pad_token_id"):
        return
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token is None:
            raise LayerscopeError(
                "the tokenizer has neither a padding token nor an end token: give it a pad_token"
            )
        tokenizer.pad_token = tokenizer.eos_token
        notes.append(
            f"padding: {tokenizer.eos_token!r}, as the tokenizer has no token of its own"
        )
    if setting(module, "pad_token_id") is None:
        module.config.pad_token_id = tokenizer.pad_token_id
