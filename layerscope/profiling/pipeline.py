"""The work of `profile`: model and corpus in, a run folder with states and tables out.

What is wrong is reported before anything is computed: data are opened before the model is loaded,
and a metric that cannot be measured here is left out, or refused where nothing else is asked for.
Then comes the pass, which keeps pooled states, and after it the tables, which need no model. Data
that are streamed are summed up first; what sums cannot give is measured on a sample of them.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core import (
    LayerscopeError,
    Reporter,
    Team,
    folder_name,
    processes,
    reporting,
)
from layerscope.core.folder_lock import locked
from layerscope.core.labels import MORE, is_target
from layerscope.inputs import Corpus, open_corpus, open_stream
from layerscope.inputs.pairs import paired
from layerscope.inputs.streams import Stream
from layerscope.metrics.metric import How, Metric
from layerscope.metrics.neural_collapse import FromCollapse
from layerscope.metrics.readings import FromReadings
from layerscope.models import find_layers, load, vectors_for
from layerscope.models.identity import as_named
from layerscope.models.modality import modality_of
from layerscope.models.pooling import parse
from layerscope.models.stored import StatesModel
from layerscope.probes.scores import FromTarget
from layerscope.profiling.forward_pass import shared_run
from layerscope.profiling.identity import describe
from layerscope.profiling.options import PassOptions, ProfileOptions
from layerscope.profiling.plan import Job
from layerscope.profiling.prepared import prepared
from layerscope.profiling.samples import as_read
from layerscope.profiling.source import can_be_probed
from layerscope.profiling.states_job import lack_of_states, of_states
from layerscope.profiling.stream_sums import of_stream
from layerscope.profiling.streaming import finish, sum_stream, text_head
from layerscope.profiling.tables import write_tables
from layerscope.runs import Run
from layerscope.runs.registry import SETS

CHUNK = 1024
"""Rows of a stream that are measured together."""
DEFAULT_DATA = {"text": "stdlib-docs", "image": "digits"}


def run_profile(options: ProfileOptions) -> Run:
    """Measure every layer of a model, or states that were read, and return the run."""
    team = processes.team()
    reporter = reporting(options.progress and team.leads)
    _check(options)
    if options.states is None:
        job, stream, data = _ready(options)
        first = job if stream is None else of_stream(job)
        for line in check_available(first):
            reporter.say(line)
    else:
        job = of_states(options)
        stream = None
        data = options.states if options.data is None else options.data
        # what the run does not hold is noted in it
        notes = *job.model.notes, *check_available(job)
        job = replace(job, model=replace(job.model, notes=notes))
    describe_job = partial(
        describe,
        source=as_named(options.model),
        data=as_named(data),
        command=options.command,
        text_column=options.text_column,
        label_column=options.label_column,
    )
    with prepared(job) as job:
        manifest = describe_job(job)
        if stream is not None:
            # described are its first samples: this tells the data from others
            manifest["data"] |= {
                "samples": stream.length,
                "fingerprint": stream.fingerprint,
            }
        path = options.out or _folder_for(job, data, manifest)
        with locked(path) if team.leads else nullcontext():
            if stream is None:
                return _run(path, job, manifest, job.options, reporter, team)
            return _run_stream(
                path, job, stream, manifest, describe_job, reporter, team
            )


def _run_stream(
    path: Path,
    job: Job,
    stream: Stream,
    manifest: dict[str, Any],
    describe_job: Callable[[Job], dict[str, Any]],
    reporter: Reporter,
    team: Team,
) -> Run:
    """Sum every chunk of a stream, then measure on the kept sample what sums cannot give."""
    measuring = job.options
    summed_job = of_stream(job)
    summed_metrics = summed_job.options.metrics
    sums = sum_stream(summed_job, stream, path, manifest, reporter, team)
    if sums is None:
        return Run(path)
    corpus = sums.corpus(stream, measuring.reservoir or 0)
    kept_job = replace(job, corpus=corpus)
    for line in check_available(kept_job):
        reporter.say(line)
    left_out = {*_lacking(kept_job), *summed_metrics}
    from_sample = tuple(name for name in measuring.metrics if name not in left_out)
    notes = *corpus.notes, *sums.notes(job, summed_metrics, from_sample, len(corpus))
    sampled_job = replace(job, corpus=replace(corpus, notes=notes))
    stream_facts = {"samples": sums.seen, "data": manifest["data"]}
    sampled_manifest = {**describe_job(sampled_job), "stream": stream_facts}
    from_sample_options = replace(measuring, metrics=from_sample)
    run = _run(path, sampled_job, sampled_manifest, from_sample_options, reporter, team)
    if team.leads:
        finish(run, summed_job, sums)
    team.meet()
    return run


def _folder_for(job: Job, data: Any, manifest: dict[str, Any]) -> Path:
    """Return the folder of a run that the user names none for."""
    name = f"{job.model.name}-{job.corpus.name}"
    if not isinstance(data, (str, Path)):  # data in memory all have one name
        name += f"-{manifest['data']['fingerprint'][:8]}"
    return Path("runs") / folder_name(name)


def _check(options: ProfileOptions) -> None:
    """Raise `LayerscopeError` for options that are wrong whatever the model and the data."""
    if options.states is None:
        if options.model is None:
            raise LayerscopeError(
                "no model is given: name one, such as minilm, or states that another engine wrote with `states`"
            )
        options.refuse(("layers",), "applies only to `states`")
    options.measuring.check()
    if options.measuring.pooling != "auto":
        parse(options.measuring.pooling)


def _ready(options: ProfileOptions) -> tuple[Job, Stream | None, Any]:
    """Return model and samples, the stream where the data are one, and the data as the user names them."""
    measuring = options.measuring
    opened: Callable[..., Corpus | Stream] = open_corpus
    if measuring.reservoir is not None:
        opened = partial(open_stream, rows=CHUNK)
    opened = partial(
        opened,
        labels=options.labels,
        text_column=options.text_column,
        label_column=options.label_column,
    )
    # wrong data is reported before the model is loaded
    source = None if options.data is None else opened(options.data)
    loaded = load(options.model, options.load, options.processor)
    data = options.data
    reads = modality_of(loaded.module)
    if source is None:
        data = DEFAULT_DATA.get(reads)
        if data is None:
            raise LayerscopeError(
                f"{loaded.name} reads {reads}, and layerscope comes with no such data: give `data`"
            )
        source = opened(data)
    stream = None
    if isinstance(source, Stream):
        stream = source
        source = text_head(source)
    model = find_layers(
        loaded,
        source.modality,
        source.samples,
        options.override,
        max_length=measuring.max_length,
        prompt=measuring.prompt,
        sublayers=measuring.sublayers,
    )
    pairs = measuring.wants("pairs") or measuring.wants("path")
    vectors = vectors_for(model, measuring.pooling, pairs)
    if stream is None:
        if model.reads_pairs:
            source = paired(source, data, options.text_column)
        source = as_read(source, model, measuring)
    return Job(model, source, measuring, vectors), stream, data


def _run(
    path: Path,
    job: Job,
    manifest: dict[str, Any],
    options: PassOptions,
    reporter: Reporter,
    team: Team,
) -> Run:
    """Start or resume the run of a folder and finish it, with the tables that the options ask for."""
    run = shared_run(path, manifest, job, reporter, team)
    write_tables(run, options, reporter, team)
    team.meet()
    return run


def check_available(job: Job) -> list[str]:
    """Return a line for each metric that is named and not available here; raise where none is.

    Of a set of metrics, as `default`, those that apply are taken; the only line is on labels that
    cannot be probed, or on all that states which were read do not give.
    """
    metrics = job.options.metrics
    missing = _lacking(job)
    lines = [f"{name} is not measured: {reason}" for name, reason in missing.items()]
    if len(missing) == len(metrics):
        raise LayerscopeError(f"nothing to measure: {'; '.join(lines)}")
    if metrics not in SETS.values():
        return lines
    if isinstance(job.model, StatesModel) and missing:
        return [f"the states do not give {', '.join(missing)}"]
    labels = job.corpus.labels
    if labels is not None and {"linear_probe", "ridge_probe"} <= {*missing}:
        probe = "ridge_probe" if is_target(labels) else "linear_probe"
        return [f"the labels cannot be probed: {missing[probe]}"]
    return []


def _lacking(job: Job) -> dict[str, str]:
    """Return by metric that is not available why, and the mend."""
    missing = {}
    for metric in job.options.chosen:
        if reason := _lack(metric, job):
            missing[metric.name] = reason
    return missing


def _lack(metric: Metric, job: Job) -> str | None:
    """Return why a metric is not available, and the mend; None where it is."""
    model = job.model
    needs = metric.needs
    how = metric.how
    if needs == "labels":
        return _lack_of_labels(how, job)
    if isinstance(model, StatesModel) and (reason := lack_of_states(needs, model)):
        return reason
    if needs == "views" and job.options.views == 0:
        return "it compares views of a sample (give `views=1` or more)"
    if needs in ("tokens", "forward") and model.rank == 2:
        return "the states of this model have no tokens"
    if needs == "lens" and model.lens is None:
        return f"{model.name} has no head over these layers"
    of_tokens = isinstance(how, FromReadings) and how.language_model
    if of_tokens and not model.is_language_model:
        return f"{model.name} does not predict the next token"
    return how.lack(len(job.corpus), model.width)


def _lack_of_labels(how: How, job: Job) -> str | None:
    """Return why a metric of labels is not available, and the mend; None where it is."""
    corpus = job.corpus
    if corpus.labels is None:
        return "the data have no labels (name their column with `label_column`)"
    is_number = is_target(corpus.labels)
    if is_number != isinstance(how, FromTarget):
        if is_number:
            return "the labels are numbers to predict (take ridge_probe)"
        return "the labels are classes (take linear_probe)"
    if isinstance(how, FromCollapse):
        if len({*corpus.labels}) < 2:
            return "all samples have one label"
        return None
    if can_be_probed(np.array(corpus.labels)[~corpus.copies]):
        return None
    is_part = job.options.reservoir is not None or corpus.drawn_from is not None
    more = MORE if is_part else ""
    if is_number:
        return f"it needs ten distinct samples whose numbers differ ({more}label more)"
    return f"it needs two classes with five distinct samples each ({more}label more)"
