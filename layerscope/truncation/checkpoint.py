"""A truncated model as a folder of transformers or sentence-transformers: written, loaded again by these, compared."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core import LayerscopeError, first_line, require
from layerscope.models import evaluating, logits_of, pool
from layerscope.models.forward import forward, tensors_in
from layerscope.models.mean_head import as_configured, standard_class
from layerscope.truncation.expected import (
    Expected,
    agrees,
    base_of,
    close_in,
    difference,
    gaps_in,
    last_states,
)
from layerscope.truncation.mixing import MixedLayers, layer_pooling, vectors_of
from layerscope.truncation.source import Source

HEAD = 1e-4
"""Tolerance of logits in float32."""
HEAD_STEPS = 8
"""Tolerance of logits in half precision, in steps of that precision."""
MODES = {"mean": "mean", "cls": "cls", "first": "cls", "last": "lasttoken"}
"""The poolings that a SentenceTransformer has, and its names for them."""


def write_checkpoint(
    source: Source, built: Any, expected: Expected, folder: Path
) -> float:
    """Write the model that was built, with its processor; return how far its states are from the full model's."""
    import transformers

    # weights that were mapped from files go to files without a copy in memory
    built.save_pretrained(folder)
    save_processors(source, folder)
    # a cache may need a block that was dropped
    may_lack_cache = source.model.is_language_model and gaps_in(expected.kept)
    try:
        module, report = getattr(transformers, auto_class(built)).from_pretrained(
            folder, dtype=source.dtype, local_files_only=True, output_loading_info=True
        )
        if may_lack_cache:
            ids = expected.inputs[0].named["input_ids"].to(module.device)
            module.generate(ids, max_new_tokens=2, do_sample=False, pad_token_id=0)
    except Exception as error:
        raise LayerscopeError(
            f"the truncated {source.name} does not load and run ({type(error).__name__}: {first_line(error)}): nothing "
            "was written"
        ) from error
    module = as_configured(module)
    wrong = [
        *report["missing_keys"],
        *report["unexpected_keys"],
        *report["mismatched_keys"],
    ]
    if type(module) is not type(built) or wrong:
        what = (
            f"without {min(map(str, wrong))}"
            if wrong
            else f"as {type(module).__name__}"
        )
        raise LayerscopeError(
            f"the truncated {type(built).__name__} loads {what}: nothing was written"
        )
    return check_states(module.to(source.model.device).eval(), source, expected)


def save_processors(source: Source, folder: str | Path) -> None:
    """Write the tokenizer, image processor or feature extractor, and where there is one what joins them."""
    processor = source.model.loaded.processor
    module = source.module
    path = getattr(module.config, "_name_or_path", "")
    if path and getattr(module, "main_input_name", "") != "input_ids":
        from transformers import AutoProcessor

        # most models have none: what reads their inputs is saved below
        with suppress(Exception):
            AutoProcessor.from_pretrained(path).save_pretrained(folder)
    if hasattr(processor, "save_pretrained"):
        processor.save_pretrained(folder)


@torch.inference_mode()
def check_states(module: nn.Module, source: Source, expected: Expected) -> float:
    """Return the largest difference of a truncated model's states; raise where they are not the full model's layer.

    Its output must show them wherever the full model's shows its last states, and its head must
    read the same.
    """
    stack = source.model.stack.until(len(expected.kept))

    def compare(
        what: str, read: Tensor | None, reference: Tensor, *tolerance: Any
    ) -> float:
        error = difference(read, reference)
        if read is None or not agrees(read, reference, *tolerance):
            raise LayerscopeError(
                f"the {what} of the truncated {source.name} differs from {expected.name} (by {error:.1e}): it cannot "
                "be a standard checkpoint, and nothing was written"
            )
        return error

    largest = 0.0
    with evaluating(module):
        for inputs, states, logits in zip(
            expected.inputs, expected.states, expected.logits, strict=True
        ):
            if expected.shown:
                shown = list(tensors_in(forward(base_of(module, stack), inputs)))
                compare("output", _nearest(shown, states), states)
            error = compare("states", last_states(module, stack, inputs), states)
            if logits is not None:
                read = logits_of(forward(module, inputs))
                compare("head", read, logits, HEAD, HEAD_STEPS)
            largest = max(largest, error)
    return largest


def _nearest(outputs: Sequence[Tensor], states: Tensor) -> Tensor | None:
    """Return the output that agrees with some states; where none does the nearest, to say how far it is."""
    agreeing = [output for output in outputs if agrees(output, states)]
    return min(agreeing or outputs, key=partial(difference, two=states), default=None)


def auto_class(module: Any) -> str:
    """Return the name of transformers' own `AutoModel…` that loads a class, or the class itself where none does."""
    from transformers.models.auto import modeling_auto

    names = [name for name in dir(modeling_auto) if name.startswith("AutoModel")]
    # a class for pre-training may be that of another task too, which says more
    for name in sorted(names, key=lambda name: name.endswith("PreTraining")):
        mapping = getattr(modeling_auto, name)._model_mapping
        kinds = mapping.get(type(module.config), None)
        if not isinstance(kinds, tuple):
            kinds = (kinds,)
        if standard_class(type(module)) in kinds:
            return name
    return type(module).__name__


def write_sentence_transformer(
    source: Source, built: Any, expected: Expected, folder: Path
) -> float:
    """Write a folder that `SentenceTransformer(path)` loads, and return how far its embeddings are from the layer's."""
    require("sentence-transformers", "the format sentence-transformers")
    import sentence_transformers

    loaded = source.model.loaded
    load_again = partial(
        getattr(sentence_transformers, loaded.wrapper),
        str(folder),
        device=str(source.model.device),
        local_files_only=True,
        model_kwargs={"dtype": source.dtype},
    )
    if loaded.reranker is not None:
        with _exchanged(loaded.reranker[0], source.module, built):
            loaded.reranker.save_pretrained(str(folder), create_model_card=False)
        return check_states(load_again().model, source, expected)
    # what is written, and the vectors that it must give
    mixing = []
    if source.mix is not None:
        layer = len(expected.kept)
        mixing.append(layer_pooling(built, source.model.width, layer, source.mix))
    if loaded.served is None:
        reference = _save_plain(built, source, expected, folder, mixing)
    else:
        reference = _save_served(loaded.served, built, source, folder, mixing)
    # compared as a user will have it, from the files
    again = load_again()
    if source.mix is not None:  # by layers of the full model, as `evaluate` reads them
        full = MixedLayers(source.module, source.model.stack, source.mix)
        reference = vectors_of(full, expected.inputs, list(again)[2:])
    if source.dim is not None:
        reference = reference[:, : source.dim]
        if type(again[-1]).__name__ == "Normalize":
            reference = reference / reference.norm(dim=1, keepdim=True)
    vectors = _encoded(again, source)
    error = difference(vectors, reference)
    # vectors are in float32, whatever the model computes in
    if not agrees(vectors, reference, close_in(source.dtype)):
        raise LayerscopeError(
            f"the embeddings of the truncated {source.name} differ from {expected.name} (by {error:.1e}): nothing was "
            "written"
        )
    if loaded.served is None:
        return error
    kind = type(source.module)
    inner = next(child for child in again[0].children() if isinstance(child, kind))
    return max(error, check_states(inner, source, expected))


def _save_plain(
    built: Any,
    source: Source,
    expected: Expected,
    folder: Path,
    mixing: Sequence[nn.Module],
) -> Tensor:
    """Write a plain transformer with a pooling, and return the embeddings it is to give."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    mode = source.pooled_by
    reads_text = source.model.encoder.modality == "text"
    if not reads_text or expected.states[0].ndim != 3 or mode not in MODES:
        why = "gives no states of tokens to pool" if reads_text else "reads no texts"
        raise LayerscopeError(f"{source.name} {why}: `format='transformers'` writes it")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".plain-") as plain:
        getattr(built, "base_model", built).save_pretrained(plain)
        save_processors(source, plain)
        loading = {"local_files_only": True, "dtype": source.dtype}
        length = source.model.max_length
        transformer = Transformer(plain, max_seq_length=length, model_kwargs=loading)
        pooling = Pooling(source.model.width, pooling_mode=MODES[mode])
        modules = [transformer, *mixing, *shortened([pooling], source)]
        model = SentenceTransformer(modules=modules, device="cpu")
        model.save_pretrained(str(folder), create_model_card=False)
    vectors = torch.cat([pool(states, None, mode) for states in expected.states])
    return vectors.float().cpu()


def _save_served(
    served: Any, built: Any, source: Source, folder: Path, mixing: Sequence[nn.Module]
) -> Tensor:
    """Write a SentenceTransformer that holds the truncated model, pooled as named, and return its embeddings.

    Modules of the model that was loaded are exchanged in place while it is written, then put back.
    """
    first = served[0]
    pooling = source.pooling
    own_modules = dict(served._modules)
    is_dense = not source.model.is_sparse
    if is_dense and pooling in MODES and (pooling,) != source.model.loaded.pooling:
        for name, part in own_modules.items():
            kind = type(part)
            if kind.__name__ == "Pooling":
                width = part.embedding_dimension
                served._modules[name] = kind(width, pooling_mode=MODES[pooling])
    try:
        with _exchanged(first, source.module, built):
            reference = _encoded(served, source)
            if mixing or source.dim is not None:
                after = [*served._modules.values()][1:]
                modules = first, *mixing, *shortened(after, source)
                served._modules.clear()
                for number, module in enumerate(modules):
                    served._modules[str(number)] = module
            served.save_pretrained(str(folder), create_model_card=False)
        return reference
    finally:
        served._modules.clear()
        served._modules.update(own_modules)


@contextmanager
def _exchanged(owner: nn.Module, part: nn.Module, other: nn.Module) -> Iterator[None]:
    """Within, a module holds another part in the place of one."""
    name = next(name for name, child in owner._modules.items() if child is part)
    owner._modules[name] = other
    try:
        yield
    finally:
        owner._modules[name] = part


def vector_width(source: Source) -> int:
    """Return the number of dimensions of a SentenceTransformer's vectors; of a plain model those that are pooled."""
    width = source.model.width
    for module in source.model.loaded.served or ():
        width = getattr(module, "out_features", width)
    return width


def shortened(modules: Sequence[nn.Module], source: Source) -> list[nn.Module]:
    """Return the modules after a transformer with one that keeps the first dimensions, before a final Normalize."""
    if source.dim is None:
        return [*modules]
    from sentence_transformers.models import Dense

    width = vector_width(source)
    rows = torch.eye(source.dim, width, dtype=source.dtype, device=source.model.device)
    kept = Dense(
        width,
        source.dim,
        bias=False,
        activation_function=nn.Identity(),
        init_weight=rows,
    )
    at = len(modules)
    if type(modules[-1]).__name__ == "Normalize":
        at -= 1
    return [*modules[:at], kept, *modules[at:]]


def _encoded(served: Any, source: Source) -> Tensor:
    """Return the embeddings of the samples, each alone: in half precision batch-mates show."""
    conversion: dict[str, Any] = {"convert_to_tensor": True}
    if source.model.is_sparse:
        conversion["convert_to_sparse_tensor"] = False
    vectors: Tensor = served.encode(
        list(source.samples), batch_size=1, show_progress_bar=False, **conversion
    )
    return vectors.float().cpu()
