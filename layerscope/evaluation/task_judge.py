"""mteb's own judging of every layer, with results written whole or not at all."""

from __future__ import annotations

import copy
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from layerscope.core.progress import Advance, Teller
from layerscope.evaluation.layer_encoder import LayerEncoder
from layerscope.evaluation.one_layer import Undefined, Unjudged, judge, line_of
from layerscope.evaluation.task_size import most_texts
from layerscope.evaluation.texts import MEND, TextStates
from layerscope.evaluation.workers import Workers, one_thread
from layerscope.runs.lock import amount, need_room
from layerscope.scores.mteb_results import META


class Judge:
    """Judges tasks one after another, all layers on the data of one; `failed` names what could not be judged."""

    def __init__(
        self,
        folder: Path,
        states: TextStates,
        encoders: Sequence[Any],
        workers: Workers,
        keep_states: bool,
        teller: Teller,
    ) -> None:
        from mteb.cache import ResultCache

        self.folder, self.states, self.encoders, self.workers = folder, states, encoders, workers
        self.keep_states, self.teller = keep_states, teller
        self.cache = ResultCache(folder)
        self.failed: dict[str, str] = {}
        self.unfinished = False

    def all(self, tasks: Sequence[Any]) -> None:
        """Judge every task at every layer that has no result of this data yet."""
        for number, task in enumerate(tasks, start=1):
            name = task.metadata.name
            missing = [encoder for encoder in self.encoders if not self._is_done(task, encoder.mteb_model_meta)]
            if not missing:
                self.teller.say(f"{name}: {len(self.encoders)} results are there already")
                continue
            given = task.data_loaded
            if not given and not self._load(task):
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

    def _load(self, task: Any) -> bool:
        from layerscope.models.hub import go_offline_without_hub

        name = task.metadata.name
        try:
            go_offline_without_hub()
            task.load_data()
        except Exception as error:  # datasets and the hub fail in many ways
            path = task.metadata.dataset.get("path", "?")
            reason = "the hub cannot be reached" if isinstance(error, ConnectionError) else line_of(error)
            self._fail(name, f"its data {path!r} cannot be had ({reason})")
            return False
        return True

    def _task(self, task: Any, encoders: Sequence[Any], title: str) -> None:
        self._tell_size(task, title)
        start = copy.deepcopy((task.rng_state, task.np_rng))

        def here(encoder: Any) -> None:
            # every layer is judged on the samples that mteb would draw for it alone
            task.rng_state, task.np_rng = copy.deepcopy(start)
            try:
                with one_thread():
                    self._keep(task, judge(task, encoder), encoder.mteb_model_meta)
            except Undefined:
                # before the first block the vectors of all texts may be one, as those of a leading CLS token are
                if getattr(encoder, "layer", None) != 0:
                    raise
                self.teller.say(
                    f"{title}: layer 0 has no score, as its vectors do not tell the texts apart: left blank"
                )

        with self.teller.bar(title, len(encoders), "layers") as advance:
            try:
                for encoder in self._elsewhere(task, encoders, start, here, advance):
                    here(encoder)
                    advance(1)
            except Unjudged as error:  # the task's own code; its texts stay embedded
                self._fail(task.metadata.name, str(error))
                self.unfinished = True
                return
        if not self.keep_states and not self.unfinished:
            self.states.drop()

    def _elsewhere(
        self, task: Any, encoders: Sequence[Any], start: Any, here: Callable[[Any], None], advance: Advance
    ) -> Iterator[Any]:
        """Judge the first encoders here, which embeds all texts, and the others in workers; yield what is left."""
        for i, encoder in enumerate(encoders):
            embedding, began = self.states.seconds, time.perf_counter()
            here(encoder)
            advance(1)
            seconds = time.perf_counter() - began - (self.states.seconds - embedding)
            if isinstance(encoder, LayerEncoder) and self.workers.worth(seconds, len(encoders) - i - 1):
                break
        task.rng_state, task.np_rng = copy.deepcopy(start)
        for encoder, result in self.workers.judged(task, encoders[i + 1 :]):
            if result is None:
                yield encoder
            else:
                self._keep(task, result, encoder.mteb_model_meta)
                advance(1)

    def _tell_size(self, task: Any, title: str) -> None:
        """Say what lies on the disk until a task's scores are saved, and refuse what it has no room for."""
        texts = most_texts(task)
        size = self.states.size(texts)
        layers = len({place[0] for place in self.states.places})
        self.teller.say(f"{title}: up to {texts:,} texts at {layers} layers, {amount(size)} until its scores are saved")
        need_room(self.folder, size - self.states.size(len(self.states)), MEND)

    def _keep(self, task: Any, result: Any, meta: Any) -> None:
        """Write what mteb itself would, aside and renamed: a kill leaves a whole result or none."""
        from mteb.cache import ResultCache

        path = self._path(task, meta)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".result-") as aside:
            ResultCache(Path(aside)).save_to_cache(result, meta)
            written = next(Path(aside).rglob(path.name))
            os.replace(written.with_name(META), path.with_name(META))
            os.replace(written, path)

    def _path(self, task: Any, meta: Any) -> Path:
        return Path(self.cache.get_task_result_path(task.metadata.name, meta))

    def _fail(self, task: str, reason: str) -> None:
        self.failed[task] = reason
        self.teller.say(f"{task} is left out: {reason}")
