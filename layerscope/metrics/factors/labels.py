"""Labels, as probes read them from the states of a layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from layerscope.metrics.metric import How, Needs


@dataclass(frozen=True)
class FromLabels(How):
    """A cross-validated probe of pooled states."""

    needs: ClassVar[Needs] = "labels"
    probe: Callable[..., Any]
    """Takes states `[N, D]`, labels `[N]`, `folds` and `seed`; returns a `layerscope.probes.ProbeScore`."""


@dataclass(frozen=True)
class FromScore(How):
    """A number beside the accuracy of a probe."""

    needs: ClassVar[Needs] = "labels"
    compute: Callable[[Any], float]
    """Takes the probe's score."""
