"""Runs of tiny models on tiny texts."""

from itertools import product

import numpy as np
import pandas as pd
import tiny

import layerscope

TEXTS = tiny.texts(40)
LABELS = [i % 3 for i in range(40)]


def profile(model, out, data=TEXTS, **options):
    special = "bert" in type(model).__name__.lower()
    defaults = {
        "processor": tiny.tokenizer(special=special),
        "views": 0,
    }
    return layerscope.profile(model, data, out=out, **defaults | options)


def assert_same(one, two):
    """Assert that two runs are one: tables, samples and pooled states, to the last bit."""
    pd.testing.assert_frame_equal(one.table(), two.table(), check_exact=True)
    pd.testing.assert_frame_equal(one.samples(), two.samples(), check_exact=True)
    for layer, site, pooling in product(
        one.layers, ("raw", "normed"), one.info["pooling"]
    ):
        states = (run.pooled(layer, site, pooling) for run in (one, two))
        assert np.array_equal(*states)
