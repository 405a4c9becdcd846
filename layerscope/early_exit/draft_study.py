"""The work of `exits` for a language model: drafts of some layers and plain decoding write the same texts in turns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn.utils.rnn import pad_sequence

from layerscope.core import (
    LayerscopeError,
    Reporter,
    Stopwatch,
    jsonable,
    machine,
    processes,
    reporting,
)
from layerscope.early_exit.calibration import (
    Calibration,
    affordable_threshold,
    calibrate_recorded,
    split,
)
from layerscope.early_exit.findings import judged
from layerscope.early_exit.next_token import NextTokenExits, record_tokens
from layerscope.early_exit.options import ExitsOptions
from layerscope.early_exit.predictions import NEVER
from layerscope.early_exit.timing import speedup
from layerscope.generation import DraftReport, SelfSpeculation, Speculated
from layerscope.generation.draft_report import AUTO, EXIT, PLAIN, STORE, WAYS
from layerscope.generation.language_model import check_room, ends_of, until_end
from layerscope.generation.pipeline import from_data, open_texts
from layerscope.generation.split_model import SplitModel
from layerscope.inputs import Corpus
from layerscope.models import LayeredModel, dtype_of, evaluating

PROMPTS = 16
"""Number of prompts where none is given."""
CERTIFYING = 1000
"""Most texts that certify an exit for next tokens, one token of each."""
BATCH = 1
"""Prompts in a batch where no number is given."""
SHARES = (1 / 8, 1 / 4, 3 / 8, 1 / 2)
"""Where the layers lie that draft, as shares of the depth, where none are given."""
TURNS = 5
"""Fewest turns of all ways to decode."""
Texts = list[list[int]]


def study_drafts(options: ExitsOptions, model: LayeredModel) -> DraftReport:
    """Return how fast drafts of some layers, and of the one that is chosen on the way, write the prompts."""
    out = options.out
    depth = model.depth
    module = model.module
    if out is not None:
        STORE.folder(out)
    spread = [math.ceil(share * depth) for share in SHARES]
    layers = sorted({*(options.exits or spread)})
    if layers[-1] >= depth > 1:
        raise LayerscopeError(
            f"layer {layers[-1]} of {depth} cannot draft: give `exits` before the last layer"
        )
    tokens = options.draft_tokens
    drafts: dict[str, Any] = {}
    for layer in layers:
        drafts[str(layer)] = SelfSpeculation(module, layer, tokens, fall_back=False)
    drafts[AUTO] = SelfSpeculation(module, AUTO, tokens)
    corpus = open_texts(options.data, options.reading)
    texts = from_data(
        model,
        corpus,
        options.samples or PROMPTS,
        options.seed,
        options.prefix,
        options.reading,
    )
    new = options.max_new_tokens
    check_room(model, texts.prompts, new)
    size = options.batch_size or BATCH
    starts = range(0, len(texts.prompts), size)
    batches = [texts.prompts[start : start + size] for start in starts]
    reporter = reporting(options.progress)

    def race() -> DraftReport:
        # an exit that leaves tokens unverified races too, where the texts certify one
        ways = dict(drafts)
        calibration, note = _certified(options, model, corpus, reporter)
        if calibration is not None and calibration.threshold != NEVER:
            (layer,) = calibration.exits
            exits = NextTokenExits(module, layer, calibration.threshold)
            ways[f"{EXIT}{layer}"] = exits
        table, same = _measured(model, batches, new, ways, reporter)
        best = table[table["chosen"]].iloc[0]
        pays, verdict = judged(best["measured"], best["error"], options.min_speedup)
        if not pays:
            verdict = f"{verdict}; decode plainly"
        report = DraftReport(
            model=model.name,
            depth=depth,
            data=corpus.name,
            prompts=len(texts.prompts),
            batch_size=size,
            max_new_tokens=new,
            draft_tokens=str(tokens),
            dtype=dtype_of(module),
            machine=machine(model.device),
            pays=pays,
            verdict=verdict,
            draft_layer=str(best["draft_layer"]),
            same=same,
            ways=table,
            guarantee=str(calibration or ""),
            calibration=jsonable(calibration),
            notes=(*texts.notes, *note),
        )
        if out is None:
            return report
        return replace(report, folder=report.save(out))

    # one process measures and the others idle, for clean timings
    with evaluating(module):
        return processes.team().lead(race)


def _certified(
    options: ExitsOptions,
    model: LayeredModel,
    corpus: Corpus,
    reporter: Reporter,
) -> tuple[Calibration | None, tuple[str, ...]]:
    """Return the exit and threshold that meet the goal on texts of the data; none if they are too few, with a note."""
    seed, prefix = options.seed, options.prefix
    texts = from_data(model, corpus, CERTIFYING, seed, prefix, options.reading)
    rows = [row for row in texts.rows if len(row) > prefix]
    try:
        design, tested = split(len(rows), options.goal, seed)
    except LayerscopeError as error:
        if options.changed & {"max_disagreement", "confidence"}:
            raise
        return None, (f"no exit for next tokens is certified: {error}",)
    new = options.max_new_tokens
    recorded = record_tokens(model, rows, prefix, new, seed, reporter)
    chosen_on = recorded.take(design)
    head = SplitModel(model.module).head_work

    def work(layer: int) -> float:
        threshold = affordable_threshold(chosen_on, (layer,), len(tested), options.goal)
        leaving = chosen_on.leaves((layer,), threshold)
        # a token that goes on has cost a run of the head, too, which takes as long as `head` blocks
        return float((leaving + head * (leaving > layer)).mean())

    exits = (min(options.exits or range(1, model.depth), key=work),)
    return calibrate_recorded(recorded.take(tested), exits, options.goal), ()


def _measured(
    model: LayeredModel,
    batches: Sequence[Sequence[list[int]]],
    new: int,
    drafts: Mapping[str, Any],
    reporter: Reporter,
) -> tuple[pd.DataFrame, int]:
    """Have all ways write every batch in turns; return a row for each, and how many texts the fastest left alike.

    `drafts` holds what drafts, by the name of its way.
    """
    ways = [PLAIN, *drafts]
    rounds = math.ceil(TURNS / len(batches))
    watch = Stopwatch(model.device)
    seconds = np.zeros((len(ways), rounds, len(batches)))
    texts: dict[str, dict[int, Texts]] = {way: {} for way in ways}
    reports = {way: Speculated() for way in ways}

    def write(way: str, batch: int) -> None:
        texts[way][batch] = _written(model, batches[batch], new, drafts.get(way))

    watch.turn([partial(write, way, 0) for way in ways])  # the first allocates
    total = rounds * len(batches)
    with reporter.bar("ways to decode, in turns", total, "batches") as advance:
        for turn, batch in np.ndindex(rounds, len(batches)):
            runs = [partial(write, way, batch) for way in ways]
            seconds[:, turn, batch] = watch.turn(runs, turn + batch)
            for way, decoding in drafts.items():
                reports[way] += decoding.report
            advance(1)
    # plain decoding is the first way, to which all are compared
    rows = []
    for way, way_seconds in zip(ways, seconds, strict=True):
        measured, error = speedup(seconds[0], way_seconds)
        tokens = sum(map(len, chain(*texts[way].values())))
        rate = rounds * tokens / way_seconds.sum()
        rows.append((way, False, reports[way].acceptance, rate, measured, error))
    table = pd.DataFrame(rows, columns=[*WAYS])
    # the fastest of those that verify what they write
    lossless = ~table["draft_layer"].str.startswith(EXIT)
    best = int(table["measured"][lossless][1:].idxmax())
    table["chosen"] = table.index == best
    plain = texts[PLAIN].values()
    drafted = texts[ways[best]].values()
    pairs = zip(chain(*plain), chain(*drafted), strict=True)
    return table, sum(one == other for one, other in pairs)


def _written(
    model: LayeredModel, prompts: Sequence[list[int]], new: int, decoding: Any
) -> Texts:
    """Return the new tokens with which a model continues prompts greedily, plainly where `decoding` is None."""
    module: Any = model.module
    rows = [torch.tensor(row, device=model.device) for row in prompts]
    mask = [torch.ones_like(row) for row in rows]
    texts = module.generate(
        pad_sequence(rows, batch_first=True, padding_side="left"),
        attention_mask=pad_sequence(mask, batch_first=True, padding_side="left"),
        max_new_tokens=new,
        do_sample=False,
        num_beams=1,
        pad_token_id=0,
        custom_generate=decoding,
    )
    start = max(map(len, prompts))
    ends = ends_of(module)
    return [until_end(row, ends) for row in texts[:, start:].tolist()]
