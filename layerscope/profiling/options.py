"""What a run is asked for, checked before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal

import numpy as np

from layerscope.core.errors import LayerscopeError, choices
from layerscope.inputs.views import DEFAULT_SHARE
from layerscope.metrics.registry import METRICS, Metric, choose_metrics
from layerscope.models.pooling import parse as parse_pooling

STORE_DTYPES = ("float32", "float16")
SEEDS = 2**32  # what scikit-learn takes
RANGES: dict[str, tuple[int, int | None, str]] = {
    "max_length": (1, None, "1 or more"),
    "batch_size": (1, None, "1 or more"),
    "samples": (2, None, "2 or more, or all"),
    "view_samples": (2, None, "2 or more"),
    "chunk": (2, None, "2 or more"),
    "entropy_samples": (1, None, "1 or more"),
    "views": (0, 1000, "0 (none) to 1000"),
    "seed": (0, SEEDS - 1, f"0 to {SEEDS - 1}"),
    "lens_tokens": (1, None, "1 or more, all, or auto"),
}
"""The least and the most of each whole number, and what to give instead."""


@dataclass(frozen=True)
class Options:
    """Everything that decides a run's numbers; equal options on equal data give equal tables."""

    metrics: tuple[str, ...]
    pooling: str = "auto"
    max_length: int | None = None
    batch_size: int | None = None
    samples: int | None = 1000
    views: int = 2
    view_samples: int = 1000
    view_kinds: tuple[str, ...] | None = None
    view_share: float = DEFAULT_SHARE
    dtype: str = "auto"
    seed: int = 0
    alpha: tuple[float, ...] = (1.0,)
    exclude_sinks: bool = False
    prefixes: tuple[int, ...] | None = None
    store_dtype: str = "float32"
    lens_tokens: int | Literal["auto"] | None = "auto"
    entropy_samples: int | None = None
    prompt: str = ""
    chunk: int | None = None
    repeat_tokens: float | None = None
    random_tokens: float | None = None
    part: str | None = None
    blocks: str | None = None
    norm: str | None = None
    sublayers: bool = False

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_prefixes()
        self._check_extremes()
        if not self.metrics:
            raise LayerscopeError("no metric is asked for: give names, default, seven or all as --metrics")
        if self.store_dtype not in STORE_DTYPES:
            raise LayerscopeError(
                f"--store-dtype {self.store_dtype!r} does not exist{choices(self.store_dtype, STORE_DTYPES)}"
            )
        if not isinstance(self.pooling, str):
            raise LayerscopeError(f"pooling {self.pooling!r} must be text: give auto, or names with commas")
        if self.pooling != "auto":
            parse_pooling(self.pooling)

    def _check_numbers(self) -> None:
        for name, (least, most, hint) in RANGES.items():
            value = getattr(self, name)
            if value is None or value == "auto":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise LayerscopeError(f"{_option(name)} {value!r} is not a whole number: give {hint}")
            if value < least or (most is not None and value > most):
                raise LayerscopeError(f"{_option(name)} {value} is not valid: give {hint}")
        if not self.alpha or not all(1.0 <= a < math.inf for a in self.alpha):
            orders = ",".join(f"{order:g}" for order in self.alpha)
            raise LayerscopeError(f"--alpha {orders} is not valid: give orders of 1 or more, such as 1 or 1,2")
        if not isinstance(self.view_share, (int, float)):
            raise LayerscopeError(f"--view-share {self.view_share!r} is not a number: give more than 0 and at most 1")
        if not 0 < self.view_share <= 1:
            raise LayerscopeError(f"--view-share {self.view_share:g} is not valid: give more than 0 and at most 1")

    def _check_prefixes(self) -> None:
        if self.prefixes and "prompt_entropy" not in self.metrics:
            raise LayerscopeError("--prefixes is of prompt_entropy: add it to --metrics, or leave the option out")

    def _check_extremes(self) -> None:
        for name in ("repeat_tokens", "random_tokens"):
            share = getattr(self, name)
            if share is not None and not (isinstance(share, (int, float)) and 0 <= share <= 1):
                raise LayerscopeError(f"{_option(name)} {share!r} is not valid: give a probability, 0 to 1")
        if self.repeat_tokens is not None and self.random_tokens is not None:
            raise LayerscopeError("--repeat-tokens and --random-tokens are two runs: give one of the two")

    def measures(self, metric: Metric) -> bool:
        """Return whether a metric was asked for, or comes along with what was."""
        asked = (name in self.metrics or getattr(self, name, False) is True for name in metric.beside)
        return metric.name in self.metrics or any(asked)

    def wants(self, needs: str) -> bool:
        """Return whether some metric of this kind was asked for."""
        return any(METRICS[name].needs == needs for name in self.metrics)

    def identity(self) -> dict[str, Any]:
        """Return what must be equal for a run folder to be gone on with."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def options_from(
    metrics: str | Iterable[str],
    samples: int | str | None,
    alpha: float | Iterable[float],
    lens_tokens: int | str | None,
    view_kinds: str | Iterable[str] | None,
    prefixes: int | Iterable[int] | None,
    **others: Any,
) -> Options:
    """Return checked options from what a caller or a command line gives."""
    orders = (float(alpha),) if isinstance(alpha, (int, float)) else tuple(float(a) for a in alpha)
    kinds = view_kinds.split(",") if isinstance(view_kinds, str) else view_kinds or ()
    return Options(
        metrics=choose_metrics(metrics),
        samples=_count(samples),
        alpha=tuple(dict.fromkeys(orders)),
        view_kinds=tuple(kinds) or None,
        prefixes=_prefixes(prefixes),
        lens_tokens="auto" if lens_tokens == "auto" else _count(lens_tokens),
        **others,
    )


def identity_in(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the `identity` of a run that a manifest tells; what an older run does not tell was as by default."""
    told = {field.name: field.default for field in fields(Options) if field.default is not MISSING}
    return {**told, **manifest["options"]}


def options_of(info: dict[str, Any]) -> Options:
    """Return the options that a run's manifest tells."""
    known = {field.name for field in fields(Options)}
    told: dict[str, Any] = {name: value for name, value in info["options"].items() if name in known}
    told |= {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
    return Options(**told)


def _prefixes(given: int | Iterable[int] | None) -> tuple[int, ...] | None:
    """Return one or more numbers of tokens in order, each once."""
    if given is None:
        return None
    several = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    for prefix in several:
        if isinstance(prefix, bool) or not isinstance(prefix, (int, np.integer)) or prefix < 1:
            raise LayerscopeError(f"--prefixes {prefix!r} is not valid: give numbers of tokens, such as 8,16,32")
    return tuple(sorted({int(prefix) for prefix in several})) or None


def _count(value: int | str | None) -> Any:
    """Return the number a value says, None for all of them, or what is not a number as it is, to be refused by name."""
    if value in (None, "all"):
        return None
    try:
        return int(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
