"""Scores and metrics by layer, written down in a line."""

import pandas as pd

M, N = [0.1, 0.6, 0.8, 0.4], [0.9, 0.1, 0.2, 0.4]


def scored(rows, model="m", **more):
    """Return a long frame of scores, one list by layer for each task."""
    return pd.DataFrame(
        [
            {
                "model": model,
                "revision": "r",
                "layer": layer,
                "task": task,
                "score": score,
                **more,
            }
            for task, scores in rows.items()
            for layer, score in enumerate(scores)
        ]
    )


def measured(rows, model="m", **more):
    """Return a long frame of metrics, one list by layer for each metric."""
    more = {"variant": None, "site": None, "pooling": None} | more
    return pd.DataFrame(
        [
            {
                "model": model,
                "revision": "r",
                "dataset": "d",
                "metric": name,
                "layer": layer,
                "value": value,
                **more,
            }
            for name, values in rows.items()
            for layer, value in enumerate(values)
        ]
    )


def shipped(model="m", **scores):
    """Return the scores of a model as shipped, by task."""
    return pd.DataFrame(
        [
            {"model": model, "revision": "r", "task": t, "score": v}
            for t, v in scores.items()
        ]
    )
