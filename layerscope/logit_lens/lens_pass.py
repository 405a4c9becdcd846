"""The pass of `lens`: a model and a prompt or samples in, what every layer would predict out."""

from __future__ import annotations

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked
from layerscope.core.progress import reporting
from layerscope.core.words import count
from layerscope.inputs import Corpus, open_corpus
from layerscope.inputs.pairs import paired
from layerscope.logit_lens.layers import reading_of
from layerscope.logit_lens.reading import STORE, Reading
from layerscope.logit_lens.subjects import Subjects
from layerscope.models import LayeredModel, LoadOptions, Override, find_layers, load
from layerscope.models.capture import evaluating


def run_lens(asked: Asked) -> Reading:
    """Do what `lens` is asked for."""
    prompt, data = asked.prompt, asked.data
    if (prompt is None) == (data is None):
        raise LayerscopeError("lens needs something to read: give a prompt or data, one of the two")
    if prompt is not None and (not isinstance(prompt, str) or not prompt.strip()):
        raise LayerscopeError("the prompt is empty: give a text of at least one word")
    if asked.out is not None:
        STORE.folder(asked.out)
    reporter = reporting(asked.progress)
    loaded = load(asked.model, asked.of(LoadOptions), asked.processor)
    corpus = (
        open_corpus(data, text_column=asked.text_column, label_column=asked.label_column)
        if prompt is None
        else Corpus("prompt", "text", (prompt,), ("prompt",))
    )
    shown = corpus.take(range(min(asked.samples, len(corpus))))
    layered = find_layers(loaded, corpus.modality, shown.samples, asked.of(Override), max_length=asked.max_length)
    if layered.lens is None:
        raise LayerscopeError(_headless(layered))
    if layered.lens.kind == "pooled" and corpus.modality == "text":
        shown = paired(shown, data, asked.text_column)
    notes = [*shown.notes, *layered.notes]
    if len(shown) < len(corpus):
        notes.append(f"the first {count(len(shown), 'sample')} of {len(corpus):,} are read; `samples` changes that")
    for note in notes:
        reporter.say(note)
    with evaluating(layered.module), reporter.bar("every layer", len(shown), "samples") as advance:
        read = Subjects(layered, shown, asked.tokens, whole=prompt is not None and asked.max_length is None)
        reading = reading_of(layered, read, None if prompt is not None else corpus.name, asked.top, notes, advance)
    for note in read.notes:
        reporter.say(note)
    if asked.out is not None:
        reading.save(asked.out)
    return reading


def _headless(model: LayeredModel) -> str:
    several = len(model.parts) > 1
    part = f"the {model.stack.part} of {model.loaded.name}" if several else model.loaded.name
    why = "".join(f" ({note})" for note in model.notes if "head" in note)
    other = f", or another `part` of {', '.join(model.parts)}" if several else ""
    return f"{part} has no head over its layers{why}: give a language model or a classifier{other}"
