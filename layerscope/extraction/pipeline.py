"""The work of `extract`: model and data in, a folder of states out, chunk by chunk."""

from collections.abc import Callable
from typing import Any

import torch

from layerscope.core import (
    LayerscopeError,
    Reporter,
    Team,
    count,
    processes,
    reporting,
    versions,
)
from layerscope.core.prefetch import ahead
from layerscope.extraction.extraction import Extraction, open_extraction
from layerscope.extraction.options import ExtractOptions
from layerscope.extraction.reading import Read, Wanted, layers_of, prepare, read_states
from layerscope.inputs import Chunk, Corpus, Stream, open_stream
from layerscope.inputs.state_folder import TOKENS, ChunkTable, StatesFolder
from layerscope.models import LayeredModel, evaluating, find_layers, load, vectors_for
from layerscope.models.identity import about_model, as_named, tokens_fingerprint

CHUNK_ROWS = {False: 1024, True: 128}
"""Rows of a file by whether it holds the states of every token."""


def run_extraction(options: ExtractOptions) -> Extraction:
    """Write the states of a model over data, those that are not there yet, and return what the folder holds."""
    team = processes.team()
    reporter = reporting(options.progress and team.leads)
    # wrong data are reported before the model is loaded
    stream = open_stream(
        options.data,
        labels=options.labels,
        text_column=options.text_column,
        label_column=options.label_column,
        rows=options.chunk_rows or CHUNK_ROWS[options.tokens],
    )
    model = layered(options, stream.head)
    wanted = wanted_of(options, model)
    manifest = _manifest(options, model, stream, wanted)
    folder = StatesFolder.open_or_start(options.out, manifest)
    if options.shard is None:
        for number in team.lead(folder.store.drop_damaged):
            reporter.say(
                f"chunk {number} of {str(folder.path)!r} has changed since it was written: it is computed again"
            )
    for note in (*stream.notes, *model.notes):
        reporter.say(note)
    compute(model, stream, wanted, folder, reporter, _due(options.shard, folder, team))
    team.lead(folder.finish)
    extraction = open_extraction(options.out)
    _report_broken(extraction, reporter)
    return extraction


def layered(options: ExtractOptions, head: Corpus) -> LayeredModel:
    """Return the model, its layers found by a probe on the first samples."""
    loaded = load(options.model, options.load, options.processor)
    return find_layers(
        loaded,
        head.modality,
        head.samples,
        options.override,
        max_length=options.max_length,
        prompt=options.prompt,
    )


def wanted_of(options: ExtractOptions, model: LayeredModel) -> Wanted:
    """Return which states are kept; what this model or this format does not have is refused."""
    dtype = getattr(torch, options.store_dtype)
    layers = layers_of(options.layers, model.depth)
    site = options.site
    if site not in model.sites:
        site = "raw"
    if options.format == "parquet" and dtype == torch.bfloat16:
        raise LayerscopeError(
            "Parquet has no bfloat16: take `store_dtype='float16'`, or `format='safetensors'`"
        )
    poolings: tuple[str, ...] = ()
    if not options.tokens:
        poolings = vectors_for(model, options.pooling).poolings
    elif options.pooling != "auto":
        raise LayerscopeError(
            "`tokens` keeps the state of every token, and `pooling` makes one of them: give one"
        )
    elif model.rank == 2:
        raise LayerscopeError(
            f"the states of {model.name} have no tokens: leave `tokens` out"
        )
    return Wanted(layers, site, poolings, dtype, options.batch_size)


def _manifest(
    options: ExtractOptions, model: LayeredModel, stream: Stream, wanted: Wanted
) -> dict[str, Any]:
    """Return what `states.json` holds from the start: the same in every process that shares the work."""
    data = {
        "name": stream.name,
        "source": as_named(options.data),
        "modality": stream.modality,
        "text_column": stream.text_column,
        "label_column": stream.label_column,
        "labels": stream.head.labels is not None,
        "fingerprint": stream.fingerprint,
        "tokens": tokens_fingerprint(model, stream.head),
        "rows": stream.length,
    }
    decisive = {
        "max_length": model.max_length,
        "prompt": options.prompt,
        "batch_size": options.batch_size,
    }
    return {
        **versions(),
        "command": options.command,
        "model": about_model(model, as_named(options.model)),
        "data": data,
        "layers": list(wanted.layers),
        "site": wanted.site,
        "poolings": list(wanted.poolings),
        "store_dtype": options.store_dtype,
        "file_format": options.format,
        "chunk_rows": stream.rows,
        "options": decisive,
    }


def _due(
    shard: tuple[int, int] | None, folder: StatesFolder, team: Team
) -> Callable[[int], bool]:
    """Return which chunks this process computes: those of its shard that are not finished, shared with its team."""
    index, shards = shard or (0, 1)

    def due(number: int) -> bool:
        share, own = divmod(number, shards)
        mine = own == index and share % team.size == team.rank
        return mine and not folder.store.is_finished(number)

    return due


def compute(
    model: LayeredModel,
    stream: Stream,
    wanted: Wanted,
    folder: StatesFolder,
    reporter: Reporter,
    is_due: Callable[[int], bool],
) -> None:
    """Compute and write every chunk that is due."""
    done = len(folder.store.finished())
    if done:
        reporter.say(f"resuming {str(folder.path)!r}: {count(done, 'chunk')} done")
    chunks = 0
    with (
        evaluating(model.module),
        reporter.bar("extract", stream.length, "samples") as advance,
    ):
        for chunk, prepared in ahead(
            lambda chunk: prepare(model, chunk.samples), stream.chunks(wanted=is_due)
        ):
            if chunk.read:
                states = read_states(model, prepared, wanted, reporter.say)
                write_chunk(chunk, states, wanted, folder)
            chunks = chunk.number + 1
            advance(chunk.rows)
    folder.write_end(chunks)


def write_chunk(chunk: Chunk, read: Read, wanted: Wanted, folder: StatesFolder) -> None:
    """Write the states of a chunk."""
    names = [str(chunk.names[i]) for i in read.rows]
    labels = None
    if chunk.labels is not None:
        labels = [str(chunk.labels[i]) for i in read.rows]
    tokens = read.offsets[-1]
    if TOKENS not in read.states:
        tokens = sum(map(len, read.ids or ()))
    table = ChunkTable(
        names, labels, wanted.layers, read.states, read.offsets, read.ids
    )
    folder.store.write(
        chunk.number,
        table.save,
        samples=len(names),
        rows=chunk.rows,
        tokens=tokens,
        cut=read.cut,
        broken=_broken(names, wanted.layers, read),
    )


def _broken(
    names: list[str], layers: tuple[int, ...], read: Read
) -> list[tuple[str, int]]:
    """Return the samples with a NaN or an infinity as they are stored, each with the first layer that has one."""
    first: dict[int, int] = {}
    starts = torch.tensor(read.offsets)
    for pooling, states in read.states.items():
        finite = torch.isfinite(states).all(-1)
        for row, vector in (~finite).nonzero().tolist():
            sample = vector
            if pooling == TOKENS:
                sample = int(torch.searchsorted(starts, vector, right=True)) - 1
            earlier = first.get(sample, layers[-1])
            first[sample] = min(earlier, layers[row])
    return [(names[sample], first[sample]) for sample in sorted(first)]


def _report_broken(extraction: Extraction, reporter: Reporter) -> None:
    """Name the samples that hold NaN or infinity, with their first layer."""
    broken = extraction.broken
    if not broken:
        return
    name, layer = broken[0]
    reporter.say(
        f"{len(broken):,} of {extraction.samples:,} samples of {extraction.info['model']['name']} hold NaN or infinity "
        f"(first: layer {layer}, sample {name}): they are kept as they are and listed with their chunks; a wider "
        "`dtype` or `store_dtype` may help"
    )
