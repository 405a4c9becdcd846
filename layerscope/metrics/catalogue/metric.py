"""What is known of a metric: how it is computed, how it is read, where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Needs = Literal["tokens", "pooled", "views", "pairs", "lens", "labels"]


@dataclass(frozen=True)
class Metric:
    """What a metric is called, what it is computed from, and how to read it."""

    name: str
    needs: Needs
    title: str
    reading: str
    """A few words for a terminal: unit, and what an end of the scale means."""
    meaning: str
    """How it is computed, and its range."""
    direction: str
    """Which end means what: a description or a hypothesis, never a verdict."""
    source: str
    seven: bool = False
    """One of the seven quality measures of Layer by Layer."""
    default: bool = True
    """Measured where nobody chooses; the others are asked for by name, or with "all"."""


SKEAN = "Skean et al. 2025, Layer by Layer"
JIANG = "Jiang, Zhou, Zhu 2025, Tracing Representation Progression"
OORD = "van den Oord et al. 2018, Representation Learning with Contrastive Predictive Coding"
SUN = "Sun et al. 2024, Massive Activations in Large Language Models"
