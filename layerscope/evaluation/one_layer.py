"""One layer on one task by mteb's own judging."""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.evaluation.stored_texts import MissingTexts

BATCH = 256
"""Texts that mteb hands over at once; how they are batched for the model is the store's."""


class Unjudged(Exception):  # noqa: N818
    """A task that could not be judged, with the reason in one line."""


class Undefined(Unjudged):
    """A task that gives no number for one encoder, as a correlation does where all its vectors are alike."""


def judge(task: Any, encoder: Any) -> Any:
    """Return mteb's `TaskResult` of an encoder; raises `Unjudged` where the task's own code fails or gives no number.

    The latter is `Undefined`.

    `LayerscopeError` (of the model, the disk) and `MissingTexts` go through.
    """
    import mteb

    try:
        with _without_bars(), _labels_at_once(task):
            found = mteb.evaluate(
                encoder,
                task,
                cache=None,
                co2_tracker=False,
                show_progress_bar=False,
                encode_kwargs={"batch_size": BATCH, "show_progress_bar": False},
            )
    except (LayerscopeError, MissingTexts):
        raise
    except Exception as error:
        raise Unjudged(line_of(error)) from error
    if not found.task_results:
        raise Unjudged("mteb gave no result")
    score = float(found.task_results[0].get_score())
    if not math.isfinite(score):
        raise Undefined(f"the score of {_place(encoder)} is {score}")
    return found.task_results[0]


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


@contextmanager
def _without_bars() -> Iterator[None]:
    """Keep the bars of datasets off the screen while there is one of ours."""
    import datasets

    disabled = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not disabled:
            datasets.enable_progress_bars()


@contextmanager
def _labels_at_once(task: Any) -> Iterator[None]:
    """Read the labels of a classification once.

    mteb hands a lazy column of datasets to each of its scores, and scikit-learn reads that row by row, again and again:
    for two classes it takes longer than all the probes.
    """
    from mteb.abstasks import AbsTaskClassification

    scores = getattr(task, "_calculate_scores", None)
    if scores is None or not isinstance(task, AbsTaskClassification):
        yield
        return
    task._calculate_scores = lambda labels, *found, **named: scores(labels[:], *found, **named)
    try:
        yield
    finally:
        del task._calculate_scores


def line_of(error: Exception) -> str:
    """Return the first line of an error, short."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}".rstrip(": ")


def _place(encoder: Any) -> str:
    layer = getattr(encoder, "layer", None)
    return "the model as shipped" if not encoder.mteb_model_meta.experiment_kwargs else f"layer {layer}"
