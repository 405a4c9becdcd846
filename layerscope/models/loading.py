"""Load a model, and what turns samples into its inputs, from a name, a folder or an object."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from logging import ERROR, LogRecord
from pathlib import Path
from typing import Any

from torch import nn

from layerscope.core import LayerscopeError, go_offline_without_hub
from layerscope.core.errors import needs
from layerscope.models.checks import (
    EMBEDDED,
    check_folder,
    check_name,
    clear_errors,
    embedded,
)
from layerscope.models.forward import setting
from layerscope.models.loaded import SERVED, Loaded, eager
from layerscope.models.mean_head import as_configured
from layerscope.models.modality import modality_of
from layerscope.models.options import LoadOptions
from layerscope.models.placing import placing, torch_device, torch_dtype
from layerscope.models.processors import load_processor
from layerscope.models.weights import is_parallel, is_quantised

POOLINGS = {"mean": ("mean",), "cls": ("cls",), "lasttoken": ("last",)}
"""What a SentenceTransformer calls the poolings that are ours too."""


def is_cross_encoder(model: Any) -> bool:
    """Return whether a model is a CrossEncoder of sentence-transformers: a classifier and its tokenizer."""
    return "CrossEncoder" in [kind.__name__ for kind in type(model).__mro__]


def load(model: Any, options: LoadOptions, processor: Any = None) -> Loaded:
    """Load a hub name, a local folder or a PEFT adapter folder, or take a loaded model; likewise for its processor."""
    torch_device(options)  # a wrong one is reported before the weights are read
    placing(options)
    model = eager(model)
    if isinstance(model, (str, Path)):
        with without_bars():
            loaded = _from_source(str(model), options, processor)
    elif hasattr(model, "_first_module") and hasattr(model, "encode"):
        loaded = _from_sentence_transformer(model, "")
    elif is_cross_encoder(model):
        loaded = _from_cross_encoder(model, "")
        loaded.processor = processor or loaded.processor
    elif isinstance(model, nn.Module):
        module = model
        if hasattr(model, "peft_config"):
            module = _adapted(model)
        loaded = Loaded(module, processor, _name_of(module, module))
    else:
        raise LayerscopeError(
            f"a model is a name, a folder or a torch.nn.Module, not of type {type(model).__name__}"
        )
    if isinstance(processor, (str, Path)):
        loaded.processor = load_processor(str(processor), loaded.module, {})
    _check(loaded, options.chat)
    return loaded


def _name_of(model: Any, module: nn.Module) -> str:
    """Return the name that the module of a model was loaded by, of one that has none the model's class."""
    path = Path(setting(module, "_name_or_path", ""))
    return path.name or type(model).__name__


def _check(loaded: Loaded, chat: bool) -> None:
    """Raise for what cannot be read, and note what is to be known of a model."""
    if is_parallel(loaded.module):
        raise LayerscopeError(
            f"each process holds a part of {loaded.name}: load it whole, or with a device map"
        )
    if is_quantised(loaded.module):
        loaded.notes.append(
            f"the weights of {loaded.name} are quantised: all results are those of the quantised model"
        )
    if chat:
        tokenizer = loaded.processor_for("text")
        if getattr(tokenizer, "chat_template", None) is None:
            raise LayerscopeError(
                f"{loaded.name} has no chat template: leave `chat` out, or give an instruction-tuned model"
            )
        loaded.chat = True
        loaded.notes.append("each text is wrapped in the tokenizer's chat template")


def _from_source(source: str, options: LoadOptions, processor: Any) -> Loaded:
    if source == EMBEDDED:
        served = sentence_transformer(embedded(source), options)
        return _from_sentence_transformer(served, "all-MiniLM-L6-v2")
    check_name(source)
    folder = Path(source).expanduser()
    if folder.exists() or source.startswith((".", "/", "~")):
        check_folder(folder, options.allow_pickle)
        if options.revision is not None:
            raise LayerscopeError(
                f"`revision={options.revision!r}` applies only to hub models, and {str(folder)!r} is a folder: leave "
                "it out"
            )
        source = str(folder)
        if (folder / "adapter_config.json").is_file():
            return _load_adapter(folder, options, processor)
    else:
        go_offline_without_hub()
    kind = _library_class(source, options)
    if kind:
        served = sentence_transformer(source, options, kind)
        take = _from_sentence_transformer
        if kind == "CrossEncoder":
            take = _from_cross_encoder
        loaded = take(served, Path(source).name)
    else:
        loaded = _load_transformers(source, options, processor)
    config = _file(source, "config.json", options)
    if config is not None and config.parent.parent.name == "snapshots":
        # the hub's client keeps the files of a commit in a folder of its name
        loaded.revision = config.parent.name
    return loaded


def _library_class(source: str, options: LoadOptions) -> str:
    """Return the class of sentence-transformers that saved a model, empty where none did."""
    if _file(source, "modules.json", options) is None:
        return ""
    kind = "SentenceTransformer"
    about = _file(source, "config_sentence_transformers.json", options)
    if about is not None:
        facts = json.loads(about.read_text(encoding="utf-8"))
        kind = facts.get("model_type", kind)
    if kind not in SERVED:
        raise LayerscopeError(
            f"{source!r} is a {kind}, and of sentence-transformers layerscope reads {', '.join(SERVED)}"
        )
    return str(kind)


@contextmanager
def without_bars() -> Iterator[None]:
    """Keep transformers' own progress bars and tables of weights off the screen: what matters of them is a note."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()

    def errors(record: LogRecord) -> bool:
        return record.levelno >= ERROR

    # with a level of its own, loading would check plans for many devices and warn of those
    reports = logging.get_logger("transformers.modeling_utils")
    # checkpoints that follow each other within a second
    trainer = logging.get_logger("transformers.trainer_utils")
    reports.addFilter(errors)
    trainer.addFilter(errors)
    try:
        yield
    finally:
        reports.removeFilter(errors)
        trainer.removeFilter(errors)
        if shown:
            logging.enable_progress_bar()


def _file(source: str, name: str, options: LoadOptions) -> Path | None:
    """Return a file of a model on this machine, None where it has none."""
    from transformers.utils import cached_file

    with suppress(OSError, ValueError):
        path = cached_file(
            source,
            name,
            revision=options.revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        return path and Path(path)
    return None


def _load_transformers(source: str, options: LoadOptions, processor: Any) -> Loaded:
    import transformers

    trust = {
        "trust_remote_code": options.trust_remote_code,
        "revision": options.revision,
    }
    with clear_errors(source):
        config = transformers.AutoConfig.from_pretrained(source, **trust)
        kind = _class_of(config, options)
        module, info = kind.from_pretrained(
            source,
            config=config,
            dtype=torch_dtype(options),
            use_safetensors=not options.allow_pickle or None,
            output_loading_info=True,
            **placing(options),
            **trust,
        )
    loaded = Loaded(
        as_configured(module), processor, Path(source).name, options.revision
    )
    if options.device != "map":
        module.to(torch_device(options))
    if info["missing_keys"]:
        _leave_head_out(loaded, source, sorted(info["missing_keys"]))
    if processor is None:
        try:
            loaded.processor = load_processor(source, module, trust)
        except LayerscopeError as error:  # a text model reads token ids without one
            if modality_of(module) != "text":
                raise
            loaded.lack = f"{error}, or give token ids as data"
    return loaded


def _leave_head_out(loaded: Loaded, source: str, missing: list[str]) -> None:
    """Take the model without its head, where nothing else lacks weights."""
    base = getattr(loaded.module, "base_model_prefix", "")
    for key in missing:
        if base and key.startswith(f"{base}."):
            raise LayerscopeError(
                f"{source!r} lacks weights the model needs ({key}, {len(missing)} in all)"
            )
    loaded.notes.append(
        f"the checkpoint has no weights for its head ({missing[0]}): the head is left out"
    )
    loaded.module = getattr(loaded.module, base, loaded.module)


def _class_of(config: Any, options: LoadOptions) -> Any:
    """The class the checkpoint was saved with, head included; else the bare model."""
    import transformers

    for name in getattr(config, "architectures", None) or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    if options.trust_remote_code:
        remote = getattr(config, "auto_map", None) or {}
        for task in ("CausalLM", "SequenceClassification", "MaskedLM"):
            name = f"AutoModelFor{task}"
            if name in remote:
                return getattr(transformers, name)
    return transformers.AutoModel


def sentence_transformer(
    source: str, options: LoadOptions, kind: str = SERVED[0]
) -> Any:
    """Return a SentenceTransformer, with mean pooling where what is there is a plain transformer, or another kind."""
    with needs("sentence-transformers", f"{source!r} is a sentence-transformers model"):
        import sentence_transformers
    weights = {
        "dtype": torch_dtype(options),
        "use_safetensors": not options.allow_pickle or None,
    }
    with clear_errors(source):
        return getattr(sentence_transformers, kind)(
            source,
            device=str(torch_device(options)),
            local_files_only=Path(source).exists(),
            model_kwargs=weights,
            trust_remote_code=options.trust_remote_code,
            revision=options.revision,
        )


def _from_sentence_transformer(model: Any, name: str) -> Loaded:
    transformer = model[0]
    module = eager(
        getattr(transformer, "auto_model", None) or getattr(transformer, "model", None)
    )
    name = name or _name_of(model, module)
    if module is None:
        raise LayerscopeError(
            f"{name!r} holds no transformer ({type(transformer).__name__}): it has no layers"
        )
    modes = [str(getattr(child, "pooling_mode", "")) for child in model]
    loaded = Loaded(
        module,
        model.tokenizer,
        name,
        pooling=POOLINGS.get("".join(modes)),
        max_length=model.max_seq_length,
        prompt=(model.prompts or {}).get(model.default_prompt_name) or "",
        served=model,
    )
    if loaded.wrapper == "SparseEncoder":
        loaded.notes.append(
            "its sparse vectors are made of its head's logits: the states of a layer are pooled by mean"
        )
    elif loaded.pooling is None:
        loaded.notes.append(
            "the model's own pooling is not one of mean, cls, last: mean is used"
        )
    return loaded


def _from_cross_encoder(model: Any, name: str) -> Loaded:
    """Return the classifier of a CrossEncoder, with the CrossEncoder where nothing else gives its scores."""
    module = eager(model.model)
    loaded = Loaded(module, model.tokenizer, name or _name_of(model, module))
    loaded.max_length = model.max_seq_length
    after = [type(child).__name__ for child in model][1:]
    if after:
        loaded.notes.append(
            f"its scores are made by {', '.join(after)}: the layers are read without"
        )
    else:
        loaded.reranker = model
    return loaded


def _load_adapter(folder: Path, options: LoadOptions, processor: Any) -> Loaded:
    with needs("peft", f"{str(folder)!r} is a PEFT adapter"):
        from peft import PeftModel
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    base = config.get("base_model_name_or_path")
    if not base:
        raise LayerscopeError(
            f"{str(folder)!r}: its adapter_config.json names no base model"
        )
    loaded = _from_source(base, replace(options, revision=None), processor)
    with clear_errors(str(folder)):
        adapted = PeftModel.from_pretrained(loaded.module, str(folder))
    loaded.module = _adapted(adapted)
    loaded.name = folder.name
    loaded.notes.append(f"adapter {folder.name} on {base}")
    return loaded


def _adapted(model: Any) -> nn.Module:
    """The base model with the adapter's layers in place."""
    for config in model.peft_config.values():
        if getattr(config, "is_prompt_learning", False):
            raise LayerscopeError(
                "a prompt-learning adapter adds virtual tokens, which cannot be separated from the layers' states"
            )
    module: nn.Module = model.get_base_model()
    return module
