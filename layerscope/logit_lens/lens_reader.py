from __future__ import annotations

from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Console, Silent, Teller
from layerscope.inputs import Corpus, open_corpus
from layerscope.inputs.corpus import count
from layerscope.inputs.pairs import paired
from layerscope.logit_lens.reading import STORE, Reading
from layerscope.logit_lens.subjects import Subjects
from layerscope.logit_lens.tables import reading_of
from layerscope.models import LayeredModel, LoadOptions, Override, find_layers, load
from layerscope.models.capture import evaluating

PROBE_SAMPLES = 8


def lens(
    model: Any,
    prompt: str | None = None,
    data: Any = None,
    *,
    tokens: int = 0,
    top: int = 5,
    samples: int = 8,
    max_length: int | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    processor: Any = None,
    part: str | None = None,
    blocks: str | None = None,
    norm: str | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    out: str | Path | None = None,
    progress: bool = True,
) -> Reading:
    """Return what every layer would predict, read by the model's own head, and from which layer on it stays.

    One forward a sample; then each layer's states go through all that the model runs after its last block. Of the last
    layer that gives the model's own logits, to the bit where a sample has up to 67 million of them.

    Args:
        model: as for `profile`, with a head over its layers: a language model, masked or not, or a classifier.
        prompt: a text; [MASK] stands for the model's mask.
        data: samples instead, as for `profile`; the first of them are read.
        tokens: continue each text greedily by so many tokens before it is read; of models that predict the next one.
        top: predictions kept at each layer.
        samples: of the data, the first so many.
        max_length: tokens of a text at most; None is 512 of data and of a prompt what the model has positions for.
        text_column: of a table; None is guessed.
        label_column: of a table; None is guessed.
        processor: tokenizer, image processor or feature extractor of a model given as an object.
        part: which stack of blocks, where a model has several.
        blocks: path of the module that holds the blocks.
        norm: path of the final norm, or "none".
        revision: of a hub model.
        dtype: of the weights.
        device: where the model is run.
        trust_remote_code: let the checkpoint's own code run.
        allow_pickle: load pickled weights.
        out: a folder for the tables; None writes nothing.
        progress: tell what happens on standard error, with a bar.

    Raises:
        LayerscopeError: for every wrong input, in one line with the mend.

    Example:
        >>> reading = layerscope.lens("tiny-gpt2", "the food was good", progress=False)
        >>> print(reading.summary)
        3 of 4 tokens settle before the last layer; on average at layer 1.5 of 3

    """
    _check(prompt, data, {"tokens": (tokens, 0), "top": (top, 1), "samples": (samples, 1)})
    if out is not None:
        STORE.folder(out)
    teller: Teller = Console() if progress else Silent()
    loaded = load(model, LoadOptions(revision, dtype, device, trust_remote_code, allow_pickle), processor)
    corpus = _corpus(prompt, data, text_column, label_column)
    shown = corpus.take(range(min(samples, len(corpus))))
    probed = [shown.samples[i] for i in range(min(PROBE_SAMPLES, len(shown)))]
    layered = find_layers(
        loaded, corpus.modality, probed, Override(part, blocks, norm), max_length=max_length, prompt=""
    )
    if layered.lens is None:
        raise LayerscopeError(_headless(layered))
    if layered.lens.kind == "pooled" and corpus.modality == "text":
        shown = paired(shown, data, text_column)
    notes = [*shown.notes, *layered.notes]
    if len(shown) < len(corpus):
        notes.append(f"the first {count(len(shown), 'sample')} of {len(corpus):,} are read: --samples reads more")
    for note in notes:
        teller.say(note)
    with evaluating(layered.module), teller.bar("every layer", len(shown), "samples") as advance:
        read = Subjects(layered, shown, tokens, whole=prompt is not None and max_length is None)
        reading = reading_of(layered, read, None if prompt is not None else corpus.name, top, notes, advance)
    for note in read.notes:
        teller.say(note)
    if out is not None:
        reading.save(out)
    return reading


def _check(prompt: str | None, data: Any, numbers: dict[str, tuple[Any, int]]) -> None:
    if prompt is None and data is None:
        raise LayerscopeError('lens needs something to read: give --prompt "…" or --data FILE')
    if prompt is not None and data is not None:
        raise LayerscopeError("lens reads either --prompt or --data: leave one of the two out")
    if prompt is not None and (not isinstance(prompt, str) or not prompt.strip()):
        raise LayerscopeError("--prompt is empty: give a text of one word or more")
    for name, (value, least) in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise LayerscopeError(f"{name} {value!r} is not valid: give a whole number of {least} or more")


def _corpus(prompt: str | None, data: Any, text_column: str | None, label_column: str | None) -> Corpus:
    if prompt is None:
        return open_corpus(data, text_column=text_column, label_column=label_column)
    return Corpus("prompt", "text", (prompt,), ("prompt",))


def _headless(model: LayeredModel) -> str:
    why = next((note for note in model.notes if "head" in note), "")
    part = f"the {model.stack.part} of {model.loaded.name}" if len(model.parts) > 1 else model.loaded.name
    return f"{part} has no head over its layers{f' ({why})' if why else ''}: give a language model or a classifier" + (
        f", or another --part of {', '.join(model.parts)}" if len(model.parts) > 1 else ""
    )
