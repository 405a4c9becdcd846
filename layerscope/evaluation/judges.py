"""The judge of every layer on mteb's own tasks."""

import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from layerscope.core import Reporter, Team, go_offline_without_hub
from layerscope.core.workers import one_thread
from layerscope.evaluation.judging import UndefinedError, UnjudgedError, judge, line_of
from layerscope.evaluation.stored_texts import TextStates
from layerscope.scores.opening import META

STATES = "states"


@dataclass
class Judge:
    """Judges tasks of mteb one after another, all layers on the data of one, with results written whole or not at all.

    `failed` says why a task could not be judged.
    """

    folder: Path
    states: TextStates
    encoders: Sequence[Any]
    reporter: Reporter
    team: Team
    failed: dict[str, str] = field(default_factory=dict)

    def all(self, tasks: Sequence[Any]) -> None:
        """Judge every task at every layer that has no result of this data yet."""
        for number, task in enumerate(tasks, start=1):
            name = task.metadata.name
            missing = self.team.lead(partial(self._missing, task))
            if not missing:
                self.reporter.say(
                    f"{name}: {len(self.encoders)} results are there already"
                )
                continue
            was_loaded = task.data_loaded
            faults = self.team.meet(self._load(task))
            reason = next(filter(None, faults), "")
            if not reason:
                encoders = [self.encoders[i] for i in missing]
                title = f"{name} ({number} of {len(tasks)})"
                reason = self._task(task, encoders, title)
            if reason:
                self.failed[name] = reason
                self.reporter.say(f"{name} is left out: {reason}")
            if not was_loaded:
                task.unload_data()

    def _missing(self, task: Any) -> list[int]:
        """Return the numbers of the encoders that a task has no result of."""
        numbered = enumerate(self.encoders)
        return [i for i, encoder in numbered if not self._is_done(task, encoder)]

    def _load(self, task: Any) -> str:
        """Load the data of a task, and return why that cannot be, or an empty text."""
        try:
            if not task.data_loaded:
                go_offline_without_hub()
                task.load_data()
        except ConnectionError:
            reason = "the hub cannot be reached"
        except Exception as error:  # datasets and the hub fail in many ways
            reason = line_of(error)
        else:
            return ""
        path = task.metadata.dataset.get("path", "?")
        return f"its data {path!r} cannot be loaded ({reason})"

    def _is_done(self, task: Any, encoder: Any) -> bool:
        """Return whether a whole result of the same data is there."""
        from mteb.results import TaskResult

        path = self._path(task, encoder)
        if not path.is_file() or not path.with_name(META).is_file():
            return False
        try:
            result = TaskResult.from_disk(path)
            is_same = result.dataset_revision == task.metadata.revision
            is_whole = not result.get_missing_evaluations(task)
            return is_same and is_whole and math.isfinite(result.get_score())
        # pydantic, JSON and mteb's converters raise many kinds; it is judged again
        except Exception:
            return False

    def _task(self, task: Any, encoders: Sequence[Any], title: str) -> str:
        """Judge a loaded task with these encoders; return why that ended early, or an empty text.

        The samples of a task that failed stay embedded.
        """
        with self.reporter.bar(title, len(encoders), "layers") as advance:
            for fault in self.team.each(partial(self._keep, task, title), encoders):
                if fault:
                    return fault
                advance(1)
        if not self.failed:
            self.states.drop()
        return ""

    def _keep(self, task: Any, title: str, encoder: Any) -> str:
        """Judge one encoder and write its result; return why it has none, or an empty text."""
        try:
            with one_thread():
                result = judge(task, encoder)
        except UndefinedError as error:
            # before the first block the vectors of all texts may be one, as those of a leading CLS
            # token are
            if max(encoder.weights)[0] > 0:
                return str(error)
            self.reporter.say(
                f"{title}: layer 0 has no score, because all its vectors are equal"
            )
        except UnjudgedError as error:
            return str(error)
        else:
            self._write(result, self._path(task, encoder), encoder)
        return ""

    def _write(self, result: Any, path: Path, encoder: Any) -> None:
        """Write what mteb itself would, aside and renamed: a kill leaves a whole result or none."""
        from mteb.cache import ResultCache

        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".result-") as aside:
            ResultCache(Path(aside)).save_to_cache(result, encoder.mteb_model_meta)
            written = next(Path(aside).rglob(path.name))
            os.replace(written.with_name(META), path.with_name(META))
            os.replace(written, path)

    def _path(self, task: Any, encoder: Any) -> Path:
        """Return where the result of a task lies."""
        from mteb.cache import ResultCache

        about = encoder.mteb_model_meta
        cache = ResultCache(self.folder)
        return Path(cache.get_task_result_path(task.metadata.name, about))
