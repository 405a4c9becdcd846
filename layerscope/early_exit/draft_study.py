"""The work of `exits` for a language model: which layer should draft, how much, and whether that is faster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError, count
from layerscope.core.memory import peak_bytes
from layerscope.core.options import Asked
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter, reporting
from layerscope.core.stopwatch import Stopwatch, machine
from layerscope.early_exit.findings import judged
from layerscope.generation.decoder import check_room, ends_of
from layerscope.generation.draft_replay import (
    PASSES,
    Clocked,
    Reading,
    Setting,
    best,
    clocked,
    read,
    replay,
)
from layerscope.generation.draft_report import STORE, DraftReport
from layerscope.generation.pipeline import from_data, open_texts
from layerscope.generation.speculation import SelfSpeculation
from layerscope.logit_lens.translators import Translators
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.profiling.identity import weights_fingerprint

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
        longest = max(map(len, prompts))
        rows = torch.tensor(
            [[*[0] * (longest - len(row)), *row] for row in prompts], device=self.model.device
        )
        mask = torch.tensor(
            [[*[0] * (longest - len(row)), *[1] * len(row)] for row in prompts],
            device=self.model.device,
        )
        options = {
            "max_new_tokens": self.most,
            "do_sample": False,
            "num_beams": 1,
            "pad_token_id": 0,
            **how,
        }
        made: Tensor = module.generate(rows, attention_mask=mask, **options)
        return made

    def new(self, batch: int, made: Tensor) -> list[list[int]]:
        """Return the new tokens of each text."""
        ends, found = set(ends_of(self.model.module)), []
        for row in made[:, max(map(len, self.batches[batch])) :].tolist():
            stop = next((n for n, token in enumerate(row, start=1) if token in ends), len(row))
            found.append(row[:stop])
        return found


def study_drafts(asked: Asked, model: LayeredModel) -> DraftReport:
    """Do what `exits` is asked for with a language model."""
    out = None if asked.out is None else STORE.folder(asked.out)
    if asked.max_new_tokens < FEWEST:
        short = f"`max_new_tokens={asked.max_new_tokens}`"
        raise LayerscopeError(f"{short} is too short to time drafts: give at least {FEWEST}")
    team = processes.team()
    depth, reporter = model.stack.depth, reporting(asked.progress and team.leads)
    if depth < 2:
        raise LayerscopeError(f"{model.loaded.name} has one block: no earlier layer can draft")
    layers = sorted({*(asked.exits or range(1, depth))})
    if odd := [layer for layer in layers if layer >= depth]:
        raise LayerscopeError(f"layer {odd[0]} cannot draft: give `exits` of 1 … {depth - 1}")
    # a model whose blocks cannot run apart, or with the translators of another, is refused before
    # the work
    lens = SelfSpeculation(model.module, layers[0], lens=asked.draft_lens).halves.lens
    corpus = open_texts(asked)
    given = from_data(model, corpus, Asked(**vars(asked) | {"samples": asked.samples or PROMPTS}))
    check_room(model, given.prompts, "prompt", asked.max_new_tokens)
    size = asked.batch_size or BATCH
    half = len(given.prompts) // 2
    if half < size:
        raise LayerscopeError(
            f"{corpus.name} gives {len(given.prompts)} prompts: `batch_size={size}` needs {2 * size}, one half to "
            "choose on and the other to measure on"
        )
    notes = given.notes
    if half % size or len(given.prompts) % 2:
        left = len(given.prompts) - 2 * (half - half % size)
        notes = (
            *notes,
            f"{count(left, 'prompt')} left out: the halves are whole batches of {size}",
        )
    for note in notes:
        reporter.say(note)
    batches = [
        given.prompts[i : i + size]
        for start in (0, half)
        for i in range(start, start + half - size + 1, size)
    ]
    with evaluating(model.module):
        writer = Writer(model, batches, asked.max_new_tokens, lens)
        report = _study(asked, writer, layers, notes, corpus.name, reporter, team)
    return report if out is None else replace(report, folder=team.lead(partial(report.save, out)))


def _study(
    asked: Asked,
    writer: Writer,
    layers: Sequence[int],
    notes: Sequence[str],
    data: str,
    reporter: Reporter,
    team: Team,
) -> DraftReport:
    """Choose on the first half of the batches, and measure on the other."""
    model, most, half = writer.model, writer.most, len(writer.batches) // 2
    watch, depth = Stopwatch(model.device), model.stack.depth
    with reporter.bar("plain decoding", half, "batches") as advance:
        texts = []
        for readings in team.each(
            lambda batch: _readings(writer, batch, writer(batch)), range(half)
        ):
            texts.append(readings)
            advance(1)
    agreement = _agreement(texts)
    if np.isnan(agreement).any():
        raise LayerscopeError(
            f"the model ends each text of {data} after one token: there is nothing to draft"
        )
    timed = sorted(sorted(layers, key=partial(_promise, agreement, depth))[-TIMED:])

    def timings() -> tuple[Clocked, float]:
        """Return what rounds of drafts cost, and the seconds of plain decoding."""
        with reporter.bar("rounds of drafts", PASSES * half, "batches") as advance:

            def write(how: SelfSpeculation) -> None:
                for batch in range(half):  # in turns, so that a busy machine slows both
                    plain[batch].append(watch.seconds(partial(writer, batch)))
                    writer(batch, custom_generate=how)
                    advance(1)

            plain = [list[float]() for _ in range(half)]
            cost = clocked(model, timed, write, most, writer.lens)
        return cost, float(np.mean(plain, 1).sum())

    cost, seconds = team.lead(timings)
    tokens = None if asked.draft_tokens == "auto" else asked.draft_tokens
    found = {layer: best(texts, layer, cost, most, tokens, asked.threshold) for layer in timed}
    settings = {layer: setting for layer, (setting, _) in found.items()}
    predicted = {layer: seconds / expected for layer, (_, expected) in found.items()}
    chosen = max(predicted, key=lambda layer: predicted[layer])
    raced = team.lead(lambda: _race(writer, half, settings, chosen, watch, reporter))
    held = [
        *team.each(
            lambda batch: _readings(writer, half + batch, raced.texts[batch]),
            range(len(raced.texts)),
        )
    ]
    rows = []
    for layer, agrees in zip(layers, _agreement(held)[np.array(layers) - 1], strict=True):
        own, way = settings.get(layer), (DRAFTS, layer)
        rounds = [] if own is None else [replay(batch, own, most) for batch in held]
        accepted, drafted, verified = (
            sum(getattr(each, name) for each in rounds)
            for name in ("accepted", "drafted", "verified")
        )
        rows.append(
            {
                "layer": layer,
                "chosen": layer == chosen,
                "agreement": agrees,
                "draft_tokens": own.tokens if own else 0,
                "threshold": own.threshold if own else 0.0,
                "acceptance": accepted / drafted if drafted else np.nan,
                "length": 1 + accepted / verified if verified else np.nan,
                "predicted": predicted.get(layer, np.nan),
                "measured": raced.speedups.get(way, np.nan),
                "early_exit": raced.speedups.get((EARLY, layer), np.nan),
                "tokens_per_second": raced.rates.get(way, np.nan),
                "memory": raced.memory.get(way, np.nan),
            }
        )
    table, setting = pd.DataFrame(rows), settings[chosen]
    measured = raced.speedups[DRAFTS, chosen]
    pays, verdict = judged(predicted[chosen], measured, asked.min_speedup)
    if abs(np.log(predicted[chosen] / measured)) > APART:
        notes = [
            *notes,
            "expected and measured speed differ widely: try more `samples`, or a quieter machine",
        ]
    same = (
        "same text"
        if raced.same == raced.total
        else f"{raced.same} of {raced.total} texts the same"
    )
    return DraftReport(
        model=model.loaded.name,
        depth=depth,
        data=data,
        prompts=sum(map(len, writer.batches)),
        batch_size=len(writer.batches[0]),
        max_new_tokens=most,
        dtype=str(next(model.module.parameters()).dtype).removeprefix("torch."),
        machine=machine(model.device),
        pays=pays,
        verdict=f"{verdict}, {same}" if pays else f"{verdict}; decode plainly",
        layer=chosen,
        draft_tokens=setting.tokens,
        threshold=setting.threshold,
        predicted=predicted[chosen],
        measured=measured,
        plain_rate=raced.rates[PLAIN],
        plain_memory=raced.memory[PLAIN],
        weights=weights_fingerprint(model.module, torch.bfloat16),
        same=raced.same,
        texts=raced.total,
        layers=table,
        notes=(*notes, *raced.notes),
        lens=str(asked.draft_lens or ""),
    )


def _promise(agreement: Any, depth: int, layer: int) -> float:
    """Return how fast a layer's drafts would be if only blocks took time."""
    rate = min(float(agreement[layer - 1]), 0.99)
    return max(
        (1 - rate**n) / (1 - rate) * depth / (n * layer + depth - layer) for n in range(2, 8)
    )


def _readings(writer: Writer, batch: int, made: Tensor) -> list[Reading]:
    """Return what each layer says along the texts of a batch."""
    pairs = zip(writer.batches[batch], writer.new(batch, made), strict=True)
    return [read(writer.model, prompt, new, writer.lens) for prompt, new in pairs]


def _agreement(texts: Sequence[Sequence[Reading]]) -> NDArray[np.float64]:
    """Return the share of new tokens at which each layer agrees with the model, [L − 1]; NaN where there are none."""
    right = np.concatenate([text.right for batch in texts for text in batch], 1)
    return np.asarray(right.mean(1)) if right.size else np.full(len(right), np.nan)


@dataclass(frozen=True)
class Raced:
    """Ways to decode side by side: times as fast as plain decoding, tokens per second, bytes beside the weights.

    `texts` are the held-out batches as plain decoding writes them, of which `same` of `total` are
    those of the drafts by the chosen layer too.
    """

    speedups: dict[Way, float]
    rates: dict[Way, float]
    memory: dict[Way, float]
    texts: list[Tensor]
    same: int
    total: int
    notes: tuple[str, ...]


def _race(
    writer: Writer,
    first: int,
    settings: Mapping[int, Setting],
    chosen: int,
    watch: Stopwatch,
    reporter: Reporter,
) -> Raced:
    """Have all ways write the held-out batches in turns."""
    held, notes = range(first, len(writer.batches)), tuple[str, ...]()
    ways: dict[Way, dict[str, Any]] = {PLAIN: {}}
    for layer, own in settings.items():
        drafts = SelfSpeculation(
            writer.model.module,
            layer,
            own.tokens,
            own.threshold or None,
            lens=writer.lens,
            fall_back=False,
        )
        ways[DRAFTS, layer] = {"custom_generate": drafts}
    if len(writer.batches[0]) == 1:  # of a batch, transformers' own takes one text
        early: dict[Way, dict[str, Any]] = {
            (EARLY, layer): {"assistant_early_exit": layer} for layer in settings
        }
        module: Any = writer.model.module
        config = module.config.get_text_config(decoder=True)
        depth = config.num_hidden_layers
        try:
            for how in early.values():
                writer(first, **how)
            ways |= early
        except Exception as error:  # each model fails there in its own way
            config.num_hidden_layers = depth  # which is lowered there, and left so
            notes = (
                f"transformers' assistant_early_exit does not run here ({type(error).__name__})",
            )
    made: dict[Way, dict[int, Tensor]] = {way: {} for way in ways}
    seconds, sizes = [], []

    def run(way: Way, batch: int) -> None:
        made[way][batch] = writer(batch, **ways[way])

    turns = max(TURNS, len(held))
    with reporter.bar("ways, interleaved", turns + 1, "rounds") as advance:
        for turn in range(-1, turns):  # the first allocates, and does not count
            batch = held[turn % len(held)]
            times = watch.turn([partial(run, way, batch) for way in ways], turn)
            if turn >= 0:
                seconds.append(times)
                sizes.append(sum(map(len, writer.new(batch, made[PLAIN][batch]))))
            advance(1)
    pairs = [
        pair for i in held for pair in zip(made[PLAIN][i], made[DRAFTS, chosen][i], strict=True)
    ]
    clock, new = np.array(seconds), np.array(sizes)[:, None]
    return Raced(
        dict(zip(ways, np.median(clock[:, :1] / clock, 0).tolist(), strict=True)),
        dict(zip(ways, np.median(new / clock, 0).tolist(), strict=True)),
        {
            way: float(peak_bytes(partial(writer, first, **how)))
            for way, how in ways.items()
            if way[0] != EARLY
        },
        [made[PLAIN][batch] for batch in held],
        sum(_alike(*pair) for pair in pairs),
        len(pairs),
        notes,
    )


def _alike(one: Tensor, other: Tensor) -> bool:
    """Return whether two rows are the same text; what fills the batch up after its end may differ in length."""
    length = min(len(one), len(other))
    return bool(torch.equal(one[:length], other[:length])) and not bool(
        one[length:].any() or other[length:].any()
    )
