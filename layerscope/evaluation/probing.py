"""Probes of one data set by one pass over it and a cheap fit a layer, judged on those data and under a shift.

A `Study` is one data set as one model reads it. It keeps the states of one pass, and its tasks (a
linear and a kNN probe, say) are fitted on them row by row: the model as shipped, every layer at every
site and pooling, then mixes of layers. Each score is written as soon as it is there, with a digest
of all that it depends on, so that a second call fits only what is missing. Under a shift another
study has the states of the other data, and one fit gives both scores.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, product
from pathlib import Path
from typing import Any

from layerscope.core import LayerscopeError, Reporter, processes
from layerscope.evaluation.encoders import slots_of
from layerscope.evaluation.judges import STATES
from layerscope.evaluation.judging import line_of
from layerscope.evaluation.options import Positions
from layerscope.evaluation.probe_states import Pass, Pooled, Shared
from layerscope.evaluation.probe_tasks import ProbeTask
from layerscope.inputs.samples import hash_of
from layerscope.models import Loaded, Override, Vectors, dtype_of, find_layers
from layerscope.models.identity import (
    revision_of,
    tokens_fingerprint,
    weights_fingerprint,
)
from layerscope.models.probe import PROBED
from layerscope.probes import ProbeScore
from layerscope.probes.linear import shifted_probe
from layerscope.probes.mixes import as_text, linear_mixes, mix_names
from layerscope.profiling.identity import describe
from layerscope.profiling.options import PassOptions
from layerscope.profiling.plan import Job
from layerscope.runs import Run
from layerscope.scores.probe_results import ProbeScores, Slot

FORMAT = 6
"""Raised when the same weights, data and options would give another score, or more is kept of one."""


def states_of(
    task: ProbeTask, loaded: Loaded, override: Override, positions: Positions
) -> Shared:
    """Return what probes of a task's data read, of the model as it reads these data; nothing is computed yet.

    Raises `LayerscopeError` for what cannot be done with this model.
    """
    data = task.data
    samples = islice(data.samples, PROBED)
    first = [getattr(sample, "first", sample) for sample in samples]
    model = find_layers(loaded, data.modality, first, override)
    return task.kind.states(data, model, slots_of(model, positions))


@dataclass
class Study:
    """Probes that share one pass of a model over one data set.

    `shift` reads the states of the samples that judge the probes under a shift. A `run` of the same
    model and data has the states already.
    """

    tasks: Sequence[ProbeTask]
    states: Shared
    folder: Path
    seed: int
    mixes: bool
    run: Run | None
    shift: "Study | None" = None

    def __post_init__(self) -> None:
        states = self.states
        self.model = states.model
        self.team = processes.team()
        self.rows = [("baseline", states.last)]
        """Kind and slot of every row: the model as shipped, then the layers."""
        self.rows += [("layer", slot) for slot in states.slots]
        self.layers = sorted({layer for layer, *_ in states.slots})
        self.fingerprint = self.tasks[0].data.fingerprint()
        self.both: dict[Slot, tuple[ProbeScore, ...]] = {}
        """By slot the scores of a probe on both data, under a shift."""

    def data_of(self, task: ProbeTask) -> str:
        """Name the samples and labels of a task, with the seed that they are split by."""
        names = [self.fingerprint, str(self.seed)]
        if task.shift is not None and self.shift is not None:
            names.insert(1, self.shift.fingerprint)
        return "-".join(names)

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """All that the states depend on, but for where they are taken."""
        model = self.model
        return (
            revision_of(model.loaded),
            weights_fingerprint(model.module),
            dtype_of(model.module),
            model.stack,
            model.max_length,
            self.fingerprint,
            tokens_fingerprint(model, self.states.corpus),
        )

    @property
    def path(self) -> Path:
        """The folder of the states."""
        what = type(self.states).__name__, self.identity, self.states.kept
        return self.folder / STATES / f"probes-{hash_of(what)[:16]}"

    def judge(self, reporter: Reporter) -> dict[str, str]:
        """Judge every probe at every slot that has no score of these weights, data and options yet.

        Returns what could not be judged, and why.
        """
        unfinished: list[tuple[ProbeTask, ProbeScores]] = []
        for task in self.tasks:
            scores = self._scores_of(task)
            if self._missing(scores) or self._unmixed(task, scores):
                unfinished.append((task, scores))
            else:
                reporter.say(f"{task.name}: {len(self.rows)} results are there already")
        failed: dict[str, str] = {}
        # all have read what is there before one adds to it
        self.team.meet()
        try:
            if unfinished:
                self._compute(reporter)
            while unfinished:
                self._fit(*unfinished[0], reporter)
                del unfinished[0]
        except LayerscopeError as error:
            for task, _ in unfinished:
                failed[task.name] = str(error)
                reporter.say(f"{task.name} is left out: {error}")
        # and all have read the states
        self.team.meet()
        if self.team.leads and not failed:
            self._drop_states()
        return failed

    def _scores_of(self, task: ProbeTask) -> ProbeScores:
        """Return the scores of a task that are there of the same weights, data and options."""
        # all a score depends on, but for its slot and its task's name
        about = [FORMAT, task.kind.name, self.identity, self.seed]
        source = None
        if task.shift is not None and self.shift is not None:
            source = replace(task, shift=None).name
            about.append(self.shift.identity)
        facts = {
            "model": self.model.name,
            "revision": revision_of(self.model.loaded),
            "task": task.name,
            "data": self.data_of(task),
            "digest": hash_of(about),
            "shifted_from": source,
        }
        return ProbeScores(self.folder, facts, writes=self.team.leads)

    def _missing(self, scores: ProbeScores) -> list[tuple[str, Slot]]:
        """Return the rows that have no score yet."""
        return [row for row in self.rows if not scores.has(*row)]

    def _unmixed(self, task: ProbeTask, scores: ProbeScores) -> list[tuple[str, str]]:
        """Return the sites and poolings to mix layers at, none where no mix is wanted, or all have their scores."""
        if not (self.mixes and task.kind.learns_mixes):
            return []
        names = mix_names(self.layers, self.model.depth)
        places = dict.fromkeys(slot[1:] for slot in self.states.slots)
        slots = [(name, *place) for name, place in product(names, places)]
        if all(scores.has("mix", slot) for slot in slots):
            return []
        return [*places]

    def _drop_states(self) -> None:
        """Delete the states that the probes have read."""
        for study in filter(None, (self, self.shift)):
            shutil.rmtree(study.path, ignore_errors=True)
        with suppress(OSError):
            self.path.parent.rmdir()

    def _compute(self, reporter: Reporter) -> None:
        """Run the model over the data, or what is missing of it, unless a run has the states."""
        if self.shift is not None:
            self.shift._compute(reporter)
        # the pass keeps nothing but states for a metric of labels, and no views
        options = PassOptions(
            metrics=("linear_probe",), views=0, samples=None, seed=self.seed
        )
        vectors = Vectors(self.states.poolings)
        job = Job(self.model, self.states.corpus, options, vectors)
        tasks = [task.name for task in self.tasks]
        name = self.model.name
        command = f"layerscope.evaluate({name!r}, {tasks!r})"
        manifest = describe(job, name, job.corpus.name, command)
        work = Pass(job, manifest, self.path, reporter, self.team, self.run)
        self.states.compute(work)

    def _fit(self, task: ProbeTask, scores: ProbeScores, reporter: Reporter) -> None:
        """Fit the probe at every row that lacks a score, and the mixes that do."""
        missing = self._missing(scores)
        places = self._unmixed(task, scores)
        slots = dict.fromkeys(slot for _, slot in missing)
        fits = self.team.each(partial(self._probe, task), slots)
        by_slot: dict[Slot, ProbeScore] = {}
        with reporter.bar(task.name, len(missing) + len(places), "layers") as advance:
            for kind, slot in missing:
                if slot not in by_slot:
                    self.both[slot] = next(fits)
                    by_slot[slot] = self.both[slot][task.shift is not None]
                score = by_slot[slot]
                scores.add(kind, slot, vars(score) | {"score": score.mean})
                advance(1)
            for place in places:
                self._mix(scores, place, by_slot)
                advance(1)

    def _probe(self, task: ProbeTask, slot: Slot) -> tuple[ProbeScore, ...]:
        """Return the score of a layer, and that under a shift: one probe is judged on both data.

        Whatever it raises is one line that names task and layer.
        """
        if self.shift is not None and slot in self.both:
            return self.both[slot]
        seed = self.seed
        try:
            states = self.states.layer(slot)
            if self.shift is None:
                return (task.kind.probe(*states, seed=seed),)
            return shifted_probe(*states, *self.shift.states.layer(slot), seed=seed)
        except LayerscopeError:
            raise
        except Exception as error:  # numpy, scipy and scikit-learn raise many kinds
            raise LayerscopeError(
                f"{task.name} fails at layer {slot[0]}: {line_of(error)}"
            ) from error

    def _mix(
        self,
        scores: ProbeScores,
        place: tuple[str, str],
        by_slot: dict[Slot, ProbeScore],
    ) -> None:
        """Add the scores of the mixes of layers at a site and pooling."""
        assert isinstance(self.states, Pooled)
        by_layer = {
            slot[0]: score for slot, score in by_slot.items() if slot[1:] == place
        }
        mixes = linear_mixes(
            partial(self.states.mix, *place),
            self.layers,
            self.model.depth,
            by_layer,
            seed=self.seed,
            share=self.team.each,
        )
        for name, mix in mixes:
            # it was killed between two of them
            slot = (name, *place)
            if not scores.has("mix", slot):
                values = vars(mix.score) | vars(mix)
                values["score"] = mix.score.mean
                values["weights"] = as_text(mix.weights)
                scores.add("mix", slot, values)
