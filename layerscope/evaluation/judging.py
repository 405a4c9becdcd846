"""One layer on one task by mteb's own judging."""

import copy
import logging
import math
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerscope.core import LayerscopeError
from layerscope.evaluation.sample_values import add_values

BATCH = 256
"""Samples that mteb hands over at once; how they are batched for the model is the store's."""
CHATTY = ("mteb", "lm_eval", "datasets", "sentence_transformers")


class UnjudgedError(Exception):
    """A task that could not be judged, with the reason in one line."""


class UndefinedError(UnjudgedError):
    """A task that gives no number for one encoder, as a correlation does where all its vectors are alike."""


def judge(task: Any, encoder: Any) -> Any:
    """Return mteb's `TaskResult` of an encoder, on the samples that mteb would draw for it alone.

    Raises `UnjudgedError` where the task's own code fails, `UndefinedError` where it gives no
    number; `LayerscopeError` (of the model, the disk) goes through. Where the task's measure
    allows, the result holds what each sample contributes (see `sample_values`).
    """
    import mteb

    about = encoder.mteb_model_meta.experiment_kwargs or {}
    name = about.get("mix", about.get("layer"))
    where = "the model as shipped" if name is None else f"layer {name}"
    try:
        with _undisturbed(task), tempfile.TemporaryDirectory() as folder:
            results = mteb.evaluate(
                encoder,
                task,
                cache=None,
                co2_tracker=False,
                show_progress_bar=False,
                encode_kwargs={"batch_size": BATCH, "show_progress_bar": False},
                prediction_folder=Path(folder),
            ).task_results
            for result in results:
                add_values(task, result, Path(folder) / task.prediction_file_name)
    except LayerscopeError:
        raise
    except Exception as error:
        raise UnjudgedError(f"{where}: {line_of(error)}") from error
    if not results:
        raise UnjudgedError(f"{where}: mteb gave no result")
    score = float(results[0].get_score())
    if not math.isfinite(score):
        raise UndefinedError(f"the score of {where} is {score}")
    return results[0]


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
    """Keep the bars of datasets off the screen, judge every layer on the same draws, and read labels once.

    mteb hands a lazy column of datasets to each score of a classification, and scikit-learn reads
    that row by row, again and again: for two classes it takes longer than all the probes.
    """
    import datasets
    from mteb.abstasks import AbsTaskClassification

    draws = copy.deepcopy((task.rng_state, task.np_rng))
    were_hidden = datasets.are_progress_bars_disabled()
    is_classification = isinstance(task, AbsTaskClassification)
    if is_classification:
        scores = task._calculate_scores
        task._calculate_scores = lambda labels, *more, **named: scores(
            labels[:], *more, **named
        )
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        task.rng_state, task.np_rng = draws
        if is_classification:
            del task._calculate_scores
        if not were_hidden:
            datasets.enable_progress_bars()


def line_of(error: Exception) -> str:
    """Return the first line of an error, short."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}".rstrip(": ")
