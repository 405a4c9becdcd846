"""The work of `exits` for a language model: which layer should draft, how much, and whether that is faster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError, count
from layerscope.core.memory import peak_bytes
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter, reporting
from layerscope.core.saved import typed
from layerscope.core.stopwatch import Stopwatch, machine
from layerscope.early_exit.findings import judged
from layerscope.early_exit.options import ExitsOptions
from layerscope.generation.decoder import check_room, ends_of, until_end
from layerscope.generation.draft_replay import (
    PASSES,
    THRESHOLDS,
    DraftCosts,
    Reading,
    Setting,
    best,
    read,
    replay,
    timed_rounds,
)
from layerscope.generation.draft_report import LAYERS, STORE, DraftReport
from layerscope.generation.draft_scheduler import MOST
from layerscope.generation.pipeline import from_data, open_texts
from layerscope.generation.speculation import SelfSpeculation
from layerscope.logit_lens.translators import Translators
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.identity import weights_fingerprint

PROMPTS, BATCH = 32, 1
"""Prompts, and prompts in a batch, where none are given."""
FEWEST = 16
"""Fewest new tokens of a text that is timed."""
TIMED = 8
"""Layers that are timed at most: those that would be fastest if only blocks took time."""
APART = 0.2
"""Logarithm of a ratio from which two speeds lie far apart."""
TURNS = 7
"""Fewest times that the ways to decode take turns."""
Way = tuple[str, int]
PLAIN, DRAFTS, EARLY = ("plain", 0), "drafts", "early exit"
"""Ways to decode: drafts and transformers' own early exit at a layer."""


@dataclass(frozen=True)
class Writer:
    """Has a model continue batches of prompts greedily, with its own settings otherwise."""

    model: LayeredModel
    batches: Sequence[Sequence[Sequence[int]]]
    most: int
    lens: Translators | None = None

    def __call__(self, batch: int, **how: Any) -> Tensor:
        """Return prompts, padded at the left, and what follows them, for one batch."""
        prompts, module = self.batches[batch], cast(Any, self.model.module)
        longest = self.longest(batch)
        ids = torch.tensor([[*[0] * (longest - len(row)), *row] for row in prompts])
        lengths = torch.tensor([len(row) for row in prompts])
        mask = (torch.arange(longest) >= longest - lengths[:, None]).long()
        options = {"max_new_tokens": self.most, "do_sample": False, "num_beams": 1} | how
        device = self.model.device
        made: Tensor = module.generate(
            ids.to(device), attention_mask=mask.to(device), pad_token_id=0, **options
        )
        return made

    @property
    def half(self) -> int:
        """The number of batches to choose on, and of those to measure on."""
        return len(self.batches) // 2

    def longest(self, batch: int) -> int:
        """Return the length of the longest prompt of a batch."""
        return max(map(len, self.batches[batch]))

    def new(self, batch: int, made: Tensor) -> list[list[int]]:
        """Return the new tokens of each text."""
        ends = ends_of(self.model.module)
        return [[*until_end(row, ends)] for row in made[:, self.longest(batch) :].tolist()]

    def readings(self, batch: int, made: Tensor) -> list[Reading]:
        """Return what each layer says along the texts of a batch."""
        pairs = zip(self.batches[batch], self.new(batch, made), strict=True)
        return [read(self.model, prompt, new, self.lens) for prompt, new in pairs]


def study_drafts(options: ExitsOptions, model: LayeredModel) -> DraftReport:
    """Return what drafts of early layers would gain, chosen and measured on the data."""
    out, new = options.out, options.max_new_tokens
    if out is not None:
        STORE.folder(out)
    if new < FEWEST:
        raise LayerscopeError(
            f"`max_new_tokens={new}` is too short to time drafts: give at least {FEWEST}"
        )
    team = processes.team()
    depth, reporter = model.stack.depth, reporting(options.progress and team.leads)
    if depth < 2:
        raise LayerscopeError(f"{model.loaded.name} has one block: no earlier layer can draft")
    layers = sorted({*(options.exits or range(1, depth))})
    if layers[-1] >= depth:
        deep = next(layer for layer in layers if layer >= depth)
        raise LayerscopeError(f"layer {deep} cannot draft: give `exits` of 1 … {depth - 1}")
    # a model whose blocks cannot run apart, or with the translators of another, is refused before
    # the work
    lens = SelfSpeculation(model.module, layers[0], lens=options.draft_lens).split.lens
    corpus = open_texts(options.data, options.reading)
    samples, longest = options.samples or PROMPTS, options.reading.get("max_length")
    texts = from_data(model, corpus, samples, options.seed, options.prefix, longest)
    check_room(model, texts.prompts, "prompt", new)
    batches, notes = _halves(texts.prompts, options.batch_size or BATCH, corpus.name)
    notes = (*texts.notes, *notes)
    for note in notes:
        reporter.say(note)
    numbers = range(1, MOST) if options.draft_tokens == "auto" else [options.draft_tokens]
    thresholds = THRESHOLDS if options.threshold is None else [options.threshold]
    with evaluating(model.module):
        writer = Writer(model, batches, new, lens)
        readings = _read_layers(writer, reporter, team)
        settings, raced = team.lead(
            partial(_time, writer, readings, layers, product(numbers, thresholds), reporter)
        )
        report = _reported(writer, layers, settings, raced, options.min_speedup, team)
    report = replace(
        report,
        data=corpus.name,
        notes=(*notes, *report.notes),
        lens=str(options.draft_lens or ""),
    )
    return report if out is None else replace(report, folder=team.lead(partial(report.save, out)))


def _halves(
    prompts: Sequence[list[int]], size: int, name: str
) -> tuple[list[Sequence[list[int]]], tuple[str, ...]]:
    """Return the batches to choose on, then as many to measure on, with a note where prompts are left out."""
    half = len(prompts) // 2 // size
    if not half:
        raise LayerscopeError(
            f"{name} gives {len(prompts)} prompts: `batch_size={size}` needs {2 * size}, one half to "
            "choose on and the other to measure on"
        )
    starts = [size * i for i in range(half)]
    starts += [len(prompts) // 2 + start for start in starts]
    batches = [prompts[start : start + size] for start in starts]
    left = len(prompts) - 2 * half * size
    note = f"{count(left, 'prompt')} left out: the halves are whole batches of {size}"
    return batches, (note,) if left else ()


def _read_layers(writer: Writer, reporter: Reporter, team: Team) -> list[list[Reading]]:
    """Return what each layer says along the texts of the first half of the batches."""
    texts = []
    with reporter.bar("plain decoding", writer.half, "batches") as advance:
        for readings in team.each(
            lambda batch: writer.readings(batch, writer(batch)), range(writer.half)
        ):
            texts.append(readings)
            advance(1)
    if np.isnan(_agreement(texts)).any():
        raise LayerscopeError(
            "the model ends each text after one token: there is nothing to draft, give other prompts"
        )
    return texts


def _time(
    writer: Writer,
    texts: Sequence[Sequence[Reading]],
    layers: Sequence[int],
    settings: Iterable[tuple[int, float]],
    reporter: Reporter,
) -> tuple[pd.DataFrame, "Raced"]:
    """Return the fastest setting of the most promising layers with the speed-up it promises, and all of them raced.

    Settings are numbers of draft tokens with thresholds. Drafts are replayed at the measured cost
    of rounds.
    """
    promise = partial(_promise, _agreement(texts), writer.model.stack.depth)
    timed = sorted(sorted(layers, key=promise)[-TIMED:])
    costs, plain, prompts = _timings(writer, timed, reporter)
    numbers, rows = [*settings], []
    for layer in timed:
        every = [Setting(layer, *each) for each in numbers]
        fastest, seconds = best(texts, every, costs, writer.most)
        rows.append((*fastest, plain / (prompts + seconds)))
    chosen = pd.DataFrame(rows, columns=["layer", "draft_tokens", "threshold", "predicted"])
    return chosen, _race(writer, chosen, reporter)


def _timings(
    writer: Writer, layers: Sequence[int], reporter: Reporter
) -> tuple[DraftCosts, float, float]:
    """Return what rounds of drafts cost, the seconds of plain decoding, and those of reading the prompts."""
    watch = Stopwatch(writer.model.device)
    plain, prompts = ([list[float]() for _ in range(writer.half)] for _ in range(2))
    with reporter.bar("rounds of drafts", PASSES * writer.half, "batches") as advance:

        def write(speculation: SelfSpeculation) -> None:
            for batch in range(writer.half):  # in turns, so that a busy machine slows all
                plain[batch].append(watch.seconds(partial(writer, batch)))
                reading = partial(writer, batch, max_new_tokens=1)
                prompts[batch].append(watch.seconds(reading))
                writer(batch, custom_generate=speculation)
                advance(1)

        costs = timed_rounds(writer.model, layers, write, writer.lens)
    return costs, float(np.mean(plain, 1).sum()), float(np.mean(prompts, 1).sum())


def _reported(
    writer: Writer,
    layers: Sequence[int],
    settings: pd.DataFrame,
    raced: "Raced",
    min_speedup: float,
    team: Team,
) -> DraftReport:
    """Return what was promised and measured."""
    model, way = writer.model, raced.ways.set_index(["way", "layer"])
    texts = [
        *team.each(
            lambda batch: writer.readings(writer.half + batch, raced.texts[batch]),
            range(writer.half),
        )
    ]
    chosen = settings.loc[settings["predicted"].idxmax()]
    layer, predicted = int(chosen["layer"]), float(chosen["predicted"])
    measured = float(way.loc[(DRAFTS, layer), "measured"])
    notes = raced.notes
    if abs(np.log(predicted / measured)) > APART:
        apart = (
            "expected and measured speed differ widely: try more `samples`, or a quieter machine"
        )
        notes = (apart, *notes)
    pays, verdict = judged(predicted, measured, min_speedup)
    same, total = sum(raced.same), len(raced.same)
    alike = "same text" if same == total else f"{same} of {total} texts the same"
    table = pd.DataFrame({"layer": layers, "agreement": _agreement(texts)[np.array(layers) - 1]})
    table["chosen"] = table["layer"] == layer
    replayed = [_replayed(texts, each, writer.most) for each in _settings_of(settings)]
    table = table.merge(settings.join(pd.DataFrame(replayed)), "left", "layer")
    table = table.merge(way.loc[DRAFTS], "left", on="layer")
    early = raced.ways[raced.ways["way"] == EARLY].set_index("layer")["measured"]
    table["early_exit"] = table["layer"].map(early)
    return DraftReport(
        model=model.loaded.name,
        depth=model.stack.depth,
        data="",
        prompts=sum(map(len, writer.batches)),
        batch_size=len(writer.batches[0]),
        max_new_tokens=writer.most,
        dtype=str(next(model.module.parameters()).dtype).removeprefix("torch."),
        machine=machine(model.device),
        pays=pays,
        verdict=f"{verdict}, {alike}" if pays else f"{verdict}; decode plainly",
        layer=layer,
        draft_tokens=int(chosen["draft_tokens"]),
        threshold=float(chosen["threshold"]),
        predicted=predicted,
        measured=measured,
        plain_rate=float(way.loc[PLAIN, "tokens_per_second"]),
        plain_memory=float(way.loc[PLAIN, "memory"]),
        weights=weights_fingerprint(model.module, torch.bfloat16),
        same=same,
        texts=total,
        layers=typed(table.fillna({"draft_tokens": 0, "threshold": 0.0}), LAYERS),
        notes=notes,
    )


def _settings_of(table: pd.DataFrame) -> list[Setting]:
    rows = table[["layer", "draft_tokens", "threshold"]].itertuples(index=False, name=None)
    return [Setting(*row) for row in rows]


def _replayed(texts: Sequence[Sequence[Reading]], setting: Setting, most: int) -> dict[str, float]:
    """Return the share of draft tokens that are accepted, and the tokens that a round adds to a text."""
    replays = [replay(batch, setting, most) for batch in texts]
    accepted = sum(each.accepted for each in replays)
    drafted = sum(each.drafted for each in replays) or np.nan
    verified = sum(each.verified for each in replays) or np.nan
    return {"acceptance": accepted / drafted, "length": 1 + accepted / verified}


@dataclass(frozen=True)
class Raced:
    """Ways to decode side by side, and the held-out batches as plain decoding writes them.

    `ways` has a row for each, by its `way` and `layer`: times as fast as plain decoding, tokens per
    second, and bytes beside the weights. `same` says of each text whether the chosen layer's drafts
    give it too.
    """

    ways: pd.DataFrame
    texts: list[Tensor]
    same: list[bool]
    notes: tuple[str, ...]


def _race(writer: Writer, settings: pd.DataFrame, reporter: Reporter) -> Raced:
    """Have all ways write the held-out batches in turns."""
    ways: dict[Way, dict[str, Any]] = {PLAIN: {}}
    for layer, tokens, threshold in _settings_of(settings):
        drafts = SelfSpeculation(
            writer.model.module,
            layer,
            tokens,
            threshold or None,
            lens=writer.lens,
            fall_back=False,
        )
        ways[DRAFTS, layer] = {"custom_generate": drafts}
    early, notes = _early_exits(writer, settings["layer"])
    ways |= early
    made: dict[tuple[Way, int], Tensor] = {}
    seconds, sizes = [], []

    def run(way: Way, batch: int) -> None:
        made[way, batch] = writer(batch, **ways[way])

    held, watch = range(writer.half, len(writer.batches)), Stopwatch(writer.model.device)
    turns = max(TURNS, len(held))
    with reporter.bar("ways, interleaved", turns + 1, "rounds") as advance:
        for turn in range(-1, turns):  # the first allocates, and does not count
            batch = held[turn % len(held)]
            times = watch.turn([partial(run, way, batch) for way in ways], turn)
            if turn >= 0:
                seconds.append(times)
                sizes.append(sum(map(len, writer.new(batch, made[PLAIN, batch]))))
            advance(1)
    clock, new = np.array(seconds), np.array(sizes)[:, None]
    table = pd.DataFrame([*ways], columns=["way", "layer"])
    table["measured"] = np.median(clock[:, :1] / clock, 0)
    table["tokens_per_second"] = np.median(new / clock, 0)
    peaks = [
        np.nan if way in early else peak_bytes(partial(writer, writer.half, **how))
        for way, how in ways.items()
    ]
    chosen = DRAFTS, int(settings["layer"][settings["predicted"].idxmax()])
    same = [
        _alike(*texts)
        for batch in held
        for texts in zip(made[PLAIN, batch], made[chosen, batch], strict=True)
    ]
    return Raced(table.assign(memory=peaks), [made[PLAIN, batch] for batch in held], same, notes)


def _early_exits(
    writer: Writer, layers: Iterable[int]
) -> tuple[dict[Way, dict[str, Any]], tuple[str, ...]]:
    """Return transformers' own early exit at these layers, or a note where it does not run."""
    if len(writer.batches[0]) > 1:  # of a batch it takes one text
        return {}, ()
    module: Any = writer.model.module
    config = module.config.get_text_config(decoder=True)
    depth = config.num_hidden_layers
    early: dict[Way, dict[str, Any]] = {
        (EARLY, layer): {"assistant_early_exit": layer} for layer in layers
    }
    try:
        for how in early.values():
            writer(writer.half, **how)
    except Exception as error:  # each model fails there in its own way
        config.num_hidden_layers = depth  # which is lowered there, and left so
        failure = type(error).__name__
        return {}, (f"transformers' assistant_early_exit does not run here ({failure})",)
    return early, ()


def _promise(agreement: NDArray[np.float64], depth: int, layer: int) -> float:
    """Return how fast a layer's drafts would be if only blocks took time."""
    rate = min(float(agreement[layer - 1]), 0.99)
    numbers = np.arange(2, 8)
    gained = (1 - rate**numbers) / (1 - rate)
    return float((gained * depth / (numbers * layer + depth - layer)).max())


def _agreement(texts: Sequence[Sequence[Reading]]) -> NDArray[np.float64]:
    """Return the share of new tokens at which each layer agrees with the model, [L − 1]; NaN where there are none."""
    right = np.concatenate([text.right for batch in texts for text in batch], 1)
    return np.asarray(right.mean(1)) if right.size else np.full(len(right), np.nan)


def _alike(one: Tensor, other: Tensor) -> bool:
    """Return whether two rows are the same text; what fills the batch up after its end may differ in length."""
    length = min(len(one), len(other))
    longer = one if len(one) > length else other
    return torch.equal(one[:length], other[:length]) and not bool(longer[length:].any())
