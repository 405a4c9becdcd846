"""The work of `truncate`: a model is cut, written aside, checked, measured, and then named.

`write_cut` makes a checkpoint of a model and some of its blocks; the rest decides which blocks, and
what is said of them.
"""

import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerscope.core import LayerscopeError, Reporter, own_folder, reporting
from layerscope.core.folders import folder_aside
from layerscope.core.option_kinds import Weights
from layerscope.healing.healing import Plan
from layerscope.healing.lessons import lessons_of
from layerscope.models import without_bars
from layerscope.truncation.card import describe
from layerscope.truncation.checkpoint import (
    write_checkpoint,
    write_sentence_transformer,
)
from layerscope.truncation.costs import Made, Truncated, measure
from layerscope.truncation.depth import find_depth
from layerscope.truncation.expected import expected_at, kept_without
from layerscope.truncation.format import checked_dim, chosen_format
from layerscope.truncation.healed import Healing, heal_cut, open_cut
from layerscope.truncation.mixing import mix_of
from layerscope.truncation.onnx_file import write_onnx
from layerscope.truncation.options import TruncateOptions
from layerscope.truncation.source import Source, copy_terms, open_source


def cut(options: TruncateOptions) -> Truncated:
    """Write a model without some of its blocks; return what it costs."""
    _refuse_contradictions(options)
    options, scored_pooling = resolve_selection(options)
    folder = own_folder(options.out or "")
    reporter = reporting(options.progress)
    source, kept, format = _plan(options, scored_pooling)
    depth = source.model.depth
    for note in source.model.notes:
        reporter.say(note)
    if len(kept) == depth:
        reporter.say(
            f"layer {depth} is the last of {source.name}: all its blocks are kept"
        )
    healing = _healing(options, source, format, folder)
    # the folder gets its name only when what is in it is whole
    with without_bars(), folder_aside(folder) as aside:
        if healing is None:
            made = write_cut(source, kept, aside, format)
            change = ""
        else:
            made, change = write_healed(source, kept, aside, format, healing, reporter)
        truncated = measure(source, made, format, change)
        describe(source, truncated, aside)
        copy_terms(source.beside, aside)
    if healing is not None:
        shutil.rmtree(healing.workdir, ignore_errors=True)
    return replace(truncated, path=str(folder))


def _plan(
    options: TruncateOptions, scored_pooling: str | None
) -> tuple[Source, tuple[int, ...], str]:
    """Open the model; return it with the blocks to keep, counted from 0, and the format to write."""
    source = open_source(
        options.given, options.processor, options.override, options.load
    )
    _refuse_for_head(options, source)
    depth = source.model.depth
    last = depth
    mix = None
    if options.mix is not None:
        mix = mix_of(options.mix, depth)
        last = max(mix)
    elif options.layer is not None:
        (last,) = checked_layers([options.layer], depth)
    source = replace(source, pooling=options.pooling or scored_pooling, mix=mix)
    kept = kept_blocks(last, options.drop or (), depth)
    format = chosen_format(options.format, source, scored_pooling)
    dim = checked_dim(options.dim, source, format)
    return replace(source, dim=dim), kept, format


def _refuse_for_head(options: TruncateOptions, source: Source) -> None:
    """Raise for what is made of dense vectors, where a head makes scores or sparse vectors of the last layer."""
    if source.model.loaded.reranker is not None or source.model.is_sparse:
        why = f"is for dense vectors, which {source.name} does not give"
        options.refuse(("mix", "dim", "pooling"), why)
    if source.model.is_sparse and options.format == "onnx":
        raise LayerscopeError(
            f"{source.name} gives sparse vectors, which `format='onnx'` does not hold: leave it out"
        )


def write_cut(
    source: Source,
    kept: Sequence[int],
    folder: Path,
    format: str = "transformers",
) -> Made:
    """Write a checkpoint of some blocks of a model, counted from 0, and check that it gives what they give in it.

    Raises `LayerscopeError` where no checkpoint of this format can hold them, or gives anything
    else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    heads = source.heads
    layer = kept[-1] + 1
    # a layer with a head of its own is read by that, not by the full model's
    with heads.reading(source.module, layer):
        expected = expected_at(source.model, kept, source.samples)
        depth = find_depth(source.model, expected)
        built = depth.build(source.module, kept)
        if format == "onnx":
            difference = write_onnx(source, built, kept, folder)
        elif format == "transformers":
            difference = write_checkpoint(source, built, expected, folder)
        else:
            difference = write_sentence_transformer(source, built, expected, folder)
    if format == "transformers" and len(kept) == layer:
        heads.below(layer).save(folder)
    return Made(tuple(kept), depth, folder, difference)


def write_healed(
    source: Source,
    kept: Sequence[int],
    folder: Path,
    format: str,
    healing: Healing,
    reporter: Reporter,
) -> tuple[Made, str]:
    """Write a checkpoint of some blocks of a model that is healed first; return what healing changed, too."""
    # opened from files: a cut model in memory would share its weights with the full one, the teacher
    cut_folder = healing.workdir / "cut"
    shutil.rmtree(cut_folder, ignore_errors=True)
    made = write_cut(source, kept, cut_folder, format)
    cut = open_cut(cut_folder, source)
    change = heal_cut(cut, source, healing, reporter)
    again = write_cut(cut, range(cut.model.depth), folder, format)
    return replace(made, folder=folder, difference=again.difference), change


def _healing(
    options: TruncateOptions, source: Source, format: str, folder: Path
) -> Healing | None:
    """Return how the model is healed, None where it is not; raise for what cannot be healed."""
    if options.heal is None:
        return None
    options.refuse(("mix", "dim"), "cannot be healed")
    if format == "onnx":
        raise LayerscopeError(
            "a model is healed in transformers or sentence-transformers: leave `format` out"
        )
    lessons = lessons_of(options.heal, source.model, seed=0)
    workdir = folder.with_name(f"{folder.name}.healing")
    return Healing(lessons, Plan(options.minutes), workdir)


def _refuse_contradictions(options: TruncateOptions) -> None:
    """Raise for options that exclude each other, and where no layer or no folder is named."""
    if options.out is None:
        raise LayerscopeError("truncate needs `out`: a new folder for the model")
    named = options.changed & {"layer", "drop", "mix", "dim"}
    if not named and not _is_selection(options.given):
        raise LayerscopeError(
            "truncate needs a layer: give `layer`, or blocks to leave out with `drop`, such as 4-7,9"
        )
    if options.mix is not None and named & {"layer", "drop"}:
        raise LayerscopeError(
            "a mix names its own layers, and ends at the deepest: leave `layer` and `drop` out"
        )
    if options.pooling is not None and options.format != "sentence-transformers":
        raise LayerscopeError(
            f"pooling {options.pooling} needs `format='sentence-transformers'`: the other formats yield the states of "
            "all tokens, or a head's predictions"
        )


def resolve_selection(options: TruncateOptions) -> tuple[TruncateOptions, str | None]:
    """Return the options with a model or a run as `given`, and the pooling of the selection that named it.

    The layer or mix is that of the selection where none is named.
    """
    selection = options.given
    if not _is_selection(selection):
        return options, None
    if options.layer is None:
        if selection.as_shipped:
            raise LayerscopeError(
                "nothing to truncate: the selection keeps the model as shipped; give a layer to cut it"
            )
        if selection.raw_only:
            raise LayerscopeError(
                "the selection is of states before the final norm, which no model gives: select with `site='normed'`"
            )
    if not selection.source:
        raise LayerscopeError(
            f"the selection does not say where {selection.model} is: give the model and a layer"
        )
    layer = options.layer
    mix = options.mix
    if layer is None and selection.weights:
        mix = mix or Weights().take("mix", selection.weights)
    elif layer is None:
        layer = selection.layer
    override = replace(options.override, part=options.override.part or selection.part)
    options = replace(
        options, given=selection.source, override=override, layer=layer, mix=mix
    )
    return options, selection.pooling


def _is_selection(given: Any) -> bool:
    """Return whether what is to be truncated is a `Selection`, whose room lies above this one."""
    return hasattr(given, "as_shipped")


def checked_layers(layers: Iterable[int], depth: int) -> list[int]:
    """Return layers in order, each once; raises `LayerscopeError` for what is none of 1 … L."""
    ordered = sorted(set(layers))
    for layer in ordered:
        if not 0 <= layer <= depth:
            raise LayerscopeError(
                f"layer {layer} does not exist: this model has layers 0..{depth}"
            )
    if ordered[0] == 0:
        raise LayerscopeError(
            f"layer 0 is what the first block reads: no block would be left of the model, give 1..{depth}"
        )
    return ordered


def kept_blocks(layer: int, drop: Collection[int], depth: int) -> tuple[int, ...]:
    """Return the blocks, counted from 0, of a model that ends at a layer and drops some, which are counted from 1."""
    for block in drop:
        if block > depth:
            raise LayerscopeError(
                f"block {block} does not exist: this model has blocks 1..{depth}"
            )
        if block > layer:
            raise LayerscopeError(
                f"block {block} is not among the first {layer}: leave it out of `drop`"
            )
    kept = kept_without(drop, layer)
    if not kept:
        raise LayerscopeError(
            f"no block would be left of the {layer}: drop fewer of them"
        )
    return kept
