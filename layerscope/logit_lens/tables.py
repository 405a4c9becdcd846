"""From the predictions of each sample to the tables of a reading."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Advance
from layerscope.logit_lens.layers import Tops, read_layers
from layerscope.logit_lens.naming import class_names
from layerscope.logit_lens.reading import GRID, SATURATION, Reading
from layerscope.logit_lens.subjects import Subject, Subjects
from layerscope.metrics.saturation_layer import saturation_layer
from layerscope.models import LayeredModel


def reading_of(
    model: LayeredModel, subjects: Subjects, data: str | None, top: int, notes: list[str], advance: Advance
) -> Reading:
    """Read every sample and return the tables; `data` is the data's name, None of a prompt."""
    assert model.lens is not None
    top = min(top, model.lens.classes)
    classes = class_names(model)
    name = subjects.name if classes is None else classes.__getitem__
    read, grids, settled = [], [], []
    for subject in subjects:
        tops = read_layers(model, subject.inputs, subject.positions, top)
        grids.append(_grid(subject, tops, name))
        settled.append(_saturation(subject, tops, name))
        read.append((subject.name, subject.text, subject.continuation))
        advance(1)
    if not read:
        raise LayerscopeError(f"no sample of {data or 'the prompt'} has something to read: look at the data")
    names, texts, continuations = zip(*read, strict=True)
    return Reading(
        model=model.loaded.name,
        part=model.stack.part,
        data=data,
        kind=subjects.kind,
        depth=model.stack.depth,
        top=top,
        samples=names,
        texts=texts,
        continuations=continuations if subjects.new else (),
        grid=pd.concat(grids, ignore_index=True)[list(GRID)],
        saturation=pd.concat(settled, ignore_index=True)[list(SATURATION)],
        notes=(*notes, *subjects.notes),
    )


def _grid(subject: Subject, tops: Tops, name: Callable[[int], str]) -> pd.DataFrame:
    """Return the rows of one sample, a layer after the other."""
    layers, count, top = tops.ids.shape
    layer, column, rank = (axis.ravel() for axis in np.indices((layers, count, top)))
    columns = _columns(subject).iloc[column].reset_index(drop=True)
    return columns.assign(
        layer=layer,
        rank=rank + 1,
        prediction=[name(int(number)) for number in tops.ids.ravel()],
        id=tops.ids.ravel(),
        probability=tops.probabilities.ravel().astype(np.float64),
    )


def _saturation(subject: Subject, tops: Tops, name: Callable[[int], str]) -> pd.DataFrame:
    """Return a row for each position of one sample."""
    columns = _columns(subject)
    final = tops.ids[-1, :, 0]
    return columns.assign(
        counted=columns["generated"] if subject.generated else True,
        layer=saturation_layer(tops.ids[1:, :, 0].T).numpy(),
        prediction=[name(int(number)) for number in final],
        id=final,
        probability=tops.probabilities[-1, :, 0].astype(np.float64),
        truth=pd.Series(subject.truths, dtype=object),
    )


def _columns(subject: Subject) -> pd.DataFrame:
    n = len(subject.tokens)
    return pd.DataFrame(
        {
            "sample": subject.name,
            "position": subject.positions or range(n),
            "token": pd.Series(subject.tokens, dtype=object),
            "generated": np.arange(n) >= n - subject.generated,
        }
    )
