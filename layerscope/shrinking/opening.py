"""From data to the task that judges a model: pairs with scores, labels, numbers, or samples alone."""

from typing import Any

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.core.labels import Judged, is_target
from layerscope.healing.lessons import check_enough, learnable
from layerscope.healing.outputs import reads_logits
from layerscope.inputs import Corpus
from layerscope.inputs.tables import table_of
from layerscope.models import LayeredModel, TextEncoder
from layerscope.models.layered import truth_of
from layerscope.models.texts import readable_corpus
from layerscope.shrinking.tasks import (
    FOLDS,
    HELD,
    LEARN,
    VALIDATION,
    Accuracy,
    Agreement,
    NextToken,
    Pairs,
    Probe,
    Regression,
    Reranked,
    Rows,
    Task,
    split,
)

PAIRS = ("text_a", "text_b", "score")
VERB, FEWEST = "shrink", 100
"""Who needs samples, and how many."""


def task_of(
    data: Any,
    text_column: str | None,
    label_column: str | None,
    most: int | None,
    full: LayeredModel,
    pooling: str,
    seed: int,
) -> Task:
    """Return what a model is judged by, on at most `most` samples; raises `LayerscopeError` for too few."""
    frame = table_of(data)
    is_scored = frame is not None and set(PAIRS) <= set(frame.columns)
    if is_scored and not full.reads_pairs:
        if reads_logits(full):
            raise LayerscopeError(
                f"pairs with a score judge vectors, and {full.loaded.name} gives predictions: give texts"
            )
        return _pairs(frame, most, full, pooling, seed)
    corpus = readable_corpus(data, full, text_column, label_column)
    if corpus.labels is None or full.is_language_model:
        samples = learnable(corpus, full, seed)[:most]
        check_enough(len(samples), corpus.name, VERB, FEWEST)
        part = split(len(samples), seed)
        kind = NextToken if full.is_language_model else Agreement
        return kind(full, pooling, samples, part)
    return _labelled(corpus, most, full, pooling, seed)


def unknown_share(task: Task, most: int) -> float:
    """Return the share of some texts' tokens that the model's tokenizer does not know; 0 if it reads no plain texts."""
    encoder = task.full.encoder
    if not isinstance(encoder, TextEncoder) or task.full.reads_pairs:
        return 0.0
    ids = np.concatenate(encoder.ids(task.texts(LEARN)[:most]))
    unknown = getattr(encoder.tokenizer, "unk_token_id", None)
    return float(np.mean(ids == unknown))


def _pairs(
    frame: pd.DataFrame, most: int | None, full: LayeredModel, pooling: str, seed: int
) -> Task:
    """Return the task on pairs; a pair that shares a text with a later part leaves the earlier one."""
    frame = frame.dropna(subset=list(PAIRS)).drop_duplicates(["text_a", "text_b"])
    frame = frame.iloc[_drawn(len(frame), most, seed)]
    check_enough(len(frame), "the table of pairs", VERB, FEWEST)
    scores = pd.to_numeric(frame["score"], errors="coerce").to_numpy(np.float64)
    if np.isnan(scores).any() or np.ptp(scores) == 0:
        raise LayerscopeError("the column score needs numbers that differ: correct it")
    pairs = [*frame[["text_a", "text_b"]].itertuples(index=False, name=None)]
    part = split(len(pairs), seed)
    seen: set[str] = set()
    for number in (HELD, VALIDATION, LEARN):
        rows = np.flatnonzero(part == number)
        shared = [row for row in rows if seen & {*pairs[row]}]
        part[shared] = -1
        seen.update(text for row in rows for text in pairs[row])
    return Pairs(full, pooling, pairs, part, truth=scores)


def _drawn(n: int, most: int | None, seed: int) -> Rows:
    """Return the rows of at most `most` of n samples, drawn with the seed."""
    rows = np.random.default_rng(seed).permutation(n)
    return np.sort(rows[:most])


def _labelled(
    corpus: Corpus, most: int | None, full: LayeredModel, pooling: str, seed: int
) -> Task:
    """Return the task on labelled samples: of a classifier's own classes, or of a probe of the vectors."""
    distinct = np.flatnonzero(~corpus.copies)
    corpus = corpus.take(distinct[_drawn(len(distinct), most, seed)])
    check_enough(len(corpus), corpus.name, VERB, FEWEST)
    labels = corpus.labels or ()
    part = split(len(corpus), seed)
    task: Any = (full, pooling, corpus.samples, part)
    if full.scorer is not None:
        return Reranked(*task, truth=truth_of(corpus, full))
    if full.is_sparse:
        raise LayerscopeError(
            f"a probe of labels reads dense vectors, and {full.loaded.name} gives sparse ones: give pairs with a "
            "score, or texts without labels"
        )
    if reads_logits(full):
        return Accuracy(*task, truth=truth_of(corpus, full))
    if is_target(labels):
        return Regression(*task, truth=np.array(labels))
    learned = pd.Series(labels)[part == LEARN].value_counts()
    usable = learned.index[learned >= FOLDS]
    judged = Judged.of(labels)
    if len(usable) < 2 or judged.lacking:
        raise LayerscopeError(
            f"a probe needs at least two classes with {FOLDS} samples each ({judged.text}): "
            "name another `label_column`, or give samples without labels"
        )
    classes = pd.Categorical(labels, categories=usable).codes.astype(np.int64)
    part[classes < 0] = -1
    return Probe(*task, truth=classes)
