"""The work of `generate`: continue texts at every depth, and measure the continuations."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core.errors import LayerscopeError, count
from layerscope.core.options import Reading
from layerscope.core.progress import Reporter, reporting
from layerscope.core.saved import typed
from layerscope.generation.decoder import (
    check_room,
    layers_of,
    open_decoder,
    open_language_model,
    token_ids,
)
from layerscope.generation.generation import MEASURED, STORE, TEXTS, Generation
from layerscope.generation.options import GenerateOptions, Sampling
from layerscope.generation.sampling import (
    Continued,
    chooser,
    continued,
    drafted,
    prompt_batches,
)
from layerscope.generation.scoring import Scores, scores_of
from layerscope.generation.speculation import SelfSpeculation
from layerscope.inputs import Corpus, draw, open_corpus, pack
from layerscope.logit_lens.subjects import following
from layerscope.metrics import coherence, diversity
from layerscope.metrics.arrays import mean
from layerscope.models import LayeredModel, LoadOptions, load
from layerscope.models.capture import evaluating
from layerscope.models.encode import TextEncoder

LONGEST, WINDOW = 512, 256
"""Most tokens of a text, and of a window of running text, where no `max_length` is given."""
FEWEST = 4
"""Fewest new tokens with a 4-gram, which diversity needs."""
Embed = Callable[[Sequence[str]], Tensor]


class Texts(NamedTuple):
    """Texts as token ids, their beginnings that are continued, as ids and as text, and notes on what was left out."""

    names: Sequence[str]
    rows: Sequence[Sequence[int]]
    prompts: Sequence[list[int]]
    beginnings: Sequence[str]
    notes: tuple[str, ...] = ()


def run_generate(options: GenerateOptions) -> Generation:
    """Continue texts at each depth, and measure the layers if that is wanted."""
    sampling = options.sampling
    _check(options)
    corpus = None if options.data is None else open_texts(options.data, options.reading)
    if options.out is not None:
        STORE.folder(options.out)
    embed = _embedder(options.encoder, options.load.device) if options.measure else None
    reporter = reporting(options.progress)
    model = open_language_model(
        options.model, options.processor, options.load, options.override
    )
    layers = layers_of(model, options.layers)
    if corpus is None:
        subjects = _from_prompts(model, options.prompt or [])
    else:
        longest = options.reading.get("max_length")
        subjects = from_data(
            model, corpus, options.samples, sampling.seed, options.prefix, longest
        )
    check_room(model, subjects.prompts, "prompt", sampling.max_new_tokens)
    for note in subjects.notes:
        reporter.say(note)
    scores = scores_of(model, subjects.rows, layers, reporter) if embed else None
    drafting, notes = options.drafting, subjects.notes
    if drafting.draft_layer is None:
        made = {
            layer: continuations(model, subjects.prompts, layer, sampling, reporter)
            for layer in layers
        }
    else:
        if layers != [model.stack.depth]:
            raise LayerscopeError(
                "drafts speed up the last layer's text: leave `layers` out"
            )
        chosen = drafting.draft_layer, drafting.draft_tokens
        speculation = SelfSpeculation(model.module, *chosen, fall_back="auto" in chosen)
        ids, report = drafted(model, speculation, subjects.prompts, sampling, reporter)
        made = {model.stack.depth: ids}
        rate = report.tokens / report.seconds
        notes = (*notes, f"{report}; {rate:,.0f} tokens per second")
    texts = pd.concat(
        [_table(model, subjects, layer, ids) for layer, ids in made.items()]
    )
    if embed is not None:
        texts["coherence"] = _coherences(texts, embed)
        texts["diversity"] = [*map(_diversity, texts["ids"])]
    encoder = options.encoder
    name = str(encoder) if isinstance(encoder, str | Path) else type(encoder).__name__
    generation = Generation(
        model=model.loaded.name,
        data=None if corpus is None else corpus.name,
        depth=model.stack.depth,
        layers=tuple(layers),
        sampling=asdict(sampling),
        prefix=None if corpus is None else options.prefix,
        encoder=name,
        texts=typed(texts.reset_index(drop=True), TEXTS),
        measures=_measures(texts, scores),
        notes=notes,
    )
    if options.out is not None:
        generation.save(options.out)
    return generation


def _check(options: GenerateOptions) -> None:
    """Refuse options that do not go together before anything is loaded."""
    drafting, new = options.drafting, options.sampling.max_new_tokens
    if (options.prompt is None) == (options.data is None):
        raise LayerscopeError(
            "generate needs texts to continue: give either a prompt or data"
        )
    if not options.measure and "encoder" in options.changed:
        raise LayerscopeError(
            "`encoder` measures coherence: add `measure=True`, or leave it out"
        )
    if options.measure and new < FEWEST:
        raise LayerscopeError(
            f"`max_new_tokens={new}` is too short for diversity, which counts 4-grams: give at least "
            f"{FEWEST}"
        )
    if drafting.draft_layer is None and "draft_tokens" in options.changed:
        raise LayerscopeError(
            "`draft_tokens` needs a layer that drafts: try `draft_layer='auto'`"
        )


def open_texts(data: Any, reading: Reading) -> Corpus:
    """Return data as texts; raises `LayerscopeError` for samples of another kind."""
    corpus = open_corpus(
        data,
        text_column=reading.get("text_column"),
        label_column=reading.get("label_column"),
    )
    if corpus.modality != "text":
        raise LayerscopeError(
            f"{corpus.name} holds {corpus.modality} samples: a language model continues texts"
        )
    return corpus


def _from_prompts(model: LayeredModel, prompt: str | Sequence[str]) -> Texts:
    texts = [prompt] if isinstance(prompt, str) else prompt
    rows = token_ids(model, texts, "prompt")
    return Texts([*map(str, range(len(rows)))], rows, rows, texts)


def from_data(
    model: LayeredModel,
    corpus: Corpus,
    samples: int | Literal["all"],
    seed: int,
    prefix: int,
    max_length: int | None,
) -> Texts:
    """Return texts drawn from the data, running text packed; one of a single token leaves nothing to predict."""
    assert isinstance(model.encoder, TextEncoder) and model.max_length is not None
    if corpus.running:
        window = min(max_length or WINDOW, model.max_length)
        corpus = pack(corpus, model.encoder.tokenizer, window)
    corpus = draw(corpus, None if samples == "all" else samples, seed)
    longest = min(max_length or LONGEST, model.max_length)
    every = [row[:longest] for row in model.encoder.ids(corpus.samples)]
    kept = [i for i, row in enumerate(every) if len(row) > 1]
    if not kept:
        raise LayerscopeError(
            f"{corpus.name} holds no text of two tokens: there is nothing to predict"
        )
    notes = corpus.notes
    if len(kept) < len(every):
        short = count(len(every) - len(kept), "text")
        notes = (*notes, f"{short} of a single token left out")
    rows = [every[i] for i in kept]
    prompts = [row[:prefix] for row in rows]
    read = partial(following, model.encoder.tokenizer, [], skip_special_tokens=True)
    return Texts(
        [corpus.names[i] for i in kept], rows, prompts, [*map(read, prompts)], notes
    )


def continuations(
    model: LayeredModel,
    prompts: Sequence[list[int]],
    layer: int,
    sampling: Sampling,
    reporter: Reporter,
) -> list[Continued]:
    """Return how the model cut at a layer continues each prompt; only this function knows how depths are decoded."""
    by_prompt: dict[int, Continued] = {}
    with (
        evaluating(model.module),
        reporter.bar(f"layer {layer}", len(prompts), "texts") as advance,
    ):
        decoder = open_decoder(model, layer)
        if not decoder.cached:
            reporter.say(
                f"layer {layer}: cached logits differ from those of the whole text, so every step reads the whole text"
            )
        for batch in prompt_batches(prompts, sampling, decoder.alone):
            rows, choose = {i: prompts[i] for i in batch}, chooser(sampling, batch)
            by_prompt |= continued(decoder, rows, choose, sampling.max_new_tokens)
            advance(len(batch))
    return [by_prompt[i] for i in range(len(prompts))]


def _table(
    model: LayeredModel, texts: Texts, layer: int, made: Sequence[Continued]
) -> pd.DataFrame:
    """Return the rows of one layer."""
    read = partial(
        following, getattr(model.encoder, "tokenizer", None), skip_special_tokens=True
    )
    pairs = zip(texts.prompts, made, strict=True)
    columns = {
        "layer": layer,
        "sample": texts.names,
        "prompt": texts.beginnings,
        "text": [read(prompt, one.ids) for prompt, one in pairs],
        "prompt_ids": [*map(tuple, texts.prompts)],
        "ids": [one.ids for one in made],
        "log_probs": [one.log_probs for one in made],
        "coherence": np.nan,
        "diversity": np.nan,
    }
    return pd.DataFrame(columns)


def _embedder(encoder: Any, device: str) -> Embed:
    """Return what embeds texts; raises `LayerscopeError` where `encoder` is no sentence encoder."""
    served = load(encoder, LoadOptions(device=device)).served
    if served is None:
        name = f"`encoder={encoder!r}`" if isinstance(encoder, str) else "the `encoder`"
        raise LayerscopeError(
            f"{name} is not a sentence encoder: give a sentence-transformers model, such as minilm"
        )

    def embed(texts: Sequence[str]) -> Tensor:
        vectors: Tensor = served.encode(
            list(texts), convert_to_tensor=True, show_progress_bar=False
        )
        return vectors

    return embed


def _coherences(texts: pd.DataFrame, embed: Embed) -> NDArray[np.float64]:
    """Return the cosine of each prompt and its continuation, NaN where one of them has no word."""
    cosines = np.full(len(texts), np.nan)
    worded = (
        texts["prompt"].str.strip().ne("") & texts["text"].str.strip().ne("")
    ).to_numpy()
    if worded.any():
        both = texts[worded]
        prompts, which = np.unique(
            both["prompt"].to_numpy(dtype=str), return_inverse=True
        )
        vectors = embed(prompts.tolist())[which]
        cosines[worded] = coherence(vectors, embed(both["text"].tolist())).cpu().numpy()
    return cosines


def _diversity(ids: Sequence[int]) -> float:
    return diversity(ids) if len(ids) >= FEWEST else np.nan


def _measures(texts: pd.DataFrame, scores: Scores | None) -> pd.DataFrame:
    """Return a row for each layer and measure; none where nothing was measured."""
    rows: list[tuple[Any, ...]] = []
    if scores is not None:
        accuracy, perplexity = scores.stderrs
        for i, layer in enumerate(scores.layers):
            rows += [
                (layer, "accuracy", scores.accuracy[i], accuracy[i], scores.tokens),
                (
                    layer,
                    "perplexity",
                    scores.perplexity[i],
                    perplexity[i],
                    scores.tokens,
                ),
            ]
            for name in ("coherence", "diversity"):
                values = texts.loc[texts["layer"] == layer, name].to_numpy()
                rows.append((layer, name, *mean(torch.tensor(values))))
    return typed(pd.DataFrame(rows, columns=[*MEASURED]), MEASURED)
