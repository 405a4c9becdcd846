"""Samples that models are shrunk on: with labels, numbers, scores or nothing known of them."""

import numpy as np
import pandas as pd
import tiny

from layerscope.models import LoadOptions, Override
from layerscope.shrinking.opening import task_of
from layerscope.truncation.source import open_source

TEXTS = tiny.texts(300)
QUIET = {"progress": False, "minutes": 0.02, "heal": tiny.texts(60, seed=9)}


def labelled():
    """Return texts whose label is whether they hold a certain word."""
    labels = ["w7" in text.split() or "w8" in text.split() for text in TEXTS]
    return pd.DataFrame({"text": TEXTS, "label": np.where(labels, "yes", "no")})


def pairs():
    """Return pairs of texts whose score is the share of words that they have in common."""
    first, second = TEXTS[:150], TEXTS[150:]
    words = [[set(text.split()) for text in half] for half in (first, second)]
    scores = [len(a & b) / len(a | b) for a, b in zip(*words, strict=True)]
    return pd.DataFrame({"text_a": first, "text_b": second, "score": scores})


def graded():
    """Return texts with a number each, the share of some words in them."""
    words = {f"w{i}" for i in range(30)}
    shares = [np.mean([word in words for word in text.split()]) for text in TEXTS]
    return pd.DataFrame({"text": TEXTS, "label": shares})


def task_on(data, folder):
    source = open_source(folder, None, Override(), LoadOptions())
    return task_of(data, None, None, None, source.model, source.pooled_by, 0)
