"""The model a training starts from: a checkpoint with the head of the task, or random weights of a config."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError
from layerscope.models.checks import check_folder, check_name, clear_errors, near_folder
from layerscope.models.hub import EMBEDDED, embedded, go_offline_without_hub
from layerscope.models.load import without_bars
from layerscope.models.loaded import eager
from layerscope.models.mean_head import as_configured, is_mean_head, mean_headed
from layerscope.models.weights import is_offloaded, is_quantised
from layerscope.training.data import READS, Source
from layerscope.training.processors import find_processor, pad
from layerscope.training.settings import Settings
from layerscope.training.tagged import TaggedCorpus

AUTO = {
    "classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "image-classification": "AutoModelForImageClassification",
    "audio-classification": "AutoModelForAudioClassification",
}


@dataclass(frozen=True)
class Origin:
    """What a model is made of: its config, where it lies, its name; `module` where it was given as an object."""

    source: str
    config: Any
    name: str
    module: Any = None
    from_config: bool = False


@dataclass(frozen=True)
class Start:
    """A model ready to be trained, what reads its inputs, and what was told on the way."""

    module: Any
    processor: Any
    notes: tuple[str, ...]


def find(model: Any, *, from_config: bool) -> Origin:
    """Return where a model comes from; raises `LayerscopeError` where nothing is there."""
    if not isinstance(model, (str, Path)):
        model = eager(model)
        if getattr(model, "config", None) is None or from_config:
            raise LayerscopeError(
                f"a {type(model).__name__} cannot be trained here: give a transformers model, a name or a folder"
            )
        place = getattr(model.config, "_name_or_path", "")
        if is_quantised(model) or is_offloaded(model):
            state = "quantised" if is_quantised(model) else "partly offloaded"
            raise LayerscopeError(f"this {type(model).__name__} is {state}: only whole models in floats are trained")
        return Origin(place, model.config, Path(place).name or type(model).__name__, model)
    source = embedded(str(model))
    check_name(source)
    place = Path(source).expanduser()
    if from_config:
        return Origin(str(place), _config_at(place), _called(place), from_config=True)
    if place.exists() or source.startswith((".", "/", "~")):
        check_folder(place, allow_pickle=False)
        source = str(_transformer_in(place))
    else:
        go_offline_without_hub()
    import transformers

    with clear_errors(source):
        config = transformers.AutoConfig.from_pretrained(source)
    return Origin(source, config, EMBEDDED if model == EMBEDDED else _called(place))


def _called(place: Path) -> str:
    """Return the name of a folder, or of a config file."""
    return place.resolve().parent.name if place.name == "config.json" else place.name.removesuffix(".json")


def _config_at(place: Path) -> Any:
    import transformers

    file = place / "config.json" if place.is_dir() else place
    if not file.is_file():
        what = "holds no config.json" if place.is_dir() else f"does not exist{near_folder(place)}"
        raise LayerscopeError(f"--from-config: {str(place)!r} {what}: give a folder with config.json, or a JSON file")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    kind = found.get("model_type") if isinstance(found, dict) else None
    if kind not in transformers.CONFIG_MAPPING:
        raise LayerscopeError(
            f"--from-config: {str(file)!r} is not a config of a transformers model: it needs a model_type"
        )
    with clear_errors(str(file)):
        return transformers.AutoConfig.for_model(**found)


def _transformer_in(folder: Path) -> Path:
    """Return the folder of the transformer in that of a SentenceTransformer, else the folder itself."""
    listed = folder / "modules.json"
    if not listed.is_file():
        return folder
    first = json.loads(listed.read_text(encoding="utf-8"))[0]
    return folder / str(first.get("path", ""))


def choose_task(asked: str, data: Source, config: Any) -> str:
    """Return the task that data and model make, where none is asked for."""
    if asked != "auto":
        return asked
    if isinstance(data, TaggedCorpus):
        return "token-classification"
    for task, modality in READS.items():
        if data.modality == modality:
            return task
    if data.labels is not None:
        return "classification"
    if not data.running:
        raise LayerscopeError(
            f"{data.name} has no labels to classify: name their column with --label-column, or learn the text itself "
            "with --task causal-lm or masked-lm"
        )
    return "masked-lm" if _sees_both_sides(config) else "causal-lm"


def start(
    origin: Origin, task: str, classes: Sequence[str] | None, settings: Settings, processor: Any
) -> tuple[Start, tuple[str, ...] | None]:
    """Return the model of a task, and the names of its classes in its order.

    Raises:
        LayerscopeError: where transformers has no such model, and where labels are not the classes of a trained head.

    """
    notes: list[str] = []
    if origin.module is not None:
        module = origin.module
        order = _own_classes(module.config, classes, origin.name) if classes is not None else None
    else:
        module, order = _made(origin, task, classes, settings, notes)
    if processor is None or isinstance(processor, (str, Path)):
        processor = find_processor(str(processor or origin.source), module)
    notes += pad(module, processor)
    _run_every_layer(module, notes)
    if task == "masked-lm" and getattr(processor, "mask_token_id", None) is None:
        raise LayerscopeError(
            f"the tokenizer of {origin.name} has no mask token, which masked-lm needs: name another with --processor"
        )
    return Start(module, processor, tuple(notes)), order


def _made(
    origin: Origin, task: str, classes: Sequence[str] | None, settings: Settings, notes: list[str]
) -> tuple[Any, tuple[str, ...] | None]:
    config, mean = origin.config, _takes_mean(origin, task, settings.head)
    auto = _auto(config, "token-classification" if mean else task, origin.name)
    trained = not origin.from_config and _has_head(config, auto) and settings.head != "new"
    trained = trained and mean == is_mean_head(config)
    order = None
    if classes is not None:
        order = _own_classes(config, classes, origin.name) if trained else tuple(classes)
        config.num_labels = len(order)
        config.id2label = dict(enumerate(order))
        config.label2id = {name: number for number, name in enumerate(order)}
        config.problem_type = None if mean or task == "token-classification" else "single_label_classification"
    if task == "classification" and mean is False and settings.head in ("auto", "mean") and not trained:
        _native_mean(config, notes)
    torch.manual_seed(settings.seed)
    with without_bars(), clear_errors(origin.source):
        module, fresh = _weights(origin, auto, config)
    if mean:
        mean_headed(module)
        notes.append("head: linear, over the mean of the tokens")
    if not trained and not origin.from_config and classes is not None:
        fresh = _renewed(module, fresh)
    if origin.from_config:
        notes.append(f"every weight is random, seed {settings.seed}")
    elif fresh:
        notes.append(f"freshly initialised, seed {settings.seed}: {', '.join(fresh)}")
    module.config._name_or_path = origin.name  # which histories are called by
    return as_configured(module), order


def _weights(origin: Origin, auto: Any, config: Any) -> tuple[Any, list[str]]:
    if origin.from_config:
        return auto.from_config(config), []
    module, info = auto.from_pretrained(
        origin.source, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True,
        ignore_mismatched_sizes=True,
    )  # fmt: skip
    other = [str(key[0] if isinstance(key, tuple) else key) for key in info["mismatched_keys"]]
    return module, sorted({*map(str, info["missing_keys"]), *other})


def _renewed(module: Any, fresh: list[str]) -> list[str]:
    """Give a head new weights where an old one of the same shape was loaded, and return every fresh name."""
    base = module.base_model_prefix + "."
    old = [name for name, _ in module.named_parameters() if not name.startswith(base) and name not in fresh]
    for owner in dict.fromkeys(name.rpartition(".")[0] for name in old):
        part = module.get_submodule(owner)
        for tensor in part.parameters(recurse=False):
            tensor._is_hf_initialized = False
        part._is_hf_initialized = False
        module._init_weights(part)
    return sorted({*fresh, *old})


def _auto(config: Any, task: str, name: str) -> Any:
    import transformers

    auto = getattr(transformers, AUTO[task])
    if type(config) not in auto._model_mapping:
        raise LayerscopeError(
            f"{name} ({config.model_type}) has no head for {task} in transformers: choose another --task or model"
        )
    if task == "causal-lm" and _sees_both_sides(config) and not getattr(config, "is_decoder", False):
        raise LayerscopeError(f"{name} ({config.model_type}) sees both sides of a token: take --task masked-lm")
    return auto


def _sees_both_sides(config: Any) -> bool:
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    return type(config) in MODEL_FOR_MASKED_LM_MAPPING


def _takes_mean(origin: Origin, task: str, head: str) -> bool:
    """Whether the head reads the mean of the tokens, made of a token classifier.

    A text encoder's own head reads one token, often through a pooler, and only the last layer learns to gather a
    sample there: shallow layers stay at chance. So a fresh head of an encoder reads the mean.
    """
    from transformers import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING as TOKENS

    config = origin.config
    possible = task == "classification" and type(config) in TOKENS and not hasattr(config, "classifier_pooling")
    if head == "mean":
        if task != "classification" or not (possible or hasattr(config, "classifier_pooling")):
            raise LayerscopeError(
                f"head 'mean' is for classification of texts, and {origin.name} ({config.model_type}) with --task "
                f"{task} has none: take --head own"
            )
        return possible
    if head != "auto" or not possible or not _sees_both_sides(config):
        return False
    return is_mean_head(config) or origin.from_config or not _architecture(config).endswith("SequenceClassification")


def _native_mean(config: Any, notes: list[str]) -> None:
    if getattr(config, "classifier_pooling", None) is not None:
        config.classifier_pooling = "mean"
        notes.append("head: the model's own, over the mean of the tokens (classifier_pooling)")


def _architecture(config: Any) -> str:
    return str((getattr(config, "architectures", None) or [""])[0])


def _has_head(config: Any, auto: Any) -> bool:
    found = auto._model_mapping[type(config)]
    kinds = found if isinstance(found, (list, tuple)) else (found,)
    return _architecture(config) in {kind.__name__ for kind in kinds}


def _own_classes(config: Any, classes: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the classes of a trained head in its order; labels must be among them, or be their numbers."""
    own = tuple(str(config.id2label[number]) for number in sorted(config.id2label))
    unnamed = all(label == f"LABEL_{number}" for number, label in enumerate(own))
    numbers = tuple(str(number) for number in range(len(own)))
    if unnamed and any(label in numbers for label in classes):
        unknown = [label for label in classes if label not in numbers]
        if not unknown:
            return numbers
    else:
        unknown = [label for label in classes if label not in own]
    if unknown:
        raise LayerscopeError(
            f"label {unknown[0]!r} is not one of the {len(own)} classes of {name} ({', '.join(own[:5])}"
            f"{', …' if len(own) > 5 else ''}): rename it, or train a fresh head with --head new"
        )
    return own


def _run_every_layer(module: Any, notes: list[str]) -> None:
    """Turn off what skips whole layers at random in training: each of them is an exit."""
    dropped = False
    for owner in (module.config, *module.modules()):
        for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
            if isinstance(getattr(owner, name, None), float) and getattr(owner, name) > 0:
                setattr(owner, name, 0.0)
                dropped = True
    if dropped:
        notes.append("layerdrop is off: every layer is an exit")
