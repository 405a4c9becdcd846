"""One layer on one task by mteb's own judging, here or in processes that read the states on disk, without the model."""

import copy
import logging
import math
import os
import pickle
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from layerscope.core import workers
from layerscope.core.errors import LayerscopeError
from layerscope.evaluation.layer_encoder import LayerEncoder
from layerscope.evaluation.sample_values import add_values, measure_of
from layerscope.evaluation.stored_texts import MissingTextsError

BATCH = 256
"""Samples that mteb hands over at once; how they are batched for the model is the store's."""
INPUTS = ("input_column_name", "input1_column_name", "input2_column_name", "column_names")
"""Where mteb's task classes name the columns of their texts."""
CHATTY = ("mteb", "lm_eval", "datasets", "sentence_transformers")
WORTH = 20.0
"""Seconds of judging from which on it pays to start processes, each of which imports mteb."""


class UnjudgedError(Exception):
    """A task that could not be judged, with the reason in one line."""


class UndefinedError(UnjudgedError):
    """A task that gives no number for one encoder, as a correlation does where all its vectors are alike."""


def judge(task: Any, encoder: Any) -> Any:
    """Return mteb's `TaskResult` of an encoder, on the samples that mteb would draw for it alone.

    Raises `UnjudgedError` where the task's own code fails, `UndefinedError` where it gives no
    number; `LayerscopeError` (of the model, the disk) and `MissingTextsError` go through. Where the
    task's measure allows, the result holds what each sample contributes (see `sample_values`).
    """
    import mteb

    try:
        with _undisturbed(task), tempfile.TemporaryDirectory() as folder:
            has_values = measure_of(task) is not None
            results = mteb.evaluate(
                encoder,
                task,
                cache=None,
                co2_tracker=False,
                show_progress_bar=False,
                encode_kwargs={"batch_size": BATCH, "show_progress_bar": False},
                prediction_folder=Path(folder) if has_values else None,
            )
            for result in results.task_results:
                add_values(task, result, Path(folder) / task.prediction_file_name)
    except (LayerscopeError, MissingTextsError):
        raise
    except Exception as error:
        raise UnjudgedError(line_of(error)) from error
    if not results.task_results:
        raise UnjudgedError("mteb gave no result")
    score = float(results.task_results[0].get_score())
    if not math.isfinite(score):
        where = (
            f"layer {encoder.layer}"
            if encoder.mteb_model_meta.experiment_kwargs
            else "the model as shipped"
        )
        raise UndefinedError(f"the score of {where} is {score}")
    return results.task_results[0]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the chatter of libraries off the screen; LAYERSCOPE_DEBUG lets it through."""
    if os.environ.get("LAYERSCOPE_DEBUG"):
        yield
        return
    levels = {log: log.level for log in map(logging.getLogger, CHATTY)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


@contextmanager
def _undisturbed(task: Any) -> Iterator[None]:
    """Keep the bars of datasets off the screen, judge every layer on the same draws, and read labels and files once.

    mteb hands a lazy column of datasets to each score of a classification, and scikit-learn reads
    that row by row, again and again: for two classes it takes longer than all the probes. Images
    and sounds are handed over undecoded: a store knows them by their bytes, and decodes those that
    it has not embedded.
    """
    import datasets
    from mteb.abstasks import AbsTaskClassification

    draws, hidden = (
        copy.deepcopy((task.rng_state, task.np_rng)),
        datasets.are_progress_bars_disabled(),
    )
    data = task.dataset
    scores = (
        getattr(task, "_calculate_scores", None)
        if isinstance(task, AbsTaskClassification)
        else None
    )
    if scores is not None:
        task._calculate_scores = lambda labels, *more, **named: scores(labels[:], *more, **named)
    datasets.disable_progress_bars()
    try:
        task.dataset = data if task.metadata.modalities == ["text"] else undecoded(data)
        yield
    finally:
        task.dataset, (task.rng_state, task.np_rng) = data, draws
        if scores is not None:
            del task._calculate_scores
        if not hidden:
            datasets.enable_progress_bars()


def undecoded(data: Any) -> Any:
    """Return the data of a task with the images and sounds of its tables as their files."""
    import datasets

    if isinstance(data, dict):
        return type(data)({name: undecoded(part) for name, part in data.items()})
    for column, feature in getattr(data, "features", {}).items():
        if isinstance(feature, (datasets.Image, datasets.Audio)):
            data = data.cast_column(column, type(feature)(decode=False))
    return data


def line_of(error: Exception) -> str:
    """Return the first line of an error, short."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}".rstrip(": ")


def most_samples(task: Any) -> int:
    """Return the samples of a loaded task at most: repeated ones count each time, and all that it may draw from."""
    splits, total = {*task.eval_splits, getattr(task, "train_split", None)}, 0
    subsets = [task.dataset[name] for name in task.hf_subsets or [] if name in task.dataset]
    for subset in subsets or [task.dataset]:
        for name, rows in subset.items():
            if name not in splits:
                continue
            # a split of a retrieval has two tables
            tables = [rows["queries"], rows["corpus"]] if isinstance(rows, dict) else [rows]
            total += sum(_samples(task, table, name) for table in tables)
    return total


def _samples(task: Any, table: Any, split: str) -> int:
    """Return the samples in a table; cells may be lists of texts."""
    rows = len(table)
    if split == getattr(task, "train_split", None) and split not in task.eval_splits:
        labels = len(set(table[task.label_column_name]))
        rows = min(rows, labels * task.samples_per_label * task.n_experiments)
    columns: list[str] = []
    for attribute in INPUTS:
        names = getattr(task, attribute, None) or ()
        columns += [names] if isinstance(names, str) else names
    inputs = [table[name] for name in columns if name in table.column_names]
    # without such columns it is a corpus, queries, or a kind of task of its own
    if not inputs or not rows:
        return rows
    if "text" not in task.metadata.modalities:  # a look at a cell would decode it
        return rows * len(inputs)
    total = 0
    for cells in inputs:
        holds_lists = isinstance(cells[0], (list, tuple))
        total += sum(map(len, cells)) if holds_lists else rows
    return total


class Workers:
    """Processes, started when the judging in this process has cost, or will, what their start does.

    Their number `jobs` is at most `most`; "auto" is one for each core.
    """

    def __init__(self, jobs: int | str, most: int) -> None:
        self.jobs, self.spent = workers.wanted(jobs, most), 0.0
        self._pool: Any = None

    def end(self, error: type[BaseException] | None, *_: object) -> None:
        """End the processes; after an error, whatever they are at."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=error is not None)
            self._pool = None

    def worth(self, seconds: float, left: int) -> bool:
        """Return whether the layers left of a task should be judged by workers, when one here took `seconds`."""
        self.spent += seconds
        pays = self._pool is not None or self.spent + seconds * left >= WORTH
        return self.jobs > 1 and left > 1 and pays

    def judged(
        self, task: Any, encoders: Sequence[LayerEncoder]
    ) -> Iterator[tuple[LayerEncoder, Any]]:
        """Yield encoders with their `TaskResult` as they are done, or None for one to be judged with the model at hand.

        Those are encoders whose texts are not all in the store or whose score is not a number, and
        all that are left where a worker died (of memory) or the task cannot be pickled. Raises
        `UnjudgedError` as `judge` does.
        """
        from joblib.externals.loky import BrokenProcessPool
        from joblib.externals.loky.backend.reduction import dumps

        if not encoders:
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "task.pickle"
            try:
                path.write_bytes(dumps(task))  # with the classes that no module holds
            except Exception:  # whatever a task holds that no pickle takes
                yield from ((encoder, None) for encoder in encoders)
                return
            futures = {self._submit(path, encoder): encoder for encoder in encoders}
            try:
                for future in as_completed(futures):
                    try:
                        result = future.result()
                    except (MissingTextsError, BrokenProcessPool, UndefinedError):
                        result = None
                    yield futures[future], result
            finally:
                for future in futures:
                    future.cancel()

    def _submit(self, path: Path, encoder: LayerEncoder) -> Any:
        from joblib.externals.loky import BrokenProcessPool

        if self._pool is None:
            self._pool = workers.started(self.jobs)
        try:
            return workers.submit(self._pool, _judge, path, encoder)
        except BrokenProcessPool:
            self.end(BrokenProcessPool)
            return self._submit(path, encoder)


@lru_cache(maxsize=1)
def _task(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def _judge(path: Path, encoder: LayerEncoder) -> Any:
    with quiet():
        return judge(_task(path), encoder)
