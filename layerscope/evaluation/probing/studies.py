"""The states that probes of one data set share, and what each kind of probe makes of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Teller
from layerscope.evaluation.layer_encoder import Serving
from layerscope.evaluation.probing.tagged import Tagged, first_tokens
from layerscope.evaluation.probing.tasks import ProbeTask
from layerscope.evaluation.probing.token_states import Chosen, TokenStates
from layerscope.inputs import Corpus
from layerscope.inputs.corpus import count
from layerscope.models import LayeredModel, Loaded, Override, Vectors, find_layers
from layerscope.models.forward import accepts
from layerscope.probes.attention import attention_probe
from layerscope.probes.knn import knn_probe
from layerscope.probes.linear import linear_probe
from layerscope.probes.scores import ProbeScore
from layerscope.probes.tokens import token_probe
from layerscope.profiling.identity import describe, revision_of, tokens_fingerprint, weights_fingerprint
from layerscope.profiling.options import Options
from layerscope.profiling.passing import run_pass
from layerscope.profiling.plan import Job
from layerscope.profiling.reopening import reusable
from layerscope.profiling.start import open_or_start, tell_broken
from layerscope.profiling.tables.source import Source
from layerscope.runs import Run
from layerscope.runs.lock import locked
from layerscope.runs.states import Column
from layerscope.scores.probe_results import Slot

FORMAT = 3
"""Raised when the same weights, data and options would give another score."""
SHIPPED = "as shipped"
"""Stands for the pooling of a SentenceTransformer that pools as none of ours does."""
PROBED = 8
"""Samples by which the layers of a model are found."""


class Study:
    """Probes that share one pass of a model over one data set."""

    kinds: ClassVar[tuple[str, ...]]
    pools: ClassVar[bool] = False
    """Whether a score depends on the pooling; where it does not, the same score stands beside each."""
    items: ClassVar[str] = "samples"

    def __init__(
        self,
        tasks: Sequence[ProbeTask],
        loaded: Loaded,
        override: Override,
        places: Callable[[LayeredModel], list[Slot]],
        options: Options,
    ) -> None:
        self.tasks, self.loaded, self.options = tuple(tasks), loaded, options
        samples, modality = self._first(tasks[0])
        self.model = find_layers(loaded, modality, samples, override, max_length=None, prompt="")
        self.places = places(self.model)
        self._check()

    @property
    def last(self) -> Slot:
        """Where the model as shipped takes its vector."""
        return self.model.stack.depth, self.model.final, self.model.pooling[0]

    @cached_property
    def corpus(self) -> Corpus:
        """What the model is shown."""
        data = self.tasks[0].data
        assert isinstance(data, Corpus)
        return data

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """All that the states depend on, but for where they are taken."""
        model = self.model
        dtype = str(next((p.dtype for p in model.module.parameters()), ""))
        weights = revision_of(self.loaded), weights_fingerprint(model.module), dtype
        return *weights, model.stack, model.max_length, self._fingerprint, tokens_fingerprint(model, self.corpus)

    def digest(self, kind: str) -> str:
        """Return a name for all that a score depends on, but for layer, site and pooling."""
        return hashlib.sha256(repr((FORMAT, kind, self.identity, self.options.seed)).encode()).hexdigest()

    def path(self, states: Path) -> Path:
        """Return the folder of the states."""
        what = self.kinds, self.identity, self._kept()
        return states / f"probes-{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}"

    def compute(self, states: Path, teller: Teller, run: Run | None = None) -> None:
        """Run the model over the data, or what is missing of it."""
        raise NotImplementedError

    def score(self, kind: str, place: Slot) -> ProbeScore:
        """Return the score of one layer; `compute` must have run."""
        raise NotImplementedError

    def _first(self, task: ProbeTask) -> tuple[list[Any], str]:
        """Return a few samples, and their modality."""
        assert isinstance(task.data, Corpus)
        return [task.data.samples[i] for i in range(min(PROBED, len(task.data)))], task.data.modality

    def _check(self) -> None:
        """Raise where this model cannot be probed so."""

    @cached_property
    def data(self) -> str:
        """Fingerprint of samples and labels, with the seed that they are split by."""
        return f"{self._fingerprint}-{self.options.seed}"

    @cached_property
    def _fingerprint(self) -> str:
        return self.tasks[0].data.fingerprint()

    def _kept(self) -> Any:
        return self._columns()

    def _columns(self) -> tuple[Column, ...]:
        found = dict.fromkeys(Column(site, layer) for layer, site, _ in [*self.places, self.last])
        return tuple(sorted(found, key=lambda column: (column.site, column.layer)))

    def _job(self, vectors: Vectors) -> tuple[Job, dict[str, Any]]:
        job = Job(self.model, self.corpus, self.options, vectors)
        command = f"layerscope.evaluate({self.loaded.name!r}, {[task.name for task in self.tasks]!r})"
        return job, describe(job, self.loaded.name, self.corpus.name, command)


class OfSamples(Study):
    """Linear and kNN probes of pooled states."""

    kinds = ("linear-probe", "knn-probe")
    pools = True

    @property
    def last(self) -> Slot:
        """Where the model as shipped takes its vector; it pools itself where we cannot."""
        layer, site, pooling = super().last
        return layer, site, SHIPPED if self._pools_itself() else pooling

    def compute(self, states: Path, teller: Teller, run: Run | None = None) -> None:
        """Run the model over the data where the run given is not of it; what is kept is a run folder without tables."""
        self.run = self._known(run) or self._passed(self.path(states), teller)
        tell_broken(self.run, teller)
        self.rows = Source(self.run, self.options).distinct  # as a run of `profile` is probed
        self.finish = Serving(self.loaded).finish

    def score(self, kind: str, place: Slot) -> ProbeScore:
        """Return the score of one layer, with what the makers put after the pooling (Dense, Normalize)."""
        plan = self.run.folder.plan
        labels = plan["label"].to_numpy()[self.rows]
        probe = linear_probe if kind == "linear-probe" else knn_probe
        return probe(self._vectors(place), labels, seed=self.options.seed)

    def _known(self, run: Run | None) -> Run | None:
        """Return a run of this model on these samples and labels."""
        if run is None or run.info["data"]["fingerprint"] != self._fingerprint or run.info["options"]["prompt"]:
            return None
        return reusable(run, self.model, [place for place in (*self.places, self.last) if place[2] != SHIPPED])

    def _passed(self, path: Path, teller: Teller) -> Run:
        job, manifest = self._job(Vectors(self._kept()))
        with locked(path):
            run_pass(job, open_or_start(path, manifest, job, teller), teller)
        return Run(path)

    def _vectors(self, place: Slot) -> Any:
        layer, site, pooling = place
        if pooling == SHIPPED:
            numbers = self.run.folder.plan["sample"].to_numpy()[self.rows]
            texts = [self.corpus.samples[i] for i in numbers]
            return self.loaded.served.encode(texts, convert_to_numpy=True, show_progress_bar=False)
        states = self.run.states(pooling, (Column(site, layer),), self.rows)[:][:, 0]
        return self.finish(states.numpy())

    def _kept(self) -> tuple[str, ...]:
        own = () if self._pools_itself() else self.model.pooling[:1]
        return tuple(dict.fromkeys([*(pooling for _, _, pooling in self.places), *own]))

    def _pools_itself(self) -> bool:
        return self.loaded.served is not None and self.loaded.pooling is None


class OfTokens(Study):
    """Attention probes of all tokens of a sample."""

    kinds = ("attention-probe",)

    def compute(self, states: Path, teller: Teller, run: Run | None = None) -> None:
        """Run the model over the data and keep every token of the layers asked for."""
        job, manifest = self._job(Vectors(()))
        self.states = TokenStates.of(job, self.path(states), manifest, self._columns(), None, teller)

    def score(self, kind: str, place: Slot) -> ProbeScore:
        """Return the score of one layer."""
        tokens, lengths = self.states.layer(Column(place[1], place[0]))
        return attention_probe(tokens, lengths, self.states.labels, seed=self.options.seed)

    def _check(self) -> None:
        if self.model.rank == 2:
            raise LayerscopeError(
                f"the states of {self.loaded.name} have no tokens that an attention probe could read: give linear-probe"
            )


class OfWords(Study):
    """Token probes: the state of a word is that of its first token."""

    kinds = ("token-probe",)
    items = "words"

    def compute(self, states: Path, teller: Teller, run: Run | None = None) -> None:
        """Run the model over the sentences and keep the first token of every word."""
        job, manifest = self._job(Vectors(()))
        self.states = TokenStates.of(job, self.path(states), manifest, self._columns(), self._read[1], teller)
        samples = self.states.samples
        self.labels = np.array([label for i in samples for label in self._read[2][i]])
        self.sentences = np.repeat(samples, [len(self._read[2][i]) for i in samples])

    def score(self, kind: str, place: Slot) -> ProbeScore:
        """Return the score of one layer."""
        states, _ = self.states.layer(Column(place[1], place[0]))
        return token_probe(states.float(), self.labels, self.sentences, seed=self.options.seed)

    @cached_property
    def corpus(self) -> Corpus:
        """The sentences as the model reads them."""
        windows, chosen, _ = self._read
        words = sum(map(len, self._tagged.sentences))
        lost = words - sum(map(len, chosen))
        notes = (f"{lost:,} of {count(words, 'word')} have no token of their own: they are left out",) if lost else ()
        return Corpus(self._tagged.name, "text", windows, tuple(map(str, range(len(windows)))), notes=notes)

    @property
    def _tagged(self) -> Tagged:
        data = self.tasks[0].data
        assert isinstance(data, Tagged)
        return data

    @cached_property
    def _read(self) -> tuple[tuple[Any, ...], Chosen, list[list[str]]]:
        """Return the sentences as windows, and the token positions and labels of the words that have a token."""
        # a decoder beside an encoder reads the text shifted by one
        shift = int(self.model.stack.part == "decoder" and accepts(self.model.module, "decoder_input_ids"))
        read = first_tokens(self.model.encoder, self._tagged.sentences, self.loaded.name)
        chosen, labels = [], []
        for (window, positions), tags in zip(read, self._tagged.labels, strict=True):
            kept = [
                (p + shift, tag) for p, tag in zip(positions, tags, strict=True) if 0 <= p < len(window.ids) - shift
            ]
            chosen.append([p for p, _ in kept])
            labels.append([tag for _, tag in kept])
        return tuple(window for window, _ in read), chosen, labels

    def _first(self, task: ProbeTask) -> tuple[list[Any], str]:
        assert isinstance(task.data, Tagged)
        return [" ".join(words) for words in task.data.sentences[:PROBED]], "text"

    def _check(self) -> None:
        if self.model.rank == 2:
            raise LayerscopeError(f"the states of {self.loaded.name} have no tokens: a token probe needs them")
        if not any(len(positions) for positions in self._read[1]):
            raise LayerscopeError(f"no word of {self._tagged.name} has a token of {self.loaded.name}: look at the data")
