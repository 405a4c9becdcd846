"""The work of `shrink`: which blocks matter least, how many may go, healing, and the judgement on samples held out.

Each phase keeps what it found in the folder, so that a killed call goes on after the last one. The
parts of the data are kept apart: blocks and weights are chosen by the validation part, the result
is judged by the held-out part, once.
"""

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import read_json, write_json
from layerscope.core.folder_lock import locked
from layerscope.core.folders import folder_aside, own_folder, writing
from layerscope.core.margin import error_of
from layerscope.core.progress import Reporter, reporting
from layerscope.healing.healing import Plan
from layerscope.healing.lessons import Lessons
from layerscope.healing.outputs import reads_logits
from layerscope.inputs import open_corpus
from layerscope.inputs.pairs import Pair
from layerscope.inputs.samples import content
from layerscope.models.capture import evaluating
from layerscope.models.lens import skipping
from layerscope.models.loading import without_bars
from layerscope.shrinking.options import ShrinkOptions
from layerscope.shrinking.shrunk import STORE, Offer, Shrunk, open_shrunk
from layerscope.shrinking.tasks import HELD, LEARN, VALIDATION, Floats, Task, task_of
from layerscope.truncation.budget import Budget
from layerscope.truncation.card import describe
from layerscope.truncation.costs import Made, costs_by_depth, measure
from layerscope.truncation.depth import depth_of
from layerscope.truncation.expected import kept_without
from layerscope.truncation.healed import Healing, open_cut
from layerscope.truncation.pipeline import write_cut, write_healed
from layerscope.truncation.removed_blocks import Meter, greedy_removal
from layerscope.truncation.source import Source, copy_terms, open_source

ABOUT, WORK, MODEL, CUT = "shrink.json", "work", "model", "cut"
"""The file that says what a folder is of, the folder of what the phases made, and those of models, healed or not."""
CHOOSING = 128
"""Samples by which blocks are chosen."""
REACH = 4.0
"""A depth is tried whose loss before healing is at most this many times the largest loss: healing takes most back."""
FEW = 5000
"""Texts of the user below which the built-in texts are learned from, too."""


@dataclass(frozen=True)
class Job:
    """One shrinking: its model, what judges it, its folder, and its budget."""

    source: Source
    task: Task
    folder: Path
    budget: Budget
    options: ShrinkOptions
    reporter: Reporter

    @property
    def format(self) -> str:
        """The format of the checkpoint."""
        loaded = self.source.model.loaded
        if loaded.served is None and loaded.reranker is None:
            return "transformers"
        return "sentence-transformers"

    @property
    def max_loss(self) -> float:
        """The largest loss, in points."""
        if self.budget.max_loss is None:
            return self.task.max_loss
        return self.budget.max_loss

    @cached_property
    def full_values(self) -> Floats:
        """The full model's values on the validation part."""
        return self.task.values(self.source.model, VALIDATION)

    def phase(self, name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return what a phase found: as it was kept, or made now and kept."""
        path = self.folder / WORK / f"{name}.json"
        if not path.is_file():
            write_json(path, make())
        return read_json(path)


def paired(full: Floats, values: Floats) -> tuple[float, float]:
    """Return the mean loss and its standard error, paired by sample."""
    lost = full - values
    return float(lost.mean()), error_of(lost)


def run_shrink(options: ShrinkOptions) -> Shrunk:
    """Shrink a model as the options say."""
    folder = own_folder(options.out, STORE.what, ABOUT)
    reporter = reporting(options.progress)
    with without_bars():
        source = open_source(options.model, None, options.override, options.load)
        if source.model.stack.depth == 1:
            raise LayerscopeError(f"{source.name} has one block: none can be left out")
        columns = options.text_column, options.label_column
        task = task_of(
            options.data, *columns, source.model, source.pooled_by, options.seed
        )
        budget = Budget(options.max_loss, None, options.speed, options.max_mb)
        job = Job(source, task, folder, budget, options, reporter)
        with locked(folder), writing(folder):
            _same_or_new(job)
            if STORE.is_in(folder):
                return open_shrunk(folder)
            (folder / WORK).mkdir(exist_ok=True)
            shrunk = _shrunk(job)
            shrunk.save(folder)
            shutil.rmtree(folder / WORK)
    return replace(shrunk, folder=folder)


def _same_or_new(job: Job) -> None:
    """Write what the folder is of; raise where it is of something else."""
    options = job.options
    about = {
        "model": job.source.name,
        "data": _digest(job.task.texts(LEARN)),
        "seed": options.seed,
        "minutes": options.minutes,
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


def _digest(samples: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for index in range(len(samples)):
        digest.update(content(samples, index))
    return digest.hexdigest()[:16]


def _shrunk(job: Job) -> Shrunk:
    """Try depths, the one first that is likely to be the smallest within the budget, and judge the first that is."""
    depth = job.source.model.stack.depth
    offers = _priced(job)
    allowed = [
        blocks for blocks in range(1, depth) if _within(job.budget, offers[blocks])
    ]
    for blocks in _order(job, offers, allowed):
        offers[blocks] = offer = _trial(job, offers[blocks])
        job.reporter.say(offer.text)
        # the error, too: the fewest blocks that pass are those that were lucky
        if (offer.loss or 0.0) + (offer.error or 0.0) <= job.max_loss:
            return _judged(job, offer, tuple(offers.values()))
    return replace(_answer(job, tuple(offers.values())), met=False)


def _within(budget: Budget, offer: Offer) -> bool:
    return budget.fits(offer.speedup, offer.megabytes)


def _priced(job: Job) -> dict[int, Offer]:
    """Return for each number of blocks those to keep, chosen by measurement, with their speed and size."""
    source, depth = job.source, job.source.model.stack.depth

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
        offers[blocks] = offer = _cut(job, offers[blocks])
        if (offer.cut_loss or 0.0) > REACH * job.max_loss:
            break
        first = blocks
    return [blocks for blocks in allowed if blocks >= first]


def _cut(job: Job, offer: Offer) -> Offer:
    """Return an offer with what it loses before healing, by the better of two ways: its blocks, or as many first ones.

    Blocks are chosen by agreement with the full model, whose last blocks may know less of the task.
    """
    source, depth = job.source, job.source.model.stack.depth

    def measured() -> dict[str, Any]:
        full = job.full_values  # before blocks are left out
        ways = []
        for kept in {offer.kept, tuple(range(1, len(offer.kept) + 1))}:
            dropped = set(range(1, depth + 1)) - set(kept)
            with skipping(source.module, source.model.stack, dropped):
                loss, error = paired(full, job.task.values(source.model, VALIDATION))
            ways.append(replace(offer, kept=kept, cut_loss=loss, error=error))
        better = min(ways, key=attrgetter("cut_loss"))
        job.reporter.say(better.text)
        return {name: getattr(better, name) for name in ("kept", "cut_loss", "error")}

    facts = job.phase(f"cut-{len(offer.kept)}", measured)
    return replace(offer, **facts | {"kept": tuple(facts["kept"])})


def _room(job: Job, offer: Offer) -> Path:
    return job.folder / WORK / f"blocks-{len(offer.kept)}"


def _trial(job: Job, offer: Offer) -> Offer:
    """Write a model of some blocks, healed where that helps, and return it with its loss on the validation part."""
    source, room, offer = job.source, _room(job, offer), _cut(job, offer)
    kept = [block - 1 for block in offer.kept]

    def plain() -> dict[str, Any]:
        shutil.rmtree(room / CUT, ignore_errors=True)
        made = write_cut(source, kept, room / CUT, job.format)
        facts = {"path": CUT, "loss": offer.cut_loss, "error": offer.error}
        return facts | {"healed": "", "difference": made.difference}

    def tried() -> dict[str, Any]:
        room.mkdir(exist_ok=True)
        # healing leads towards the full model, which knows less of the task where the cut gains
        if job.options.minutes == 0 or (offer.cut_loss or 0.0) <= 0:
            return plain()
        shutil.rmtree(room / MODEL, ignore_errors=True)
        plan = Plan(job.options.minutes, seed=job.options.seed)
        healing = Healing(_lessons(job), plan, room)
        made, change = write_healed(
            source, kept, room / MODEL, job.format, healing, job.reporter
        )
        model = open_cut(room / MODEL, source).model
        values = job.task.values(model, VALIDATION)
        loss, error = paired(job.full_values, values)
        if loss > (offer.cut_loss or 0.0):
            return plain()
        facts = {"path": MODEL, "loss": loss, "error": error, "healed": change.text}
        return facts | {"difference": made.difference}

    facts = job.phase(f"trial-{len(offer.kept)}", tried)
    return replace(
        offer,
        loss=facts["loss"],
        error=facts["error"],
        healed=facts["healed"] != "",
    )


def _lessons(job: Job) -> Lessons:
    """Return what is learned from: the user's own samples, with others; nothing of the parts that choose or judge."""
    task, encoder = job.task, job.source.model.encoder
    learn, more = task.texts(LEARN), job.options.heal
    apart = [task.texts(part) for part in (VALIDATION, HELD)]
    reads_texts = encoder.modality == "text" and not isinstance(learn[0], Pair)
    if more is None and reads_texts and len(learn) < FEW:
        more = "stdlib-docs"
    if more is not None:
        others = open_corpus(more).samples
        if encoder.modality == "text":
            seen = {*learn, *apart[0], *apart[1]}
            others = [text for text in others if text not in seen]
        learn += others
    return Lessons(learn, *apart)


def _judged(job: Job, offer: Offer, offers: tuple[Offer, ...]) -> Shrunk:
    """Put the model into its folder, and judge what lies there on the samples held out."""
    source, path = job.source, job.folder / MODEL
    kept = [block - 1 for block in offer.kept]
    facts = read_json(job.folder / WORK / f"trial-{len(kept)}.json")
    shutil.rmtree(path, ignore_errors=True)
    with folder_aside(path) as aside:
        chosen = _room(job, offer) / facts["path"]
        shutil.copytree(chosen, aside, dirs_exist_ok=True)
        depth = depth_of(source.model, source.samples, kept)
        made = Made(tuple(kept), depth, aside, facts["difference"])
        entry = measure(source, made, job.format, facts["healed"])
        describe(source, entry, aside)
        copy_terms(source.beside, aside)
    small = open_cut(path, source).model
    full = job.task.values(source.model, HELD)
    loss, error = paired(full, job.task.values(small, HELD))
    recall = None
    if not (reads_logits(source.model) or source.model.is_sparse):
        recall = job.task.recall(small)
    loader = f"{source.model.loaded.wrapper}({{}})"
    if job.format == "transformers":
        loader = f"{entry.auto}.from_pretrained({{}})"
    return replace(
        _answer(job, offers),
        kept=offer.kept,
        loss=loss,
        error=error,
        full_score=float(full.mean()),
        samples=len(full),
        speedup=entry.speedup,
        megabytes=entry.megabytes,
        full_megabytes=entry.full_megabytes,
        measured=entry.measured,
        healed=facts["healed"],
        recall=recall,
        load=loader.format(repr(str(path))),
    )


def _answer(job: Job, offers: tuple[Offer, ...]) -> Shrunk:
    budget = f"at most {job.max_loss:g} points lost{job.budget.within}"
    return Shrunk(
        job.source.name,
        job.source.model.stack.depth,
        True,
        budget,
        job.task.measure,
        str(job.options.data) if isinstance(job.options.data, (str, Path)) else "data",
        offers,
    )
