"""Probes of one data set by one pass over it and a cheap fit a layer, judged on those data and under a shift.

A `Study` is one data set as one model reads it. It keeps the states of one pass, and its tasks (a
linear and a kNN probe, say) are fitted on them row by row: the model as shipped, every layer at every
site and pooling, then mixes of layers. Each score is written as soon as it is there, with a digest
of all that it depends on, so that a second call fits only what is missing. Under a shift another
study has the states of the other data, and one fit gives both scores.
"""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Reporter
from layerscope.evaluation.encoders import slots_of
from layerscope.evaluation.judges import STATES
from layerscope.evaluation.judging import line_of
from layerscope.evaluation.options import Positions
from layerscope.evaluation.probe_states import Shared
from layerscope.evaluation.probe_tasks import ProbeTask
from layerscope.models import Loaded, Override, Vectors, find_layers
from layerscope.models.identity import (
    revision_of,
    tokens_fingerprint,
    weights_fingerprint,
)
from layerscope.probes import ProbeScore
from layerscope.probes.linear import shifted_probe
from layerscope.probes.mixes import as_text, linear_mixes, mix_names
from layerscope.profiling.identity import describe
from layerscope.profiling.options import PassOptions
from layerscope.profiling.plan import Job
from layerscope.scores.probe_results import ProbeScores, Slot

FORMAT = 5
"""Raised when the same weights, data and options would give another score, or more is kept of one."""
PROBED = 8
"""Samples by which the layers of a model are found."""


def states_of(
    task: ProbeTask, loaded: Loaded, override: Override, positions: Positions
) -> Shared:
    """Return what probes of a task's data read, of the model as it reads these data; nothing is computed yet.

    Raises `LayerscopeError` for what cannot be done with this model.
    """
    data = task.data
    first = list(data.samples[:PROBED])
    model = find_layers(
        loaded, data.modality, first, override, max_length=None, prompt=""
    )
    return task.kind.states(data, model, slots_of(model, positions))


class Study:
    """Probes that share one pass of a model over one data set.

    `shift` reads the states of the samples that judge the probes under a shift.
    """

    def __init__(
        self,
        tasks: Sequence[ProbeTask],
        states: Shared,
        folder: Path,
        seed: int,
        mixes: bool,
        shift: "Study | None" = None,
    ) -> None:
        self.tasks, self.states, self.folder, self.shift = (
            tuple(tasks),
            states,
            folder,
            shift,
        )
        self.model, self.loaded = states.model, states.model.loaded
        self.team = processes.team()
        # the pass keeps nothing but states for a metric of labels, and no views
        self.options = PassOptions(
            metrics=("linear_probe",), views=0, samples=None, seed=seed
        )
        self.rows = [
            ("baseline", states.last),
            *(("layer", slot) for slot in states.slots),
        ]
        """Kind and slot of every row: the model as shipped, then the layers."""
        self.mixes = mixes
        self.layers = sorted({layer for layer, *_ in states.slots})
        self.fingerprint = tasks[0].data.fingerprint()
        self.both: dict[Slot, tuple[ProbeScore, ...]] = {}
        """By slot the scores of a probe on both data, under a shift."""

    def data_of(self, task: ProbeTask) -> str:
        """Name the samples and labels of a task, with the seed that they are split by."""
        other = (
            ""
            if task.shift is None or self.shift is None
            else f"{self.shift.fingerprint}-"
        )
        return f"{self.fingerprint}-{other}{self.options.seed}"

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """All that the states depend on, but for where they are taken."""
        model = self.model
        dtype = str(next((p.dtype for p in model.module.parameters()), ""))
        weights = revision_of(self.loaded), weights_fingerprint(model.module), dtype
        tokens = tokens_fingerprint(model, self.states.corpus)
        return *weights, model.stack, model.max_length, self.fingerprint, tokens

    @property
    def path(self) -> Path:
        """The folder of the states."""
        what = type(self.states).__name__, self.identity, self.states.kept
        digest = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
        return self.folder / STATES / f"probes-{digest}"

    def judge(self, reporter: Reporter) -> dict[str, str]:
        """Judge every probe at every slot that has no score of these weights, data and options yet.

        Returns what could not be judged, and why.
        """
        unfinished: list[tuple[ProbeTask, ProbeScores]] = []
        for task in self.tasks:
            scores = self._scores_of(task)
            if self._lacks(task, scores):
                unfinished.append((task, scores))
            else:
                reporter.say(f"{task.name}: {len(self.rows)} results are there already")
        failed = {}
        self.team.meet()  # all have read what is there before one adds to it
        try:
            if unfinished:
                self._compute(reporter)
            for task, scores in unfinished:
                self._fit(task, scores, reporter)
        except LayerscopeError as error:
            lacking = [
                task.name for task, scores in unfinished if self._lacks(task, scores)
            ]
            failed = dict.fromkeys(lacking, str(error))
            for name in failed:
                reporter.say(f"{name} is left out: {error}")
        self.team.meet()  # and all have read the states
        if self.team.leads and not failed:
            self._drop_states()
        return failed

    def _scores_of(self, task: ProbeTask) -> ProbeScores:
        """Return the scores of a task that are there of the same weights, data and options."""
        # all a score depends on, but for its slot and its task's name
        about: tuple[Any, ...] = (
            FORMAT,
            task.kind.name,
            self.identity,
            self.options.seed,
        )
        source = None
        if task.shift is not None and self.shift is not None:
            source = replace(task, shift=None).name
            about += (self.shift.identity,)
        facts = {
            "model": self.loaded.name,
            "revision": revision_of(self.loaded),
            "task": task.name,
            "data": self.data_of(task),
            "digest": hashlib.sha256(repr(about).encode()).hexdigest(),
            "shifted_from": source,
        }
        return ProbeScores(self.folder, facts, writes=self.team.leads)

    def _missing(self, scores: ProbeScores) -> list[tuple[str, Slot]]:
        """Return the rows that have no score yet."""
        return [
            (kind, slot) for kind, slot in self.rows if scores.find(slot, kind) is None
        ]

    def _unmixed(self, task: ProbeTask, scores: ProbeScores) -> list[tuple[str, str]]:
        """Return the sites and poolings at which a mix of layers has no score yet, where mixes are wanted."""
        if not (self.mixes and task.kind.learns_mixes):
            return []
        names = mix_names(self.layers, self.model.stack.depth)
        places = dict.fromkeys(
            (site, pooling) for _, site, pooling in self.states.slots
        )
        return [
            place
            for place in places
            if any(scores.find((name, *place), "mix") is None for name in names)
        ]

    def _lacks(self, task: ProbeTask, scores: ProbeScores) -> bool:
        return bool(self._missing(scores) or self._unmixed(task, scores))

    def _drop_states(self) -> None:
        for study in filter(None, (self, self.shift)):
            shutil.rmtree(study.path, ignore_errors=True)
        with suppress(OSError):
            self.path.parent.rmdir()

    def _compute(self, reporter: Reporter) -> None:
        """Run the model over the data, or what is missing of it."""
        if self.shift is not None:
            self.shift._compute(reporter)
        job = Job(
            self.model, self.states.corpus, self.options, Vectors(self.states.poolings)
        )
        tasks = [task.name for task in self.tasks]
        command = f"layerscope.evaluate({self.loaded.name!r}, {tasks!r})"
        manifest = describe(job, self.loaded.name, job.corpus.name, command)
        self.states.compute(job, self.path, manifest, reporter, self.team)

    def _fit(self, task: ProbeTask, scores: ProbeScores, reporter: Reporter) -> None:
        """Fit the probe at every row that lacks a score; where poolings give the same states, at one of them."""
        states = self.states
        missing, places = self._missing(scores), self._unmixed(task, scores)
        find = partial(scores.find, any_pooling=not states.pools)
        new: dict[Any, Slot] = {}
        for _, slot in missing:
            if find(slot) is None:
                new[slot if states.pools else slot[:2]] = slot
        fits = self.team.each(partial(self._probe, task), new.values())
        by_slot: dict[Slot, ProbeScore] = {}
        skipped = 0
        with reporter.bar(task.name, len(missing) + len(places), "layers") as advance:
            for kind, slot in missing:
                row = find(slot)
                if row is None:
                    self.both[slot] = next(fits)
                    score = by_slot[slot] = self.both[slot][task.shift is not None]
                    row = asdict(score) | {"score": score.mean}
                    skipped = max(skipped, score.n_skipped)
                scores.add(kind, slot, row)
                advance(1)
            for place in places:
                by_layer = {
                    slot[0]: score
                    for slot, score in by_slot.items()
                    if slot[1:] == place
                }
                self._mix(scores, place, by_layer)
                advance(1)
        if skipped:
            reporter.say(
                f"{task.name}: {skipped:,} {states.items} of rare labels are left out"
            )

    def _probe(self, task: ProbeTask, slot: Slot) -> tuple[ProbeScore, ...]:
        """Return the score of a layer, and that under a shift: one probe is judged on both data."""
        if self.shift is not None and slot in self.both:
            return self.both[slot]
        with _naming(task, slot):
            states = self.states.layer(slot)
            if self.shift is None:
                return (task.kind.probe(*states, seed=self.options.seed),)
            return shifted_probe(
                *states, *self.shift.states.layer(slot), seed=self.options.seed
            )

    def _mix(
        self,
        scores: ProbeScores,
        place: tuple[str, str],
        by_layer: dict[int, ProbeScore],
    ) -> None:
        """Add the scores of the mixes of layers at a site and pooling."""
        read = partial(self.states.layer, (self.layers[-1], *place))
        mixes = linear_mixes(
            read,
            self.layers,
            self.model.stack.depth,
            by_layer,
            seed=self.options.seed,
            share=self.team.each,
        )
        for name, mix in mixes:
            # it was killed between two of them
            if scores.find((name, *place), "mix") is None:
                row = asdict(mix.score) | {
                    "score": mix.score.mean,
                    "gain": mix.gain,
                    "gain_error": mix.gain_error,
                    "weights": as_text(mix.weights),
                }
                scores.add("mix", (name, *place), row)


@contextmanager
def _naming(task: ProbeTask, slot: Slot) -> Iterator[None]:
    """Name task and layer in whatever a probe raises that is not one line already."""
    try:
        yield
    except LayerscopeError:
        raise
    except Exception as error:  # numpy, scipy and scikit-learn raise many kinds
        raise LayerscopeError(
            f"{task.name} fails at layer {slot[0]}: {line_of(error)}"
        ) from error
