"""The work of `shrink`: which blocks matter least, how many may go, healing, and the judgement on samples held out.

Each phase keeps what it found in the folder, so that a killed call goes on after the last one. The
parts of the data are kept apart: blocks and weights are chosen by the validation part, the result
is judged by the held-out part, once.
"""

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import read_json, write_json
from layerscope.core.folder_lock import locked
from layerscope.core.folders import folder_aside, own_folder, writing
from layerscope.core.progress import reporting
from layerscope.healing.outputs import reads_logits
from layerscope.inputs.opening import check_there
from layerscope.models.capture import evaluating
from layerscope.models.loading import without_bars
from layerscope.models.texts import readable_corpus
from layerscope.scores.evaluation import ModelOrigin, add_origin
from layerscope.scores.shifts import mean_of
from layerscope.shrinking.job import EVALUATION, WORK, Job
from layerscope.shrinking.opening import task_of, unknown_share
from layerscope.shrinking.options import ShrinkOptions
from layerscope.shrinking.shrunk import STORE, Offer, Shrunk, open_shrunk
from layerscope.shrinking.tasks import HELD, LEARN
from layerscope.shrinking.trials import MODEL, Trial, cut_offer, room_of, tried_offer
from layerscope.truncation.budget import Budget
from layerscope.truncation.card import describe
from layerscope.truncation.costs import Made, costs_by_depth, measure
from layerscope.truncation.depth import depth_of
from layerscope.truncation.expected import kept_without
from layerscope.truncation.healed import open_cut
from layerscope.truncation.removed_blocks import Meter, greedy_removal
from layerscope.truncation.source import copy_terms, open_source

ABOUT = "shrink.json"
"""The file that says what a folder is of."""
CHOOSING = 128
"""Samples by which blocks are chosen."""
CAUTION = 0.5
"""Standard errors of a loss that count against the budget."""
UNKNOWN = 0.3
"""Share of unknown tokens above which a text is in another language than the model's."""
REACH = 4.0
"""A depth is tried whose loss before healing is at most this many times the largest loss: healing takes most back."""


def run_shrink(options: ShrinkOptions) -> Shrunk:
    """Shrink a model as the options say."""
    check_there(options.data)
    check_there(options.heal)
    folder = own_folder(options.out, STORE.what, ABOUT)
    reporter = reporting(options.progress)
    with without_bars():
        source = open_source(options.model, None, options.override, options.load)
        if source.model.depth == 1:
            raise LayerscopeError(f"{source.name} has one block: none can be left out")
        if options.same_space and (
            reads_logits(source.model) or source.model.is_sparse
        ):
            raise LayerscopeError(
                f"{source.name} gives no dense vectors: leave `same_space` out"
            )
        heal = None
        if options.heal is not None:
            heal = readable_corpus(options.heal, source.model)
        task = task_of(
            options.data,
            options.text_column,
            options.label_column,
            options.samples,
            source.model,
            source.pooled_by,
            options.seed,
        )
        unknown = unknown_share(task, CHOOSING)
        if unknown > UNKNOWN:
            reporter.say(
                f"{source.name} does not know {unknown:.0%} of the tokens of the data: give texts in a language that "
                "it reads"
            )
        budget = Budget(options.max_loss, None, options.speed, options.max_mb)
        job = Job(source, task, folder, budget, options, heal, reporter)
        with locked(folder), writing(folder):
            _same_or_new(job)
            if not STORE.is_in(folder):
                _add_origin(job)
                _shrunk(job).save(folder)
            shutil.rmtree(folder / WORK, ignore_errors=True)
    return open_shrunk(folder)


def _same_or_new(job: Job) -> None:
    """Record which call the folder belongs to; raise where it belongs to another."""
    options = job.options
    about = {
        "model": job.source.name,
        "data": job.digest,
        "heal": job.heal and job.heal.fingerprint()[:16],
        "seed": options.seed,
        "minutes": options.minutes,
        "same_space": options.same_space,
        **asdict(job.budget),
    }
    path = job.folder / ABOUT
    if not path.is_file():
        write_json(path, about)
        return
    there = read_json(path)
    for name, value in about.items():
        if there.get(name) != value:
            raise LayerscopeError(
                f"`out={str(job.folder)!r}` holds another call ({name} {there.get(name)} there, {value} here): name "
                "a new folder"
            )


def _add_origin(job: Job) -> None:
    """Say in the evaluation of the first blocks where the model is."""
    source = job.source
    path = None
    if isinstance(job.options.model, (str, Path)):
        path = str(job.options.model)
    model = source.model
    origin = ModelOrigin(path, model.depth, model.encoder.modality)
    add_origin(job.folder / EVALUATION, source.name, origin)


def _shrunk(job: Job) -> Shrunk:
    """Try depths, the likely smallest within the budget first, and judge the first that is within it."""
    offers = _priced(job)
    allowed = [
        blocks
        for blocks, offer in offers.items()
        if job.budget.fits(offer.speedup, offer.megabytes)
    ]
    for blocks in _order(job, offers, allowed):
        offer, trial = tried_offer(job, offers[blocks])
        offers[blocks] = offer
        if offer.healed:
            job.reporter.say(offer.text)
        if loses_at_most(job.max_loss, offer):
            return _judged(job, offer, trial, _answer(job, offers))
    return replace(_answer(job, offers), met=False)


def loses_at_most(points: float, offer: Offer) -> bool:
    """Return whether an offer's loss, as far as the samples that choose can tell, is within the budget.

    The fewest blocks are tried first, so the first that pass tend to be lucky: `CAUTION` times the
    standard error is added to their loss. With the whole error a few hundred samples never find a
    model; without any, the model loses more than the budget on average.
    """
    return offer.loss + CAUTION * offer.error <= points


def _priced(job: Job) -> dict[int, Offer]:
    """Return for each number of blocks, 1 … L − 1, those to keep, chosen by measurement, with their speed and size."""
    source = job.source
    depth = source.model.depth

    def chosen() -> dict[str, Any]:
        samples = job.task.texts(LEARN)[:CHOOSING]
        models = depth * (depth + 1) // 2
        with (
            evaluating(source.module),
            job.reporter.bar("blocks", models, "models") as advance,
        ):
            meter = Meter(source.model, samples, source.pooled_by, advance)
            dropped = [greedy_removal(meter, n) for n in range(1, depth)]
        return {"dropped": dropped}

    def costs() -> dict[str, Any]:
        measured = costs_by_depth(source, range(1, depth)).layers
        return {
            str(layer): [cost.speedup, cost.megabytes]
            for layer, cost in measured.items()
        }

    dropped = job.phase("blocks", chosen)["dropped"]
    prices = job.phase("costs", costs)
    offers = {}
    for blocks in reversed(dropped):
        kept = tuple(block + 1 for block in kept_without(blocks, depth))
        offers[len(kept)] = Offer(kept, *prices[str(len(kept))])
    return offers


def _order(job: Job, offers: dict[int, Offer], allowed: list[int]) -> list[int]:
    """Return the numbers of blocks to try, in order.

    A bound on speed or size leaves one: the most blocks within it, which lose least. Else it is the
    fewest whose loss healing may take back, then more and more.
    """
    if job.budget.within:
        return allowed[-1:]
    first = allowed[-1]
    for blocks in reversed(allowed):
        offers[blocks] = offer = cut_offer(job, offers[blocks])
        if offer.cut_loss > REACH * job.max_loss:
            break
        first = blocks
    return [blocks for blocks in allowed if blocks >= first]


def _judged(job: Job, offer: Offer, trial: Trial, answer: Shrunk) -> Shrunk:
    """Put the model into its folder, and judge what lies there on the samples held out."""
    source = job.source
    path = job.folder / MODEL
    kept = offer.indices
    shutil.rmtree(path, ignore_errors=True)
    with folder_aside(path) as aside:
        chosen = room_of(job, offer) / trial.path
        shutil.copytree(chosen, aside, dirs_exist_ok=True)
        depth = depth_of(source.model, source.samples, kept)
        made = Made(tuple(kept), depth, aside, trial.difference)
        entry = measure(source, made, job.format, trial.healed)
        describe(source, entry, aside)
        copy_terms(source.beside, aside)
    small = open_cut(path, source).model
    full = job.task.values(source.model, HELD)
    loss, error = mean_of(full - job.task.values(small, HELD))
    cut_loss = loss
    if offer.healed:
        cut_loss, _ = mean_of(full - job.task.with_only(offer.kept, HELD))
    recall = None
    if not (reads_logits(source.model) or source.model.is_sparse):
        recall = job.task.recall(job.task.read(small, HELD), HELD)
    loader = source.model.loaded.wrapper
    if job.format == "transformers":
        loader = f"{entry.auto}.from_pretrained"
    return replace(
        answer,
        kept=offer.kept,
        loss=loss,
        error=error,
        cut_loss=cut_loss,
        full_score=float(full.mean()),
        samples=len(full),
        speedup=entry.speedup,
        megabytes=entry.megabytes,
        full_megabytes=entry.full_megabytes,
        measured=entry.measured,
        healed=trial.healed,
        same_space=job.options.same_space,
        mapped=trial.mapped,
        recall=recall,
        load=f"{loader}({str(path)!r})",
    )


def _answer(job: Job, offers: dict[int, Offer]) -> Shrunk:
    budget = f"at most {job.max_loss:g} points lost"
    if job.budget.within:
        budget += f",{job.budget.within}"
    return Shrunk(
        job.source.name,
        job.source.model.depth,
        True,
        budget,
        job.task.measure,
        job.data,
        tuple(offers.values()),
    )
