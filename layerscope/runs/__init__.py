"""The run folder: append, resume, read."""

from layerscope.runs.folder import RunFolder
from layerscope.runs.run import COLUMNS, Run, open_run

__all__ = ["COLUMNS", "Run", "RunFolder", "open_run"]
