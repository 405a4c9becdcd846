"""Which of the metrics asked for this model and these data can give."""

from __future__ import annotations

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import Corpus
from layerscope.metrics.factors.readings import FromReadings
from layerscope.models import LayeredModel
from layerscope.profiling.options import Options
from layerscope.profiling.tables.labels import can_be_probed
from layerscope.runs.registry import METRICS, SETS


def check_available(options: Options, model: LayeredModel, corpus: Corpus) -> list[str]:
    """Return a line for each metric asked for by name that is not available here; raise where none is.

    Of a set of metrics those that apply are taken; the only line is on labels that cannot be probed.
    """
    missing = {name: reason for name in options.metrics if (reason := _lack(name, options, model, corpus))}
    lines = [f"{name} is not measured: {reason}" for name, reason in missing.items()]
    if len(missing) == len(options.metrics):
        raise LayerscopeError(f"nothing to measure: {'; '.join(lines)}")
    if options.metrics not in SETS.values():
        return lines
    useless = corpus.labels is not None and "linear_probe" in missing
    return [f"the labels cannot be probed: {missing['linear_probe']}"] if useless else []


def _lack(name: str, options: Options, model: LayeredModel, corpus: Corpus) -> str | None:
    """Return why a metric is not available, and the mend; None where it is."""
    needs, how = METRICS[name].needs, METRICS[name].how
    if needs == "labels" and corpus.labels is None:
        return "the data have no labels (name their column with `label_column`)"
    if needs == "labels" and not can_be_probed(np.array(corpus.labels)[~corpus.copies]):
        return "it needs two classes with five distinct samples each (take more `samples`)"
    if needs == "views" and options.views == 0:
        return "it compares views of a sample (give `views=1` or more)"
    if needs == "tokens" and model.rank == 2:
        return "the states of this model have no tokens"
    if needs == "lens" and model.lens is None:
        return f"{model.loaded.name} has no head over these layers"
    if isinstance(how, FromReadings) and how.language_model and not model.is_language_model:
        return f"{model.loaded.name} does not predict the next token"
    return how.lack(len(corpus), model.stack.width)
