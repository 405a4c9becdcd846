"""The work of `extract`: model and data in, a folder of states out, chunk by chunk."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from layerscope.core import processes
from layerscope.core.environment import versions
from layerscope.core.errors import LayerscopeError, count
from layerscope.core.options import Asked
from layerscope.core.prefetch import ahead
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter, reporting
from layerscope.extraction.extraction import Extraction, of_folder
from layerscope.extraction.folder import ChunkTable, StatesFolder
from layerscope.extraction.merging import finish
from layerscope.extraction.reading import TOKENS, Read, Wanted, layers_of, prepare, read_states
from layerscope.inputs import Chunk, Corpus, Stream, draw_stream, open_corpus, open_stream, pack
from layerscope.inputs.streams import corpus_stream
from layerscope.models import LayeredModel, LoadOptions, Override, find_layers, load, vectors_for
from layerscope.models.capture import evaluating
from layerscope.models.weights import is_parallel
from layerscope.profiling.identity import about_model, tokens_fingerprint
from layerscope.profiling.pipeline import window_of
from layerscope.runs.folder import need_room

CHUNK_ROWS, WITH_TOKENS = 1024, 128
OPTIONS = ("samples", "seed", "chunk", "prompt", "batch_size")


def run_extraction(asked: Asked) -> Extraction:
    """Do what `extract` is asked for, and return what the folder then holds."""
    team = processes.team()
    reporter = reporting(asked.progress and team.leads)
    rows = asked.chunk_rows or (WITH_TOKENS if asked.tokens else CHUNK_ROWS)
    columns = {"text_column": asked.text_column, "label_column": asked.label_column}
    stream = open_stream(
        asked.data, labels=asked.labels, rows=rows, **columns
    )  # wrong data is reported first
    model = layered(asked, stream.head)
    stream = _packed(stream, model, asked)
    if asked.samples != "all":
        drawn = corpus_stream(draw_stream(stream, asked.samples, asked.seed), rows)
        stream = replace(drawn, text_column=stream.text_column, label_column=stream.label_column)
    wanted = wanted_of(asked, model)
    manifest = _manifest(asked, model, stream, wanted)
    path: Path = asked.out
    if stream.length is not None and wanted.poolings:
        numbers = len(wanted.layers) * len(wanted.poolings) * model.stack.width
        there = sum(file.stat().st_size for file in path.glob("chunks/[0-9]*"))
        need_room(
            path,
            stream.length * numbers * wanted.dtype.itemsize // (asked.shard or (0, 1))[1] - there,
        )
    folder = StatesFolder.open_or_start(path, manifest)
    for note in (*stream.notes, *model.notes):
        reporter.say(note)
    together = is_parallel(model.module)
    due = _due(asked.shard, folder, team, together)
    with folder.working():
        compute(
            model,
            stream,
            wanted,
            folder,
            reporter,
            due,
            asked.batch_size,
            team if together else None,
        )
    team.meet()
    if asked.shard is None and team.leads:
        finish(folder)
    team.meet()
    found = of_folder(folder)
    _report_broken(found, reporter)
    return found


def layered(asked: Asked, head: Corpus) -> LayeredModel:
    """Return the model, its layers found by a probe on the first samples."""
    loaded = load(asked.model, asked.of(LoadOptions), asked.processor)
    return find_layers(
        loaded,
        head.modality,
        head.samples,
        asked.of(Override),
        max_length=asked.max_length,
        prompt=asked.prompt,
    )


def _packed(stream: Stream, model: LayeredModel, asked: Asked) -> Stream:
    """Return running text in windows, for a language model or where that is asked for."""
    tokenizer, window = model.loaded.processor_for("text"), window_of(asked, stream.head, model)
    if window is None:
        return stream
    if asked.samples != "all":  # which windows are drawn is known when all of them are
        return corpus_stream(pack(open_corpus(asked.data), tokenizer, window), stream.rows)

    def read(wanted: Callable[[int], bool]) -> Iterator[Chunk]:
        for chunk in stream.read(wanted):
            if not chunk.samples:
                yield replace(chunk, rows=0)
                continue
            own = Corpus(stream.name, "text", chunk.samples, chunk.names, running=True)
            windows = pack(own, tokenizer, window).samples
            names = [f"{chunk.names[0]}.{i}" for i in range(len(windows))]
            yield replace(chunk, rows=len(windows), samples=windows, names=names)

    note = f"running text: the lines of a chunk are packed into windows of {count(window, 'token')}, named LINE.WINDOW"
    head = replace(stream.head, notes=(*stream.notes, note))
    return replace(stream, head=head, length=None, read=read)


def wanted_of(asked: Asked, model: LayeredModel) -> Wanted:
    """Return which states are kept; what this model or this format does not have is refused."""
    layers, dtype = layers_of(asked.layers, model.stack.depth), getattr(torch, asked.store_dtype)
    site = asked.site if asked.site in model.sites else "raw"
    if asked.format == "parquet" and dtype == torch.bfloat16:
        raise LayerscopeError(
            "Parquet has no bfloat16: take `store_dtype='float16'`, or `format='safetensors'`"
        )
    if not asked.tokens:
        return Wanted(layers, site, vectors_for(model, asked.pooling, pairs=False).poolings, dtype)
    if asked.pooling != "auto":
        raise LayerscopeError(
            "`tokens` keeps the state of every token, and `pooling` makes one of them: give one"
        )
    if model.rank == 2:
        raise LayerscopeError(
            f"the states of {model.loaded.name} have no tokens: leave `tokens` out"
        )
    return Wanted(layers, site, (), dtype)


def _manifest(asked: Asked, model: LayeredModel, stream: Stream, wanted: Wanted) -> dict[str, Any]:
    """Return what `states.json` holds from the start: the same in every process that shares the work."""
    named = {
        key: str(value) if isinstance(value, (str, Path)) else type(value).__name__
        for key, value in (("model", asked.model), ("data", asked.data))
    }
    data = {
        "name": stream.name,
        "source": named["data"],
        "modality": stream.modality,
        "text_column": stream.text_column,
        "label_column": stream.label_column,
        "labels": stream.head.labels is not None,
        "fingerprint": stream.fingerprint,
        "tokens": tokens_fingerprint(model, stream.head),
        "rows": stream.length,
    }
    return {
        **versions(),
        "command": asked.command,
        "model": about_model(model, named["model"]),
        "data": data,
        "layers": list(wanted.layers),
        "site": wanted.site,
        "poolings": list(wanted.poolings),
        "store_dtype": asked.store_dtype,
        "file_format": asked.format,
        "chunk_rows": stream.rows,
        "options": {
            "max_length": model.max_length,
            **{name: getattr(asked, name) for name in OPTIONS},
        },
    }


def _due(
    shard: tuple[int, int] | None, folder: StatesFolder, team: Team, together: bool
) -> Callable[[int], bool]:
    """Return which chunks this process computes: those of its shard that are not finished, shared with its team.

    Where each has a part of every weight, all compute every chunk `together`, whatever is finished
    meanwhile.
    """
    own, shards = shard or (0, 1)
    there = set(team.meet(folder.finished())[0]) if together else None
    rank, size = (0, 1) if together else (team.rank, team.size)

    def due(number: int) -> bool:
        ours = number % shards == own and number // shards % size == rank
        return ours and not (folder.is_finished(number) if there is None else number in there)

    return due


def compute(
    model: LayeredModel,
    stream: Stream,
    wanted: Wanted,
    folder: StatesFolder,
    reporter: Reporter,
    is_due: Callable[[int], bool],
    batch_size: int | None,
    together: Team | None = None,
) -> None:
    """Compute every chunk that is due; of a team that computes them `together`, the first process writes them."""
    if there := len(folder.finished()):
        reporter.say(f"resuming {str(folder.path)!r}: {count(there, 'chunk')} done")
    chunks, team = 0, together or Team()
    with evaluating(model.module), reporter.bar("extract", stream.length, "samples") as advance:
        for chunk, prepared in ahead(
            lambda chunk: prepare(model, chunk.samples), stream.chunks(wanted=is_due)
        ):
            if chunk.read:
                states = read_states(model, prepared, wanted, batch_size, reporter.say)
                if team.leads:
                    write_chunk(chunk, states, wanted, folder)
                team.meet()  # the others end too where the one that writes fails
            chunks = chunk.number + 1
            advance(chunk.rows)
    folder.write_end(chunks)


def write_chunk(chunk: Chunk, read: Read, wanted: Wanted, folder: StatesFolder) -> None:
    """Write the states of a chunk."""
    names = [str(chunk.names[i]) for i in read.rows]
    labels = None if chunk.labels is None else [str(chunk.labels[i]) for i in read.rows]
    table = ChunkTable(names, labels, wanted.layers, read.states, read.offsets, read.ids)
    facts = {
        "samples": len(names),
        "rows": chunk.rows,
        "tokens": read.offsets[-1] if TOKENS in read.states else sum(map(len, read.ids or ())),
        "cut": read.cut,
        "broken": _broken(names, wanted.layers, read.states, read.offsets),
    }
    folder.write(chunk.number, table, facts)


def _broken(
    names: list[str], layers: tuple[int, ...], states: dict[str, torch.Tensor], offsets: list[int]
) -> list[tuple[str, int]]:
    """Return the samples with a NaN or an infinity as they are stored, each with the first layer that has one."""
    first: dict[int, int] = {}
    for name, found in states.items():
        for row, place in (~torch.isfinite(found).all(-1)).nonzero().tolist():
            starts = torch.tensor(offsets) if name == TOKENS else None
            sample = (
                place if starts is None else int(torch.searchsorted(starts, place, right=True)) - 1
            )
            first[sample] = min(first.get(sample, layers[-1]), layers[row])
    return [(names[sample], layer) for sample, layer in sorted(first.items())]


def _report_broken(found: Extraction, reporter: Reporter) -> None:
    """Name the samples that hold NaN or infinity, with their first layer."""
    broken = [entry for chunk in found.chunks for entry in chunk["broken"]]
    if broken:
        name, layer = broken[0]
        narrow = found.info["store_dtype"] == "float16"
        mend = (
            "`store_dtype='bfloat16'` reaches further" if narrow else "`dtype='float32'` may help"
        )
        reporter.say(
            f"{len(broken):,} of {found.samples:,} samples of {found.info['model']['name']} hold NaN or infinity "
            f"(first: layer {layer}, sample {name}): they are kept as they are and listed with their chunks; {mend}"
        )
