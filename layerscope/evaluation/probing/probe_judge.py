"""Judges every layer by probes: one pass over the data of each, then a cheap fit a layer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Teller
from layerscope.evaluation.probing.studies import OfSamples, OfTokens, OfWords, Study
from layerscope.evaluation.probing.tasks import ProbeTask
from layerscope.models import LayeredModel, Loaded, Override
from layerscope.probes.scores import ProbeScore
from layerscope.profiling.identity import revision_of
from layerscope.profiling.options import Options
from layerscope.runs import Run
from layerscope.scores.probe_results import ProbeScores, Slot, refuse_other_data

STATES = "states"
STUDIES: tuple[type[Study], ...] = (OfSamples, OfTokens, OfWords)


class ProbeJudge:
    """Judges probes at the places that `places` says of a model; `failed` names what could not be judged.

    A `run` of the same model on the data of a probe has the states that it reads.

    What cannot be done with this model is a `LayerscopeError` of the constructor, before anything is computed.
    """

    def __init__(
        self,
        folder: Path,
        loaded: Loaded,
        override: Override,
        tasks: Sequence[ProbeTask],
        places: Callable[[LayeredModel], list[Slot]],
        seed: int,
        keep_states: bool,
        teller: Teller,
        run: Run | None = None,
    ) -> None:
        self.folder, self.loaded, self.keep_states, self.teller, self.run = folder, loaded, keep_states, teller, run
        self.failed: dict[str, str] = {}
        self.total = len(tasks)
        self.done = 0
        # the pass keeps nothing but states for a metric of labels, and no views
        options = Options(metrics=("linear_probe",), views=0, samples=None, seed=seed)
        self.studies = _studies(tasks, loaded, override, places, options)
        for study in self.studies:
            for task in study.tasks:
                refuse_other_data(folder, task.name, study.data)

    @property
    def depth(self) -> int | None:
        """L of the model, where a probe found its layers."""
        return next((study.model.stack.depth for study in self.studies), None)

    def all(self) -> None:
        """Judge every probe at every place that has no score of these weights, data and options yet."""
        for study in self.studies:
            todo = [(task, scores) for task in study.tasks if (scores := self._open(study, task))]
            try:
                if todo:
                    study.compute(self.folder / STATES, self.teller, self.run)
                for task, scores in todo:
                    self._judge(study, task, scores)
            except LayerscopeError as error:
                for task, scores in todo:
                    if _missing(study, scores):
                        self._fail(task.name, str(error))
            else:
                self._drop(study)

    def _open(self, study: Study, task: ProbeTask) -> ProbeScores | None:
        """Return the scores of a task that are there already, or None where none is missing."""
        revision, digest = revision_of(self.loaded), study.digest(task.kind)
        scores = ProbeScores(self.folder, self.loaded.name, revision, task.name, study.data, digest)
        if _missing(study, scores):
            return scores
        self.done += 1
        self.teller.say(f"{task.name}: {len(_wanted(study))} results are there already")
        return None

    def _judge(self, study: Study, task: ProbeTask, scores: ProbeScores) -> None:
        self.done += 1
        missing = _missing(study, scores)
        told = False
        with self.teller.bar(f"{task.name} ({self.done} of {self.total})", len(missing), "layers") as advance:
            for kind, place in missing:
                known = scores.find(place, any_pooling=not study.pools)
                if known is None:
                    found = study.score(task.kind, place)
                    if found.n_skipped and not told:
                        self.teller.say(f"{task.name}: {found.n_skipped:,} {study.items} of rare labels are left out")
                        told = True
                    known = _values(found)
                scores.add(kind, place, known)
                advance(1)

    def _fail(self, task: str, reason: str) -> None:
        self.failed[task] = reason
        self.teller.say(f"{task} is left out: {reason}")

    def _drop(self, study: Study) -> None:
        if self.keep_states:
            return
        shutil.rmtree(study.path(self.folder / STATES), ignore_errors=True)
        with suppress(OSError):
            (self.folder / STATES).rmdir()


def _studies(
    tasks: Sequence[ProbeTask],
    loaded: Loaded,
    override: Override,
    places: Callable[[LayeredModel], list[Slot]],
    options: Options,
) -> list[Study]:
    """Return a study for each data set and kind of states: linear and kNN probe of the same data share one."""
    groups: dict[tuple[type[Study], int], list[ProbeTask]] = {}
    for task in tasks:
        kind = next(kind for kind in STUDIES if task.kind in kind.kinds)
        groups.setdefault((kind, id(task.data)), []).append(task)
    return [kind(group, loaded, override, places, options) for (kind, _), group in groups.items()]


def _wanted(study: Study) -> list[tuple[str, Slot]]:
    """Return kind and place of every row: the model as shipped, then the layers."""
    return [("baseline", study.last), *(("layer", place) for place in study.places)]


def _missing(study: Study, scores: ProbeScores) -> list[tuple[str, Slot]]:
    return [(kind, place) for kind, place in _wanted(study) if scores.find(place, kind) is None]


def _values(score: ProbeScore) -> dict[str, Any]:
    return asdict(score) | {"score": score.mean}
