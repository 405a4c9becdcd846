"""Every metric by its name, found in the files of their functions, and the sets they are chosen in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar, get_args

from layerscope.core.errors import LayerscopeError, choices
from layerscope.metrics.factors.readings import FromReadings
from layerscope.metrics.metric import How, Metric as Metric, Needs as Needs

ROOMS = ("layerscope.metrics", "layerscope.probes")
H = TypeVar("H", bound=How)


def _records() -> Iterator[Metric]:
    for room in ROOMS:
        for found in iter_modules(import_module(room).__path__, f"{room}."):
            yield from (value for value in vars(import_module(found.name)).values() if isinstance(value, Metric))


KNOWN = {m.name: m for m in sorted(_records(), key=lambda m: (get_args(Needs).index(m.needs), m.order))}
"""Every record there is."""
TRAINED = {m.name: m for m in KNOWN.values() if isinstance(m.how, FromReadings) and m.how.compute is None}
"""What a training measures at each evaluation beside the others: a run of `profile` has none of these."""
COUNTS = {m.name: m for m in KNOWN.values() if m.beside}
"""What stands in a run's table because of another metric or an option."""
METRICS = {name: m for name, m in KNOWN.items() if name not in (*TRAINED, *COUNTS)}
SETS = {
    "default": tuple(m.name for m in METRICS.values() if m.default),
    "seven": tuple(m.name for m in METRICS.values() if m.seven),
    "all": tuple(METRICS),
}


def about(name: str) -> Metric:
    """Return what is known of a name in a run's table; of one that is not known here, its name alone."""
    return KNOWN.get(name) or Metric(name=name, title=name)


def rank(name: str) -> int:
    """Return the place of a metric in the order they are shown in."""
    known = [*METRICS, *TRAINED, *COUNTS]
    return known.index(name) if name in known else len(known)


def measured(kind: type[H]) -> Iterator[tuple[Metric, H]]:
    """Yield the metrics that are computed in one way, each with how."""
    yield from ((m, m.how) for m in KNOWN.values() if isinstance(m.how, kind))


def choose_metrics(asked: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of the metrics asked for: the name of a set (`SETS`), or names with commas between."""
    names = [n.strip() for n in asked.split(",") if n.strip()] if isinstance(asked, str) else list(asked)
    chosen: set[str] = set()
    for name in names:
        if name not in SETS and name not in METRICS:
            raise LayerscopeError(f"metric {name!r} does not exist{choices(name, [*SETS, *METRICS], 'choose from')}")
        chosen |= set(SETS.get(name, (name,)))
    return tuple(name for name in METRICS if name in chosen)
