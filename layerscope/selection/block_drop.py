"""The work of `select` with `drop`: which blocks matter least, by several ways, and what the model loses by each."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Reporter
from layerscope.inputs import Corpus, open_corpus, pack
from layerscope.inputs.built_in import BUILT_IN
from layerscope.metrics import angular_distance
from layerscope.models import LayeredModel
from layerscope.models.batching import batches_of
from layerscope.models.capture import evaluating
from layerscope.models.encode import TextEncoder
from layerscope.models.forward import Inputs
from layerscope.models.lens import CHUNK, skipping
from layerscope.models.pooling import pool, served
from layerscope.runs.run import Run
from layerscope.selection.removal import Choice, Removal
from layerscope.selection.scored import Floats, mean_of
from layerscope.truncation.depth import find_depth
from layerscope.truncation.expected import expected_at, kept_without, states_at
from layerscope.truncation.source import Source

CHOOSE, JUDGE, FEWEST = 256, 1024, 10
"""Most samples that choose blocks, most that judge them, and fewest of both together."""
WINDOW = 256
"""Tokens of a window of running text."""
Blocks = tuple[int, ...]


def remove(
    run: Run, source: Source, pooling: str, n: int, data: Any, seed: int, reporter: Reporter
) -> Removal:
    """Return the n blocks of a run's model that matter least on the run's samples, or on other data."""
    options, model, depth = run.info["options"], source.model, source.model.stack.depth
    if n >= depth:
        raise LayerscopeError(
            f"drop {n} leaves none of the {depth} blocks of {source.name}: give 1 to {depth - 1}"
        )
    model.stack.check_single(range(1, depth + 1))  # before the long part
    if isinstance(model.encoder, TextEncoder):
        given = {name: options[name] for name in ("max_length", "prompt") if options.get(name)}
        model = replace(model, encoder=replace(model.encoder, **given))
    samples, name = _samples(_corpus(run, data), model, seed)
    half = min(CHOOSE, len(samples) // 2)
    with (
        evaluating(model.module),
        reporter.bar("blocks", n * depth - n * (n - 1) // 2 + 7, "models") as advance,
    ):
        choosing, judging = (
            Meter(model, part, pooling, advance) for part in (samples[:half], samples[half:])
        )
        influence, angles = choosing.of_blocks(n)
        first = int(np.argmin(angles)) + 1
        ways: dict[str, Blocks] = {
            "greedy removal": _greedy(choosing, n),
            "block influence": tuple(
                sorted((np.argsort(influence, kind="stable")[:n] + 1).tolist())
            ),
            "angular distance": tuple(range(first, first + n)),
            "the last blocks": tuple(range(depth - n + 1, depth + 1)),
        }
        choices = [
            Choice(
                way, blocks, choosing.cost(blocks)[0], *judging.cost(blocks), _fault(source, blocks)
            )
            for way, blocks in ways.items()
        ]
    return Removal(
        source.name,
        depth,
        judging.kind,
        name,
        half,
        len(samples) - half,
        tuple(sorted(choices, key=lambda choice: (choice.fault != "", choice.chosen_on))),
        tuple(influence.tolist()),
        tuple(angles.tolist()),
        str(run.path),
    )


def _samples(corpus: Corpus, model: LayeredModel, seed: int) -> tuple[list[Any], str]:
    """Return distinct samples that give the model something to say, in a seeded order, and the name of their data."""
    if corpus.running and isinstance(model.encoder, TextEncoder):
        corpus = pack(corpus, model.encoder.tokenizer, min(WINDOW, model.encoder.max_length))
    order = np.random.default_rng(seed).permutation(np.flatnonzero(~corpus.copies))
    drawn = [corpus.samples[i] for i in order[: CHOOSE + JUDGE]]
    least = 2 if model.is_language_model else 1
    lengths = model.encoder.lengths(drawn)
    samples = [one for one, length in zip(drawn, lengths, strict=True) if length >= least]
    if len(samples) < FEWEST:
        raise LayerscopeError(
            f"{corpus.name} has {len(samples)} distinct samples: give {FEWEST} or more as `data`"
        )
    return samples, corpus.name


def _corpus(run: Run, data: Any) -> Corpus:
    """Return the data of a run, or others where they are given; raises where these are not there."""
    if data is not None:
        return open_corpus(data)
    about = run.info["data"]
    source = about.get("source")
    if not source or not (
        source in BUILT_IN or source.startswith("hf:") or Path(source).expanduser().exists()
    ):
        raise LayerscopeError(
            f"the run's data ({source or about['name']}) cannot be found: name them with `data`"
        )
    columns = {name: about.get(name) for name in ("text_column", "label_column")}
    return open_corpus(source, **columns)


def _fault(source: Source, blocks: Blocks) -> str:
    """Return why no checkpoint can lack these blocks, or an empty text."""
    try:
        kept = kept_without(blocks, source.model.stack.depth)
        find_depth(source.model, expected_at(source.model, kept, source.samples))
    except LayerscopeError as error:
        return str(error)
    return ""


def _greedy(meter: "Meter", n: int) -> Blocks:
    """Return n blocks, each the one that costs least once those before it are gone."""
    gone: Blocks = ()
    for _ in range(n):
        left = (block for block in range(1, meter.model.stack.depth + 1) if block not in gone)
        gone = min(
            (tuple(sorted((*gone, block))) for block in left),
            key=lambda blocks: meter.cost(blocks)[0],
        )
    return gone


class Meter:
    """Compares what a model gives without some of its blocks with what the full one gives, on the same samples.

    Of a language model the loss of the next token counts, of a classifier the divergence of its
    predictions, else the cosine of the vector that it serves.
    """

    def __init__(
        self, model: LayeredModel, samples: Sequence[Any], pooling: str, advance: Any
    ) -> None:
        self.model, self.pooling, self.advance, encoder = model, pooling, advance, model.encoder
        self.kind = (
            "pooled" if model.lens is not None and model.lens.kind == "pooled" else "vectors"
        )
        self.kind = "tokens" if model.is_language_model else self.kind
        batches = (
            [samples[i] for i in batch] for batch in batches_of(model, encoder.lengths(samples))
        )
        self.batches = [encoder.batch(batch).to(model.device) for batch in batches]
        self.cost, self.full = cache(self._cost), self._given(())

    def _cost(self, blocks: Blocks) -> tuple[float, float, float]:
        """Return what the model loses without these blocks, with its standard error, and what is left."""
        own, full = self._given(blocks), self.full
        if self.kind == "tokens":
            cost, score = own - full, own
        elif self.kind == "pooled":
            cost, score = (
                (full.exp() * (full - own)).sum(-1),
                (full.argmax(-1) == own.argmax(-1)).double(),
            )
        else:
            score = cosine_similarity(own, full, dim=-1)
            cost = 1 - score
        return *mean_of(cost.numpy(), None), float(score.mean())

    @torch.inference_mode()
    def _given(self, blocks: Blocks) -> Tensor:
        """Return a loss, log-probabilities or a vector of each sample, float64, in the order of the batches."""
        model = self.model

        def given(inputs: Inputs) -> Tensor:
            with skipping(model.module, model.stack, blocks):
                states = states_at(model.module, model.stack, inputs, model.stack.depth)
            return (
                self._read(states, replace(inputs, mask=model.mask(inputs, states["raw"])))
                .double()
                .cpu()
            )

        found = [*processes.team().each(given, self.batches)]
        self.advance(1)
        return torch.cat(found)

    def _read(self, states: dict[str, Tensor], inputs: Inputs) -> Tensor:
        model, raw, final, mask = self.model, states["raw"], states[self.model.final], inputs.mask
        if self.kind == "tokens" and mask is not None and model.lens is not None:
            real, lens = mask[:, 1:].bool(), model.lens
            logits = lens.token_logits(raw[:, :-1][real], inputs)
            truths = torch.split(
                inputs.named["input_ids"][:, 1:][real], max(1, CHUNK // lens.classes)
            )
            losses = torch.cat(
                [
                    cross_entropy(*pair, reduction="none")
                    for pair in zip(logits, truths, strict=True)
                ]
            )
            sizes: list[int] = real.sum(1).tolist()
            return torch.stack([own.mean() for own in torch.split(losses, sizes)])
        if self.kind == "pooled" and model.lens is not None:
            return model.lens.sample_logits(raw, inputs).double().log_softmax(-1)
        if model.projection is not None:
            return model.projection.vectors(raw, inputs)
        if model.loaded.served is None:
            return pool(final, mask, self.pooling)
        return served(list(model.loaded.served)[1:], final, mask)

    def _layers(self, inputs: Inputs) -> list[Tensor]:
        states: list[Tensor] = []
        self.model.run(
            inputs, lambda _, site, tokens: states.append(tokens.clone()) if site == "raw" else None
        )
        return states

    @torch.inference_mode()
    def of_blocks(self, n: int) -> tuple[Floats, Floats]:
        """Return each block's influence, over all tokens, and the angular distance over n blocks from each on.

        Source: Men et al. 2024, ShortGPT, equation 1; Gromov et al. 2024, The Unreasonable
            Ineffectiveness of the
        Deeper Layers, equation 7, whose vectors are the last token's: so they are here for language
        models.
        """
        model, how = self.model, "last" if self.kind == "tokens" else self.pooling

        def read(inputs: Inputs) -> tuple[Tensor, Tensor]:
            raw = self._layers(inputs)
            mask = model.mask(inputs, raw[0])
            real = ... if mask is None else mask.bool()
            pairs = pairwise(states.double() for states in raw)
            cosines = torch.stack(
                [cosine_similarity(*pair, dim=-1)[real].flatten() for pair in pairs]
            )
            return cosines.cpu(), torch.stack(
                [pool(states, mask, how) for states in raw]
            ).double().cpu()

        found = [*processes.team().each(read, self.batches)]
        self.advance(1)
        cosines, layers = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
        angles = angular_distance(layers[:-n], layers[n:], center=False).mean(-1)
        return (1 - cosines.mean(1)).numpy(), angles.numpy()
