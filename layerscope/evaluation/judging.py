"""One layer on one task by mteb's own judging, and how many texts a task has."""

from __future__ import annotations

import copy
import logging
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.evaluation.texts import MissingTexts

BATCH = 256
"""Texts that mteb hands over at once; how they are batched for the model is the store's."""
INPUTS = ("input_column_name", "input1_column_name", "input2_column_name", "column_names")
"""Where mteb's task classes name the columns of their texts."""


class Unjudged(Exception):  # noqa: N818
    """A task that could not be judged, with the reason in one line."""


class Undefined(Unjudged):
    """A task that gives no number for one encoder, as a correlation does where all its vectors are alike."""


def judge(task: Any, encoder: Any) -> Any:
    """Return mteb's `TaskResult` of an encoder, on the samples that mteb would draw for it alone.

    Raises `Unjudged` where the task's own code fails, `Undefined` where it gives no number; `LayerscopeError` (of the
    model, the disk) and `MissingTexts` go through.
    """
    import mteb

    try:
        with _without_bars(), _labels_at_once(task), _draws_kept(task):
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
        where = f"layer {encoder.layer}" if encoder.mteb_model_meta.experiment_kwargs else "the model as shipped"
        raise Undefined(f"the score of {where} is {score}")
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
def _draws_kept(task: Any) -> Iterator[None]:
    """Leave a task's random generators as they were: every layer is judged on the same draws."""
    start = copy.deepcopy((task.rng_state, task.np_rng))
    try:
        yield
    finally:
        task.rng_state, task.np_rng = start


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


def most_texts(task: Any) -> int:
    """Return the texts of a loaded task at most: repeated ones count each time, and all that it may draw from."""
    splits = {*task.eval_splits, getattr(task, "train_split", None)}
    subsets = [task.dataset[name] for name in task.hf_subsets or [] if name in task.dataset] or [task.dataset]
    found = [(name, rows) for subset in subsets for name, rows in subset.items() if name in splits]
    # a split of a retrieval has two tables
    tables = [(name, part) for name, rows in found for part in _tables(rows)]
    return sum(_texts(task, table, name) for name, table in tables)


def _tables(rows: Any) -> list[Any]:
    return [rows["queries"], rows["corpus"]] if isinstance(rows, dict) else [rows]


def _texts(task: Any, table: Any, split: str) -> int:
    """Return the texts in a table; cells may be lists of texts."""
    rows = len(table)
    if split == getattr(task, "train_split", None) and split not in task.eval_splits:
        rows = min(rows, len(set(table[task.label_column_name])) * task.samples_per_label * task.n_experiments)
    named = [getattr(task, attribute, None) or () for attribute in INPUTS]
    columns = [name for names in named for name in ([names] if isinstance(names, str) else names)]
    there = [name for name in columns if name in table.column_names]
    if not there:  # a corpus, queries, or a kind of task of its own
        return rows
    listed = [rows and isinstance(table[0][name], (list, tuple)) for name in there]
    return sum(sum(map(len, table[name])) if several else rows for name, several in zip(there, listed, strict=True))
