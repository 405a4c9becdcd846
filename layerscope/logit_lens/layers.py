"""Every layer of each sample through the model's own head: the likeliest predictions, as the tables of a reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Advance
from layerscope.logit_lens.reading import GRID, SATURATION, Reading
from layerscope.logit_lens.subjects import Subject, Subjects
from layerscope.metrics.saturation_layer import saturation_layer
from layerscope.models import LayeredModel
from layerscope.models.forward import Inputs
from layerscope.models.lens import CHUNK

WHOLE = 1 << 26
"""Logits of a sample up to which it is read in one go, as the model's own forward does: to the bit the same."""


@dataclass(frozen=True)
class Tops:
    """The `ids` [L+1, P, k] of the likeliest predictions at P positions, best first, and their `probabilities`."""

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float32]


@torch.inference_mode()
def read_layers(model: LayeredModel, inputs: Inputs, positions: Sequence[int] | None, top: int) -> Tops:
    """Return the `top` predictions of layers 0 … L for a batch of one sample.

    Args:
        model: with a lens.
        inputs: one sample, without padding, on the model's device.
        positions: of the tokens that are read; None is all, and of a classifier the sample.
        top: predictions kept, at most as many as there are classes.

    Raises:
        LayerscopeError: where a layer's logits are not finite.

    """
    states: list[Tensor] = []
    model.run(inputs, lambda _, site, tokens: states.append(tokens.clone()) if site == "raw" else None)
    inputs = replace(inputs, mask=model.mask(inputs, states[0]))
    ids, probabilities = [], []
    for layer, state in enumerate(states):
        found: list[tuple[Tensor, Tensor]] = []
        for logits in _logits(model, state, inputs, positions):
            total = logits.logsumexp(-1, keepdim=True)
            if not bool(torch.isfinite(total).all()):
                raise LayerscopeError(
                    f"the head of {model.loaded.name} gives NaN or infinity on layer {layer}: try `dtype='float32'`"
                )
            best = logits.topk(top, dim=-1)
            found.append((best.indices, best.values - total))
        ids.append(torch.cat([number for number, _ in found]))
        probabilities.append(torch.cat([log for _, log in found]))
    return Tops(torch.stack(ids).cpu().numpy(), torch.stack(probabilities).cpu().exp().numpy())


def _logits(model: LayeredModel, state: Tensor, inputs: Inputs, positions: Sequence[int] | None) -> Iterator[Tensor]:
    """Yield logits [n, K] in order, a chunk of rows at a time."""
    lens = model.lens
    assert lens is not None
    if lens.kind == "pooled":
        yield lens.sample_logits(state, inputs)
        return
    chosen = (torch.arange(state.shape[1]) if positions is None else torch.tensor(positions)).to(state.device)
    if state.shape[1] * lens.classes > WHOLE:
        yield from lens.token_logits(state[0, chosen], inputs)
        return
    yield from torch.split(lens.sequence_logits(state, inputs)[0, chosen], max(1, CHUNK // lens.classes))


def reading_of(
    model: LayeredModel, subjects: Subjects, data: str | None, top: int, notes: list[str], advance: Advance
) -> Reading:
    """Read every sample and return the tables; `data` is the data's name, None of a prompt."""
    assert model.lens is not None
    top = min(top, model.lens.classes)
    read, grids, settled = [], [], []
    for subject in subjects:
        tops = read_layers(model, subject.inputs, subject.positions, top)
        grid, saturation = _tables(subject, tops, subjects.prediction)
        grids.append(grid)
        settled.append(saturation)
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


def _tables(subject: Subject, tops: Tops, name: Callable[[int], str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the predictions of one sample, a layer after the other, and a row on each position."""
    n = len(subject.tokens)
    columns = pd.DataFrame(
        {
            "sample": subject.name,
            "position": subject.positions or range(n),
            "token": pd.Series(subject.tokens, dtype=object),
            "generated": np.arange(n) >= n - subject.generated,
        }
    )
    layer, column, rank = (axis.ravel() for axis in np.indices(tops.ids.shape))
    final = tops.ids[-1, :, 0]
    grid = columns.iloc[column].reset_index(drop=True)
    grid = grid.assign(
        layer=layer,
        rank=rank + 1,
        prediction=[name(int(number)) for number in tops.ids.ravel()],
        id=tops.ids.ravel(),
        probability=tops.probabilities.ravel().astype(np.float64),
    )
    saturation = columns.assign(
        counted=columns["generated"] if subject.generated else True,
        layer=saturation_layer(tops.ids[1:, :, 0].T).numpy(),
        prediction=[name(int(number)) for number in final],
        id=final,
        probability=tops.probabilities[-1, :, 0].astype(np.float64),
        truth=pd.Series(subject.truths, dtype=object),
    )
    return grid, saturation
