"""The judge of every layer on mteb's own tasks."""

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from layerscope.core.hub import go_offline_without_hub
from layerscope.core.processes import Team
from layerscope.core.workers import one_thread
from layerscope.evaluation.judging import (
    UndefinedError,
    UnjudgedError,
    Workers,
    judge,
    line_of,
    most_samples,
)
from layerscope.evaluation.layer_encoder import LayerEncoder
from layerscope.evaluation.stored_texts import MEND, TextStates
from layerscope.models.encode import PLURAL
from layerscope.runs.folder import amount, need_room
from layerscope.scores.opening import META

STATES = "states"


class Judge:
    """Judges tasks of mteb one after another, all layers on the data of one, with results written whole or not at all.

    `failed` names what could not be judged.
    """

    def __init__(
        self,
        folder: Path,
        stores: Sequence[TextStates],
        encoders: list[Any],
        workers: Workers,
        keep_states: bool,
        team: Team,
    ) -> None:
        from mteb.cache import ResultCache

        self.folder, self.stores, self.states = folder, stores, stores[0]
        self.encoders, self.workers, self.team = encoders, workers, team
        self.keep_states, self.reporter = keep_states, stores[0].reporter
        self.cache = ResultCache(folder)
        self.failed: dict[str, str] = {}
        self.unfinished = False

    def all(self, tasks: Sequence[Any]) -> None:
        """Judge every task at every layer that has no result of this data yet."""
        for number, task in enumerate(tasks, start=1):
            name = task.metadata.name
            missing = self.team.lead(partial(self._missing, task))
            if not missing:
                self.reporter.say(f"{name}: {len(self.encoders)} results are there already")
                continue
            given = task.data_loaded
            if reason := next(filter(None, self.team.meet(self._load(task))), ""):
                self._fail(task, reason)
                continue
            self._task(
                task, [self.encoders[i] for i in missing], f"{name} ({number} of {len(tasks)})"
            )
            if not given:
                task.unload_data()

    def _missing(self, task: Any) -> list[int]:
        """Return the numbers of the encoders that a task has no result of."""
        return [
            i
            for i, encoder in enumerate(self.encoders)
            if not self._is_done(task, encoder.mteb_model_meta)
        ]

    def _load(self, task: Any) -> str:
        """Load the data of a task, and return why that cannot be, or an empty text."""
        try:
            if not task.data_loaded:
                go_offline_without_hub()
                task.load_data()
        except Exception as error:  # datasets and the hub fail in many ways
            path = task.metadata.dataset.get("path", "?")
            reason = (
                "the hub cannot be reached"
                if isinstance(error, ConnectionError)
                else line_of(error)
            )
            return f"its data {path!r} cannot be loaded ({reason})"
        return ""

    @property
    def _embedding(self) -> float:
        return sum(store.seconds for store in self.stores)

    def _is_done(self, task: Any, meta: Any) -> bool:
        """Return whether a whole result of the same data is there."""
        from mteb.results import TaskResult

        path = self._path(task, meta)
        if not path.is_file() or not path.with_name(META).is_file():
            return False
        try:
            result = TaskResult.from_disk(path)
            same = result.dataset_revision == task.metadata.revision
            return (
                same
                and not result.get_missing_evaluations(task)
                and math.isfinite(result.get_score())
            )
        except (
            Exception
        ):  # pydantic, JSON and mteb's converters raise many kinds; it is judged again
            return False

    def _task(self, task: Any, encoders: Sequence[Any], title: str) -> None:
        """Judge a loaded task with these encoders, and keep each result as soon as it is there."""
        self._announce(task, title)
        # workers judge many at a time; without them each process takes one after another
        at_once = math.ceil(len(encoders) / self.team.size)
        if self.workers.jobs == 1 and self.team.size > 1:
            at_once = 1
        parts = [encoders[i : i + at_once] for i in range(0, len(encoders), at_once)]
        with self.reporter.bar(title, len(encoders), "layers") as advance:
            keep = partial(self._keep_all, task, advance)
            outcomes = self.team.each(keep, parts)
            for part, (rank, undefined, fault) in zip(parts, outcomes, strict=True):
                advance(0 if rank == self.team.rank else len(part))
                if undefined:
                    self.reporter.say(
                        f"{title}: layer 0 has no score, because all its vectors are equal"
                    )
                if fault:
                    self._fail(task, fault)
                    self.unfinished = True
                    return
        if not self.keep_states and not self.unfinished:
            for store in self.stores:
                store.drop()

    def _announce(self, task: Any, title: str) -> None:
        """Say how much a task will take on the disk; raises where there is no room for it."""
        samples, layers = most_samples(task), len({slot[0] for slot in self.states.slots})
        size = self.states.size(samples)
        noun = PLURAL[self.states.modality] if len(self.stores) == 1 else "samples"
        room = amount(size)
        self.reporter.say(
            f"{title}: up to {samples:,} {noun} at {layers} layers, {room} until its scores are saved"
        )
        need_room(self.folder, size - self.states.size(len(self.states)), MEND)

    def _keep_all(
        self, task: Any, advance: Callable[[int], None], encoders: Sequence[Any]
    ) -> tuple[int, int, str]:
        """Keep results; return which process did, how many there are none of, and why there are no more."""
        undefined = 0
        try:
            for encoder, result in self._judged(task, encoders):
                meta = encoder.mteb_model_meta
                if result is None:
                    undefined += 1
                else:
                    self._keep(result, self._path(task, meta), meta)
                advance(1)
        except UnjudgedError as error:  # the task's own code; its texts stay embedded
            return self.team.rank, undefined, str(error)
        return self.team.rank, undefined, ""

    def _judged(self, task: Any, encoders: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield encoders with their results: the first judged here, which embeds all texts, the others by workers."""
        for i, encoder in enumerate(encoders, start=1):
            embedding, began = self._embedding, time.perf_counter()
            result = self._here(task, encoder)
            seconds = time.perf_counter() - began - (self._embedding - embedding)
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
            # before the first block the vectors of all texts may be one, as those of a leading CLS
            # token are
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
