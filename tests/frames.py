"""Scores and metrics by layer, written down in a line."""

import pandas as pd


def scored(rows: dict[str, list[float | None]], model: str = "m", **more: object) -> pd.DataFrame:
    """Return a long frame of scores, one list by layer for each task."""
    return pd.DataFrame(
        [
            {"model": model, "revision": "r", "layer": layer, "task": task, "score": score, **more}
            for task, scores in rows.items()
            for layer, score in enumerate(scores)
        ]
    )


def measured(rows: dict[str, list[float | None]], model: str = "m", **more: object) -> pd.DataFrame:
    """Return a long frame of metrics, one list by layer for each metric."""
    return pd.DataFrame(
        [
            {"model": model, "revision": "r", "dataset": "d", "metric": name, "layer": layer, "value": value, **more}
            for name, values in rows.items()
            for layer, value in enumerate(values)
        ]
    )
