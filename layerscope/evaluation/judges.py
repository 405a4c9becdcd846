"""Judges of every layer: mteb's own tasks, and probes by one pass over their data and a cheap fit a layer."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.hub import go_offline_without_hub
from layerscope.core.options import Asked
from layerscope.core.progress import Reporter
from layerscope.core.workers import one_thread
from layerscope.evaluation.judging import UndefinedError, UnjudgedError, Workers, judge, line_of, most_texts
from layerscope.evaluation.layer_encoder import LayerEncoder
from layerscope.evaluation.probe_states import SHIPPED, ProbeTask
from layerscope.evaluation.texts import MEND, TextStates
from layerscope.models import LayeredModel, Loaded, Override, Vectors, find_layers
from layerscope.probes import ProbeScore
from layerscope.probes.mixes import MixScore, as_text, fixed_mixes, linear_mixes, mix_names
from layerscope.profiling.identity import describe, reusable, revision_of, tokens_fingerprint, weights_fingerprint
from layerscope.profiling.plan import Job, Options
from layerscope.runs import Run
from layerscope.runs.folder import amount, need_room
from layerscope.scores.opening import META
from layerscope.scores.probe_results import ProbeScores, Slot, refuse_other_data

FORMAT = 3
"""Raised when the same weights, data and options would give another score."""
STATES = "states"
PROBED = 8
"""Samples by which the layers of a model are found."""


class Judge:
    """Judges tasks of mteb one after another, all layers on the data of one, with results written whole or not at all.

    `failed` names what could not be judged.
    """

    def __init__(
        self, folder: Path, states: TextStates, encoders: list[Any], workers: Workers, keep_states: bool
    ) -> None:
        from mteb.cache import ResultCache

        self.folder, self.states, self.encoders, self.workers = folder, states, encoders, workers
        self.keep_states, self.reporter = keep_states, states.reporter
        self.cache = ResultCache(folder)
        self.failed: dict[str, str] = {}
        self.unfinished = False

    def all(self, tasks: Sequence[Any]) -> None:
        """Judge every task at every layer that has no result of this data yet."""
        for number, task in enumerate(tasks, start=1):
            name = task.metadata.name
            missing = [encoder for encoder in self.encoders if not self._is_done(task, encoder.mteb_model_meta)]
            if not missing:
                self.reporter.say(f"{name}: {len(self.encoders)} results are there already")
                continue
            given = task.data_loaded
            try:
                if not given:
                    go_offline_without_hub()
                    task.load_data()
            except Exception as error:  # datasets and the hub fail in many ways
                path = task.metadata.dataset.get("path", "?")
                reason = "the hub cannot be reached" if isinstance(error, ConnectionError) else line_of(error)
                self._fail(task, f"its data {path!r} cannot be loaded ({reason})")
                continue
            self._task(task, missing, f"{name} ({number} of {len(tasks)})")
            if not given:
                task.unload_data()

    def _is_done(self, task: Any, meta: Any) -> bool:
        """Return whether a whole result of the same data is there."""
        from mteb.results import TaskResult

        path = self._path(task, meta)
        if not path.is_file() or not path.with_name(META).is_file():
            return False
        try:
            found = TaskResult.from_disk(path)
            same = found.dataset_revision == task.metadata.revision
            return same and not found.get_missing_evaluations(task) and math.isfinite(found.get_score())
        except Exception:  # pydantic, JSON and mteb's converters raise many kinds; it is judged again
            return False

    def _task(self, task: Any, encoders: Sequence[Any], title: str) -> None:
        texts, n = most_texts(task), len({slot[0] for slot in self.states.slots})
        size = self.states.size(texts)
        self.reporter.say(f"{title}: up to {texts:,} texts at {n} layers, {amount(size)} until its scores are saved")
        need_room(self.folder, size - self.states.size(len(self.states)), MEND)
        with self.reporter.bar(title, len(encoders), "layers") as advance:
            try:
                for encoder, result in self._judged(task, encoders):
                    if result is None:
                        self.reporter.say(f"{title}: layer 0 has no score, as its vectors are the same for every text")
                    else:
                        self._keep(result, self._path(task, encoder.mteb_model_meta), encoder.mteb_model_meta)
                    advance(1)
            except UnjudgedError as error:  # the task's own code; its texts stay embedded
                self._fail(task, str(error))
                self.unfinished = True
                return
        if not self.keep_states and not self.unfinished:
            self.states.drop()

    def _judged(self, task: Any, encoders: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield encoders with their results: the first judged here, which embeds all texts, the others by workers."""
        for i, encoder in enumerate(encoders, start=1):
            embedding, began = self.states.seconds, time.perf_counter()
            result = self._here(task, encoder)
            seconds = time.perf_counter() - began - (self.states.seconds - embedding)
            yield encoder, result
            if isinstance(encoder, LayerEncoder) and self.workers.worth(seconds, len(encoders) - i):
                break
        for encoder, result in self.workers.judged(task, encoders[i:]):
            yield encoder, self._here(task, encoder) if result is None else result

    def _here(self, task: Any, encoder: Any) -> Any:
        """Return the result of an encoder, None where layer 0 has no score."""
        try:
            with one_thread():
                return judge(task, encoder)
        except UndefinedError:
            # before the first block the vectors of all texts may be one, as those of a leading CLS token are
            if getattr(encoder, "layer", None) != 0:
                raise
            return None

    def _keep(self, result: Any, path: Path, meta: Any) -> None:
        """Write what mteb itself would, aside and renamed: a kill leaves a whole result or none."""
        from mteb.cache import ResultCache

        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".result-") as aside:
            ResultCache(Path(aside)).save_to_cache(result, meta)
            written = next(Path(aside).rglob(path.name))
            os.replace(written.with_name(META), path.with_name(META))
            os.replace(written, path)

    def _path(self, task: Any, meta: Any) -> Path:
        return Path(self.cache.get_task_result_path(task.metadata.name, meta))

    def _fail(self, task: Any, reason: str) -> None:
        self.failed[task.metadata.name] = reason
        self.reporter.say(f"{task.metadata.name} is left out: {reason}")


class Study:
    """Probes that share one pass of a model over one data set, at the slots that `slots_of` gives for the model.

    What cannot be done with this model is a `LayerscopeError` of the constructor, before anything is computed.
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
    ) -> None:
        data = tasks[0].data
        first = [data.samples[i] for i in range(min(PROBED, len(data.samples)))]
        self.tasks, self.folder, self.loaded, self.reporter = tuple(tasks), folder, loaded, reporter
        self.keep_states = asked.keep_states
        # the pass keeps nothing but states for a metric of labels, and no views
        self.options = Options(metrics=("linear_probe",), views=0, samples=None, seed=asked.seed)
        self.model = find_layers(loaded, data.modality, first, override, max_length=None, prompt="")
        self.states = tasks[0].kind.states(data, self.model, slots_of(self.model))
        self.rows = [("baseline", self.states.last), *(("layer", slot) for slot in self.states.slots)]
        """Kind and slot of every row: the model as shipped, then the layers."""
        self.mixes = asked.mixes and self.states.mixes
        self.layers = sorted({layer for layer, *_ in self.states.slots})
        self.fingerprint = data.fingerprint()
        self.data = f"{self.fingerprint}-{asked.seed}"
        """Names samples and labels, with the seed that they are split by."""
        for task in tasks:
            refuse_other_data(folder, task.name, self.data)

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
        return self.folder / STATES / f"probes-{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}"

    def missing(self, scores: ProbeScores) -> list[tuple[str, Slot]]:
        """Return the rows that have no score yet."""
        return [(kind, slot) for kind, slot in self.rows if scores.find(slot, kind) is None]

    def unmixed(self, task: ProbeTask, scores: ProbeScores) -> list[tuple[str, str]]:
        """Return the sites and poolings at which a mix of layers has no score yet, where mixes are wanted."""
        names = mix_names(self.layers, self.model.stack.depth, task.kind.learns_mixes) if self.mixes else []
        found = dict.fromkeys((site, pooling) for kind, (_, site, pooling) in self.rows if kind == "layer")
        return [at for at in found if any(scores.find((name, *at), "mix") is None for name in names)]

    def judge(self, run: Run | None, done: int, total: int) -> dict[str, str]:
        """Judge every probe at every slot that has no score of these weights, data and options yet.

        Returns what could not be judged, and why. A `run` of the same model on the same data has the states; `done` of
        `total` probes come before these.
        """
        todo: list[tuple[ProbeTask, ProbeScores, str]] = []
        for number, task in enumerate(self.tasks, start=done + 1):
            # all a score depends on, but for its slot and its task's name, which has the split
            about = FORMAT, task.kind.name, self.identity, self.options.seed
            digest, revision = hashlib.sha256(repr(about).encode()).hexdigest(), revision_of(self.loaded)
            scores = ProbeScores(self.folder, self.loaded.name, revision, task.name, self.data, digest)
            if self.missing(scores) or self.unmixed(task, scores):
                todo.append((task, scores, f"{task.name} ({number} of {total})"))
            else:
                self.reporter.say(f"{task.name}: {len(self.rows)} results are there already")
        failed = {}
        try:
            if todo:
                self._compute(run)
            for probe in todo:
                self._fit(*probe)
        except LayerscopeError as error:
            failed = {
                task.name: str(error) for task, scores, _ in todo if self.missing(scores) or self.unmixed(task, scores)
            }
            for name in failed:
                self.reporter.say(f"{name} is left out: {error}")
        if not failed and not self.keep_states:
            shutil.rmtree(self.path, ignore_errors=True)
            with suppress(OSError):
                self.path.parent.rmdir()
        return failed

    def _compute(self, run: Run | None) -> None:
        """Run the model over the data, or what is missing of it, where `run` has no such states."""
        job = Job(self.model, self.states.corpus, self.options, Vectors(self.states.poolings))
        command = f"layerscope.evaluate({self.loaded.name!r}, {[task.name for task in self.tasks]!r})"
        manifest = describe(job, self.loaded.name, job.corpus.name, command)
        if run is not None and (run.info["data"]["fingerprint"] != self.fingerprint or run.info["options"]["prompt"]):
            run = None
        known = reusable(run, self.model, [slot for _, slot in self.rows if slot[2] != SHIPPED])
        self.states.compute(job, self.path, manifest, self.reporter, known)

    def _fit(self, task: ProbeTask, scores: ProbeScores, title: str) -> None:
        missing, skipped, states = self.missing(scores), 0, self.states
        mixes, fitted = self.unmixed(task, scores), dict[Slot, ProbeScore]()
        with self.reporter.bar(title, len(missing) + len(mixes), "layers") as advance:
            for kind, slot in missing:
                known = scores.find(slot, any_pooling=not states.pools)
                if known is None:
                    found = fitted[slot] = task.score(states.layer(slot), self.options.seed)
                    if found.n_skipped > skipped:
                        skipped = found.n_skipped
                        self.reporter.say(f"{task.name}: {skipped:,} {states.items} of rare labels are left out")
                    known = asdict(found) | {"score": found.mean}
                scores.add(kind, slot, known)
                advance(1)
            for at in mixes:
                alone = {layer: score for (layer, *where), score in fitted.items() if (*where,) == at}
                for name, mix in self._mixes(task, at, alone):
                    about = {"score": mix.score.mean, "gain": mix.gain, "gain_error": mix.gain_error}
                    scores.add("mix", (name, *at), asdict(mix.score) | about | {"weights": as_text(mix.weights)})
                advance(1)

    def _mixes(
        self, task: ProbeTask, at: tuple[str, str], known: dict[int, ProbeScore]
    ) -> Iterator[tuple[str, MixScore]]:
        """Yield the mixes of layers at a site and pooling; a probe that learns none has the fixed ones, and no gain."""
        read, depth = partial(self.states.layer, (self.layers[-1], *at)), self.model.stack.depth
        if task.kind.learns_mixes:
            yield from linear_mixes(read, self.layers, depth, known, seed=self.options.seed)
            return
        for name, weights in fixed_mixes(self.layers, depth).items():
            yield name, MixScore(task.score(read(weights), self.options.seed), math.nan, math.nan, weights)
