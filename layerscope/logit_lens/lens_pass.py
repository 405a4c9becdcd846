"""The pass of `lens`: a model and a prompt or samples in, what every layer's states give through its head out.

Samples are read one at a time, without padding. The states of all layers go through all that the
model runs after its last block, in chunks whose logits fit into memory; of the predictions at each
layer and position the likeliest are kept, so that a reading does not grow with the vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core import LayerscopeError, count, reporting
from layerscope.inputs import Corpus, draw, open_corpus, pack
from layerscope.inputs.pairs import paired
from layerscope.logit_lens.along_text import thirds
from layerscope.logit_lens.options import LensOptions
from layerscope.logit_lens.reading import STORE, Reading
from layerscope.logit_lens.subjects import Subject, Subjects
from layerscope.logit_lens.translator_training import translators_for
from layerscope.logit_lens.translators import (
    Translators,
    divergences,
    fidelity,
    layer_states,
)
from layerscope.metrics.saturation_layer import saturation_layer
from layerscope.models import LayeredModel, find_layers, load
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs
from layerscope.models.lens import CHUNK, Lens
from layerscope.models.texts import window_of

WHOLE = 1 << 26
"""Logits of a sample up to which it is read in one go, as the model's own forward does: to the bit the same."""
SEED = 0
"""Of the samples that are drawn."""


class Tops(NamedTuple):
    """Of layers 0 … L at P positions: the likeliest predictions, best first, and how unsure each layer is.

    `ids` and `probabilities` are [L+1, P, k], `entropy` [L+1, P] is that of all classes, in nats.
    """

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    entropy: NDArray[np.float32]


def run_lens(options: LensOptions) -> Reading:
    """Return what each layer of a model predicts for samples, or for a prompt."""
    corpus = _opened(options)
    reporter = reporting(options.progress)
    model = find_layers(
        load(options.model, options.load, options.processor),
        corpus.modality,
        corpus.samples,
        options.override,
        max_length=options.max_length,
    )
    lens = _lens_of(model)
    corpus = _as_read(corpus, model, options)
    shown = draw(corpus, options.samples, SEED)
    translators, tuning_notes = translators_for(model, options, reporter)
    notes = [*shown.notes, *model.notes, *tuning_notes]
    if len(shown) < len(corpus):
        notes.append(
            f"{count(len(shown), 'sample')} of {len(corpus):,} are read; `samples` changes that"
        )
    for note in notes:
        reporter.say(note)
    subjects = Subjects(model, shown, options.generate)
    top = min(options.top, lens.classes)
    read = []
    grids = []
    settled = []
    apart = []
    with (
        evaluating(model.module),
        reporter.bar("every layer", len(shown), "samples") as advance,
    ):
        for subject in subjects:
            inputs, states = layer_states(model, subject.inputs)
            chosen = subject.positions
            tops = read_layers(model, inputs, states, chosen, top, translators)
            if translators is not None:
                tokens = [_chosen(state[0], chosen) for state in states]
                apart.append(divergences(model, translators, inputs, tokens))
            grid = _grid(subject, tops, subjects.prediction)
            grids.append(grid)
            settled.append(_saturation(grid, subject, tops.ids))
            read.append((subject.name, subject.text, subject.continuation))
            advance(1)
    if not read:
        source = "the prompt" if options.data is None else corpus.name
        raise LayerscopeError(f"no sample of {source} can be read: check the data")
    for note in subjects.notes:
        reporter.say(note)
    names, texts, continuations = zip(*read, strict=True)
    saturation = pd.concat(settled, ignore_index=True)
    reading = Reading(
        model=model.name,
        part=model.stack.part,
        data=None if options.data is None else corpus.name,
        kind=subjects.kind,
        depth=model.depth,
        top=top,
        samples=names,
        texts=texts,
        continuations=continuations if subjects.new else (),
        grid=pd.concat(grids, ignore_index=True),
        saturation=saturation,
        notes=(*notes, *subjects.notes),
        tuned=fidelity(apart, len(saturation)),
    )
    if options.out is not None:
        reading.save(options.out)
    return reading


def _opened(options: LensOptions) -> Corpus:
    """Return the data, or the prompt as the one sample of a corpus, where all can be written that is to be."""
    if options.out is not None:
        STORE.folder(options.out)
    if options.train is not None and options.tuned in (None, options.out):
        raise LayerscopeError(
            "`train` needs `tuned`, a folder of its own for the translators: name one"
        )
    prompt = options.prompt
    data = options.data
    if (prompt is None) == (data is None):
        raise LayerscopeError("lens needs samples: give either a prompt or data")
    if prompt is None:
        return open_corpus(
            data, text_column=options.text_column, label_column=options.label_column
        )
    if not isinstance(prompt, str) or not prompt.strip():
        raise LayerscopeError("the prompt is empty: give a text of at least one word")
    return Corpus("prompt", "text", (prompt,), ("prompt",))


def _lens_of(model: LayeredModel) -> Lens:
    """Return how the model's head reads layers.

    Raises `LayerscopeError` where it has none over them.
    """
    if model.lens is not None:
        return model.lens
    part = model.name
    other = ""
    if len(model.parts) > 1:
        part = f"the {model.stack.part} of {part}"
        other = f", or another `part` of {', '.join(model.parts)}"
    why = "".join(f" ({note})" for note in model.notes if "head" in note)
    raise LayerscopeError(
        f"{part} has no head over its layers{why}: give a language model or a classifier{other}"
    )


def _as_read(corpus: Corpus, model: LayeredModel, options: LensOptions) -> Corpus:
    """Return the samples as `profile` reads them: pairs for a classifier, windows of running text."""
    if model.reads_pairs:
        return paired(corpus, options.data, options.text_column)
    window = window_of(None, "", corpus, model)
    if window is None or options.generate:
        return corpus
    return pack(corpus, model.loaded.processor_for("text"), window)


@torch.inference_mode()
def read_layers(
    model: LayeredModel,
    inputs: Inputs,
    states: Sequence[Tensor],
    positions: Sequence[int] | None,
    top: int,
    translators: Translators | None = None,
) -> Tops:
    """Return the `top` predictions of layers 0 … L for the `states` of one sample (see `layer_states`).

    `positions` are those of the tokens that are read; None is all, and of a classifier the sample.
    With translators states go through them first. Raises `LayerscopeError` where a layer's logits
    are not finite.
    """
    ids = []
    logs = []
    entropies = []
    for layer, state in enumerate(states):
        if translators is not None:
            state = translators.translated(layer, state)
        for logits in _logits(model, state, inputs, positions):
            total = logits.logsumexp(-1, keepdim=True)
            if not bool(torch.isfinite(total).all()):
                raise LayerscopeError(
                    f"the head gives NaN or infinity on layer {layer}: try `dtype='float32'`"
                )
            best = logits.topk(top, dim=-1)
            ids.append(best.indices)
            logs.append(best.values - total)
            entropies.append(torch.special.entr(logits.softmax(-1)).sum(-1))
    shape = (len(states), -1, top)
    return Tops(
        torch.cat(ids).view(shape).cpu().numpy(),
        torch.cat(logs).view(shape).cpu().exp().numpy(),
        torch.cat(entropies).view(shape[:2]).cpu().numpy(),
    )


def _logits(
    model: LayeredModel, state: Tensor, inputs: Inputs, positions: Sequence[int] | None
) -> Iterable[Tensor]:
    """Return logits [n, K] in order, a chunk of rows at a time."""
    lens = _lens_of(model)
    if lens.kind == "pooled":
        return [lens.sample_logits(state, inputs)]
    if state.shape[1] * lens.classes > WHOLE:
        return lens.token_logits(_chosen(state[0], positions), inputs)
    logits = _chosen(lens.sequence_logits(state, inputs)[0], positions)
    return torch.split(logits, max(1, CHUNK // lens.classes))


def _chosen(rows: Tensor, positions: Sequence[int] | None) -> Tensor:
    """Return the rows at some positions, None is all."""
    if positions is None:
        return rows
    return rows[torch.tensor(positions, device=rows.device)]


def _grid(subject: Subject, tops: Tops, name: Callable[[int], str]) -> pd.DataFrame:
    """Return the predictions of one sample: a row for each layer, position and rank."""
    n = len(subject.tokens)
    read = [None] * (n - subject.generated)
    positions = pd.DataFrame(
        {
            "sample": subject.name,
            "position": subject.positions or range(n),
            "token": pd.Series(subject.tokens, dtype=object),
            "generated": np.arange(n) >= n - subject.generated,
            "third": pd.Series([*read, *thirds(subject.generated)], dtype=object),
            "phase": pd.Series([*read, *subject.phases], dtype=object),
        }
    )
    ids = tops.ids
    layer, column, rank = (axis.ravel() for axis in np.indices(ids.shape))
    return positions.iloc[column].assign(
        layer=layer,
        rank=rank + 1,
        prediction=[*map(name, ids.ravel().tolist())],
        id=ids.ravel(),
        probability=tops.probabilities.ravel(),
        entropy=tops.entropy[layer, column],
    )


def _saturation(
    grid: pd.DataFrame, subject: Subject, ids: NDArray[np.int64]
) -> pd.DataFrame:
    """Return a row for each position: from which layer on its likeliest prediction stays, and the right one."""
    is_final = (grid["layer"] == len(ids) - 1) & (grid["rank"] == 1)
    final = grid[is_final]
    return final.assign(
        counted=final["generated"] if subject.generated else True,
        layer=saturation_layer(ids[1:, :, 0].T).numpy(),
        truth=pd.Series(subject.truths, dtype=object),
    )
