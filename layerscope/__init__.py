"""See what every layer of a model knows, find the layer that serves you best, and use it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerscope.comparing import Comparison, compare, open_comparison
    from layerscope.early_exit import truncate
    from layerscope.early_exit.exit_report import ExitReport, open_exit_report
    from layerscope.early_exit.verb import exits
    from layerscope.errors import LayerscopeError
    from layerscope.evaluation import Evaluation, evaluate, open_evaluation
    from layerscope.inspecting import inspect
    from layerscope.lensing import Reading, lens
    from layerscope.profiling import profile
    from layerscope.reports.page import report
    from layerscope.runs import Run, open_run
    from layerscope.selecting import Selection, select
    from layerscope.training.verb import train

_HOMES = {
    "Comparison": "layerscope.comparing",
    "Evaluation": "layerscope.evaluation",
    "ExitReport": "layerscope.early_exit.exit_report",
    "LayerscopeError": "layerscope.errors",
    "Reading": "layerscope.lensing",
    "Run": "layerscope.runs",
    "Selection": "layerscope.selecting",
    "compare": "layerscope.comparing",
    "evaluate": "layerscope.evaluation",
    "exits": "layerscope.early_exit.verb",
    "inspect": "layerscope.inspecting",
    "lens": "layerscope.lensing",
    "open_comparison": "layerscope.comparing",
    "open_evaluation": "layerscope.evaluation",
    "open_exit_report": "layerscope.early_exit.exit_report",
    "open_run": "layerscope.runs",
    "profile": "layerscope.profiling",
    "report": "layerscope.reports.page",
    "select": "layerscope.selecting",
    "train": "layerscope.training.verb",
    "truncate": "layerscope.early_exit",
}

__all__ = [
    "Comparison", "Evaluation", "ExitReport", "LayerscopeError", "Reading", "Run", "Selection", "compare", "evaluate",
    "exits", "inspect", "lens", "open_comparison", "open_evaluation", "open_exit_report", "open_run", "profile",
    "report", "select", "train", "truncate",
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # torch takes seconds to import, and `import layerscope` none of them
    if name in ("evaluation", "metrics", "inputs", "runs"):
        return import_module(f"layerscope.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'layerscope' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
