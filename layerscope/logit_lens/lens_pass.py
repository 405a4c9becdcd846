"""The pass of `lens`: a model and a prompt or samples in, what every layer's states give through its head out."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core.errors import LayerscopeError, count
from layerscope.core.options import Asked
from layerscope.core.progress import reporting
from layerscope.inputs import Corpus, draw, open_corpus, pack
from layerscope.inputs.pairs import paired
from layerscope.logit_lens.reading import GRID, SATURATION, STORE, Reading
from layerscope.logit_lens.subjects import Subject, Subjects
from layerscope.logit_lens.translators import (
    Translators,
    divergences,
    fidelity,
    layer_states,
    translators_for,
)
from layerscope.metrics.saturation_layer import saturation_layer
from layerscope.models import LayeredModel, LoadOptions, Override, find_layers, load
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs
from layerscope.models.lens import CHUNK
from layerscope.profiling.pipeline import WINDOW

WHOLE = 1 << 26
"""Logits of a sample up to which it is read in one go, as the model's own forward does: to the bit the same."""
SEED = 0
"""Of the samples that are drawn."""
Tops = tuple[NDArray[np.int64], NDArray[np.float32]]
"""The ids [L+1, P, k] of the likeliest predictions at P positions, best first, and their probabilities."""


def run_lens(asked: Asked) -> Reading:
    """Do what `lens` is asked for."""
    corpus = _opened(asked)
    reporter = reporting(asked.progress)
    loaded = load(asked.model, asked.of(LoadOptions), asked.processor)
    name = None if asked.data is None else corpus.name
    model = find_layers(
        loaded, corpus.modality, corpus.samples, asked.of(Override), max_length=asked.max_length
    )
    if model.lens is None:
        several = len(model.parts) > 1
        part = f"the {model.stack.part} of {loaded.name}" if several else loaded.name
        why = "".join(f" ({note})" for note in model.notes if "head" in note)
        other = f", or another `part` of {', '.join(model.parts)}" if several else ""
        raise LayerscopeError(
            f"{part} has no head over its layers{why}: give a language model or a classifier{other}"
        )
    corpus = _as_read(corpus, model, asked)
    shown = draw(corpus, asked.samples, SEED)
    translators, tuning = translators_for(model, asked, shown, reporter)
    notes = [*shown.notes, *model.notes, *tuning]
    if len(shown) < len(corpus):
        notes.append(
            f"{count(len(shown), 'sample')} of {len(corpus):,} are read; `samples` changes that"
        )
    for note in notes:
        reporter.say(note)
    read, tables, apart, top = [], [], [], min(asked.top, model.lens.classes)
    with evaluating(model.module), reporter.bar("every layer", len(shown), "samples") as advance:
        subjects = Subjects(
            model, shown, asked.tokens, whole=name is None and asked.max_length is None
        )
        for subject in subjects:
            tops = read_layers(model, subject.inputs, subject.positions, top, translators)
            if translators is not None:
                apart.append(divergences(model, translators, subject.inputs, subject.positions))
            tables.append(_tables(subject, tops, subjects.prediction))
            read.append((subject.name, subject.text, subject.continuation))
            advance(1)
    if not read:
        raise LayerscopeError(f"no sample of {name or 'the prompt'} can be read: check the data")
    for note in subjects.notes:
        reporter.say(note)
    names, texts, continuations = zip(*read, strict=True)
    grid, saturation = (pd.concat(each, ignore_index=True) for each in zip(*tables, strict=True))
    reading = Reading(
        model=loaded.name,
        part=model.stack.part,
        data=name,
        kind=subjects.kind,
        depth=model.stack.depth,
        top=top,
        samples=names,
        texts=texts,
        continuations=continuations if subjects.new else (),
        grid=grid[list(GRID)],
        saturation=saturation[list(SATURATION)],
        notes=(*notes, *subjects.notes),
        tuned=fidelity(apart),
    )
    if asked.out is not None:
        reading.save(asked.out)
    return reading


def _opened(asked: Asked) -> Corpus:
    """Return the data, or the prompt as the one sample of a corpus, where all can be written that is to be."""
    if asked.out is not None:
        STORE.folder(asked.out)
    if asked.train is not None and asked.tuned in (None, asked.out):
        raise LayerscopeError(
            "`train` needs `tuned`, a folder of its own for the translators: name one"
        )
    prompt, data = asked.prompt, asked.data
    if (prompt is None) == (data is None):
        raise LayerscopeError("lens needs samples: give either a prompt or data")
    if prompt is None:
        return open_corpus(data, text_column=asked.text_column, label_column=asked.label_column)
    if not isinstance(prompt, str) or not prompt.strip():
        raise LayerscopeError("the prompt is empty: give a text of at least one word")
    return Corpus("prompt", "text", (prompt,), ("prompt",))


def _as_read(corpus: Corpus, model: LayeredModel, asked: Asked) -> Corpus:
    """Return the samples as `profile` reads them: pairs for a classifier, windows of running text."""
    if model.lens is not None and model.lens.kind == "pooled" and corpus.modality == "text":
        return paired(corpus, asked.data, asked.text_column)
    if corpus.running and model.is_language_model and not asked.tokens:
        return pack(
            corpus, model.loaded.processor_for("text"), min(WINDOW, model.max_length or WINDOW)
        )
    return corpus


@torch.inference_mode()
def read_layers(
    model: LayeredModel,
    inputs: Inputs,
    positions: Sequence[int] | None,
    top: int,
    found: Translators | None = None,
) -> Tops:
    """Return the `top` predictions of layers 0 … L for a batch of one sample, without padding, on the model's device.

    `positions` are those of the tokens that are read; None is all, and of a classifier the sample.
    With translators states go through them first. Raises `LayerscopeError` where a layer's logits
    are not finite.
    """
    inputs, states = layer_states(model, inputs)
    ids, logs = [], []
    for layer, state in enumerate(states):
        state = state if found is None else found.translated(layer, state)
        for logits in _logits(model, state, inputs, positions):
            total = logits.logsumexp(-1, keepdim=True)
            if not bool(torch.isfinite(total).all()):
                raise LayerscopeError(
                    f"the head gives NaN or infinity on layer {layer}: try `dtype='float32'`"
                )
            best = logits.topk(top, dim=-1)
            ids.append(best.indices)
            logs.append(best.values - total)
    shape = (len(states), -1, top)
    return torch.cat(ids).view(shape).cpu().numpy(), torch.cat(logs).view(shape).cpu().exp().numpy()


def _logits(
    model: LayeredModel, state: Tensor, inputs: Inputs, positions: Sequence[int] | None
) -> Iterable[Tensor]:
    """Return logits [n, K] in order, a chunk of rows at a time."""
    lens = model.lens
    assert lens is not None
    if lens.kind == "pooled":
        return [lens.sample_logits(state, inputs)]
    chosen = (torch.arange(state.shape[1]) if positions is None else torch.tensor(positions)).to(
        state.device
    )
    if state.shape[1] * lens.classes > WHOLE:
        return lens.token_logits(state[0, chosen], inputs)
    return torch.split(
        lens.sequence_logits(state, inputs)[0, chosen], max(1, CHUNK // lens.classes)
    )


def _tables(
    subject: Subject, tops: Tops, name: Callable[[int], str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the predictions of one sample, a layer after the other, and a row on each position."""
    ids, probabilities = tops[0], tops[1].astype(np.float64)
    n, final = len(subject.tokens), ids[-1, :, 0]
    columns = pd.DataFrame(
        {
            "sample": subject.name,
            "position": subject.positions or range(n),
            "token": pd.Series(subject.tokens, dtype=object),
            "generated": np.arange(n) >= n - subject.generated,
        }
    )
    layer, column, rank = (axis.ravel() for axis in np.indices(ids.shape))
    grid = columns.iloc[column].reset_index(drop=True)
    grid = grid.assign(
        layer=layer,
        rank=rank + 1,
        prediction=[*map(name, ids.ravel().tolist())],
        id=ids.ravel(),
        probability=probabilities.ravel(),
    )
    saturation = columns.assign(
        counted=columns["generated"] if subject.generated else True,
        layer=saturation_layer(ids[1:, :, 0].T).numpy(),
        prediction=[*map(name, final.tolist())],
        id=final,
        probability=probabilities[-1, :, 0],
        truth=pd.Series(subject.truths, dtype=object),
    )
    return grid, saturation
