"""The states that probes of one data set share, kept by one pass, and what a probe reads of them at one layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Reporter
from layerscope.core.words import count
from layerscope.evaluation.layer_encoder import Serving
from layerscope.evaluation.probing.token_states import TokenStates
from layerscope.inputs import Corpus, draw, open_corpus
from layerscope.inputs.tagged import Tagged, first_tokens, read_tagged
from layerscope.models import LayeredModel
from layerscope.models.forward import accepts
from layerscope.profiling.passing import open_or_start, report_broken, run_pass
from layerscope.profiling.plan import Job
from layerscope.profiling.source import Source
from layerscope.runs import Run
from layerscope.runs.lock import locked
from layerscope.runs.states import Column
from layerscope.scores.probe_results import Slot

FEWEST = 5
"""Samples that a class needs."""
SHIPPED = "as shipped"
"""Stands for the pooling of a SentenceTransformer that pools as none of ours does."""


def labelled(given: Any, samples: int | None, seed: int) -> Corpus:
    """Return labelled samples of any kind that `profile` reads."""
    corpus = open_corpus(given)
    source = given if isinstance(given, (str, Path)) else f"the data of {corpus.name}"
    if corpus.labels is None:
        raise LayerscopeError(
            f"{source} has no labels to probe: give a column label, or of images and sounds a sub-folder for each class"
        )
    corpus = draw(corpus, samples, seed)
    sizes = Counter(corpus.labels)
    if len(sizes) < 2:
        raise LayerscopeError(f"{source}: every sample has the label {next(iter(sizes))!r}: give two classes or more")
    if sum(size >= FEWEST for size in sizes.values()) < 2:
        raise LayerscopeError(f"{source}: fewer than 2 classes have {FEWEST} samples: give more of each")
    return corpus


class Pooled:
    """One vector a sample, with what the model's makers put after the pooling (Dense, Normalize), and the labels.

    `corpus` is what the model is shown, `kept` what lies on the disk (for `poolings` of the pass), and `last` the slot
    where the model as shipped takes its vector.
    """

    items = "samples"
    pools = True
    """Whether a score depends on the pooling; where it does not, the same score stands beside each."""
    read = staticmethod(labelled)

    def __init__(self, data: Any, model: LayeredModel, slots: Sequence[Slot]) -> None:
        self.corpus, self.loaded = data, model.loaded
        pools_itself = self.loaded.served is not None and self.loaded.pooling is None
        self.last = model.stack.depth, model.final, SHIPPED if pools_itself else model.pooling[0]
        own = () if pools_itself else model.pooling[:1]
        self.kept = self.poolings = tuple(dict.fromkeys([*(pooling for _, _, pooling in slots), *own]))

    def compute(self, job: Job, path: Path, manifest: dict[str, Any], reporter: Reporter, known: Run | None) -> None:
        """Run the model over the data, where no run of them is known; what is kept is a run folder without tables."""
        if known is None:
            with locked(path):
                run_pass(job, open_or_start(path, manifest, job, reporter), reporter)
        self.run = known or Run(path)
        report_broken(self.run, reporter)
        self.rows = Source(self.run, job.options).distinct  # as a run of `profile` is probed
        self.finish = Serving(self.loaded).finish

    def layer(self, slot: Slot) -> tuple[Any, ...]:
        """Return vectors [N, D] and labels."""
        layer, site, pooling = slot
        plan = self.run.folder.plan.iloc[self.rows]
        labels = plan["label"].to_numpy()
        if pooling == SHIPPED:
            texts = [self.corpus.samples[i] for i in plan["sample"]]
            return self.loaded.served.encode(texts, convert_to_numpy=True, show_progress_bar=False), labels
        states = self.run.states(pooling, (Column(site, layer),), self.rows)[:][:, 0]
        return self.finish(states.numpy()), labels


class Tokens:
    """Every token of a sample, and the labels of the samples; attributes as of `Pooled`."""

    items, pools = "samples", False
    poolings: tuple[str, ...] = ()
    positions: list[list[int]] | None = None
    """Tokens to keep of each sample; None is all."""
    read: Any = staticmethod(labelled)

    def __init__(self, data: Any, model: LayeredModel, slots: Sequence[Slot]) -> None:
        if model.rank == 2:
            raise LayerscopeError(f"the states of {model.loaded.name} have no tokens to probe: give linear-probe")
        self.corpus, self.last = data, (model.stack.depth, model.final, model.pooling[0])
        found = {Column(site, layer) for layer, site, _ in [*slots, self.last]}
        self.kept = tuple(sorted(found, key=lambda column: (column.site, column.layer)))

    def compute(self, job: Job, path: Path, manifest: dict[str, Any], reporter: Reporter, _: Run | None) -> None:
        """Run the model over the data and keep tokens of the layers asked for."""
        self.states = TokenStates.of(job, path, manifest, self.kept, self.positions, reporter)

    def layer(self, slot: Slot) -> tuple[Any, ...]:
        """Return the tokens [M, D] of all samples, how many each has, and the labels."""
        return *self.states.layer(Column(slot[1], slot[0])), self.states.labels


class Words(Tokens):
    """The first token of every word, and the labels of the words."""

    items = "words"
    read = staticmethod(read_tagged)

    def __init__(self, data: Tagged, model: LayeredModel, slots: Sequence[Slot]) -> None:
        super().__init__(data, model, slots)
        # a decoder beside an encoder reads the text shifted by one
        shift = int(model.stack.part == "decoder" and accepts(model.module, "decoder_input_ids"))
        read = first_tokens(model.encoder, data.sentences, model.loaded.name)
        self.positions, self.tags = [], []
        for (window, starts), tags in zip(read, data.labels, strict=True):
            kept = [
                (at + shift, tag) for at, tag in zip(starts, tags, strict=True) if 0 <= at < len(window.ids) - shift
            ]
            self.positions.append([at for at, _ in kept])
            self.tags.append([tag for _, tag in kept])
        words = sum(map(len, data.sentences))
        lost = words - sum(map(len, self.positions))
        if lost == words:
            raise LayerscopeError(f"no word of {data.name} has a token of {model.loaded.name}: look at the data")
        notes = (f"{lost:,} of {count(words, 'word')} have no token of their own: they are left out",) if lost else ()
        names = tuple(map(str, range(len(read))))
        self.corpus = Corpus(data.name, "text", tuple(window for window, _ in read), names, notes=notes)

    def layer(self, slot: Slot) -> tuple[Any, ...]:
        """Return states [words, D], the label of each word, and the number of its sentence."""
        states, lengths = self.states.layer(Column(slot[1], slot[0]))
        samples = self.states.samples
        labels = np.array([tag for sample in samples for tag in self.tags[sample]])
        return states.float(), labels, np.repeat(samples, lengths)
