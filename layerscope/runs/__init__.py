"""The run folder: append, resume, read."""

from layerscope.runs.folder import COLUMNS, RunFolder
from layerscope.runs.run import Run, open_run

__all__ = ["COLUMNS", "Run", "RunFolder", "open_run"]
