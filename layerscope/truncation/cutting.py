"""The work of `truncate`: one or several depths of a model, each written aside, checked, measured, and then named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.folders import folder_aside, own_folder
from layerscope.core.progress import Console, Silent, Teller
from layerscope.models import LoadOptions, Override
from layerscope.models.load import without_bars
from layerscope.truncation.agreement import Expected, expected_at
from layerscope.truncation.card import write_card
from layerscope.truncation.checkpoint import write_checkpoint
from layerscope.truncation.depth import Depth, find_depth
from layerscope.truncation.figures import Made, Truncated, measure
from layerscope.truncation.given import Order, ordered
from layerscope.truncation.onnx_file import write_onnx
from layerscope.truncation.origin import copy_terms
from layerscope.truncation.sentence import MODES, write_sentence_transformer
from layerscope.truncation.source import Source, open_source


def truncate_layers(
    given: Any,
    layers: Sequence[int],
    out: str | Path,
    format: str = "auto",  # noqa: A002
    *,
    pooling: str | None = None,
    override: Override | None = None,
    site: str = "normed",
    processor: Any = None,
    options: LoadOptions | None = None,
    progress: bool = True,
    folders: bool = True,
) -> list[Truncated]:
    """Write a model at several depths into `out/layer-K`, all or none, and return what each costs and scores.

    As `truncate`, which says what the arguments are; with `folders` false the one layer is written to `out` itself.

    >>> from layerscope.truncation import truncate_layers
    >>> made = truncate_layers("tiny-bert", [1, 2], "shallow", progress=False)
    >>> [entry.layer for entry in made]
    [1, 2]
    """
    order = ordered(Order(given, layers, format, site, pooling))
    place, site = own_folder(out), order.site
    teller: Teller = Console() if progress else Silent()
    source = open_source(order.model, processor, override or Override(), options or LoadOptions())
    source = replace(source, pooling=order.pooling, scored=order.scored)
    kept = checked_layers(order.layers, source.model.stack.depth)
    chosen = _format(order, source)
    for note in (*source.model.notes, *_nothing_cut(kept, source)):
        teller.say(note)
    with without_bars(), folder_aside(place) as aside, teller.bar("layers", len(kept), "layers") as advance:
        made: list[Made] = []
        for layer in kept:
            folder = aside / f"layer-{layer}" if folders else aside
            made.append(_write(source, layer, chosen, site, folder))
            advance(1)
        told = measure(source, made, chosen, site)
        for entry in told:
            write_card(source, entry, Path(entry.path))
            copy_terms(source.beside, Path(entry.path))
    return [entry.at(place / Path(entry.path).relative_to(aside)) for entry in told]


def _write(source: Source, layer: int, format: str, site: str, folder: Path) -> Made:  # noqa: A002
    folder.mkdir(exist_ok=True)
    heads = source.heads
    with heads.reading(source.module, layer) if heads is not None else nullcontext():
        expected: Expected = expected_at(source.model, layer, source.samples)
        depth = find_depth(source.module, source.model.stack, expected)
        if format == "onnx":
            return Made(layer, depth, folder, write_onnx(source, depth, layer, site, folder))
        writers: dict[str, Callable[[Source, Depth, Expected, Path], float]] = {
            "transformers": write_checkpoint,
            "sentence-transformers": write_sentence_transformer,
        }
        made = Made(layer, depth, folder, writers[format](source, depth, expected, folder))
    if heads is not None and format == "transformers":
        heads.below(layer).save(folder)
    return made


def _nothing_cut(layers: Sequence[int], source: Source) -> list[str]:
    depth = source.model.stack.depth
    return [f"layer {depth} is the last of {source.name}: all its blocks are kept"] if depth in layers else []


def _format(order: Order, source: Source) -> str:
    chosen, site = _own_format(source) if order.format == "auto" else order.format, order.site
    if site == "raw" and chosen != "onnx" and source.model.stack.norm is not None:
        raise LayerscopeError(
            f"--site raw is not what a standard checkpoint of {source.name} can yield: its final norm "
            f"({source.model.stack.norm}) follows the last block at any depth; take --site normed, or --format onnx"
        )
    return chosen


def _own_format(source: Source) -> str:
    """Return what the model itself comes in; where pooled states of texts were scored, what yields them."""
    lens = source.model.lens
    scored = source.scored in MODES and source.unit == "text" and not (lens is not None and lens.kind == "pooled")
    return "transformers" if source.model.loaded.served is None and not scored else "sentence-transformers"


def checked_layers(layers: Sequence[Any], depth: int) -> list[int]:
    """Return layers in order, each once; raises `LayerscopeError` for what is none of 1 … L."""
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, int):
            raise LayerscopeError(f"layer {layer!r} is not a whole number: give 1..{depth}")
        if not 0 <= layer <= depth:
            raise LayerscopeError(f"layer {layer} does not exist: this model has layers 0..{depth}")
        if layer == 0:
            raise LayerscopeError(
                f"layer 0 is what the first block reads: no block would be left of the model, give 1..{depth}"
            )
    if not layers:
        raise LayerscopeError(f"no layer is named: give one or several of 1..{depth}")
    return sorted(set(layers))
