"""Which of the metrics asked for this model and these data can give."""

from __future__ import annotations

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import Corpus
from layerscope.metrics.factors.readings import FromReadings
from layerscope.models import LayeredModel
from layerscope.models.encode import TextEncoder
from layerscope.profiling.options import Options
from layerscope.profiling.tables.labels import can_be_probed
from layerscope.runs.registry import METRICS, SETS


def check_available(options: Options, model: LayeredModel, corpus: Corpus) -> list[str]:
    """Return a line for each metric asked for by name that cannot be had here; none at all is an error.

    A set takes what applies, and nothing is said about the rest, but that labels are of no use.
    """
    ids = corpus.modality == "tensor" and isinstance(model.encoder, TextEncoder)
    for name in ("chunk", "prompt", "max_length"):
        if getattr(options, name) and corpus.modality != "text" and not (ids and name == "max_length"):
            option = "--" + name.replace("_", "-")
            raise LayerscopeError(
                f"{option} is of texts, and {corpus.name} holds {corpus.modality} samples: leave it out"
            )
    missing = {name: reason for name in options.metrics if (reason := _lack(name, options, model, corpus))}
    lines = [f"{name} is not measured: {reason}" for name, reason in missing.items()]
    if len(missing) == len(options.metrics):
        raise LayerscopeError(f"nothing to measure: {'; '.join(lines)}")
    by_name = options.metrics not in SETS.values()
    if by_name:
        return lines
    useless = corpus.labels is not None and "linear_probe" in missing
    return [f"the labels cannot be probed: {missing['linear_probe']}"] if useless else []


def _lack(name: str, options: Options, model: LayeredModel, corpus: Corpus) -> str | None:
    """Return what a metric lacks and the mend, or None."""
    needs, how = METRICS[name].needs, METRICS[name].how
    if needs == "labels" and corpus.labels is None:
        return "the data have no labels (name their column with `label_column`)"
    if needs == "labels" and not can_be_probed(np.array(corpus.labels)[~corpus.copies]):
        return "it needs two classes of five distinct samples or more (take more --samples)"
    if needs == "views" and options.views == 0:
        return "it compares views of a sample (give --views 1 or more)"
    if needs == "tokens" and model.rank == 2:
        return "the states of this model have no tokens"
    if needs == "lens" and model.lens is None:
        return f"{model.loaded.name} has no head over these layers"
    if isinstance(how, FromReadings) and how.language_model and not model.is_language_model:
        return f"{model.loaded.name} does not predict the next token"
    return how.lack(len(corpus), model.stack.width)
