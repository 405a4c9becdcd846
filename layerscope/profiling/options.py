"""The options of `profile`; help reads this without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.core import LayerscopeError, Options
from layerscope.models.options import LoadOptions, Override

if TYPE_CHECKING:
    from layerscope.metrics.metric import Metric

RESERVOIR = 1000
"""Samples of a stream whose states metrics are computed from that are no sums, unless the user says how many."""
READ_AT_ONCE = ("samples", "chunk", "repeat_tokens", "random_tokens")
"""Options that take all data at once, and not a stream of them."""


@dataclass(frozen=True)
class PassOptions:
    """The options of `profile` that decide a run's numbers: equal ones on equal data give equal tables.

    "all" is None here.
    """

    samples: int | None = 1000
    chunk: int | None = None
    repeat_tokens: float | None = None
    random_tokens: float | None = None
    prompt: str = ""
    metrics: tuple[str, ...] = ("default",)
    pooling: str = "auto"
    alpha: tuple[float, ...] = (1.0,)
    rows: tuple[str, ...] = ("unit",)
    cka: tuple[str, ...] = ("debiased",)
    cosine: tuple[str, ...] = ("centered",)
    exclude_sinks: bool = False
    lens_tokens: int | str | None = "auto"
    sublayers: bool = False
    ablate: str | None = None
    views: int = 2
    view_samples: int = 1000
    batch_size: int | None = None
    seed: int = 0
    keep_states: str = "all"
    store_dtype: str = "float32"
    part: str | None = None
    blocks: str | None = None
    norm: str | None = None
    dtype: str = "auto"
    max_length: int | None = None

    def __post_init__(self) -> None:
        from layerscope.runs.registry import choose_metrics  # with torch

        normal: dict[str, Any] = {"metrics": choose_metrics(self.metrics)}
        for name in ("samples", "lens_tokens"):
            value = getattr(self, name)
            normal[name] = None if value == "all" else value
        for name in ("alpha", "rows", "cka", "cosine"):
            normal[name] = tuple(dict.fromkeys(getattr(self, name)))
        normal["alpha"] = tuple(map(float, normal["alpha"]))
        for name, value in normal.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of_run(cls, stored: Mapping[str, Any]) -> "PassOptions":
        """Return the options that a run's manifest holds."""
        # a run may be older than an option
        names = {field.name for field in fields(cls)}
        return cls(**{name: stored[name] for name in names & stored.keys()})

    def check(self) -> None:
        """Raise `LayerscopeError` where options do not fit together."""
        if not self.metrics:
            raise LayerscopeError("metrics is empty: give names, default, seven or all")
        if self.repeat_tokens is not None and self.random_tokens is not None:
            raise LayerscopeError(
                "repeat_tokens and random_tokens need a run each: give one of the two"
            )
        if self.ablate is not None and "valley" not in self.metrics:
            raise LayerscopeError(
                "`ablate` is for the metric valley: name it in `metrics`, or leave `ablate` out"
            )
        if not isinstance(self.pooling, str):
            raise LayerscopeError(
                f"pooling is {self.pooling!r}: give auto, or names with commas"
            )
        if self.reservoir is None:
            return
        whole = f"`keep_states={self.keep_states!r}` takes every sample as it is"
        for name in READ_AT_ONCE:
            if getattr(self, name) not in (None, getattr(PassOptions, name)):
                raise LayerscopeError(
                    f"`{name}` is for data that are read at once, and {whole}: leave `{name}` out"
                )

    @property
    def replaced(self) -> str | None:
        """The name of the option by which tokens are replaced, None where they are not."""
        for name in ("repeat_tokens", "random_tokens"):
            if getattr(self, name) is not None:
                return name
        return None

    @property
    def reservoir(self) -> int | None:
        """How many samples of a stream have their states looked at together.

        It is None where all data are.
        """
        if self.keep_states == "all":
            return None
        _, _, number = self.keep_states.partition(":")
        return int(number or RESERVOIR)

    @cached_property
    def chosen(self) -> "tuple[Metric, ...]":
        """The metrics that are named."""
        from layerscope.runs.registry import METRICS  # with torch

        return tuple(METRICS[name] for name in self.metrics)

    def measures(self, metric: "Metric") -> bool:
        """Return whether a metric is named, or comes along with what is."""
        named = {metric.name, *metric.beside}
        if self.exclude_sinks and "exclude_sinks" in named:
            return True
        return not named.isdisjoint(self.metrics)

    def wants(self, needs: str) -> bool:
        """Return whether some metric of this kind is named."""
        return needs in {metric.needs for metric in self.chosen}


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(Options):
    """The options of `profile`."""

    model: Any
    data: Any
    states: str | Path | None
    layers: list[int] | None
    labels: Any
    processor: Any
    text_column: str | None
    label_column: str | None
    out: Path | None
    progress: bool
    command: str
    load: LoadOptions
    override: Override
    measuring: PassOptions
