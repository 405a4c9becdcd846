from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layerscope.early_exit.exit_options import ExitOptions
from layerscope.early_exit.exit_report import ExitReport


def exits(
    model: Any,
    data: Any,
    *,
    max_disagreement: float | None = None,
    min_accuracy: float | None = None,
    confidence: float = 0.95,
    batch_size: int = 32,
    criterion: str = "confidence",
    exits: Sequence[int] | None = None,
    samples: int | None = None,
    min_speedup: float = 1.05,
    max_length: int | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    part: str | None = None,
    blocks: str | None = None,
    norm: str | None = None,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    allow_pickle: bool = False,
    processor: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = True,
) -> ExitReport:
    """Return what exits make of a classifier."""
    ExitOptions(
        max_disagreement, min_accuracy, confidence, batch_size, criterion, None if exits is None else tuple(exits),
        samples, min_speedup, max_length, seed,
    )  # fmt: skip
    raise NotImplementedError
