"""How many samples and classes a probe could judge, and whether that is enough for a headline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from layerscope.core.words import count
from layerscope.inputs.corpus import WHOLE

LEAST = 50
"""Judged samples below which there is no headline: at 50 and 80 % right the standard error is 6 points, more than what
layers usually differ by."""
SHARE = 1 / 2
"""Share of the samples that must be judged: else the score is about other classes than the data's."""


@dataclass(frozen=True)
class Judged:
    """What a probe judges in five folds: `n` samples of `classes` classes; `skipped` ones are of classes too small."""

    n: int
    classes: int
    skipped: int

    @classmethod
    def of(cls, labels: Iterable[Any]) -> Judged:
        """Return what can be judged of samples with these labels."""
        sizes = Counter(labels).values()
        kept = [size for size in sizes if size >= WHOLE]
        return cls(sum(kept), len(kept), sum(sizes) - sum(kept))

    @property
    def text(self) -> str:
        """Samples, classes, and why some were skipped, in words."""
        skipped = f"; {self.skipped:,} skipped, fewer than {WHOLE} of their class" if self.skipped else ""
        return f"{count(self.n, 'sample')}, {self.classes:,} classes{skipped}"

    @property
    def lacking(self) -> str:
        """What is missing for a headline, in words; empty where nothing is."""
        if self.n < LEAST:
            return f"only {self.text}: {LEAST} judged samples are needed, take more `samples` or label more"
        if self.n < SHARE * (self.n + self.skipped):
            return f"only {self.text}: more than half cannot be judged, take more `samples` or merge rare classes"
        return ""
