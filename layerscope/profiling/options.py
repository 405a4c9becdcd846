"""What a run is asked for, checked before anything is loaded."""

from __future__ import annotations

from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked, declared
from layerscope.models.pooling import parse as parse_pooling
from layerscope.profiling.profiler import profile
from layerscope.runs.registry import METRICS, Metric, choose_metrics

ELSEWHERE = (
    "model", "data", "labels", "processor", "text_column", "label_column", "revision", "device", "trust_remote_code",
    "allow_pickle", "out", "progress", "command",
)  # fmt: skip
"""Options of `profile` that name what is measured, or where; the run folder knows it otherwise."""


class Options(Asked):
    """The options of `profile` that decide a run's numbers: equal ones on equal data give equal tables.

    One that is not given has its default; "all" is None here.
    """

    def __init__(self, **given: Any) -> None:
        options = {name: option.default for name, option in declared(profile).items() if name not in ELSEWHERE}
        options |= {name: value for name, value in given.items() if name in options}
        for name in ("samples", "lens_tokens"):
            options[name] = None if options[name] == "all" else options[name]
        for name in ("view_kinds", "prefixes"):
            options[name] = None if options[name] is None else tuple(options[name])
        alpha = options["alpha"] if isinstance(options["alpha"], (list, tuple)) else [options["alpha"]]
        options["alpha"] = tuple(dict.fromkeys(map(float, alpha)))
        options["prefixes"] = options["prefixes"] and tuple(sorted(set(map(int, options["prefixes"]))))
        options["metrics"] = choose_metrics(options["metrics"])
        super().__init__(**options)
        if self.prefixes and "prompt_entropy" not in self.metrics:
            raise LayerscopeError("prefixes are for prompt_entropy: add it to metrics, or leave prefixes out")
        if self.repeat_tokens is not None and self.random_tokens is not None:
            raise LayerscopeError("repeat_tokens and random_tokens need a run each: give one of the two")
        if not self.metrics:
            raise LayerscopeError("metrics is empty: give names, default, seven or all")
        if not isinstance(self.pooling, str):
            raise LayerscopeError(f"pooling is {self.pooling!r}: give auto, or names with commas")
        if self.pooling != "auto":
            parse_pooling(self.pooling)

    def measures(self, metric: Metric) -> bool:
        """Return whether a metric was asked for, or comes along with what was."""
        asked = (name in self.metrics or getattr(self, name, False) is True for name in metric.beside)
        return metric.name in self.metrics or any(asked)

    def wants(self, needs: str) -> bool:
        """Return whether some metric of this kind was asked for."""
        return any(METRICS[name].needs == needs for name in self.metrics)

    def identity(self) -> dict[str, Any]:
        """Return the options that must match for a run folder to be resumed."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
