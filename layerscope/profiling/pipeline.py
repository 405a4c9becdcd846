"""The work of `profile`: model and corpus in, a run folder with states and tables out."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError, count, folder_name
from layerscope.core.folder_lock import locked
from layerscope.core.options import Asked
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter, reporting
from layerscope.inputs import Corpus, draw, make_extreme, open_corpus, open_stream, pack
from layerscope.inputs.corpus import MORE
from layerscope.inputs.streams import Stream
from layerscope.inputs.views import check_views
from layerscope.metrics.neural_collapse import FromCollapse
from layerscope.metrics.readings import FromReadings
from layerscope.models import LayeredModel, LoadOptions, Override, find_layers, load, vectors_for
from layerscope.models.encode import TextEncoder, modality_of
from layerscope.models.stored import StatesModel
from layerscope.profiling.identity import describe
from layerscope.profiling.passing import shared_run
from layerscope.profiling.plan import Job, Options
from layerscope.profiling.source import can_be_probed
from layerscope.profiling.stored import lack_of_states, left_out, of_states
from layerscope.profiling.streaming import finish, gather, of_data, text_head
from layerscope.profiling.summing import of_stream
from layerscope.profiling.tables import write_tables
from layerscope.runs import Run
from layerscope.runs.registry import METRICS, SETS

WINDOW = 256
"""Running text is packed into windows of this many tokens for a language model."""
CHUNK = 1024
"""Rows of a stream that are measured together."""
DEFAULT_DATA = {"text": "stdlib-docs", "image": "digits"}


def run_profile(asked: Asked) -> Run:
    """Do what `profile` is asked for, and return the run."""
    options = Options(**vars(asked))
    team = processes.team()
    reporter = reporting(asked.progress and team.leads)
    _check_sources(asked)
    job, stream, data = (
        _ready(asked, options) if asked.states is None else of_states(asked, options)
    )
    summed = job if stream is None else of_stream(job)
    lines = check_available(summed.options, job.model, job.corpus)
    for line in lines if asked.states is None else ():
        reporter.say(line)
    if asked.states is not None:  # what the run does not hold is noted in it
        job = replace(job, model=replace(job.model, notes=(*job.model.notes, *lines)))

    def described(job: Job) -> dict[str, Any]:
        return describe(
            job,
            _named(asked.head if asked.model is None else asked.model),
            _named(data),
            asked.command,
            text_column=asked.text_column,
            label_column=asked.label_column,
        )

    manifest = described(job) if stream is None else of_data(described(job), stream)
    # data in memory all have one name: their contents tell them apart
    own = "" if isinstance(data, (str, Path)) else f"-{manifest['data']['fingerprint'][:8]}"
    path = asked.out or Path("runs") / folder_name(
        f"{job.model.loaded.name}-{job.corpus.name}{own}"
    )
    with locked(path) if team.leads else nullcontext():
        if stream is None:
            return _run(path, job, manifest, reporter, team)
        gathered = gather(summed, stream, path, manifest, reporter, team)
        if gathered is None:
            return Run(path)
        corpus = gathered.corpus(stream, options.reservoir or 0)
        for note in check_available(options, job.model, corpus):
            reporter.say(note)
        rest = [name for name in options.metrics if name not in summed.options.metrics]
        rest = [name for name in rest if _lack(name, options, job.model, corpus) is None]
        notes = *corpus.notes, *gathered.notes(summed, stream, len(corpus), rest)
        kept = replace(job, corpus=replace(corpus, notes=notes))
        about = {"samples": gathered.seen, "data": manifest["data"]}
        run = _run(path, kept, {**described(kept), "stream": about}, reporter, team)
        if team.leads:
            finish(run, summed, gathered)
        team.meet()
    return run


def _check_sources(asked: Asked) -> None:
    if asked.states is None and asked.model is None:
        lack = "name one, such as minilm, or states that another engine wrote with `states`"
        raise LayerscopeError(f"no model is given: {lack}")
    for name in ("head", "layers") if asked.states is None else ():
        if getattr(asked, name) is not None:
            raise LayerscopeError(f"`{name}` applies only to `states`: leave it out")


def _ready(asked: Asked, options: Options) -> tuple[Job, Stream | None, Any]:
    """Return model and samples, the stream where the data are one, and the data as they were given."""

    def opened(data: Any) -> Corpus | Stream:
        how = {name: getattr(asked, name) for name in ("labels", "text_column", "label_column")}
        return (
            open_corpus(data, **how)
            if options.reservoir is None
            else open_stream(data, rows=CHUNK, **how)
        )

    found = (
        None if asked.data is None else opened(asked.data)
    )  # wrong data is reported before the model is loaded
    loaded = load(asked.model, asked.of(LoadOptions), asked.processor)
    reads = modality_of(loaded.module)
    data = DEFAULT_DATA.get(reads) if found is None else asked.data
    if data is None:
        raise LayerscopeError(
            f"{loaded.name} reads {reads}, and layerscope comes with no such data: give `data`"
        )
    found = found or opened(data)
    stream, corpus = (found, text_head(found)) if isinstance(found, Stream) else (None, found)
    check_views(corpus.modality, options.view_kinds, options.view_share)
    layered = find_layers(
        loaded,
        corpus.modality,
        corpus.samples,
        asked.of(Override),
        max_length=options.max_length,
        prompt=options.prompt,
        sublayers=options.sublayers,
    )
    vectors = vectors_for(layered, options.pooling, options.wants("pairs") or options.wants("path"))
    return (
        Job(layered, corpus if stream else _as_read(corpus, layered, options), options, vectors),
        stream,
        data,
    )


def _run(path: Path, job: Job, manifest: dict[str, Any], reporter: Reporter, team: Team) -> Run:
    """Start or resume the run of a folder and finish it."""
    run = shared_run(path, manifest, job, reporter, team)
    if isinstance(job.model, StatesModel):
        job.model.states.check_unchanged()
    write_tables(run, job.options, reporter, team)
    team.meet()
    return run


def _named(given: Any) -> str:
    """Return a path or a name as it was given; the kind of an object."""
    return str(given) if isinstance(given, (str, Path)) else type(given).__name__


def window_of(asked: Any, corpus: Corpus, model: LayeredModel) -> int | None:
    """Return how many tokens the windows of running text have, None where samples are taken as they are."""
    if asked.chunk and not corpus.running:
        raise LayerscopeError(
            "`chunk` packs running text, and this data has samples of its own: leave it out"
        )
    if not (asked.chunk or (corpus.running and model.is_language_model)):
        return None
    if asked.prompt:
        raise LayerscopeError(
            "`prompt` goes before texts, and these are packed into windows: leave one of the two out"
        )
    return min(asked.chunk or WINDOW, model.max_length or WINDOW)


def _as_read(corpus: Corpus, model: LayeredModel, options: Options) -> Corpus:
    """Return the samples drawn, running text packed for a language model, tokens replaced where that is asked for."""
    is_text, is_tokens = corpus.modality == "text", isinstance(model.encoder, TextEncoder)
    replaced = next(
        (name for name in ("repeat_tokens", "random_tokens") if getattr(options, name) is not None),
        None,
    )
    known = {"chunk": is_text, "prompt": is_text, "max_length": is_tokens, replaced: is_tokens}
    for name in filter(None, known):
        if getattr(options, name) not in (None, "") and not known[name]:
            raise LayerscopeError(
                f"`{name}` is for texts, and {corpus.name} holds {corpus.modality} samples: leave it out"
            )
    if options.prompt and replaced:
        made = f"`{replaced}` makes token ids of them"
        raise LayerscopeError(f"`prompt` goes before texts, and {made}: leave one of the two out")
    window = window_of(options, corpus, model)
    tokenizer = model.loaded.processor_for("text")
    if replaced and tokenizer is None:
        raise LayerscopeError(
            f"`{replaced}` needs the tokenizer of {model.loaded.name}: leave it out"
        )
    if window is not None:
        corpus = pack(corpus, tokenizer, window)
    corpus = draw(corpus, options.samples, options.seed)
    if replaced is None:
        return corpus
    encoder = model.encoder
    assert isinstance(encoder, TextEncoder)
    encoder.lengths(corpus.samples)  # counts what is cut, which the new ids no longer show
    if encoder.cut:
        cut = f"{encoder.cut:,} of {len(corpus):,} texts are cut at {count(encoder.max_length, 'token')}"
        corpus = replace(corpus, notes=(*corpus.notes, cut))
    table = model.module.get_input_embeddings()  # type: ignore[operator]  # to torch it is no method
    return make_extreme(
        corpus,
        "repeat" if replaced == "repeat_tokens" else "random",
        getattr(options, replaced),
        tokenizer=tokenizer,
        tokenised=encoder.ids,
        rows=table.num_embeddings,
        seed=options.seed,
    )


def check_available(options: Options, model: LayeredModel, corpus: Corpus) -> list[str]:
    """Return a line for each metric asked for by name that is not available here; raise where none is.

    Of a set of metrics those that apply are taken; the only line is on labels that cannot be
    probed. Of states that were read there is a line on all that are left out, and one asked for by
    name is refused.
    """
    missing = {
        name: reason for name in options.metrics if (reason := _lack(name, options, model, corpus))
    }
    lines = [f"{name} is not measured: {reason}" for name, reason in missing.items()]
    if len(missing) == len(options.metrics):
        raise LayerscopeError(f"nothing to measure: {'; '.join(lines)}")
    is_set = options.metrics in SETS.values()
    if isinstance(model, StatesModel):
        return left_out(missing, is_set)
    if not is_set:
        return lines
    useless = corpus.labels is not None and "linear_probe" in missing
    return [f"the labels cannot be probed: {missing['linear_probe']}"] if useless else []


def _lack(name: str, options: Options, model: LayeredModel, corpus: Corpus) -> str | None:
    """Return why a metric is not available, and the mend; None where it is."""
    needs, how = METRICS[name].needs, METRICS[name].how
    if needs == "labels" and corpus.labels is None:
        return "the data have no labels (name their column with `label_column`)"
    if isinstance(how, FromCollapse):  # the first samples of a stream may well have one label
        is_one = options.reservoir is None and len({*(corpus.labels or ())}) < 2
        return "all samples have one label" if is_one else None
    if needs == "labels" and not can_be_probed(np.array(corpus.labels)[~corpus.copies]):
        more = MORE if options.reservoir is not None or corpus.drawn_from is not None else ""
        return f"it needs two classes with five distinct samples each ({more}label more)"
    if isinstance(model, StatesModel) and (reason := lack_of_states(needs, model)):
        return reason
    if needs == "views" and options.views == 0:
        return "it compares views of a sample (give `views=1` or more)"
    if needs == "tokens" and model.rank == 2:
        return "the states of this model have no tokens"
    if needs == "lens" and model.lens is None:
        return f"{model.loaded.name} has no head over these layers"
    if isinstance(how, FromReadings) and how.language_model and not model.is_language_model:
        return f"{model.loaded.name} does not predict the next token"
    return how.lack(len(corpus), model.stack.width)
