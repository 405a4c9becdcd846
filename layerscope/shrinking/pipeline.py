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
from layerscope.healing.lessons import Lessons, distinct_samples
from layerscope.healing.outputs import reads_logits
from layerscope.inputs import open_corpus
from layerscope.inputs.pairs import Pair
from layerscope.inputs.samples import content
from layerscope.models.capture import evaluating
from layerscope.models.loading import without_bars
from layerscope.scores.evaluation import ModelOrigin, add_origin
from layerscope.shrinking.first_blocks import FirstBlocks
from layerscope.shrinking.options import ShrinkOptions
from layerscope.shrinking.same_space import write_mapped
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

ABOUT, WORK, EVALUATION = "shrink.json", "work", "evaluation"
"""The file that says what a folder is of, the folder of what the phases made, and that of the scores by layer."""
MODEL, CUT, MAPPED = "model", "cut", "mapped"
"""The folders of models: healed, not healed, and with a map to the full model's vectors."""
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

    @property
    def data(self) -> str:
        """The name of the data."""
        if isinstance(self.options.data, (str, Path)):
            return str(self.options.data)
        return "data"

    @cached_property
    def first(self) -> FirstBlocks:
        """The values of the model's first blocks, and of all, on the validation part."""
        digest = _digest(self.task.texts(LEARN))
        folder = self.folder / EVALUATION
        return FirstBlocks(self.source, self.task, self.data, digest, folder)

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
        if options.same_space and (
            reads_logits(source.model) or source.model.is_sparse
        ):
            raise LayerscopeError(
                f"{source.name} gives no dense vectors: leave `same_space` out"
            )
        reading = options.text_column, options.label_column, options.samples
        model = source.model, source.pooled_by
        task = task_of(options.data, *reading, *model, options.seed)
        budget = Budget(options.max_loss, None, options.speed, options.max_mb)
        job = Job(source, task, folder, budget, options, reporter)
        with locked(folder), writing(folder):
            _same_or_new(job)
            if STORE.is_in(folder):
                return open_shrunk(folder)
            (folder / WORK).mkdir(exist_ok=True)
            _add_origin(job)
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
    source, folder = job.source, job.folder / EVALUATION
    folder.mkdir(exist_ok=True)
    path = None
    if isinstance(job.options.model, (str, Path)):
        path = str(job.options.model)
    stack, encoder = source.model.stack, source.model.encoder
    add_origin(folder, source.name, ModelOrigin(path, stack.depth, encoder.modality))


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
        if offer.healed:
            job.reporter.say(offer.text)
        # the error, too: the fewest blocks that pass are those that were lucky
        if offer.loss + offer.error <= job.max_loss:
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
        if offer.cut_loss > REACH * job.max_loss:
            break
        first = blocks
    return [blocks for blocks in allowed if blocks >= first]


def _cut(job: Job, offer: Offer) -> Offer:
    """Return an offer with what it loses before healing, by the better of two ways: its blocks, or as many first ones.

    Blocks are chosen by agreement with the full model, whose last blocks may know less of the task.
    """
    depth, blocks = job.source.model.stack.depth, len(offer.kept)
    first = tuple(range(1, blocks + 1))

    def measured() -> dict[str, Any]:
        ways = {first: job.first.values(blocks)}
        if offer.kept != first:
            dropped = set(range(1, depth + 1)) - set(offer.kept)
            ways[offer.kept] = job.task.without(dropped, VALIDATION)
        losses = {kept: paired(job.first.full, values) for kept, values in ways.items()}
        kept = min(losses, key=lambda way: losses[way][0])
        loss, error = losses[kept]
        job.reporter.say(replace(offer, kept=kept, cut_loss=loss, error=error).text)
        return {"kept": kept, "cut_loss": loss, "error": error}

    facts = job.phase(f"cut-{len(offer.kept)}", measured)
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


def _room(job: Job, offer: Offer) -> Path:
    return job.folder / WORK / f"blocks-{len(offer.kept)}"


def _trial(job: Job, offer: Offer) -> Offer:
    """Write a model of some blocks, healed where that helps, and return it with its loss on the validation part."""
    offer = _cut(job, offer)

    def tried() -> dict[str, Any]:
        _room(job, offer).mkdir(exist_ok=True)
        return asdict(_best_trial(job, offer))

    facts = job.phase(f"trial-{len(offer.kept)}", tried)
    trial = Trial(**facts)
    healed = trial.healed != "" or trial.mapped
    return replace(offer, loss=trial.loss, error=trial.error, healed=healed)


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
    folder = _room(job, offer) / CUT
    shutil.rmtree(folder, ignore_errors=True)
    kept = [block - 1 for block in offer.kept]
    made = write_cut(job.source, kept, folder, job.format)
    return _tried(job, folder, made.difference)


def _healed(job: Job, offer: Offer) -> Trial:
    room = _room(job, offer)
    shutil.rmtree(room / MODEL, ignore_errors=True)
    kept = [block - 1 for block in offer.kept]
    plan = Plan(job.options.minutes, seed=job.options.seed)
    healing = Healing(_lessons(job), plan, room)
    made, change = write_healed(
        job.source, kept, room / MODEL, job.format, healing, job.reporter
    )
    return _tried(job, room / MODEL, made.difference, change.text)


def _mapped(job: Job, offer: Offer, trial: Trial) -> Trial:
    room = _room(job, offer)
    shutil.rmtree(room / MAPPED, ignore_errors=True)
    small = open_cut(room / trial.path, job.source)
    write_mapped(small, job.source, _lessons(job).learn, room / MAPPED)
    mapped = _tried(job, room / MAPPED, trial.difference, trial.healed)
    job.reporter.say(
        f"a linear map takes the recall in the old index from {trial.recall:.1%} to {mapped.recall:.1%}"
    )
    return replace(mapped, mapped=True)


def _tried(job: Job, folder: Path, difference: float, healed: str = "") -> Trial:
    """Return the model of a folder with its values on the validation part."""
    model = open_cut(folder, job.source).model
    loss, error = paired(job.first.full, job.task.values(model, VALIDATION))
    recall = 0.0
    if job.options.same_space:
        recall = job.task.recall(model, VALIDATION)
    return Trial(folder.name, loss, error, difference, healed, recall=recall)


def _lessons(job: Job) -> Lessons:
    """Return what is learned from: the user's own samples, with others; nothing of the parts that choose or judge."""
    task, encoder = job.task, job.source.model.encoder
    learn, more = task.texts(LEARN), job.options.heal
    apart = [task.texts(part) for part in (VALIDATION, HELD)]
    reads_texts = encoder.modality == "text" and not isinstance(learn[0], Pair)
    if more is None and reads_texts and len(learn) < FEW:
        more = "stdlib-docs"
    if more is not None:
        others = distinct_samples(open_corpus(more), job.source.model, job.options.seed)
        if encoder.modality == "text":
            seen = {*learn, *(text for part in apart for text in part)}
            others = [text for text in others if text not in seen]
        learn += others
    return Lessons(learn, *apart)


def _judged(job: Job, offer: Offer, offers: tuple[Offer, ...]) -> Shrunk:
    """Put the model into its folder, and judge what lies there on the samples held out."""
    source, path = job.source, job.folder / MODEL
    kept = [block - 1 for block in offer.kept]
    trial = Trial(**read_json(job.folder / WORK / f"trial-{len(kept)}.json"))
    shutil.rmtree(path, ignore_errors=True)
    with folder_aside(path) as aside:
        chosen = _room(job, offer) / trial.path
        shutil.copytree(chosen, aside, dirs_exist_ok=True)
        depth = depth_of(source.model, source.samples, kept)
        made = Made(tuple(kept), depth, aside, trial.difference)
        entry = measure(source, made, job.format, trial.healed)
        describe(source, entry, aside)
        copy_terms(source.beside, aside)
    small = open_cut(path, source).model
    full = job.task.values(source.model, HELD)
    loss, error = paired(full, job.task.values(small, HELD))
    cut_loss = loss
    if trial.healed or trial.mapped:
        dropped = set(range(1, source.model.stack.depth + 1)) - set(offer.kept)
        cut_loss, _ = paired(full, job.task.without(dropped, HELD))
    recall = None
    if not (reads_logits(source.model) or source.model.is_sparse):
        recall = job.task.recall(small, HELD)
    loader = f"{source.model.loaded.wrapper}({{}})"
    if job.format == "transformers":
        loader = f"{entry.auto}.from_pretrained({{}})"
    return replace(
        _answer(job, offers),
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
        job.data,
        offers,
    )
