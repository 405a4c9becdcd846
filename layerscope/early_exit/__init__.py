"""Turn depth into a model: one that ends at a layer, one whose rows leave early, texts from any depth."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerscope.early_exit.calibrating import calibrate
    from layerscope.early_exit.calibration import Calibration
    from layerscope.early_exit.exit_model import ExitModel, ExitOutput
    from layerscope.early_exit.exit_report import ExitReport, open_exit_report
    from layerscope.early_exit.generation.scoring import Scores, score
    from layerscope.early_exit.generation.verb import Generated, generate
    from layerscope.early_exit.truncation.verb import Truncated, truncate, truncate_layers
    from layerscope.early_exit.verb import exits

_HOMES = {
    "Calibration": "calibration",
    "ExitModel": "exit_model",
    "ExitOutput": "exit_model",
    "ExitReport": "exit_report",
    "Generated": "generation.verb",
    "Scores": "generation.scoring",
    "Truncated": "truncation.verb",
    "calibrate": "calibrating",
    "exits": "verb",
    "generate": "generation.verb",
    "open_exit_report": "exit_report",
    "score": "generation.scoring",
    "truncate": "truncation.verb",
    "truncate_layers": "truncation.verb",
}

__all__ = [
    "Calibration", "ExitModel", "ExitOutput", "ExitReport", "Generated", "Scores", "Truncated", "calibrate", "exits",
    "generate", "open_exit_report", "score", "truncate", "truncate_layers",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # a report of exits is read without torch, which takes seconds to import
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
