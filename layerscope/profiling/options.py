"""What a run is asked for, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked
from layerscope.inputs.views import DEFAULT_SHARE
from layerscope.models.pooling import parse as parse_pooling
from layerscope.runs.registry import METRICS, Metric, choose_metrics


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
        """Return what must be equal for a run folder to be gone on with."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def options_from(asked: Asked) -> Options:
    """Return what decides a run's numbers, of the options of `profile`."""
    return asked.of(
        Options,
        metrics=choose_metrics(asked.metrics),
        samples=_count(asked.samples),
        alpha=tuple(dict.fromkeys(map(float, asked.alpha))),
        view_kinds=None if asked.view_kinds is None else tuple(asked.view_kinds),
        prefixes=None if asked.prefixes is None else tuple(sorted({int(prefix) for prefix in asked.prefixes})),
        lens_tokens=_count(asked.lens_tokens),
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


def _count(value: Any) -> Any:
    """Return the number of samples or positions, None for all of them."""
    return None if value == "all" else value
