"""The run folder: append, resume, read."""

from layerscope.runs.folder import COLUMNS, RunFolder
from layerscope.runs.opening import open_run
from layerscope.runs.run import Run

__all__ = ["COLUMNS", "Run", "RunFolder", "open_run"]
