"""The states that probes of one data set share, kept by one pass, and what a probe reads of them at one layer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope.core import LayerscopeError, Reporter, Team, count
from layerscope.core.labels import WHOLE, is_target
from layerscope.evaluation.encoders import last_of
from layerscope.evaluation.layer_encoder import Serving
from layerscope.inputs import Corpus, draw, open_corpus
from layerscope.inputs.tagged import Tagged, first_tokens, read_tagged
from layerscope.models import Inputs, LayeredModel, accepts
from layerscope.probes.mixes import Weights
from layerscope.profiling.forward_pass import shared_run
from layerscope.profiling.plan import Job
from layerscope.profiling.source import Source, can_be_probed
from layerscope.runs import Run
from layerscope.runs.states import Column
from layerscope.scores.probe_results import Slot

TOKENS = "tokens"
"""Stands for the pooling of layers that are read token by token: no vector of a sample is made."""


def labelled(data: Any, samples: int | None, seed: int) -> Corpus:
    """Return labelled samples of any kind that `profile` reads."""
    corpus = open_corpus(data)
    if corpus.labels is None:
        raise LayerscopeError(
            f"{corpus.name} has no labels to probe: give a column label, or a sub-folder for each class"
        )
    corpus = draw(corpus, samples, seed)
    if is_target(corpus.labels) or can_be_probed(corpus.labels):
        return corpus
    raise LayerscopeError(
        f"{corpus.name}: fewer than 2 classes have {WHOLE} samples: give more of each"
    )


@dataclass(frozen=True)
class Pass:
    """A pass over one data set: what is run, which run that is, where it is kept, and who works on it.

    `there` is a run that may have the states already.
    """

    job: Job
    manifest: dict[str, Any]
    path: Path
    reporter: Reporter
    team: Team
    there: Run | None

    def run(self, *measure: Any) -> Run:
        """Run the model over the data, or what is missing; what is kept is a run folder without tables."""
        return shared_run(
            self.path, self.manifest, self.job, self.reporter, self.team, *measure
        )


class Shared(ABC):
    """The states of one data set, as one model reads it, that probes share.

    `corpus` is what the model is shown, `kept` what lies on the disk (for `poolings` of the pass),
    `slots` what is judged, and `last` the slot where the model as shipped takes its vector.
    """

    poolings: tuple[str, ...] = ()
    kept: tuple[Any, ...] = ()
    read: Any = staticmethod(labelled)

    def __init__(self, data: Any, model: LayeredModel, slots: Sequence[Slot]) -> None:
        self.slots = list(slots)
        self.corpus = data
        self.model = model
        self.last = last_of(model)

    @abstractmethod
    def compute(self, work: Pass) -> None:
        """Run the model over the data, or what is missing of it."""

    @abstractmethod
    def layer(self, slot: Slot) -> tuple[Any, ...]:
        """Return what a probe takes of a layer."""


SAME = {
    "model": ("weights", "dtype", "device", "part", "blocks", "norm"),
    "data": ("fingerprint", "tokens"),
    "options": ("prompt", "max_length", "keep_states", "store_dtype"),
}
"""What a run must share with an evaluation for its states to be those of its probes, by where a manifest has it."""


class Pooled(Shared):
    """One vector a sample, with what the model's makers put after the pooling (Dense, Normalize), and the labels."""

    def __init__(self, data: Any, model: LayeredModel, slots: Sequence[Slot]) -> None:
        super().__init__(data, model, slots)
        self.finish = Serving(model.loaded).finish
        poolings = [*(pooling for *_, pooling in slots), model.pooling[0]]
        self.kept = self.poolings = tuple(dict.fromkeys(poolings))

    def compute(self, work: Pass) -> None:
        """Take the states of a run that has them, else run the model over the data, or what is missing of it."""
        run = work.there
        if run is not None and self._are_in(run, work.manifest):
            work.reporter.say(f"states: those of run {str(run.path)!r}")
        else:
            run = work.run()
        self.run = run
        # of exact copies one, as a run of `profile` is probed
        self.rows = Source(run, work.job.options).distinct

    def _are_in(self, run: Run, manifest: dict[str, Any]) -> bool:
        """Return whether a run has these states of the same data."""
        for group, keys in SAME.items():
            for key in keys:
                if run.info[group].get(key) != manifest[group].get(key):
                    return False
        return set(self.poolings) <= set(run.info["pooling"])

    def layer(self, slot: Slot) -> tuple[Any, ...]:
        """Return vectors [N, D] of a layer, and labels."""
        layer, site, pooling = slot
        return self.mix(site, pooling, {layer: 1.0})

    def mix(
        self, site: str, pooling: str, weights: Weights, finished: bool = True
    ) -> tuple[Any, ...]:
        """Return vectors [N, D] of a mix of layers, and labels; unless `finished` those before the tail."""
        plan = self.run.folder.plan
        labels = plan.iloc[self.rows]["label"].to_numpy()
        parts = []
        for layer, weight in weights.items():
            states = self.run.states(pooling, (Column(site, layer),), self.rows)
            parts.append(weight * states[:][:, 0])
        vectors = sum(parts[1:], parts[0]).numpy()
        if finished:
            vectors = self.finish(vectors)
        return vectors, labels


class TokenMeasure:
    """Keeps tokens of one batch: `SITE.LAYER` [1, M, D] in the model's own dtype, `length` and `broken` [B]."""

    def __init__(
        self,
        columns: set[Column],
        positions: list[list[int]],
        job: Job,
        inputs: Inputs,
        rows: pd.DataFrame,
    ) -> None:
        self.tokens = dict[str, Tensor]()
        self.columns = columns
        chosen = [positions[sample] for sample in rows["sample"]]
        self.length = torch.tensor([len(each) for each in chosen])
        self.sample = torch.arange(len(rows)).repeat_interleave(self.length)
        positions = [at for each in chosen for at in each]
        self.position = torch.tensor(positions, dtype=torch.int64)
        self.broken = torch.full((len(rows),), -1, dtype=torch.int32)

    def visit(self, layer: int, site: str, tokens: Tensor) -> None:
        """Take the tokens of one layer, if it is judged."""
        if Column(site, layer) not in self.columns:
            return
        samples = self.sample.to(tokens.device)
        states = tokens[samples, self.position.to(tokens.device)]
        self.tokens[f"{site}.{layer}"] = states[None]
        finite = torch.isfinite(states).all(-1).cpu()
        wrong = torch.unique(self.sample[~finite])
        self.broken[wrong[self.broken[wrong] < 0]] = layer

    def tensors(self) -> dict[str, Tensor]:
        """Return everything kept, on the CPU."""
        states = {key: states.cpu() for key, states in self.tokens.items()}
        return {"broken": self.broken, "length": self.length, **states}


class Words(Shared):
    """The first token of every word, and the labels of the words."""

    read = staticmethod(read_tagged)

    def __init__(
        self, data: Tagged, model: LayeredModel, slots: Sequence[Slot]
    ) -> None:
        super().__init__(data, model, slots)
        name = model.name
        if model.rank == 2:
            raise LayerscopeError(f"the states of {name} have no tokens to probe")
        self.slots = [*dict.fromkeys((*slot[:2], TOKENS) for slot in slots)]
        self.last = *self.last[:2], TOKENS
        places = {(site, layer) for layer, site, _ in [*self.slots, self.last]}
        self.kept = tuple(Column(*place) for place in sorted(places))
        # a decoder beside an encoder reads the text shifted by one
        reads_shifted = accepts(model.module, "decoder_input_ids")
        shift = int(model.stack.part == "decoder" and reads_shifted)
        read = first_tokens(model.encoder, data.sentences, name)
        self.positions: list[list[int]] = []
        self.tags: list[list[str]] = []
        for (window, starts), tags in zip(read, data.labels, strict=True):
            most = len(window.ids) - shift
            pairs = zip(starts, tags, strict=True)
            kept = [(at + shift, tag) for at, tag in pairs if 0 <= at < most]
            self.positions.append([at for at, _ in kept])
            self.tags.append([tag for _, tag in kept])
        words = sum(map(len, data.sentences))
        notes: tuple[str, ...] = ()
        lost = words - sum(map(len, self.positions))
        if lost == words:
            raise LayerscopeError(
                f"no word of {data.name} has a token of {name}: check the data"
            )
        if lost:
            of_words = f"{lost:,} of {count(words, 'word')}"
            notes = (f"{of_words} have no token of their own: they are left out",)
        names = tuple(map(str, range(len(read))))
        windows = tuple(window for window, _ in read)
        self.corpus = Corpus(data.name, "text", windows, names, notes=notes)

    def compute(self, work: Pass) -> None:
        """Run the model over the data, or what is missing, and keep tokens of the layers that are judged."""
        measure = partial(TokenMeasure, set(self.kept), self.positions)
        self.run = work.run(measure, self._bytes)

    def layer(self, slot: Slot) -> tuple[Any, ...]:
        """Return states [words, D], the label of each word, and the number of its sentence.

        Samples that are not finite, and exact copies, are left out.
        """
        layer, site, _ = slot
        folder = self.run.folder
        tokens = []
        lengths = []
        kept = []
        for shard in folder.shards:
            with folder.shard(shard) as file:
                states = file.get_tensor(f"{site}.{layer}")[0]
                length = file.get_tensor("length")
                finite = file.get_tensor("broken").numpy() < 0
            rows = folder.rows(shard)
            fine = ~folder.copies[rows.index] & finite
            tokens.append(states[torch.from_numpy(fine).repeat_interleave(length)])
            lengths.append(length.numpy()[fine])
            kept.append(rows["sample"].to_numpy()[fine])
        samples = np.concatenate(kept)
        labels = [tag for sample in samples for tag in self.tags[sample]]
        sentences = np.repeat(samples, np.concatenate(lengths))
        return torch.cat(tokens).float(), np.array(labels), sentences

    def _bytes(self, plan: pd.DataFrame, job: Job) -> int:
        """Return how many bytes the tokens take that are kept."""
        tokens = sum(map(len, self.positions))
        return 4 * tokens * len(self.kept) * job.model.width
