"""The work of `select` with `drop`: which blocks matter least, by several ways, and what the model loses by each."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core import LayerscopeError, Reporter
from layerscope.inputs import Corpus, open_corpus
from layerscope.inputs.opening import is_name
from layerscope.models import TextEncoder, evaluating
from layerscope.models.texts import distinct
from layerscope.runs.run import Run
from layerscope.selection.removal import Choice, Removal
from layerscope.truncation.depth import find_depth
from layerscope.truncation.expected import expected_at, kept_without
from layerscope.truncation.removed_blocks import Blocks, Meter, greedy_removal
from layerscope.truncation.source import Source

CHOOSE = 256
"""Most samples that choose blocks."""
JUDGE = 1024
"""Most samples that judge the choice."""
FEWEST = 10
"""Fewest samples that choose and judge, together."""
WINDOW = 256
"""Tokens of a window of running text."""


def remove(
    run: Run,
    source: Source,
    pooling: str,
    n: int,
    data: Any,
    seed: int,
    reporter: Reporter,
) -> Removal:
    """Return the n blocks of a run's model that matter least on the run's samples, or on other data."""
    model = source.model
    depth = model.depth
    if n >= depth:
        raise LayerscopeError(
            f"drop {n} leaves none of the {depth} blocks of {source.name}: give 1 to {depth - 1}"
        )
    model.stack.check_single(range(1, depth + 1))  # before the long part
    window = None
    if isinstance(model.encoder, TextEncoder):
        window = WINDOW
        options = run.info["options"]
        reading = {
            name: options[name]
            for name in ("max_length", "prompt")
            if options.get(name)
        }
        model = replace(model, encoder=replace(model.encoder, **reading))
    corpus = distinct(_corpus(run, data), model, seed, window, CHOOSE + JUDGE)
    samples = [*corpus.samples]
    if len(samples) < FEWEST:
        raise LayerscopeError(
            f"{corpus.name} has {len(samples)} distinct samples: give {FEWEST} or more as `data`"
        )
    half = min(CHOOSE, len(samples) // 2)
    models = n * depth - n * (n - 1) // 2 + 6
    with evaluating(model.module), reporter.bar("blocks", models, "models") as advance:
        choosing = Meter(model, samples[:half], pooling, advance)
        judging = Meter(model, samples[half:], pooling, advance)
        influence = choosing.influence()
        least = np.sort(np.argsort(influence, kind="stable")[:n]) + 1
        ways: dict[str, Blocks] = {
            "greedy removal": greedy_removal(choosing, n),
            "block influence": tuple(least.tolist()),
            "the last blocks": tuple(range(depth - n + 1, depth + 1)),
        }
        choices = []
        for way, blocks in ways.items():
            cost_of_choosing, *_ = choosing.cost(blocks)
            fault = _fault(source, blocks)
            choices.append(
                Choice(way, blocks, cost_of_choosing, *judging.cost(blocks), fault)
            )
    return Removal(
        source.name,
        depth,
        judging.kind,
        corpus.name,
        half,
        len(samples) - half,
        tuple(sorted(choices, key=lambda each: (each.fault != "", each.chosen_on))),
        tuple(influence.tolist()),
        str(run.path),
    )


def _corpus(run: Run, data: Any) -> Corpus:
    """Return the data of a run, or others where they are given; raises where these are not there."""
    if data is not None:
        return open_corpus(data)
    about = run.info["data"]
    source = about.get("source") or ""
    if not source or not (is_name(source) or Path(source).expanduser().exists()):
        raise LayerscopeError(
            f"the run's data ({source or about['name']}) cannot be found: name them with `data`"
        )
    return open_corpus(
        source,
        text_column=about.get("text_column"),
        label_column=about.get("label_column"),
    )


def _fault(source: Source, blocks: Blocks) -> str:
    """Return why no checkpoint can lack these blocks, or an empty text."""
    try:
        kept = kept_without(blocks, source.model.depth)
        find_depth(source.model, expected_at(source.model, kept, source.samples))
    except LayerscopeError as error:
        return str(error)
    return ""
