"""Models of some of the blocks: what they lose as they are cut, healed, and with a map to the full model's vectors.

Each is written into a folder and judged on the validation part as it lies there; the one that loses
least, or in the same space finds most in the old index, is the trial of its number of blocks.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.healing.healing import Plan
from layerscope.healing.lessons import Lessons, learnable
from layerscope.inputs import Corpus, Window, open_corpus
from layerscope.inputs.pairs import Pair
from layerscope.scores.shifts import mean_of
from layerscope.shrinking.job import WORK, Job
from layerscope.shrinking.same_space import write_mapped
from layerscope.shrinking.shrunk import Offer
from layerscope.shrinking.tasks import HELD, LEARN, VALIDATION
from layerscope.truncation.healed import Healing, open_cut
from layerscope.truncation.pipeline import write_cut, write_healed

MODEL, CUT, MAPPED = "model", "cut", "mapped"
"""The folders of models: healed, not healed, and with a map to the full model's vectors."""
FEW, ENOUGH = 5000, 1000
"""Texts of the user below which built-in texts are learned from, too, as many as theirs, or enough."""
ORDINARY = 0.9
"""Share of the user's texts that no built-in text is longer than: longer ones would take the time of many."""


def cut_offer(job: Job, offer: Offer) -> Offer:
    """Return an offer with what it loses before healing, by the better of two ways: its blocks, or as many first ones.

    Blocks are chosen by agreement with the full model, whose last blocks may know less of the task.
    """
    blocks = len(offer.kept)
    first = tuple(range(1, blocks + 1))

    def measured() -> dict[str, Any]:
        ways = {first: job.first.values(blocks)}
        if offer.kept != first:
            ways[offer.kept] = job.task.with_only(offer.kept, VALIDATION)
        full = job.first.full
        losses = {kept: mean_of(full - values) for kept, values in ways.items()}
        kept = min(losses, key=lambda way: losses[way][0])
        loss, error = losses[kept]
        job.reporter.say(replace(offer, kept=kept, cut_loss=loss, error=error).text)
        return {"kept": kept, "cut_loss": loss, "error": error}

    facts = job.phase(f"cut-{blocks}", measured)
    return replace(offer, **facts | {"kept": tuple(facts["kept"])})


@dataclass(frozen=True)
class Trial:
    """A model that was written into a folder, and how it does on the validation part.

    `recall` is that of new vectors in an index of the full model's, where that is wanted.
    """

    path: str
    loss: float
    error: float
    difference: float
    healed: str = ""
    mapped: bool = False
    recall: float = 0.0


def room_of(job: Job, offer: Offer) -> Path:
    """Return the folder of the models with as many blocks as the offer."""
    return job.folder / WORK / f"blocks-{len(offer.kept)}"


def _emptied(job: Job, offer: Offer, name: str) -> Path:
    """Return the folder for one of these models, without what a killed call left there."""
    folder = room_of(job, offer) / name
    folder.parent.mkdir(exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def tried_offer(job: Job, offer: Offer) -> tuple[Offer, Trial]:
    """Write a model of some blocks, healed where that helps; return the offer with what it loses on validation."""
    cut = cut_offer(job, offer)
    name = f"trial-{len(cut.kept)}"
    facts = job.phase(name, lambda: asdict(_best_trial(job, cut)))
    trial = Trial(**facts)
    healed = trial.healed != "" or trial.mapped
    return replace(cut, loss=trial.loss, error=trial.error, healed=healed), trial


def _best_trial(job: Job, offer: Offer) -> Trial:
    """Return the better one of a cut and a healed model; in the same space, that which finds more in the old index."""
    same_space = job.options.same_space
    # healing leads towards the full model, which knows less of the task where the cut gains
    gains = offer.cut_loss <= 0 and not same_space
    if job.options.minutes == 0 or gains:
        best = _plain(job, offer)
    else:
        best = _healed(job, offer)
        if not same_space and best.loss > offer.cut_loss:
            best = _plain(job, offer)
    served = job.source.model.loaded.served
    if same_space and served is not None:
        mapped = _mapped(job, offer, best)
        best = max(best, mapped, key=attrgetter("recall"))
    return best


def _plain(job: Job, offer: Offer) -> Trial:
    folder = _emptied(job, offer, CUT)
    made = write_cut(job.source, offer.indices, folder, job.format)
    return _tried(job, folder, made.difference)


def _healed(job: Job, offer: Offer) -> Trial:
    folder = _emptied(job, offer, MODEL)
    plan = Plan(job.options.minutes, seed=job.options.seed)
    healing = Healing(_lessons(job), plan, folder.parent)
    made, change = write_healed(
        job.source, offer.indices, folder, job.format, healing, job.reporter
    )
    return _tried(job, folder, made.difference, change)


def _mapped(job: Job, offer: Offer, trial: Trial) -> Trial:
    folder = _emptied(job, offer, MAPPED)
    small = open_cut(folder.with_name(trial.path), job.source)
    write_mapped(small, job.task, folder)
    mapped = _tried(job, folder, trial.difference, trial.healed)
    job.reporter.say(
        f"a linear map takes the recall in the old index from {trial.recall:.1%} to {mapped.recall:.1%}"
    )
    return replace(mapped, mapped=True)


def _tried(job: Job, folder: Path, difference: float, healed: str = "") -> Trial:
    """Return the model of a folder with its values on the validation part."""
    model = open_cut(folder, job.source).model
    loss, error = mean_of(job.first.full - job.task.values(model, VALIDATION))
    recall = 0.0
    if job.options.same_space:
        vectors = job.task.read(model, VALIDATION)
        recall = job.task.recall(vectors, VALIDATION)
    return Trial(folder.name, loss, error, difference, healed, recall=recall)


def _lessons(job: Job) -> Lessons:
    """Return what is learned from: the user's own samples, with others; nothing of the parts that choose or judge."""
    task = job.task
    encoder = job.source.model.encoder
    learn = _unpacked(task.texts(LEARN))
    more = job.heal
    apart = [task.texts(part) for part in (VALIDATION, HELD)]
    there = [*learn, *_unpacked(chain(*apart))]
    reads_texts = encoder.modality == "text" and not isinstance(learn[0], Pair)
    if more is not None:
        learn += _new(more, job, there)
    elif reads_texts and len(learn) < FEW:
        longest = int(np.quantile([*map(len, learn)], ORDINARY))
        built_in = _new(open_corpus("stdlib-docs"), job, there)
        most = max(ENOUGH, len(learn))
        learn += [text[:longest] for text in built_in[:most]]
    return Lessons(learn, *apart)


def _unpacked(samples: Iterable[Any]) -> list[Any]:
    """Return samples with the text of windows in their place, as a batch of both kinds cannot be read."""
    return [one.text if isinstance(one, Window) else one for one in samples]


def _new(corpus: Corpus, job: Job, there: Sequence[Any]) -> list[Any]:
    """Return the samples of a corpus, without texts that are there already."""
    model = job.source.model
    samples = _unpacked(learnable(corpus, model, job.options.seed))
    if model.encoder.modality != "text":
        return samples
    seen = {*there}
    return [text for text in samples if text not in seen]
