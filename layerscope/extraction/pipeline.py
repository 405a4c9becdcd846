"""The work of `extract`: model and data in, a folder of states out, chunk by chunk."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError, count
from layerscope.core.prefetch import ahead
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter, reporting
from layerscope.core.saved import versions
from layerscope.extraction.extraction import Extraction, open_extraction
from layerscope.extraction.options import ExtractOptions
from layerscope.extraction.reading import Read, Wanted, layers_of, prepare, read_states
from layerscope.inputs import Chunk, Corpus, Stream, open_stream, pack
from layerscope.inputs.state_folder import TOKENS, ChunkTable, StatesFolder, broken_in
from layerscope.models import LayeredModel, find_layers, load, vectors_for
from layerscope.models.capture import evaluating
from layerscope.models.identity import about_model, tokens_fingerprint
from layerscope.models.weights import is_parallel
from layerscope.profiling.identity import as_named
from layerscope.profiling.samples import window_of

CHUNK_ROWS, WITH_TOKENS = 1024, 128
OPTIONS = ("chunk", "prompt", "batch_size")


def run_extraction(options: ExtractOptions) -> Extraction:
    """Write the states of a model over data, those that are not there yet, and return what the folder holds."""
    team = processes.team()
    reporter = reporting(options.progress and team.leads)
    stream, model = _opened(options)
    wanted = wanted_of(options, model)
    manifest = _manifest(options, model, stream, wanted)
    folder = StatesFolder.open_or_start(options.out, manifest)
    if options.shard is None:
        team.lead(partial(_drop_damaged, folder, reporter))
    for note in (*stream.notes, *model.notes):
        reporter.say(note)
    together = is_parallel(model.module)
    due = _due(options.shard, folder, team, together)
    compute(model, stream, wanted, folder, reporter, due, team if together else Team())
    team.lead(folder.finish)
    extraction = open_extraction(options.out)
    _report_broken(extraction, reporter)
    return extraction


def _opened(options: ExtractOptions) -> tuple[Stream, LayeredModel]:
    """Return the data as a stream, and the model; wrong data is reported before the model is loaded."""
    rows = options.chunk_rows or (WITH_TOKENS if options.tokens else CHUNK_ROWS)
    stream = open_stream(
        options.data,
        labels=options.labels,
        text_column=options.text_column,
        label_column=options.label_column,
        rows=rows,
    )
    model = layered(options, stream.head)
    return _packed(stream, model, options), model


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


def _packed(stream: Stream, model: LayeredModel, options: ExtractOptions) -> Stream:
    """Return running text in windows, for a language model or where `chunk` says so."""
    tokenizer = model.loaded.processor_for("text")
    window = window_of(options.chunk, options.prompt, stream.head, model)
    if window is None:
        return stream

    def read(wanted: Callable[[int], bool]) -> Iterator[Chunk]:
        for chunk in stream.read(wanted):
            if not chunk.samples:
                yield replace(chunk, rows=0)
                continue
            lines = Corpus(
                stream.name, "text", chunk.samples, chunk.names, running=True
            )
            windows = pack(lines, tokenizer, window).samples
            names = [f"{chunk.names[0]}.{i}" for i in range(len(windows))]
            yield replace(chunk, rows=len(windows), samples=windows, names=names)

    note = f"running text: the lines of a chunk are packed into windows of {count(window, 'token')}, named LINE.WINDOW"
    head = replace(stream.head, notes=(*stream.notes, note))
    return replace(stream, head=head, length=None, read=read)


def wanted_of(options: ExtractOptions, model: LayeredModel) -> Wanted:
    """Return which states are kept; what this model or this format does not have is refused."""
    dtype = getattr(torch, options.store_dtype)
    layers = layers_of(options.layers, model.stack.depth)
    site = options.site if options.site in model.sites else "raw"
    if options.format == "parquet" and dtype == torch.bfloat16:
        raise LayerscopeError(
            "Parquet has no bfloat16: take `store_dtype='float16'`, or `format='safetensors'`"
        )
    if not options.tokens:
        poolings = vectors_for(model, options.pooling, pairs=False).poolings
        return Wanted(layers, site, poolings, dtype, options.batch_size)
    if options.pooling != "auto":
        raise LayerscopeError(
            "`tokens` keeps the state of every token, and `pooling` makes one of them: give one"
        )
    if model.rank == 2:
        raise LayerscopeError(
            f"the states of {model.loaded.name} have no tokens: leave `tokens` out"
        )
    return Wanted(layers, site, (), dtype, options.batch_size)


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
    decisive = {name: getattr(options, name) for name in OPTIONS}
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
        "options": {"max_length": model.max_length, **decisive},
    }


def _due(
    shard: tuple[int, int] | None, folder: StatesFolder, team: Team, together: bool
) -> Callable[[int], bool]:
    """Return which chunks this process computes: those of its shard that are not finished, shared with its team.

    Where each has a part of every weight, all compute every chunk `together`, whatever is finished
    meanwhile.
    """
    index, shards = shard or (0, 1)
    done = set(team.meet(folder.store.finished())[0]) if together else None
    rank, size = (0, 1) if together else (team.rank, team.size)

    def due(number: int) -> bool:
        if number % shards != index or number // shards % size != rank:
            return False
        return (
            number not in done
            if done is not None
            else not folder.store.is_finished(number)
        )

    return due


def compute(
    model: LayeredModel,
    stream: Stream,
    wanted: Wanted,
    folder: StatesFolder,
    reporter: Reporter,
    is_due: Callable[[int], bool],
    together: Team,
) -> None:
    """Compute every chunk that is due; of a team that computes them `together`, the first process writes them."""
    if done := len(folder.store.finished()):
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
                if together.leads:
                    write_chunk(chunk, states, wanted, folder)
                together.meet()  # the others end too where the one that writes fails
            chunks = chunk.number + 1
            advance(chunk.rows)
    folder.write_end(chunks)


def _drop_damaged(folder: StatesFolder, reporter: Reporter) -> None:
    """Take away the chunks that have changed since they were written: they are computed again."""
    for number in folder.store.drop_damaged():
        reporter.say(
            f"chunk {number} of {str(folder.path)!r} has changed since it was written: it is computed again"
        )


def write_chunk(chunk: Chunk, read: Read, wanted: Wanted, folder: StatesFolder) -> None:
    """Write the states of a chunk."""
    names = [str(chunk.names[i]) for i in read.rows]
    labels = None if chunk.labels is None else [str(chunk.labels[i]) for i in read.rows]
    table = ChunkTable(
        names, labels, wanted.layers, read.states, read.offsets, read.ids
    )
    folder.store.write(
        chunk.number,
        table.save,
        samples=len(names),
        rows=chunk.rows,
        tokens=read.offsets[-1]
        if TOKENS in read.states
        else sum(map(len, read.ids or ())),
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
        for row, vector in (~torch.isfinite(states).all(-1)).nonzero().tolist():
            sample = vector
            if pooling == TOKENS:
                sample = int(torch.searchsorted(starts, vector, right=True)) - 1
            first[sample] = min(first.get(sample, layers[-1]), layers[row])
    return [(names[sample], layer) for sample, layer in sorted(first.items())]


def _report_broken(extraction: Extraction, reporter: Reporter) -> None:
    """Name the samples that hold NaN or infinity, with their first layer."""
    broken = broken_in(list(extraction.chunks))
    if not broken:
        return
    name, layer = broken[0]
    mend = "`dtype='float32'` may help"
    if extraction.info["store_dtype"] == "float16":
        mend = "`store_dtype='bfloat16'` reaches further"
    reporter.say(
        f"{len(broken):,} of {extraction.samples:,} samples of {extraction.info['model']['name']} hold NaN or infinity "
        f"(first: layer {layer}, sample {name}): they are kept as they are and listed with their chunks; {mend}"
    )
