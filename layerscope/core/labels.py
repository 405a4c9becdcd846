"""What labels are, classes or numbers to predict, and whether a probe can judge them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from layerscope.core.errors import count

WHOLE = 5
"""Samples that a class needs to be probed, one for each fold."""
LEAST = 50
"""Judged samples below which there is no headline: at 50 and 80 % right the standard error is 6 points, more than what
layers usually differ by."""
SHARE = 1 / 2
"""Share of the samples that must be judged: else the score is about other classes than the data's."""
MORE = "take more `samples` or "
"""What mends too few, where the data have more."""


def is_target(labels: Iterable[Any] | None) -> bool:
    """Return whether labels are numbers to predict, and not classes."""
    return labels is not None and all(isinstance(label, float) for label in labels)


@dataclass(frozen=True)
class Judged:
    """What a probe judges in five folds: `n` samples of `classes` classes; `skipped` ones are of classes too small.

    Where the labels are numbers to predict there are no classes. `sampled` is whether the data have
    more samples than these.
    """

    n: int
    classes: int
    skipped: int
    sampled: bool = False

    @classmethod
    def of(cls, labels: Iterable[Any], sampled: bool = False) -> "Judged":
        """Return what can be judged of samples with these labels."""
        labels = list(labels)
        if is_target(labels):
            return cls(len(labels), 0, 0, sampled)
        sizes = Counter(labels).values()
        kept = [size for size in sizes if size >= WHOLE]
        return cls(sum(kept), len(kept), sum(sizes) - sum(kept), sampled)

    @property
    def text(self) -> str:
        """Samples, classes, and why some were skipped, in words."""
        if not self.classes and not self.skipped:
            return count(self.n, "sample")
        skipped = (
            f"; {self.skipped:,} skipped, in classes of fewer than {WHOLE}"
            if self.skipped
            else ""
        )
        return f"{count(self.n, 'sample')}, {self.classes:,} classes{skipped}"

    @property
    def lacking(self) -> str:
        """What is missing for a headline, in words; empty where nothing is."""
        more = MORE if self.sampled else ""
        if self.n < LEAST:
            return (
                f"only {self.text}: {LEAST} judged samples are needed, {more}label more"
            )
        if self.n < SHARE * (self.n + self.skipped):
            return f"only {self.text}: more than half cannot be judged, {more}merge rare classes"
        return ""
