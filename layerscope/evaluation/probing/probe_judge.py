"""Judges every layer by probes: one pass over the data of each, then a cheap fit a layer."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Reporter
from layerscope.evaluation.kind import ProbeTask
from layerscope.evaluation.probing.states import SHIPPED
from layerscope.models import LayeredModel, Loaded, Override, Vectors, find_layers
from layerscope.profiling.identity import describe, reusable, revision_of, tokens_fingerprint, weights_fingerprint
from layerscope.profiling.plan import Job, Options
from layerscope.runs import Run
from layerscope.scores.probe_results import ProbeScores, Slot, refuse_other_data

FORMAT = 3
"""Raised when the same weights, data and options would give another score."""
STATES = "states"
PROBED = 8
"""Samples by which the layers of a model are found."""


class Study:
    """Probes that share one pass of a model over one data set."""

    def __init__(
        self,
        tasks: Sequence[ProbeTask],
        loaded: Loaded,
        override: Override,
        slots_of: Callable[[LayeredModel], list[Slot]],
        seed: int,
    ) -> None:
        data = tasks[0].data
        first = [data.samples[i] for i in range(min(PROBED, len(data.samples)))]
        self.tasks, self.loaded = tuple(tasks), loaded
        # the pass keeps nothing but states for a metric of labels, and no views
        self.options = Options(metrics=("linear_probe",), views=0, samples=None, seed=seed)
        self.model = find_layers(loaded, data.modality, first, override, max_length=None, prompt="")
        slots = slots_of(self.model)
        self.states = tasks[0].kind.states(data, self.model, slots)
        self.rows = [("baseline", self.states.last), *(("layer", slot) for slot in slots)]
        """Kind and slot of every row: the model as shipped, then the layers."""
        self.fingerprint = data.fingerprint()
        self.data = f"{self.fingerprint}-{seed}"
        """Names samples and labels, with the seed that they are split by."""

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """All that the states depend on, but for where they are taken."""
        model = self.model
        dtype = str(next((p.dtype for p in model.module.parameters()), ""))
        weights = revision_of(self.loaded), weights_fingerprint(model.module), dtype
        tokens = tokens_fingerprint(model, self.states.corpus)
        return *weights, model.stack, model.max_length, self.fingerprint, tokens

    def digest(self, kind: str) -> str:
        """Return a name for all that a score depends on, but for layer, site and pooling."""
        return hashlib.sha256(repr((FORMAT, kind, self.identity, self.options.seed)).encode()).hexdigest()

    def path(self, folder: Path) -> Path:
        """Return the folder of the states."""
        what = type(self.states).__name__, self.identity, self.states.kept
        return folder / STATES / f"probes-{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}"

    def compute(self, folder: Path, reporter: Reporter, run: Run | None) -> None:
        """Run the model over the data, or what is missing of it, where `run` has no such states."""
        job = Job(self.model, self.states.corpus, self.options, Vectors(self.states.poolings))
        command = f"layerscope.evaluate({self.loaded.name!r}, {[task.name for task in self.tasks]!r})"
        manifest = describe(job, self.loaded.name, job.corpus.name, command)
        if run is not None and (run.info["data"]["fingerprint"] != self.fingerprint or run.info["options"]["prompt"]):
            run = None
        known = reusable(run, self.model, [slot for _, slot in self.rows if slot[2] != SHIPPED])
        self.states.compute(job, self.path(folder), manifest, reporter, known)

    def missing(self, scores: ProbeScores) -> list[tuple[str, Slot]]:
        """Return the rows that have no score yet."""
        return [(kind, slot) for kind, slot in self.rows if scores.find(slot, kind) is None]


class ProbeJudge:
    """Judges probes at the slots that `slots_of` gives for a model; `failed` names what could not be judged.

    A `run` of the same model on the data of a probe has the states that it reads.

    What cannot be done with this model is a `LayerscopeError` of the constructor, before anything is computed.
    """

    def __init__(
        self,
        folder: Path,
        loaded: Loaded,
        override: Override,
        tasks: Sequence[ProbeTask],
        slots_of: Callable[[LayeredModel], list[Slot]],
        seed: int,
        keep_states: bool,
        reporter: Reporter,
        run: Run | None = None,
    ) -> None:
        self.folder, self.loaded, self.keep_states, self.reporter, self.run = folder, loaded, keep_states, reporter, run
        self.failed: dict[str, str] = {}
        self.total, self.done = len(tasks), 0
        groups: dict[Any, list[ProbeTask]] = {}
        for task in tasks:  # linear and kNN probe of the same data share a study
            groups.setdefault((task.kind.states, id(task.data)), []).append(task)
        self.studies = [Study(group, loaded, override, slots_of, seed) for group in groups.values()]
        for study in self.studies:
            for task in study.tasks:
                refuse_other_data(folder, task.name, study.data)

    @property
    def depth(self) -> int | None:
        """L of the model, where a probe found its layers."""
        return next((study.model.stack.depth for study in self.studies), None)

    def all(self) -> None:
        """Judge every probe at every slot that has no score of these weights, data and options yet."""
        for study in self.studies:
            todo = [(task, scores) for task in study.tasks if study.missing(scores := self._open(study, task))]
            try:
                if todo:
                    study.compute(self.folder, self.reporter, self.run)
                for task, scores in todo:
                    self._judge(study, task, scores)
            except LayerscopeError as error:
                for task, scores in todo:
                    if study.missing(scores):
                        self.failed[task.name] = str(error)
                        self.reporter.say(f"{task.name} is left out: {error}")
                continue
            if not self.keep_states:
                shutil.rmtree(study.path(self.folder), ignore_errors=True)
                with suppress(OSError):
                    (self.folder / STATES).rmdir()

    def _open(self, study: Study, task: ProbeTask) -> ProbeScores:
        """Return the scores of a task that are there already."""
        revision, digest = revision_of(self.loaded), study.digest(task.kind.name)
        scores = ProbeScores(self.folder, self.loaded.name, revision, task.name, study.data, digest)
        if not study.missing(scores):
            self.done += 1
            self.reporter.say(f"{task.name}: {len(study.rows)} results are there already")
        return scores

    def _judge(self, study: Study, task: ProbeTask, scores: ProbeScores) -> None:
        self.done += 1
        missing, skipped, states = study.missing(scores), 0, study.states
        with self.reporter.bar(f"{task.name} ({self.done} of {self.total})", len(missing), "layers") as advance:
            for kind, slot in missing:
                known = scores.find(slot, any_pooling=not states.pools)
                if known is None:
                    found = task.kind.probe(*states.layer(slot), seed=study.options.seed)
                    if found.n_skipped > skipped:
                        skipped = found.n_skipped
                        self.reporter.say(f"{task.name}: {skipped:,} {states.items} of rare labels are left out")
                    known = asdict(found) | {"score": found.mean}
                scores.add(kind, slot, known)
                advance(1)
