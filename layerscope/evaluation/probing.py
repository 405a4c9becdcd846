"""Probes of one data set by one pass over it and a cheap fit a layer, judged on those data and under a shift."""

import hashlib
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import Weights as OfText
from layerscope.core.options import Asked
from layerscope.core.processes import Team
from layerscope.core.progress import Reporter
from layerscope.evaluation.judges import STATES
from layerscope.evaluation.probe_states import SHIPPED
from layerscope.evaluation.probe_tasks import ProbeTask
from layerscope.models import LayeredModel, Loaded, Override, Vectors, find_layers
from layerscope.models.identity import revision_of, tokens_fingerprint, weights_fingerprint
from layerscope.models.of_run import reusable
from layerscope.probes import ProbeScore
from layerscope.probes.linear import shifted_probe
from layerscope.probes.mixes import MixScore, Weights, as_text, fixed_mixes, linear_mixes, mix_names
from layerscope.probes.scores import error_of
from layerscope.profiling.identity import describe
from layerscope.profiling.options import PassOptions
from layerscope.profiling.plan import Job
from layerscope.runs import Run
from layerscope.scores.probe_results import ProbeScores, Slot

FORMAT = 5
"""Raised when the same weights, data and options would give another score, or more is kept of one."""
PROBED = 8
"""Samples by which the layers of a model are found."""


class Study:
    """Probes that share one pass of a model over one data set, at the slots that `slots_of` gives for the model.

    What cannot be done with this model is a `LayerscopeError` of the constructor, before anything
    is computed.
    """

    def __init__(
        self,
        tasks: Sequence[ProbeTask],
        folder: Path,
        loaded: Loaded,
        override: Override,
        slots_of: Callable[[LayeredModel], list[Slot]],
        asked: Asked,
        reporter: Reporter,
        team: Team,
    ) -> None:
        data = tasks[0].data
        first = [data.samples[i] for i in range(min(PROBED, len(data.samples)))]
        self.tasks, self.folder, self.loaded, self.reporter, self.team = (
            tuple(tasks),
            folder,
            loaded,
            reporter,
            team,
        )
        self.keep_states = asked.keep_states
        # the pass keeps nothing but states for a metric of labels, and no views
        self.options = PassOptions(
            metrics=("linear_probe",), views=0, samples=None, seed=asked.seed
        )
        self.model = find_layers(loaded, data.modality, first, override, max_length=None, prompt="")
        self.states = tasks[0].kind.states(data, self.model, slots_of(self.model))
        self.rows = [
            ("baseline", self.states.last),
            *(("layer", slot) for slot in self.states.slots),
        ]
        """Kind and slot of every row: the model as shipped, then the layers."""
        self.mixes = asked.mixes and self.states.mixes
        self.layers = sorted({layer for layer, *_ in self.states.slots})
        self.fingerprint = data.fingerprint()
        others = (
            replace(task, data=task.shift, shift=None) for task in tasks if task.shift is not None
        )
        same = folder, loaded, override, slots_of, asked, reporter, team
        self.shift = next((Study([other], *same) for other in others), None)
        """Reads the states of the samples that judge the probes under a shift."""
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
        return (
            self.folder / STATES / f"probes-{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}"
        )

    def missing(self, scores: ProbeScores) -> list[tuple[str, Slot]]:
        """Return the rows that have no score yet."""
        return [(kind, slot) for kind, slot in self.rows if scores.find(slot, kind) is None]

    def unmixed(self, task: ProbeTask, scores: ProbeScores) -> list[tuple[str, str]]:
        """Return the sites and poolings at which a mix of layers has no score yet, where mixes are wanted."""
        names = (
            mix_names(self.layers, self.model.stack.depth, task.kind.learns_mixes)
            if self.mixes
            else []
        )
        found = dict.fromkeys(
            (site, pooling) for kind, (_, site, pooling) in self.rows if kind == "layer"
        )
        return [
            at for at in found if any(scores.find((name, *at), "mix") is None for name in names)
        ]

    def judge(self, run: Run | None, done: int, total: int) -> dict[str, str]:
        """Judge every probe at every slot that has no score of these weights, data and options yet.

        Returns what could not be judged, and why. A `run` of the same model on the same data has
        the states; `done` of `total` probes come before these.
        """
        todo: list[tuple[ProbeTask, ProbeScores, str]] = []
        for number, task in enumerate(self.tasks, start=done + 1):
            # all a score depends on, but for its slot and its task's name, which has the split
            about: tuple[Any, ...] = FORMAT, task.kind.name, self.identity, self.options.seed
            source = None if task.shift is None else replace(task, shift=None).name
            about += () if self.shift is None or source is None else (self.shift.identity,)
            digest, revision = (
                hashlib.sha256(repr(about).encode()).hexdigest(),
                revision_of(self.loaded),
            )
            known = self.loaded.name, revision, task.name, self.data_of(task), digest, source
            scores = ProbeScores(self.folder, *known, writes=self.team.leads)
            self.scores[task.name] = scores
            if self._lacks(task, scores):
                todo.append((task, scores, f"{task.name} ({number} of {total})"))
            else:
                self.reporter.say(f"{task.name}: {len(self.rows)} results are there already")
        failed = {}
        self.team.meet()  # all have read what is there before one adds to it
        try:
            if todo:
                self._compute(run)
            for probe in todo:
                self._fit(*probe)
        except LayerscopeError as error:
            failed = {
                task.name: str(error) for task, scores, _ in todo if self._lacks(task, scores)
            }
            for name in failed:
                self.reporter.say(f"{name} is left out: {error}")
        self.team.meet()  # and all have read the states
        if self.team.leads and not failed and not self.keep_states:
            for study in filter(None, (self, self.shift)):
                shutil.rmtree(study.path, ignore_errors=True)
            with suppress(OSError):
                self.path.parent.rmdir()
        return failed

    def _lacks(self, task: ProbeTask, scores: ProbeScores) -> bool:
        return bool(self.missing(scores) or self.unmixed(task, scores))

    def _compute(self, run: Run | None) -> None:
        """Run the model over the data, or what is missing of it, where `run` has no such states."""
        if self.shift is not None:
            self.shift._compute(run)
        job = Job(self.model, self.states.corpus, self.options, Vectors(self.states.poolings))
        command = (
            f"layerscope.evaluate({self.loaded.name!r}, {[task.name for task in self.tasks]!r})"
        )
        manifest = describe(job, self.loaded.name, job.corpus.name, command)
        if run is not None and (
            run.info["data"]["fingerprint"] != self.fingerprint or run.info["options"]["prompt"]
        ):
            run = None
        known = reusable(run, self.model, [slot for _, slot in self.rows if slot[2] != SHIPPED])
        self.states.compute(job, self.path, manifest, self.reporter, self.team, known)

    def _fit(self, task: ProbeTask, scores: ProbeScores, title: str) -> None:
        missing, skipped, states = self.missing(scores), 0, self.states
        mixes, fitted = self.unmixed(task, scores), dict[Slot, ProbeScore]()
        unknown = [
            slot for _, slot in missing if scores.find(slot, any_pooling=not states.pools) is None
        ]
        new = {
            slot[: 3 if states.pools else 2]: slot for slot in unknown
        }  # what is the same is judged once
        judged = self.team.each(partial(self._scores, task), new.values())
        with self.reporter.bar(title, len(missing) + len(mixes), "layers") as advance:
            for kind, slot in missing:
                known = scores.find(slot, any_pooling=not states.pools)
                if known is None:
                    own = self.both[slot] = next(judged)
                    found = fitted[slot] = own[task.shift is not None]
                    if found.n_skipped > skipped:
                        skipped = found.n_skipped
                        self.reporter.say(
                            f"{task.name}: {skipped:,} {states.items} of rare labels are left out"
                        )
                    known = asdict(found) | {"score": found.mean}
                scores.add(kind, slot, known)
                advance(1)
            for at in mixes:
                alone = {
                    layer: score for (layer, *where), score in fitted.items() if (*where,) == at
                }
                for name, mix in self._mixes(task, at, alone):
                    about = {
                        "score": mix.score.mean,
                        "gain": mix.gain,
                        "gain_error": mix.gain_error,
                    }
                    if scores.find((name, *at), "mix") is None:  # it was killed between two of them
                        scores.add(
                            "mix",
                            (name, *at),
                            asdict(mix.score) | about | {"weights": as_text(mix.weights)},
                        )
                advance(1)

    def _scores(
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
        self, task: ProbeTask, at: tuple[str, str], known: dict[int, ProbeScore]
    ) -> Iterator[tuple[str, MixScore]]:
        """Yield the mixes of layers at a site and pooling; a probe that learns none has the fixed ones, and no gain."""
        read, depth = partial(self.states.layer, (self.layers[-1], *at)), self.model.stack.depth
        if task.shift is not None:
            rival: Any = None  # the first is one layer
            mixes, slot = dict(self._learned(task, at)), (self.layers[-1], *at)
            judged = self.team.each(partial(self._scores, task, slot), mixes.values())
            for (name, weights), (_, score) in zip(mixes.items(), judged, strict=True):
                right = np.asarray(score.right, dtype=np.float64)
                gain = right - (np.nan if rival is None else rival)
                yield name, MixScore(score, float(gain.mean()), error_of(gain), weights)
                rival = right if rival is None else rival
            return
        if task.kind.learns_mixes:
            yield from linear_mixes(
                read, self.layers, depth, known, seed=self.options.seed, share=self.team.each
            )
            return
        fixed = fixed_mixes(self.layers, depth)
        scores = self.team.each(
            lambda weights: task.score(read(weights), self.options.seed), fixed.values()
        )
        for (name, weights), score in zip(fixed.items(), scores, strict=True):
            yield name, MixScore(score, math.nan, math.nan, weights)

    def _learned(self, task: ProbeTask, at: tuple[str, str]) -> Iterator[tuple[str, Weights]]:
        """Yield the mixes of layers, with weights learned on the samples that a probe under a shift is fitted on."""
        source = self.scores[replace(task, shift=None).name]
        for row in source.rows:
            if row["kind"] == "mix" and (row["site"], row["pooling"]) == at and row["weights"]:
                given = OfText().take("weights", row["weights"])
                yield (
                    row["mix"],
                    {int(layer): weight / sum(given.values()) for layer, weight in given.items()},
                )
