"""The states that probes of one data set share, kept by one pass, and what a probe reads of them at one layer."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError, count
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter
from layerscope.evaluation.layer_encoder import Serving
from layerscope.inputs import Corpus, draw, open_corpus
from layerscope.inputs.corpus import WHOLE
from layerscope.inputs.tagged import Tagged, first_tokens, read_tagged
from layerscope.models import LayeredModel
from layerscope.models.forward import Inputs, accepts
from layerscope.probes.mixes import Weights
from layerscope.profiling.forward_pass import shared_run
from layerscope.profiling.plan import Job
from layerscope.profiling.source import Source
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
    sizes = Counter(corpus.labels)
    if sum(size >= WHOLE for size in sizes.values()) < 2:
        raise LayerscopeError(
            f"{corpus.name}: fewer than 2 classes have {WHOLE} samples: give more of each"
        )
    return corpus


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
        self.last: Slot = model.stack.depth, model.final, model.pooling[0]

    @abstractmethod
    def compute(
        self,
        job: Job,
        path: Path,
        manifest: dict[str, Any],
        reporter: Reporter,
        team: Team,
    ) -> None:
        """Run the model over the data, or what is missing of it."""

    def read_run(self, run: Run, manifest: dict[str, Any], job: Job) -> bool:
        """Take the states of a run where it has these of the same data, and return whether it has."""
        return False

    @abstractmethod
    def layer(
        self, slot: Slot, weights: Weights | None = None, finished: bool = True
    ) -> tuple[Any, ...]:
        """Return what a probe takes of a layer, or a mix; unless `finished` before what follows the pooling."""


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

    def compute(
        self,
        job: Job,
        path: Path,
        manifest: dict[str, Any],
        reporter: Reporter,
        team: Team,
    ) -> None:
        """Run the model over the data, or what is missing; what is kept is a run folder without tables."""
        self._take(shared_run(path, manifest, job, reporter, team), job)

    def read_run(self, run: Run, manifest: dict[str, Any], job: Job) -> bool:
        """Take the states of a run where it has these of the same data, and return whether it has."""
        for group, keys in SAME.items():
            for key in keys:
                if run.info[group].get(key) != manifest[group].get(key):
                    return False
        has_poolings = set(self.poolings) <= set(run.info["pooling"])
        if has_poolings:
            self._take(run, job)
        return has_poolings

    def _take(self, run: Run, job: Job) -> None:
        # as a run of `profile` is probed
        self.rows = Source(run, job.options).distinct
        self.run = run

    def layer(
        self, slot: Slot, weights: Weights | None = None, finished: bool = True
    ) -> tuple[Any, ...]:
        """Return vectors [N, D] of a layer, or a mix of layers, and labels; unless `finished` those before the tail."""
        layer, site, pooling = slot
        labels = self.run.folder.plan.iloc[self.rows]["label"].to_numpy()
        parts = []
        for number, weight in (weights or {layer: 1.0}).items():
            states = self.run.states(pooling, (Column(site, number),), self.rows)
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
        self.position = torch.tensor(
            [at for each in chosen for at in each], dtype=torch.int64
        )
        self.broken = torch.full((len(rows),), -1, dtype=torch.int32)

    def visit(self, layer: int, site: str, tokens: Tensor) -> None:
        """Take the tokens of one layer, if it is judged."""
        if Column(site, layer) not in self.columns:
            return
        states = tokens[self.sample.to(tokens.device), self.position.to(tokens.device)]
        self.tokens[f"{site}.{layer}"] = states[None]
        wrong = torch.unique(self.sample[~torch.isfinite(states).all(-1).cpu()])
        self.broken[wrong[self.broken[wrong] < 0]] = layer

    def tensors(self) -> dict[str, Tensor]:
        """Return everything kept, on the CPU."""
        states = {key: states.cpu() for key, states in self.tokens.items()}
        return {"broken": self.broken, "length": self.length, **states}


def stored_tokens(
    run: Run, slot: Slot, weights: Weights | None = None
) -> tuple[Tensor, npt.NDArray[np.int64], pd.DataFrame]:
    """Return the tokens [M, D] of a layer or a mix, how many each sample has [N], and the samples' rows of the plan.

    Samples that are not finite, and exact copies, are left out.
    """
    folder = run.folder
    tokens = []
    lengths = []
    kept = []
    for shard in folder.shards:
        with folder.shard(shard) as file:
            mixed = (weights or {slot[0]: 1.0}).items()
            parts = [
                weight * file.get_tensor(f"{slot[1]}.{layer}")[0]
                for layer, weight in mixed
            ]
            states = sum(parts[1:], parts[0])
            length = file.get_tensor("length")
            finite = file.get_tensor("broken").numpy() < 0
        rows = folder.rows(shard)
        fine = ~folder.copies[rows.index] & finite
        tokens.append(states[torch.from_numpy(fine).repeat_interleave(length)])
        lengths.append(length.numpy()[fine])
        kept.append(rows[fine])
    return torch.cat(tokens), np.concatenate(lengths), pd.concat(kept)


class Words(Shared):
    """The first token of every word, and the labels of the words."""

    read = staticmethod(read_tagged)

    def __init__(
        self, data: Tagged, model: LayeredModel, slots: Sequence[Slot]
    ) -> None:
        super().__init__(data, model, slots)
        name = model.loaded.name
        if model.rank == 2:
            raise LayerscopeError(f"the states of {name} have no tokens to probe")
        self.slots = [*dict.fromkeys((*slot[:2], TOKENS) for slot in slots)]
        self.last = *self.last[:2], TOKENS
        places = {(site, layer) for layer, site, _ in [*self.slots, self.last]}
        self.kept = tuple(Column(*place) for place in sorted(places))
        # a decoder beside an encoder reads the text shifted by one
        shift = int(
            model.stack.part == "decoder" and accepts(model.module, "decoder_input_ids")
        )
        read = first_tokens(model.encoder, data.sentences, name)
        self.positions, self.tags = list[list[int]](), list[list[str]]()
        for (window, starts), tags in zip(read, data.labels, strict=True):
            most = len(window.ids) - shift
            pairs = zip(starts, tags, strict=True)
            kept = [(at + shift, tag) for at, tag in pairs if 0 <= at < most]
            self.positions.append([at for at, _ in kept])
            self.tags.append([tag for _, tag in kept])
        words = sum(map(len, data.sentences))
        notes = list[str]()
        lost = words - sum(map(len, self.positions))
        if lost == words:
            raise LayerscopeError(
                f"no word of {data.name} has a token of {name}: check the data"
            )
        if lost:
            notes = [
                f"{lost:,} of {count(words, 'word')} have no token of their own: they are left out"
            ]
        names = tuple(map(str, range(len(read))))
        windows = tuple(window for window, _ in read)
        self.corpus = Corpus(data.name, "text", windows, names, notes=tuple(notes))

    def compute(
        self,
        job: Job,
        path: Path,
        manifest: dict[str, Any],
        reporter: Reporter,
        team: Team,
    ) -> None:
        """Run the model over the data, or what is missing, and keep tokens of the layers that are judged."""
        measure = partial(TokenMeasure, set(self.kept), self.positions)
        self.run = shared_run(path, manifest, job, reporter, team, measure, self._bytes)

    def layer(
        self, slot: Slot, weights: Weights | None = None, finished: bool = True
    ) -> tuple[Any, ...]:
        """Return states [words, D], the label of each word, and the number of its sentence."""
        states, lengths, rows = stored_tokens(self.run, slot, weights)
        labels = np.array(
            [tag for sample in rows["sample"] for tag in self.tags[sample]]
        )
        return states.float(), labels, np.repeat(rows["sample"].to_numpy(), lengths)

    def _bytes(self, plan: pd.DataFrame, job: Job) -> int:
        numbers = sum(map(len, self.positions)) * len(self.kept) * job.model.stack.width
        return 4 * numbers
