"""Choose a layer: by scores where there are some, else by rules that were tried on models held out."""

from layerscope.selection.selection import Candidate, Selection
from layerscope.selection.selector import select

__all__ = ["Candidate", "Selection", "select"]
