"""The model a training starts from: a checkpoint with the head of the task, or random weights of a config."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from transformers.utils import ModelOutput

from layerscope.core.errors import LayerscopeError, listed
from layerscope.core.hub import go_offline_without_hub
from layerscope.models.checks import (
    EMBEDDED,
    check_folder,
    check_name,
    clear_errors,
    embedded,
    near_folder,
)
from layerscope.models.loading import eager, is_cross_encoder, load_processor, without_bars
from layerscope.models.mean_head import as_configured, is_mean_head, mean_headed
from layerscope.models.weights import is_offloaded, is_quantised
from layerscope.training.verb import SENTENCES, TASKS, Settings


@dataclass(frozen=True)
class Origin:
    """What a model is `given` as and made of: its config, source, name; `module` where it was given as an object."""

    source: str
    config: Any
    name: str
    module: Any = None
    from_config: bool = False
    given: Any = None


class PlainClassifier(torch.nn.Module):
    """A plain module of classes, called as the Trainer calls a model: its rows by name, with labels, a loss out."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor | None = None) -> ModelOutput:
        """Return the logits `[B, K]` of rows `[B, D]`, with the cross-entropy of labels `[B]`, if any."""
        logits = self.module(inputs)
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
        return ModelOutput(loss=loss, logits=logits)


def find(model: Any, *, from_config: bool) -> Origin:
    """Return where a model comes from; raises `LayerscopeError` where nothing is there."""
    if not isinstance(model, (str, Path)):
        return _of_object(
            eager(model.model if is_cross_encoder(model) else model), from_config=from_config
        )
    source = embedded(str(model))
    check_name(source)
    path = Path(source).expanduser()
    name = (
        path.resolve().parent.name
        if path.name == "config.json"
        else path.name.removesuffix(".json")
    )
    if from_config:
        file = path / "config.json" if path.is_dir() else path
        if not file.is_file():
            what = "holds no config.json" if path.is_dir() else f"does not exist{near_folder(path)}"
            raise LayerscopeError(
                f"{str(path)!r} {what}: with `from_config=True` give a folder with config.json, or a JSON file"
            )
        source = str(file)
    elif path.exists() or source.startswith((".", "/", "~")):
        check_folder(path, allow_pickle=False)
        modules = (
            path / "modules.json"
        )  # of a SentenceTransformer, whose first module is the transformer
        inside = (
            json.loads(modules.read_text(encoding="utf-8"))[0].get("path", "")
            if modules.is_file()
            else ""
        )
        source = str(path / str(inside))
    else:
        go_offline_without_hub()
    import transformers

    with clear_errors(source):
        config = transformers.AutoConfig.from_pretrained(source)
    return Origin(
        source,
        config,
        EMBEDDED if model == EMBEDDED else name,
        from_config=from_config,
        given=model,
    )


def _of_object(model: Any, *, from_config: bool) -> Origin:
    kind = type(model).__name__
    if from_config or not isinstance(model, torch.nn.Module):
        raise LayerscopeError(
            f"a {kind} cannot be trained here: give a torch module, a name or a folder"
        )
    if getattr(model, "config", None) is None:
        return Origin("", None, kind, PlainClassifier(model), given=model)
    if is_quantised(model) or is_offloaded(model):
        state = "quantised" if is_quantised(model) else "partly offloaded"
        raise LayerscopeError(f"this {kind} is {state}: only whole models in floats are trained")
    source = getattr(model.config, "_name_or_path", "")
    return Origin(source, model.config, Path(source).name or kind, model, given=model)


def start(
    origin: Origin, task: str, classes: Sequence[str] | None, settings: Settings, processor: Any
) -> tuple[Any, Any, tuple[str, ...] | None, list[str]]:
    """Return the model of a task, what reads its inputs, the names of its classes in its order, and notes."""
    notes: list[str] = []
    if task == SENTENCES:
        from layerscope.training.sentence_trainer import (
            open_encoder,
        )  # sentence-transformers is an extra

        served = open_encoder(origin.given, origin.name, settings)
        return served, served.tokenizer, None, notes
    if isinstance(origin.module, PlainClassifier):
        return origin.module, None, None if classes is None else tuple(classes), notes
    if origin.module is not None:
        module, order = (
            origin.module,
            _own_classes(origin.module.config, classes, origin.name) if classes else None,
        )
    else:
        module, order = _made(origin, task, classes, settings, notes)
    if processor is None or isinstance(processor, (str, Path)):
        processor = _processor(str(processor or origin.source), module)
    _pad(module, processor, notes)
    dropping = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")
    for owner, name in product(
        (module.config, *module.modules()), dropping
    ):  # which skip whole layers at random
        if isinstance(getattr(owner, name, None), float) and getattr(owner, name) > 0:
            setattr(owner, name, 0.0)
            notes.append("layerdrop is off: every layer is an exit")
    if task == "masked-lm" and getattr(processor, "mask_token_id", None) is None:
        raise LayerscopeError(
            f"the tokenizer of {origin.name} has no mask token, which masked-lm needs: name another with `processor`"
        )
    return module, processor, order, list(dict.fromkeys(notes))


def _made(
    origin: Origin, task: str, classes: Sequence[str] | None, settings: Settings, notes: list[str]
) -> tuple[Any, tuple[str, ...] | None]:
    config, head, fresh = origin.config, settings.head, []
    mean = _takes_mean(origin, task, head)
    auto = _auto(config, "token-classification" if mean else task, origin.name)
    own = auto._model_mapping[type(config)]
    kinds = {kind.__name__ for kind in (own if isinstance(own, (list, tuple)) else (own,))}
    trained = not origin.from_config and head != "new" and mean == is_mean_head(config)
    trained = trained and _architecture(config) in kinds
    order = None
    if classes is not None:
        order = _own_classes(config, classes, origin.name) if trained else tuple(classes)
        config.num_labels = len(order)
        config.id2label = dict(enumerate(order))
        config.label2id = {name: number for number, name in enumerate(order)}
        config.problem_type = (
            None if mean or task == "token-classification" else "single_label_classification"
        )
    fresh_head = task == "classification" and not mean and head in ("auto", "mean") and not trained
    if fresh_head and getattr(config, "classifier_pooling", None) is not None:
        config.classifier_pooling = "mean"
        notes.append("head: the model's own, over the mean of the tokens (classifier_pooling)")
    torch.manual_seed(settings.seed)
    with without_bars(), clear_errors(origin.source):
        if origin.from_config:
            module = auto.from_config(config)
        else:
            module, info = auto.from_pretrained(
                origin.source,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
            other = [key[0] if isinstance(key, tuple) else key for key in info["mismatched_keys"]]
            fresh = sorted({*map(str, (*info["missing_keys"], *other))})
    if mean:
        mean_headed(module)
        notes.append("head: linear, over the mean of the tokens")
    if not trained and not origin.from_config and classes is not None:
        fresh = _renewed(module, fresh)
    if origin.from_config:
        notes.append(f"every weight is random, seed {settings.seed}")
    elif fresh:
        notes.append(f"freshly initialised, seed {settings.seed}: {', '.join(fresh)}")
    module.config._name_or_path = origin.name  # the name in the history
    return as_configured(module), order


def _renewed(module: Any, fresh: list[str]) -> list[str]:
    """Give a head new weights where an old one of the same shape was loaded, and return every fresh name."""
    base = module.base_model_prefix + "."
    old = [
        name
        for name, _ in module.named_parameters()
        if not name.startswith(base) and name not in fresh
    ]
    for owner in dict.fromkeys(name.rpartition(".")[0] for name in old):
        part = module.get_submodule(owner)
        for tensor in part.parameters(recurse=False):
            tensor._is_hf_initialized = False
        part._is_hf_initialized = False
        module._init_weights(part)
    return sorted({*fresh, *old})


def _auto(config: Any, task: str, name: str) -> Any:
    import transformers

    auto = getattr(transformers, TASKS[task])
    if type(config) not in auto._model_mapping:
        raise LayerscopeError(
            f"{name} ({config.model_type}) has no head for {task} in transformers: choose another `task`, or model"
        )
    if task == "causal-lm" and sees_both_sides(config) and not getattr(config, "is_decoder", False):
        raise LayerscopeError(
            f"{name} ({config.model_type}) sees both sides of a token: try `task='masked-lm'`"
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
    native = hasattr(config, "classifier_pooling")
    possible = task == "classification" and type(config) in TOKENS and not native
    if head == "mean":
        if not possible and not (task == "classification" and native):
            raise LayerscopeError(
                f"head 'mean' is for classification of texts, and {origin.name} ({config.model_type}) has none for the "
                f"task {task}: try `head='own'`"
            )
        return possible
    if head != "auto" or not possible or not sees_both_sides(config):
        return False
    return (
        is_mean_head(config)
        or origin.from_config
        or not _architecture(config).endswith("SequenceClassification")
    )


def _architecture(config: Any) -> str:
    return str((getattr(config, "architectures", None) or [""])[0])


def _own_classes(config: Any, classes: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the classes of a trained head in its order; labels must be among them, or be their numbers."""
    own = tuple(str(config.id2label[number]) for number in sorted(config.id2label))
    numbers = tuple(map(str, range(len(own))))
    unnamed = own == tuple(f"LABEL_{number}" for number in numbers)
    known = numbers if unnamed and any(label in numbers for label in classes) else own
    unknown = [label for label in classes if label not in known]
    if unknown:
        raise LayerscopeError(
            f"label {unknown[0]!r} is not one of the {len(own)} classes of {name} ({listed(own)}): rename it, or train "
            "a fresh head with `head='new'`"
        )
    return known


def _processor(source: str, module: Any) -> Any:
    """Return what reads the model's inputs; images without a processor are resized to its size, scaled to -1 … 1."""
    file = Path(source)
    try:
        found = load_processor(str(file.parent.resolve()) if file.is_file() else source, module, {})
    except LayerscopeError as error:
        raise LayerscopeError(f"{error}, or name one with `processor`") from error
    config = module.config
    if found is not None or getattr(config, "num_channels", 3) != 3:
        return found
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    size = getattr(config, "image_size", 224)
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    return ViTImageProcessorPil(
        size={"height": height, "width": width}, image_mean=[0.5] * 3, image_std=[0.5] * 3
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
        notes.append(f"padding: {tokenizer.eos_token!r}, as the tokenizer has no token of its own")
    if getattr(module.config, "pad_token_id", None) is None:
        module.config.pad_token_id = tokenizer.pad_token_id
