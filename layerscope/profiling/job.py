"""What a run is of: a model, a corpus, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass

from layerscope.inputs import Corpus
from layerscope.models import LayeredModel, Vectors
from layerscope.profiling.options import Options


@dataclass(frozen=True)
class Job:
    """A model ready for the pass, the samples drawn, the options checked, and the vectors a sample leaves."""

    model: LayeredModel
    corpus: Corpus
    options: Options
    vectors: Vectors
