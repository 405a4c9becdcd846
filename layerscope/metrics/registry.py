"""Every metric by its name, and the sets they are asked for in."""

from __future__ import annotations

from collections.abc import Iterable

from layerscope.core.errors import LayerscopeError, choices
from layerscope.metrics.catalogue.labels import BESIDE, LABELS
from layerscope.metrics.catalogue.lens import LENS, TRAINED as OF_A_TRAINING
from layerscope.metrics.catalogue.metric import Metric, Needs
from layerscope.metrics.catalogue.pairs import PAIRS
from layerscope.metrics.catalogue.pooled import POOLED
from layerscope.metrics.catalogue.tokens import COUNTS as IN_PASSING, TOKENS
from layerscope.metrics.catalogue.views import VIEWS

__all__ = ["COUNTS", "METRICS", "SETS", "TRAINED", "Metric", "Needs", "about", "choose_metrics", "rank"]

METRICS = {m.name: m for m in (*TOKENS, *POOLED, *VIEWS, *PAIRS, *LENS, *LABELS)}
TRAINED = {m.name: m for m in OF_A_TRAINING}
COUNTS = {m.name: m for m in (*IN_PASSING, *BESIDE)}
SETS = {
    "default": tuple(m.name for m in METRICS.values() if m.default),
    "seven": tuple(m.name for m in METRICS.values() if m.seven),
    "all": tuple(METRICS),
}


def about(name: str) -> Metric:
    """Return what is known of a name in a run's table; of one that is not known here, its name alone."""
    return METRICS.get(name) or TRAINED.get(name) or COUNTS.get(name) or Metric(name, "pooled", name, "", "", "", "")


def rank(name: str) -> int:
    """Return the place of a metric in the order they are shown in."""
    known = [*METRICS, *TRAINED, *COUNTS]
    return known.index(name) if name in known else len(known)


def choose_metrics(asked: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of the metrics asked for: the name of a set (`SETS`), or names with commas between."""
    names = [n.strip() for n in asked.split(",") if n.strip()] if isinstance(asked, str) else list(asked)
    chosen: set[str] = set()
    for name in names:
        if name not in SETS and name not in METRICS:
            raise LayerscopeError(f"metric {name!r} does not exist{choices(name, [*SETS, *METRICS], 'choose from')}")
        chosen |= set(SETS.get(name, (name,)))
    return tuple(name for name in METRICS if name in chosen)
