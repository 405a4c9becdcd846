"""Probes of one data set by one pass over it and a cheap fit a layer, judged on those data and under a shift.

A `Study` is one data set as one model reads it. It keeps the states of one pass, and its tasks (a
linear and a kNN probe, say) are fitted on them row by row: the model as shipped, every layer at every
site and pooling, then mixes of layers. Each score is written as soon as it is there, with a digest
of all that it depends on, so that a second call fits only what is missing. Under a shift another
study has the states of the other data, and one fit gives both scores.
"""

import hashlib
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.margin import error_of
from layerscope.core.option_kinds import Weights as OfText
from layerscope.core.progress import Reporter
from layerscope.evaluation.encoders import slots_of
from layerscope.evaluation.judges import STATES
from layerscope.evaluation.options import Positions
from layerscope.evaluation.probe_states import SHIPPED, Pooled, Tokens
from layerscope.evaluation.probe_tasks import ProbeTask
from layerscope.models import Loaded, Override, Vectors, find_layers
from layerscope.models.identity import revision_of, tokens_fingerprint, weights_fingerprint
from layerscope.models.of_run import reusable
from layerscope.probes import ProbeScore
from layerscope.probes.linear import shifted_probe
from layerscope.probes.mixes import MixScore, Weights, as_text, fixed_mixes, linear_mixes, mix_names
from layerscope.profiling.identity import describe
from layerscope.profiling.options import PassOptions
from layerscope.profiling.plan import Job
from layerscope.runs import Run
from layerscope.scores.probe_results import ProbeScores, Slot

FORMAT = 5
"""Raised when the same weights, data and options would give another score, or more is kept of one."""
PROBED = 8
"""Samples by which the layers of a model are found."""


def states_of(
    task: ProbeTask, loaded: Loaded, override: Override, positions: Positions
) -> Pooled | Tokens:
    """Return what probes of a task's data read, of the model as it reads these data; nothing is computed yet.

    Raises `LayerscopeError` for what cannot be done with this model.
    """
    data = task.data
    first = [data.samples[i] for i in range(min(PROBED, len(data.samples)))]
    model = find_layers(loaded, data.modality, first, override, max_length=None, prompt="")
    return task.kind.states(data, model, slots_of(model, positions))


class Study:
    """Probes that share one pass of a model over one data set.

    `shift` reads the states of the samples that judge the probes under a shift.
    """

    def __init__(
        self,
        tasks: Sequence[ProbeTask],
        states: Pooled | Tokens,
        folder: Path,
        seed: int,
        mixes: bool,
        shift: "Study | None" = None,
    ) -> None:
        self.tasks, self.states, self.folder, self.shift = tuple(tasks), states, folder, shift
        self.model, self.loaded = states.model, states.model.loaded
        self.team = processes.team()
        # the pass keeps nothing but states for a metric of labels, and no views
        self.options = PassOptions(metrics=("linear_probe",), views=0, samples=None, seed=seed)
        self.rows = [("baseline", states.last), *(("layer", slot) for slot in states.slots)]
        """Kind and slot of every row: the model as shipped, then the layers."""
        self.mixes = mixes and states.mixes
        self.layers = sorted({layer for layer, *_ in states.slots})
        self.fingerprint = tasks[0].data.fingerprint()
        self.both: dict[Slot, tuple[ProbeScore, ...]] = {}
        """By slot the scores of a probe on both data, under a shift."""
        self.scores: dict[str, ProbeScores] = {}

    def data_of(self, task: ProbeTask) -> str:
        """Name the samples and labels of a task, with the seed that they are split by."""
        other = "" if task.shift is None or self.shift is None else f"{self.shift.fingerprint}-"
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

    def missing(self, scores: ProbeScores) -> list[tuple[str, Slot]]:
        """Return the rows that have no score yet."""
        return [(kind, slot) for kind, slot in self.rows if scores.find(slot, kind) is None]

    def unmixed(self, task: ProbeTask, scores: ProbeScores) -> list[tuple[str, str]]:
        """Return the sites and poolings at which a mix of layers has no score yet, where mixes are wanted."""
        if not self.mixes:
            return []
        names = mix_names(self.layers, self.model.stack.depth, task.kind.learns_mixes)
        places = dict.fromkeys((site, pooling) for _, site, pooling in self.states.slots)
        return [
            place
            for place in places
            if any(scores.find((name, *place), "mix") is None for name in names)
        ]

    def judge(
        self, run: Run | None, done: int, total: int, keep_states: bool, reporter: Reporter
    ) -> dict[str, str]:
        """Judge every probe at every slot that has no score of these weights, data and options yet.

        Returns what could not be judged, and why. A `run` of the same model on the same data has
        the states; `done` of `total` probes come before these.
        """
        todo: list[tuple[ProbeTask, str]] = []
        for number, task in enumerate(self.tasks, start=done + 1):
            self.scores[task.name] = self._scores_of(task)
            if self._lacks(task):
                todo.append((task, f"{task.name} ({number} of {total})"))
            else:
                reporter.say(f"{task.name}: {len(self.rows)} results are there already")
        failed = {}
        self.team.meet()  # all have read what is there before one adds to it
        try:
            if todo:
                self._compute(run, reporter)
            for task, title in todo:
                self._fit(task, title, reporter)
        except LayerscopeError as error:
            failed = {task.name: str(error) for task, _ in todo if self._lacks(task)}
            for name in failed:
                reporter.say(f"{name} is left out: {error}")
        self.team.meet()  # and all have read the states
        if self.team.leads and not failed and not keep_states:
            self._drop_states()
        return failed

    def _scores_of(self, task: ProbeTask) -> ProbeScores:
        """Return the scores of a task that are there of the same weights, data and options."""
        # all a score depends on, but for its slot and its task's name, which has the split
        about: tuple[Any, ...] = FORMAT, task.kind.name, self.identity, self.options.seed
        source = None if task.shift is None else replace(task, shift=None).name
        if self.shift is not None and source is not None:
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

    def _lacks(self, task: ProbeTask) -> bool:
        scores = self.scores[task.name]
        return bool(self.missing(scores) or self.unmixed(task, scores))

    def _drop_states(self) -> None:
        for study in filter(None, (self, self.shift)):
            shutil.rmtree(study.path, ignore_errors=True)
        with suppress(OSError):
            self.path.parent.rmdir()

    def _compute(self, run: Run | None, reporter: Reporter) -> None:
        """Run the model over the data, or what is missing of it, where `run` has no such states."""
        if self.shift is not None:
            self.shift._compute(run, reporter)
        job = Job(self.model, self.states.corpus, self.options, Vectors(self.states.poolings))
        tasks = [task.name for task in self.tasks]
        command = f"layerscope.evaluate({self.loaded.name!r}, {tasks!r})"
        manifest = describe(job, self.loaded.name, job.corpus.name, command)
        if run is not None:
            is_same = run.info["data"]["fingerprint"] == self.fingerprint
            run = run if is_same and not run.info["options"]["prompt"] else None
        slots = [slot for _, slot in self.rows if slot[2] != SHIPPED]
        stored = reusable(run, self.model, slots)
        self.states.compute(job, self.path, manifest, reporter, self.team, stored)

    def _fit(self, task: ProbeTask, title: str, reporter: Reporter) -> None:
        """Fit the probe at every row that lacks a score; where poolings give the same states, at one of them."""
        scores, states = self.scores[task.name], self.states
        missing, places = self.missing(scores), self.unmixed(task, scores)
        find = partial(scores.find, any_pooling=not states.pools)
        new: dict[Any, Slot] = {}
        for _, slot in missing:
            if find(slot) is None:
                new[slot if states.pools else slot[:2]] = slot
        fits = self.team.each(partial(self._probe, task), new.values())
        by_slot: dict[Slot, ProbeScore] = {}
        skipped = 0
        with reporter.bar(title, len(missing) + len(places), "layers") as advance:
            for kind, slot in missing:
                row = find(slot)
                if row is None:
                    self.both[slot] = next(fits)
                    score = by_slot[slot] = self.both[slot][task.shift is not None]
                    row = asdict(score) | {"score": score.mean}
                    if score.n_skipped > skipped:
                        skipped = score.n_skipped
                        reporter.say(
                            f"{task.name}: {skipped:,} {states.items} of rare labels are left out"
                        )
                scores.add(kind, slot, row)
                advance(1)
            for place in places:
                by_layer = {slot[0]: score for slot, score in by_slot.items() if slot[1:] == place}
                self._mix(task, place, by_layer)
                advance(1)

    def _mix(self, task: ProbeTask, place: tuple[str, str], scored: dict[int, ProbeScore]) -> None:
        """Add the scores of the mixes of layers at a site and pooling."""
        scores = self.scores[task.name]
        for name, mix in self._mixes(task, place, scored):
            if scores.find((name, *place), "mix") is None:  # it was killed between two of them
                row = asdict(mix.score) | {
                    "score": mix.score.mean,
                    "gain": mix.gain,
                    "gain_error": mix.gain_error,
                    "weights": as_text(mix.weights),
                }
                scores.add("mix", (name, *place), row)

    def _probe(
        self, task: ProbeTask, slot: Slot, weights: Weights | None = None
    ) -> tuple[ProbeScore, ...]:
        """Return the score of a layer or a mix, and that under a shift: one probe is judged on both data."""
        if self.shift is None:
            return (task.score(self.states.layer(slot, weights), self.options.seed),)
        if weights is None and slot in self.both:
            return self.both[slot]
        states, other = self.states.layer(slot, weights), self.shift.states.layer(slot, weights)
        return shifted_probe(*states, *other, seed=self.options.seed)

    def _mixes(
        self, task: ProbeTask, place: tuple[str, str], scored: dict[int, ProbeScore]
    ) -> Iterator[tuple[str, MixScore]]:
        """Yield the mixes of layers at a site and pooling; a probe that learns none has the fixed ones, and no gain."""
        slot, depth = (self.layers[-1], *place), self.model.stack.depth
        if task.shift is not None:
            yield from self._shifted_mixes(task, slot)
        elif task.kind.learns_mixes:
            read = partial(self.states.layer, slot)
            seed, share = self.options.seed, self.team.each
            yield from linear_mixes(read, self.layers, depth, scored, seed=seed, share=share)
        else:
            fixed = fixed_mixes(self.layers, depth)
            fits = self.team.each(partial(self._probe, task, slot), fixed.values())
            for (name, weights), (score, *_) in zip(fixed.items(), fits, strict=True):
                yield name, MixScore(score, math.nan, math.nan, weights)

    def _shifted_mixes(self, task: ProbeTask, slot: Slot) -> Iterator[tuple[str, MixScore]]:
        """Yield mixes with the weights learned on the source, judged under a shift; the first is one layer."""
        mixes = self._learned(task, slot[1:])
        fits = self.team.each(partial(self._probe, task, slot), mixes.values())
        single: Any = np.nan
        for (name, weights), (_, score) in zip(mixes.items(), fits, strict=True):
            right = np.asarray(score.right, dtype=np.float64)
            gain = right - single
            yield name, MixScore(score, float(gain.mean()), error_of(gain), weights)
            if single is np.nan:
                single = right

    def _learned(self, task: ProbeTask, place: tuple[str, ...]) -> dict[str, Weights]:
        """Return the mixes of layers, with weights learned on the samples that a probe under a shift is fitted on."""
        mixes = {}
        for row in self.scores[replace(task, shift=None).name].rows:
            is_mix = row["kind"] == "mix" and (row["site"], row["pooling"]) == place
            if is_mix and row["weights"]:
                weights = OfText().take("weights", row["weights"])
                total = sum(weights.values())
                shares = {int(layer): weight / total for layer, weight in weights.items()}
                mixes[row["mix"]] = shares
        return mixes
