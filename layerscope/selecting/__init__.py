"""Choose a layer: by scores where there are some, else by rules that were tried on models held out."""

from layerscope.selecting.selection import Candidate, Selection
from layerscope.selecting.verb import select

__all__ = ["Candidate", "Selection", "select"]
