"""The work of `profile`: model and corpus in, a run folder with states and tables out."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked
from layerscope.core.progress import Console, Silent, Teller
from layerscope.inputs import Corpus, draw, make_extreme, open_corpus, pack
from layerscope.inputs.corpus import count, folder_name
from layerscope.inputs.extreme import Extreme
from layerscope.inputs.views import check_views
from layerscope.models import LayeredModel, Loaded, LoadOptions, Override, find_layers, load, vectors_for
from layerscope.models.encode import TextEncoder, modality_of
from layerscope.profiling.available import check_available
from layerscope.profiling.identity import Origin, describe, refuse_another
from layerscope.profiling.job import Job
from layerscope.profiling.options import Options, options_from
from layerscope.profiling.passing import run_pass
from layerscope.profiling.start import open_or_start, tell_broken
from layerscope.profiling.tables import write_tables
from layerscope.runs import Run
from layerscope.runs.lock import locked

WINDOW = 256
"""Running text is packed into windows of this many tokens for a language model."""
PROBE_SAMPLES = 8
DEFAULT_DATA = {"text": "stdlib-docs", "image": "digits"}


def run_profile(asked: Asked) -> Run:
    """Do what `profile` is asked for, and return the run."""
    options, weights = options_from(asked), asked.of(LoadOptions)
    read = partial(open_corpus, labels=asked.labels, text_column=asked.text_column, label_column=asked.label_column)
    team = processes.team()
    teller: Teller = Console() if asked.progress and team.leads else Silent()
    corpus = None if asked.data is None else read(asked.data)  # wrong data is reported before the model is loaded
    loaded = load(asked.model, weights, asked.processor)
    data = _default_data(loaded) if asked.data is None else asked.data
    corpus = corpus or read(data)
    check_views(corpus.modality, options.view_kinds, options.view_share)
    layered = find_layers(
        loaded,
        corpus.modality,
        [corpus.samples[i] for i in range(min(PROBE_SAMPLES, len(corpus)))],
        asked.of(Override),
        max_length=options.max_length,
        prompt=options.prompt,
        sublayers=options.sublayers,
    )
    vectors = vectors_for(layered, options.pooling, options.wants("pairs"))
    corpus = _extreme(draw(_windows(corpus, layered, options), options.samples, options.seed), layered, options)
    job = Job(layered, corpus, options, vectors)
    for note in check_available(options, layered, corpus):
        teller.say(note)
    origin = Origin(_named(asked.model), _named(data), asked.text_column, asked.label_column, asked.command)
    manifest = describe(job, origin)
    path = asked.out or Path("runs") / folder_name(_called(loaded.name, corpus.name, data, manifest))
    with locked(path) if team.leads else nullcontext():
        if team.leads:
            open_or_start(path, manifest, job, teller)
        team.meet()
        run = Run(path)
        refuse_another(path, run.info, manifest)
        run_pass(job, run.folder, teller, team=team)
        if team.leads:
            tell_broken(run, teller)
        write_tables(run, options, teller, team)
        team.meet()
    return run


def _named(given: Any) -> str:
    """Return a path or a name as it was given, of an object its kind."""
    return str(given) if isinstance(given, (str, Path)) else type(given).__name__


def _called(model: str, name: str, data: Any, manifest: dict[str, Any]) -> str:
    """Return what a run is called: data in memory all have one name, so that their contents tell them apart."""
    own = "" if isinstance(data, (str, Path)) else f"-{manifest['data']['fingerprint'][:8]}"
    return f"{model}-{name}{own}"


def _default_data(loaded: Loaded) -> str:
    modality = modality_of(loaded.module)
    if modality not in DEFAULT_DATA:
        raise LayerscopeError(
            f"{loaded.name} reads {modality}, and no such data come with layerscope: name some with --data"
        )
    return DEFAULT_DATA[modality]


def _windows(corpus: Corpus, model: LayeredModel, options: Options) -> Corpus:
    """Pack running text for a language model, or where it is asked for."""
    if corpus.modality != "text" or not (options.chunk or (corpus.running and model.is_language_model)):
        return corpus
    if options.chunk and not corpus.running:
        raise LayerscopeError("--chunk packs running text: this data has samples of its own, leave --chunk out")
    if options.prompt:
        raise LayerscopeError("--prompt goes before texts, and packed windows are none: leave one of the two out")
    window = min(options.chunk or WINDOW, model.max_length or WINDOW)
    return pack(corpus, model.loaded.processor_for("text"), window)


def _extreme(corpus: Corpus, model: LayeredModel, options: Options) -> Corpus:
    """Replace tokens where it is asked for."""
    kind: Extreme = "repeat" if options.repeat_tokens is not None else "random"
    share = options.repeat_tokens if kind == "repeat" else options.random_tokens
    if share is None:
        return corpus
    if not isinstance(model.encoder, TextEncoder):
        raise LayerscopeError(
            f"--{kind}-tokens is of texts, and {corpus.name} holds {corpus.modality} samples: leave it out"
        )
    if model.encoder.tokenizer is None:
        raise LayerscopeError(f"--{kind}-tokens needs the tokenizer of {model.loaded.name}: leave it out")
    if options.prompt:
        raise LayerscopeError(
            f"--prompt goes before texts, and --{kind}-tokens makes token ids of them: leave one of the two out"
        )
    encoder, total = model.encoder, len(corpus)
    encoder.lengths(corpus.samples)  # counts what is cut: the new ids tell it no more
    if encoder.cut:
        cut = f"{encoder.cut:,} of {total:,} texts are cut at {count(encoder.max_length, 'token')}"
        corpus = replace(corpus, notes=(*corpus.notes, cut))
    table = model.module.get_input_embeddings()  # type: ignore[operator]
    return make_extreme(
        corpus, kind, share, tokenizer=encoder.tokenizer, tokenised=encoder.ids, rows=table.num_embeddings,
        seed=options.seed,
    )  # fmt: skip
