"""mteb's own judging of every layer, with results written whole or not at all."""

from __future__ import annotations

import copy
import logging
import math
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerscope.errors import LayerscopeError
from layerscope.evaluation.mteb_results import META
from layerscope.evaluation.texts import TextStates
from layerscope.progress import Teller

BATCH = 256
"""Texts that mteb hands over at once; how they are batched for the model is the store's."""


class Judge:
    """Judges tasks one after another, all layers on the data of one; `failed` names what could not be judged."""

    def __init__(
        self, folder: Path, states: TextStates, encoders: Sequence[Any], keep_states: bool, teller: Teller
    ) -> None:
        from mteb.cache import ResultCache

        self.folder, self.states, self.encoders, self.teller = folder, states, encoders, teller
        self.keep_states = keep_states
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
            self._fail(name, f"its data {path!r} cannot be had ({_line(error)})")
            return False
        return True

    def _task(self, task: Any, encoders: Sequence[Any], title: str) -> None:
        start = copy.deepcopy((task.rng_state, task.np_rng))
        with self.teller.bar(title, len(encoders), "layers") as advance:
            for encoder in encoders:
                # every layer is judged on the samples that mteb would draw for it alone
                task.rng_state, task.np_rng = copy.deepcopy(start)
                try:
                    self._one(task, encoder)
                except LayerscopeError:
                    raise
                except Exception as error:  # a task's own code; its texts stay embedded
                    self._fail(task.metadata.name, _line(error))
                    self.unfinished = True
                    return
                advance(1)
        if not self.keep_states and not self.unfinished:
            self.states.drop()

    def _one(self, task: Any, encoder: Any) -> None:
        import mteb

        found = mteb.evaluate(
            encoder,
            task,
            cache=None,
            co2_tracker=False,
            show_progress_bar=False,
            encode_kwargs={"batch_size": BATCH, "show_progress_bar": False},
        )
        if not found.task_results:
            raise RuntimeError("mteb gave no result")
        result = found.task_results[0]
        score = float(result.get_score())
        if not math.isfinite(score):
            raise RuntimeError(f"the score of {_place(encoder)} is {score}")
        self._keep(task, result, encoder.mteb_model_meta)

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


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the chatter of mteb and datasets off the screen; LAYERSCOPE_DEBUG lets it through."""
    if os.environ.get("LAYERSCOPE_DEBUG"):
        yield
        return
    loggers = [logging.getLogger(name) for name in ("mteb", "datasets", "sentence_transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _place(encoder: Any) -> str:
    layer = getattr(encoder, "layer", None)
    return "the model as shipped" if not encoder.mteb_model_meta.experiment_kwargs else f"layer {layer}"


def _line(error: Exception) -> str:
    """Return the first line of an error, short."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}".rstrip(": ")
