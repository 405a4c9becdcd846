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

CHOOSE = 256
"""Most samples that choose blocks."""
JUDGE = 1024
"""Most samples that judge the choice."""
FEWEST = 10
"""Fewest samples that choose and judge, together."""
WINDOW = 256
"""Tokens of a window of running text."""
Blocks = tuple[int, ...]


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
    depth = source.model.stack.depth
    if n >= depth:
        raise LayerscopeError(
            f"drop {n} leaves none of the {depth} blocks of {source.name}: give 1 to {depth - 1}"
        )
    model.stack.check_single(range(1, depth + 1))  # before the long part
    if isinstance(model.encoder, TextEncoder):
        options = run.info["options"]
        reading = {
            name: options[name]
            for name in ("max_length", "prompt")
            if options.get(name)
        }
        model = replace(model, encoder=replace(model.encoder, **reading))
    samples, name = _samples(_corpus(run, data), model, seed)
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
        name,
        half,
        len(samples) - half,
        tuple(sorted(choices, key=lambda each: (each.fault != "", each.chosen_on))),
        tuple(influence.tolist()),
        str(run.path),
    )


def _samples(corpus: Corpus, model: LayeredModel, seed: int) -> tuple[list[Any], str]:
    """Return distinct samples that give the model something to say, in a seeded order, and the name of their data."""
    if corpus.running and isinstance(model.encoder, TextEncoder):
        corpus = pack(
            corpus, model.encoder.tokenizer, min(WINDOW, model.encoder.max_length)
        )
    order = np.random.default_rng(seed).permutation(np.flatnonzero(~corpus.copies))
    drawn = [corpus.samples[i] for i in order[: CHOOSE + JUDGE]]
    least = 2 if model.is_language_model else 1
    lengths = model.encoder.lengths(drawn)
    samples = [
        one for one, length in zip(drawn, lengths, strict=True) if length >= least
    ]
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
    source = about.get("source") or ""
    is_named = source in BUILT_IN or source.startswith("hf:")
    if not source or not (is_named or Path(source).expanduser().exists()):
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


def greedy_removal(meter: "Meter", n: int) -> Blocks:
    """Return n blocks, each the one that costs least once those before it are gone."""
    gone: Blocks = ()
    for _ in range(n):
        left = set(range(1, meter.model.stack.depth + 1)) - set(gone)
        candidates = [tuple(sorted((*gone, block))) for block in sorted(left)]
        gone = min(candidates, key=lambda blocks: meter.cost(blocks)[0])
    return gone


class Meter:
    """Compares what a model gives without some of its blocks with what the full one gives, on the same samples.

    Of a language model the loss of the next token counts, of a classifier the divergence of its
    predictions, else the cosine of the vector that it serves.
    """

    def __init__(
        self, model: LayeredModel, samples: Sequence[Any], pooling: str, advance: Any
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.advance = advance
        if model.is_language_model:
            self.kind = "tokens"
        elif model.lens is not None and model.lens.kind == "pooled":
            self.kind = "pooled"
        else:
            self.kind = "vectors"
        encoder = model.encoder
        self.batches = [
            encoder.batch([samples[i] for i in rows]).to(model.device)
            for rows in batches_of(model, encoder.lengths(samples))
        ]
        self.cost, self.full = cache(self._cost), self._outputs(())

    def _cost(self, blocks: Blocks) -> tuple[float, float, float]:
        """Return what the model loses without these blocks, with its standard error, and what is left."""
        cut = self._outputs(blocks)
        full = self.full
        if self.kind == "tokens":
            cost = cut - full
            score = cut
        elif self.kind == "pooled":
            cost = (full.exp() * (full - cut)).sum(-1)
            score = (full.argmax(-1) == cut.argmax(-1)).double()
        else:
            score = cosine_similarity(cut, full, dim=-1)
            cost = 1 - score
        return *mean_of(cost.numpy()), float(score.mean())

    @torch.inference_mode()
    def _outputs(self, blocks: Blocks) -> Tensor:
        """Return a loss, log-probabilities or a vector of each sample, float64, in the order of the batches."""
        model = self.model

        def outputs(inputs: Inputs) -> Tensor:
            with skipping(model.module, model.stack, blocks):
                states = states_at(model.module, model.stack, inputs, model.stack.depth)
            masked = replace(inputs, mask=model.mask(inputs, states["raw"]))
            return self._read(states, masked).double().cpu()

        batches = [*processes.team().each(outputs, self.batches)]
        self.advance(1)
        return torch.cat(batches)

    def _read(self, states: dict[str, Tensor], inputs: Inputs) -> Tensor:
        model = self.model
        raw = states["raw"]
        final = states[self.model.final]
        mask = inputs.mask
        if self.kind == "tokens" and mask is not None:
            return self._losses(raw, inputs, mask[:, 1:].bool())
        if self.kind == "pooled" and model.lens is not None:
            return model.lens.sample_logits(raw, inputs).double().log_softmax(-1)
        if model.projection is not None:
            return model.projection.vectors(raw, inputs)
        if model.loaded.served is None:
            return pool(final, mask, self.pooling)
        return served(list(model.loaded.served)[1:], final, mask)

    def _losses(self, raw: Tensor, inputs: Inputs, real: Tensor) -> Tensor:
        """Return the mean loss of the next token of each sample [B]; `real` [B, N - 1] says which tokens follow."""
        lens = self.model.lens
        assert lens is not None
        logits = lens.token_logits(raw[:, :-1][real], inputs)
        tokens = inputs.named["input_ids"][:, 1:][real]
        truths = torch.split(tokens, max(1, CHUNK // lens.classes))
        losses = [
            cross_entropy(*pair, reduction="none")
            for pair in zip(logits, truths, strict=True)
        ]
        by_sample = torch.split(torch.cat(losses), real.sum(1).tolist())
        return torch.stack([sample.mean() for sample in by_sample])

    @torch.inference_mode()
    def influence(self) -> Floats:
        """Return how much each block turns its input, 1 less the mean cosine over all tokens, `[blocks]`.

        Source: Men et al. 2024, ShortGPT, equation 1.
        """
        model = self.model

        def cosines(inputs: Inputs) -> Tensor:
            layers: list[Tensor] = []

            def visit(layer: int, site: str, tokens: Tensor) -> None:
                if site == "raw":
                    # a block may change its input in place
                    layers.append(tokens.clone())

            model.run(inputs, visit)
            mask = model.mask(inputs, layers[0])
            pairs = pairwise(states.double() for states in layers)
            by_block = torch.stack([cosine_similarity(*pair, dim=-1) for pair in pairs])
            if mask is None:
                return by_block.flatten(1).cpu()
            return by_block[:, mask.bool()].cpu()

        batches = [*processes.team().each(cosines, self.batches)]
        self.advance(1)
        return np.asarray(1 - torch.cat(batches, 1).mean(1).numpy())
