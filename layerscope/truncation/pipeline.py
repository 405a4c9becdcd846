"""The work of `truncate`: one or several depths of a model, each written aside, checked, measured, and then named."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import folder_aside, own_folder
from layerscope.core.hub import on_this_machine
from layerscope.core.option_kinds import Weights
from layerscope.core.options import Asked, checked
from layerscope.core.progress import reporting
from layerscope.models import LoadOptions, Override, load
from layerscope.models.loading import without_bars
from layerscope.scores import Evaluation, open_evaluation
from layerscope.scores.evaluation import ORIGINS, STORE
from layerscope.truncation.card import describe
from layerscope.truncation.checkpoint import (
    MODES,
    vector_width,
    write_checkpoint,
    write_sentence_transformer,
)
from layerscope.truncation.costs import Made, Truncated, measure
from layerscope.truncation.depth import find_depth
from layerscope.truncation.expected import expected_at, kept_without
from layerscope.truncation.mixing import mix_of
from layerscope.truncation.onnx_file import write_onnx
from layerscope.truncation.source import Source, copy_terms, open_source, whereabouts
from layerscope.truncation.verb import truncate


def truncate_layers(
    given: Any, layers: Sequence[int], out: str | Path, **options: Any
) -> list[Truncated]:
    """Write a model at several depths into `out/layer-K`, all or none, and return what each costs and scores.

    The arguments are those of `truncate`.

    >>> from layerscope.truncation import truncate_layers
    >>> made = truncate_layers("tiny-bert", [1, 2], "shallow", progress=False)
    >>> [entry.layer for entry in made]
    [1, 2]
    """
    return cut(checked(truncate, {"given": given, "layers": layers, "out": out, **options}))


def cut(asked: Asked) -> list[Truncated]:
    """Write a model at the depths that `truncate` is asked for; return what each costs and scores."""
    _refuse_missing(asked)
    if asked.layer is not None and asked.layers is not None:
        raise LayerscopeError("layer and layers name the same: give one of them")
    if asked.mix is not None and (
        asked.layer is not None or asked.layers is not None or asked.drop
    ):
        raise LayerscopeError(
            "a mix names its own layers, and ends at the deepest: leave `layer`, `layers` and `drop` out"
        )
    if asked.pooling is not None and asked.format != "sentence-transformers":
        raise LayerscopeError(
            f"pooling {asked.pooling} needs `format='sentence-transformers'`: the other formats yield the states of "
            "all tokens, or a head's predictions"
        )
    folders = asked.layers is not None
    asked.layers = asked.layers if asked.layer is None else [asked.layer]
    asked, scored = resolved(asked)
    folder, site = own_folder(asked.out), asked.site
    reporter = reporting(asked.progress)
    source = open_source(asked.given, asked.processor, asked.of(Override), asked.of(LoadOptions))
    source = replace(source, pooling=asked.pooling, scored=scored)
    depth, drop = source.model.stack.depth, asked.drop or ()
    if asked.mix is not None:
        source = replace(source, mix=mix_of(asked.mix, depth))
        asked.layers = [max(source.mix or ())]
    layers = checked_layers(asked.layers or ([depth] if drop or asked.dim else ()), depth)
    cuts = [kept_blocks(layer, drop, depth) for layer in layers]
    format = _format(asked, source)
    source = replace(source, dim=checked_dim(asked.dim, source, format))
    whole = depth in layers and not drop
    last = (
        (f"layer {depth} is the last of {source.name}: all its blocks are kept",) if whole else ()
    )
    for note in (*source.model.notes, *last):
        reporter.say(note)
    with (
        without_bars(),
        folder_aside(folder) as aside,
        reporter.bar("layers", len(layers), "layers") as advance,
    ):
        made: list[Made] = []
        for layer, kept in zip(layers, cuts, strict=True):
            made.append(
                _write(source, kept, format, site, aside / f"layer-{layer}" if folders else aside)
            )
            advance(1)
        found = measure(source, made, format, site)
        for entry in found:
            describe(source, entry, Path(entry.path))
            copy_terms(source.beside, Path(entry.path))
    return [
        replace(entry, path=str(folder / Path(entry.path).relative_to(aside))) for entry in found
    ]


def _refuse_missing(asked: Asked) -> None:
    """Raise where no layer or no folder is named; of a model that does not exist, that first."""
    lacking = "`out`: a new folder for the model" if asked.out is None else ""
    named = any(
        getattr(asked, name) is not None for name in ("layer", "layers", "drop", "mix", "dim")
    )
    path = str(on_this_machine(asked.given)) if isinstance(asked.given, (str, Path)) else None
    if path is not None and not named:
        lacking = (
            "a layer: give `layer`, or several with `layers`, such as 3,6,9; or blocks to leave out with `drop`, such "
            "as 4-7,9"
        )
    if not lacking:
        return
    if path is not None and whereabouts(path, asked.revision)[1] is None:
        load(str(asked.given), asked.of(LoadOptions))  # says what is wrong with the name
    raise LayerscopeError(f"truncate needs {lacking}")


def resolved(asked: Asked) -> tuple[Asked, str | None]:
    """Return the options with a model or a run as `given`, and the pooling of the scores that named it."""
    given = asked.given
    if isinstance(given, (str, Path)):
        folder = on_this_machine(given)
        given = (
            open_evaluation(folder) if (folder / ORIGINS).is_file() or STORE.is_in(folder) else None
        )
    if isinstance(given, Evaluation):
        return _by_evaluation(given, asked)
    if not hasattr(given, "as_shipped"):  # which a selection has
        return asked, None
    if not asked.layers and given.as_shipped:
        raise LayerscopeError(
            "nothing to truncate: the selection keeps the model as shipped; give a layer to cut it"
        )
    if not given.source:
        raise LayerscopeError(
            f"the selection does not say where {given.model} is: give the model and a layer"
        )
    options = {
        "given": given.source,
        "layers": asked.layers or [given.layer],
        "part": asked.part or given.part,
    }
    if given.weights and not asked.layers:
        options |= {"mix": asked.mix or Weights().take("mix", given.weights), "layers": None}
    if given.raw_only and asked.format == "auto":
        options |= {"format": "onnx", "site": "raw"}
    return Asked(**vars(asked) | options), given.pooling


def _by_evaluation(evaluation: Evaluation, asked: Asked) -> tuple[Asked, str | None]:
    models = sorted(evaluation.origins)
    known = (
        f"names {len(models)} models ({', '.join(models)})"
        if models
        else "names no model that is on this machine"
    )
    origin = evaluation.origins[models[0]] if len(models) == 1 else None
    if origin is None or origin.source is None:
        fault = known if origin is None else "was made from a model in memory"
        raise LayerscopeError(f"evaluation {evaluation.source!r} {fault}: give the model itself")
    rows = evaluation.scores[evaluation.scores["kind"] == "layer"]
    poolings = rows["pooling"].dropna().unique()
    found = {"given": origin.source, "part": asked.part or origin.part}
    return Asked(**vars(asked) | found), str(poolings[0]) if len(poolings) == 1 else None


def _write(source: Source, kept: tuple[int, ...], format: str, site: str, folder: Path) -> Made:
    folder.mkdir(exist_ok=True)
    heads, layer = source.heads, kept[-1] + 1
    with heads.reading(source.module, layer) if heads is not None else nullcontext():
        expected = expected_at(source.model, kept, source.samples)
        depth = find_depth(source.model, expected)
        if format == "onnx":
            apart = write_onnx(source, depth, kept, site, folder)
        else:
            write = write_checkpoint if format == "transformers" else write_sentence_transformer
            apart = write(source, depth, expected, folder)
    if heads is not None and format == "transformers" and len(kept) == layer:
        heads.below(layer).save(folder)
    return Made(kept, depth, folder, apart)


def _format(asked: Asked, source: Source) -> str:
    """Return the format asked for, or what the model comes in; where pooled states of texts were scored, theirs."""
    lens, norm, found = source.model.lens, source.model.stack.norm, str(asked.format)
    if found == "auto":
        scored = (
            source.scored in MODES
            and source.unit == "text"
            and not (lens is not None and lens.kind == "pooled")
        )
        plain = source.model.loaded.served is None and not scored
        found = "transformers" if plain else "sentence-transformers"
    if source.mix is not None:
        return _format_of_mix(asked, source)
    if asked.site == "raw" and found != "onnx" and norm is not None:
        raise LayerscopeError(
            f"`site='raw'` is not what a standard checkpoint of {source.name} can yield: its final norm ({norm}) "
            "follows the last block at any depth; take `site='normed'`, or `format='onnx'`"
        )
    return found


def _format_of_mix(asked: Asked, source: Source) -> str:
    """Return the format that can hold a mix: sentence-transformers weighs raw states, which a final norm is not in."""
    norm, reads = source.model.stack.norm, source.unit == "text"
    if asked.format == "auto":
        return "sentence-transformers" if norm is None and reads else "onnx"
    if asked.format == "transformers":
        raise LayerscopeError(
            "transformers has no class that mixes layers: take `format='sentence-transformers'` or onnx"
        )
    if asked.format == "sentence-transformers" and norm is not None:
        raise LayerscopeError(
            f"sentence-transformers mixes states before the final norm ({norm}), and the last one after it: "
            "`format='onnx'` holds the mix that was scored"
        )
    return str(asked.format)


def checked_dim(dim: int | None, source: Source, format: str) -> int | None:
    """Return how many dimensions of the vectors are kept, None for all; raises where nothing makes such vectors."""
    name, served = source.name, source.model.loaded.served
    if dim is None:
        return None
    if source.unit != "text" or format == "transformers" or (format == "onnx" and served is None):
        mend = (
            "`format='sentence-transformers'` makes it one"
            if source.unit == "text"
            else "cut its own where used"
        )
        raise LayerscopeError(
            f"`dim` needs a sentence encoder's vectors, and {name} as {format} gives none: {mend}"
        )
    width = vector_width(served, source.model.stack.width)
    if dim > width:
        raise LayerscopeError(
            f"dim is {dim}: the vectors of {name} have {width} dimensions, give fewer"
        )
    return dim if dim < width else None


def checked_layers(layers: Iterable[int], depth: int) -> list[int]:
    """Return layers in order, each once; raises `LayerscopeError` for what is none of 1 … L."""
    found = sorted(set(layers))
    if not found:
        raise LayerscopeError(f"no layer is named: give one or several of 1..{depth}")
    if wrong := [layer for layer in found if not 0 <= layer <= depth]:
        raise LayerscopeError(f"layer {wrong[0]} does not exist: this model has layers 0..{depth}")
    if found[0] == 0:
        raise LayerscopeError(
            f"layer 0 is what the first block reads: no block would be left of the model, give 1..{depth}"
        )
    return found


def kept_blocks(layer: int, drop: Collection[int], depth: int) -> tuple[int, ...]:
    """Return the blocks, counted from 0, of a model that ends at a layer and drops some, which are counted from 1."""
    if wrong := [block for block in drop if block > depth]:
        raise LayerscopeError(f"block {wrong[0]} does not exist: this model has blocks 1..{depth}")
    if beyond := [block for block in drop if block > layer]:
        raise LayerscopeError(
            f"block {beyond[0]} is not among the first {layer}: leave it out of `drop`"
        )
    kept = kept_without(drop, layer)
    if not kept:
        raise LayerscopeError(f"no block would be left of the {layer}: drop fewer of them")
    return kept
