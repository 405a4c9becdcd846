"""Load a model, and what turns samples into its inputs, from a name, a folder or an object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from logging import ERROR, LogRecord
from pathlib import Path
from typing import Any

from torch import nn

from layerscope.core.errors import LayerscopeError
from layerscope.models.checks import check_folder, check_name, clear_errors
from layerscope.models.encode import modality_of
from layerscope.models.hub import EMBEDDED, embedded, go_offline_without_hub
from layerscope.models.loaded import Loaded, LoadOptions, eager
from layerscope.models.mean_head import as_told
from layerscope.models.processor import load_processor


def load(model: Any, options: LoadOptions, processor: Any = None) -> Loaded:
    """Load a hub name, a local folder or a PEFT adapter folder, or take a model as it is; so with its processor."""
    options.place()
    options.torch_dtype()
    if isinstance(processor, (str, Path)):
        loaded = _loaded(eager(model), options, processor)
        loaded.processor = load_processor(str(processor), loaded.module, {})
        return loaded
    return _loaded(eager(model), options, processor)


def _loaded(model: Any, options: LoadOptions, processor: Any) -> Loaded:
    if isinstance(model, (str, Path)):
        with without_bars():
            return _from_source(str(model), options, processor)
    if hasattr(model, "_first_module") and hasattr(model, "encode"):
        return _from_sentence_transformer(model, type(model).__name__)
    if not isinstance(model, nn.Module):
        raise LayerscopeError(f"a model is a name, a folder or a torch.nn.Module, not a {type(model).__name__}")
    if hasattr(model, "peft_config"):
        return _from_peft(model, processor)
    name = getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__
    return Loaded(model, processor, Path(name).name)


def _from_source(source: str, options: LoadOptions, processor: Any) -> Loaded:
    if source == EMBEDDED:
        return replace(_load_sentence_transformer(embedded(source), options), name="all-MiniLM-L6-v2")
    check_name(source)
    folder = Path(source).expanduser()
    looks_local = folder.exists() or source.startswith((".", "/", "~"))
    if looks_local:
        check_folder(folder, options.allow_pickle)
        if options.revision is not None:
            raise LayerscopeError(
                f"--revision {options.revision!r} is of hub models, and {str(folder)!r} is a folder: leave it out"
            )
        source = str(folder)
    else:
        go_offline_without_hub()
    if looks_local and (folder / "adapter_config.json").is_file():
        return _load_adapter(folder, options, processor)
    if _file(source, "modules.json", options) is not None:
        return _load_sentence_transformer(source, options)
    return _load_transformers(source, options, processor)


@contextmanager
def without_bars() -> Iterator[None]:
    """Keep transformers' own progress bars and tables of weights off the screen: what matters of them is a note."""
    from transformers.utils import logging

    shown, reports = logging.is_progress_bar_enabled(), logging.get_logger("transformers.modeling_utils")
    logging.disable_progress_bar()

    def errors(record: LogRecord) -> bool:
        return record.levelno >= ERROR

    reports.addFilter(errors)  # with a level of its own, loading would check plans for many devices and warn of those
    try:
        yield
    finally:
        reports.removeFilter(errors)
        if shown:
            logging.enable_progress_bar()


def _file(source: str, name: str, options: LoadOptions) -> Path | None:
    """Return a file of a model on this machine, None where it has none."""
    from transformers.utils import cached_file

    try:
        found = cached_file(
            source,
            name,
            revision=options.revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    except (OSError, ValueError):
        return None
    return None if found is None else Path(found)


def _device_map(options: LoadOptions) -> dict[str, Any]:
    return {"device_map": "auto"} if options.device == "map" else {}


def _load_transformers(source: str, options: LoadOptions, processor: Any) -> Loaded:
    import transformers

    trust = {"trust_remote_code": options.trust_remote_code, "revision": options.revision}
    with clear_errors(source):
        config = transformers.AutoConfig.from_pretrained(source, **trust)
        module, info = _class_of(config, options).from_pretrained(
            source,
            config=config,
            dtype=options.torch_dtype(),
            use_safetensors=None if options.allow_pickle else True,
            output_loading_info=True,
            **_device_map(options),
            **({"revision": options.revision} if not options.trust_remote_code else trust),
        )
    loaded = Loaded(as_told(module), processor, Path(source).name, _commit(source, options) or options.revision)
    if options.device != "map":
        module.to(options.place())
    missing = sorted(info["missing_keys"])
    if missing:
        base = getattr(module, "base_model_prefix", "")
        if any(key.startswith(base + ".") for key in missing if base):
            raise LayerscopeError(f"{source!r} lacks weights the model needs ({missing[0]}, {len(missing)} in all)")
        loaded.notes.append(f"the checkpoint has no weights for its head ({missing[0]}): the head is left out")
        loaded.module = getattr(module, base, module)
    if processor is None:
        loaded.processor, loaded.lack = _processor(source, module, trust)
    return loaded


def _processor(source: str, module: nn.Module, trust: dict[str, Any]) -> tuple[Any, str]:
    """Return the processor, or for a text model, which reads token ids without, the line on its absence."""
    try:
        return load_processor(source, module, trust), ""
    except LayerscopeError as error:
        damaged = any(path for kind in ("tokenizer*", "vocab*", "*.model") for path in Path(source).glob(kind))
        if modality_of(module) != "text" or damaged:
            raise
        return None, f"{error}, or give token ids as data"


def _class_of(config: Any, options: LoadOptions) -> Any:
    """The class the checkpoint was saved with, head included; else the bare model."""
    import transformers

    for name in getattr(config, "architectures", None) or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    remote = getattr(config, "auto_map", None) or {}
    heads = ("AutoModelForCausalLM", "AutoModelForSequenceClassification", "AutoModelForMaskedLM")
    if options.trust_remote_code:
        return getattr(transformers, next((n for n in heads if n in remote), "AutoModel"))
    return transformers.AutoModel


def _load_sentence_transformer(source: str, options: LoadOptions) -> Loaded:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise LayerscopeError(
            f'{source!r} is a sentence-transformers model: pip install "layerscope[sentence-transformers]"'
        ) from None
    dtype = options.torch_dtype()
    with clear_errors(source):
        model = SentenceTransformer(
            source,
            device=str(options.place()),
            revision=options.revision,
            trust_remote_code=options.trust_remote_code,
            local_files_only=Path(source).exists(),
            model_kwargs={"dtype": dtype, "use_safetensors": None if options.allow_pickle else True},
        )
    return replace(_from_sentence_transformer(model, Path(source).name), revision=_commit(source, options))


def _from_sentence_transformer(model: Any, name: str) -> Loaded:
    transformer = model[0]
    module = getattr(transformer, "auto_model", None) or getattr(transformer, "model", None)
    module = eager(module)
    if module is None:
        raise LayerscopeError(
            f"{name!r} holds no transformer ({type(transformer).__name__}): it has no layers to look at"
        )
    prompt = (model.prompts or {}).get(model.default_prompt_name) or "" if model.default_prompt_name else ""
    loaded = Loaded(
        module,
        model.tokenizer,
        name,
        pooling=_own_pooling(model),
        max_length=model.max_seq_length,
        prompt=prompt,
        served=model,
    )
    card = getattr(module.config, "_name_or_path", "")
    if name == type(model).__name__ and card:
        loaded.name = Path(card).name
    if loaded.pooling is None:
        loaded.notes.append("the model's own pooling is not one of mean, cls, last: mean is used")
    return loaded


def _own_pooling(model: Any) -> tuple[str, ...] | None:
    """The pooling of a SentenceTransformer, where it is one of ours."""
    for child in model:
        if type(child).__name__ == "Pooling":
            mode = child.pooling_mode if isinstance(getattr(child, "pooling_mode", None), str) else None
            mode = mode or getattr(child, "get_pooling_mode_str", lambda: "")()
            return {"mean": ("mean",), "cls": ("cls",), "lasttoken": ("last",)}.get(mode)
    return None


def _load_adapter(folder: Path, options: LoadOptions, processor: Any) -> Loaded:
    try:
        from peft import PeftModel
    except ImportError:
        raise LayerscopeError(f'{str(folder)!r} is a PEFT adapter: pip install "layerscope[peft]"') from None
    base = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base:
        raise LayerscopeError(f"{str(folder)!r}: its adapter_config.json names no base model")
    loaded = _from_source(base, replace(options, revision=None), processor)
    with clear_errors(str(folder)):
        adapted = PeftModel.from_pretrained(loaded.module, str(folder))
    loaded.module = _adapted(adapted)
    loaded.notes.append(f"adapter {folder.name} on {base}")
    loaded.name = folder.name
    return loaded


def _from_peft(model: Any, processor: Any) -> Loaded:
    module = _adapted(model)
    return Loaded(module, processor, Path(getattr(module.config, "_name_or_path", "") or type(module).__name__).name)


def _adapted(model: Any) -> nn.Module:
    """The base model with the adapter's layers in place."""
    if any(getattr(config, "is_prompt_learning", False) for config in model.peft_config.values()):
        raise LayerscopeError(
            "a prompt-learning adapter adds virtual tokens, which no layer's states can be read without"
        )
    module: nn.Module = model.get_base_model()
    return module


def _commit(source: str, options: LoadOptions) -> str | None:
    """Return the commit of a hub model: the name of the folder that the hub's client keeps its files in."""
    config = _file(source, "config.json", options)
    return config.parent.name if config is not None and config.parent.parent.name == "snapshots" else None
