"""The work of `generate`: continue texts at every depth, and measure the continuations."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core.errors import LayerscopeError, count
from layerscope.core.options import Asked, declared
from layerscope.core.progress import Reporter, reporting
from layerscope.core.saved import typed
from layerscope.generation.decoder import (
    check_room,
    layers_of,
    open_decoder,
    open_language_model,
    token_ids,
)
from layerscope.generation.draft_report import open_draft_report
from layerscope.generation.generation import MEASURED, STORE, TEXTS, Generation
from layerscope.generation.sampling import Continued, Drafts, Sampling, continued
from layerscope.generation.scoring import Scores, scores_of
from layerscope.generation.verb import generate
from layerscope.inputs import Corpus, draw, open_corpus, pack
from layerscope.logit_lens.subjects import following
from layerscope.metrics import coherence, diversity
from layerscope.metrics.arrays import mean
from layerscope.models import LayeredModel, LoadOptions, load
from layerscope.models.capture import evaluating
from layerscope.models.encode import TextEncoder
from layerscope.profiling.identity import weights_fingerprint

LONGEST, WINDOW = 512, 256
"""Most tokens of a text, and of a window of running text, where no `max_length` is given."""
FEWEST = 4
"""Fewest new tokens with a 4-gram, which diversity needs."""
Embed = Callable[[Sequence[str]], Tensor]


class Given(NamedTuple):
    """Texts as token ids, their beginnings that are continued, as ids and as text, and notes on what was left out."""

    names: Sequence[str]
    rows: Sequence[Sequence[int]]
    prompts: Sequence[list[int]]
    texts: Sequence[str]
    notes: tuple[str, ...] = ()


def run_generate(asked: Asked) -> Generation:
    """Run `generate` with checked options."""
    corpus = _opened(asked)
    if asked.out is not None:
        STORE.folder(asked.out)
    embed = _embedder(asked) if asked.measure else None
    reporter, sampling = reporting(asked.progress), asked.of(Sampling)
    model = open_language_model(asked)
    layers = layers_of(model, asked.layers)
    given = (
        _from_prompts(model, asked.prompt) if corpus is None else from_data(model, corpus, asked)
    )
    check_room(model, given.prompts, "prompt", sampling.max_new_tokens)
    for note in given.notes:
        reporter.say(note)
    scores = scores_of(model, given.rows, layers, reporter) if asked.measure else None
    drafts = _drafts(model, layers, asked, reporter)
    if asked.drafts is not None and drafts is None:
        given = given._replace(
            notes=(*given.notes, f"plain decoding: drafts do not pay, according to {asked.drafts}")
        )
    tables = [_table(model, given, layer, sampling, reporter, drafts) for layer in layers]
    texts = pd.concat(tables, ignore_index=True)
    if embed is not None:
        texts["coherence"], texts["diversity"] = (
            _coherences(texts, embed),
            [*map(_diversity, texts["ids"])],
        )
    found = Generation(
        model=model.loaded.name,
        data=None if corpus is None else corpus.name,
        depth=model.stack.depth,
        layers=tuple(layers),
        sampling=asdict(sampling),
        prefix=None if corpus is None else asked.prefix,
        encoder=str(asked.encoder)
        if isinstance(asked.encoder, str | Path)
        else type(asked.encoder).__name__,
        texts=typed(texts, TEXTS),
        measures=_measures(texts, scores),
        notes=given.notes if drafts is None else (*given.notes, drafts.summary),
    )
    if asked.out is not None:
        found.save(asked.out)
    return found


def _opened(asked: Asked) -> Corpus | None:
    """Return the data, None where prompts are given."""
    if (asked.prompt is None) == (asked.data is None):
        raise LayerscopeError("generate needs texts to continue: give either a prompt or data")
    if not asked.measure and asked.encoder != declared(generate)["encoder"].default:
        raise LayerscopeError("`encoder` measures coherence: add `measure=True`, or leave it out")
    if asked.measure and asked.max_new_tokens < FEWEST:
        short = f"`max_new_tokens={asked.max_new_tokens}`"
        raise LayerscopeError(
            f"{short} is too short for diversity, which counts 4-grams: give at least {FEWEST}"
        )
    return None if asked.data is None else open_texts(asked)


def open_texts(asked: Asked) -> Corpus:
    """Return the data of a call; raises `LayerscopeError` for samples that are not texts."""
    corpus = open_corpus(asked.data, text_column=asked.text_column, label_column=asked.label_column)
    if corpus.modality != "text":
        raise LayerscopeError(
            f"{corpus.name} holds {corpus.modality} samples: a language model continues texts"
        )
    return corpus


def _from_prompts(model: LayeredModel, prompt: str | Sequence[str]) -> Given:
    texts = [prompt] if isinstance(prompt, str) else prompt
    rows = token_ids(model, texts, "prompt")
    return Given([*map(str, range(len(rows)))], rows, rows, texts)


def from_data(model: LayeredModel, corpus: Corpus, asked: Asked) -> Given:
    """Return texts drawn from the data, running text packed; one of a single token leaves nothing to predict."""
    assert isinstance(model.encoder, TextEncoder) and model.max_length is not None
    if corpus.running:
        corpus = pack(
            corpus, model.encoder.tokenizer, min(asked.max_length or WINDOW, model.max_length)
        )
    corpus = draw(corpus, None if asked.samples == "all" else asked.samples, asked.seed)
    most = min(asked.max_length or LONGEST, model.max_length)
    every = [row[:most] for row in model.encoder.ids(corpus.samples)]
    kept = [i for i, row in enumerate(every) if len(row) > 1]
    if not kept:
        raise LayerscopeError(
            f"{corpus.name} holds no text of two tokens: there is nothing to predict"
        )
    short = f"{count(len(every) - len(kept), 'text')} of a single token left out"
    notes = (*corpus.notes, short) if len(kept) < len(every) else corpus.notes
    rows = [every[i] for i in kept]
    prompts = [row[: asked.prefix] for row in rows]
    texts = [
        following(model.encoder.tokenizer, [], prompt, skip_special_tokens=True)
        for prompt in prompts
    ]
    return Given([corpus.names[i] for i in kept], rows, prompts, texts, notes)


def continuations(
    model: LayeredModel,
    prompts: Sequence[list[int]],
    layer: int,
    sampling: Sampling,
    reporter: Reporter,
) -> list[Continued]:
    """Return how the model cut at a layer continues each prompt; only this function knows how depths are decoded."""
    found: dict[int, Continued] = {}
    with evaluating(model.module), reporter.bar(f"layer {layer}", len(prompts), "texts") as advance:
        decoder = open_decoder(model, layer)
        if not decoder.cached:
            reporter.say(
                f"layer {layer}: cached logits differ from those of the whole text, so every step reads the whole text"
            )
        for batch in sampling.batches([len(prompt) for prompt in prompts], decoder.alone):
            chosen = sampling.chooser(batch)
            found |= continued(
                decoder, {i: prompts[i] for i in batch}, chosen, sampling.max_new_tokens
            )
            advance(len(batch))
    return [found[i] for i in range(len(prompts))]


def _drafts(
    model: LayeredModel, layers: Sequence[int], asked: Asked, reporter: Reporter
) -> Drafts | None:
    """Return what drafts, if asked for; raises `LayerscopeError` where it is not the last layer's text."""
    layer, tokens, threshold, lens = (
        asked.draft_layer,
        asked.draft_tokens,
        asked.draft_threshold,
        asked.draft_lens,
    )
    given = {
        "draft_tokens": tokens != "auto",
        "draft_threshold": threshold is not None,
        "draft_lens": lens is not None,
    }
    if (layer is None or asked.drafts is not None) and any(given.values()):
        name = next(name for name, there in given.items() if there)
        raise LayerscopeError(
            f"`{name}` needs a layer that drafts: try `draft_layer='auto'`, without `drafts`"
        )
    if asked.drafts is not None:
        if layer is not None:
            raise LayerscopeError(
                "`drafts` and `draft_layer` both say which layer drafts: give one of the two"
            )
        found = open_draft_report(asked.drafts)
        if found.weights != weights_fingerprint(model.module, torch.bfloat16):
            raise LayerscopeError(
                f"{str(asked.drafts)!r} is about another model, {found.model}: run layerscope exits"
            )
        layer, tokens, threshold = (
            found.layer if found.pays else None,
            found.draft_tokens,
            found.threshold or None,
        )
        lens = found.lens or None
        if layer is not None and found.batch_size != asked.batch_size:
            reporter.say(
                f"{asked.drafts} was measured at batch size {found.batch_size}, and this is {asked.batch_size}: "
                "the gain will differ"
            )
    if layer is None:
        return None
    if list(layers) != [model.stack.depth]:
        raise LayerscopeError("drafts speed up the last layer's text: leave `layers` out")
    return Drafts(model, layer, tokens, threshold, lens)


def _table(
    model: LayeredModel,
    given: Given,
    layer: int,
    sampling: Sampling,
    reporter: Reporter,
    drafts: Drafts | None,
) -> pd.DataFrame:
    """Return the rows of one layer."""
    if drafts is None:
        made = continuations(model, given.prompts, layer, sampling, reporter)
    else:
        made = drafts.continuations(given.prompts, sampling, reporter)
    read = partial(following, getattr(model.encoder, "tokenizer", None), skip_special_tokens=True)
    columns = {
        "layer": layer,
        "sample": given.names,
        "prompt": given.texts,
        "text": [read(prompt, one.ids) for prompt, one in zip(given.prompts, made, strict=True)],
        "prompt_ids": [tuple(prompt) for prompt in given.prompts],
        "ids": [one.ids for one in made],
        "log_probs": [one.log_probs for one in made],
        "coherence": np.nan,
        "diversity": np.nan,
    }
    return pd.DataFrame(columns)


def _embedder(asked: Asked) -> Embed:
    """Return what embeds texts; raises `LayerscopeError` where `encoder` is no sentence encoder."""
    served = load(asked.encoder, LoadOptions(device=asked.device)).served
    if served is None:
        name = f"`encoder={asked.encoder!r}`" if isinstance(asked.encoder, str) else "the `encoder`"
        raise LayerscopeError(
            f"{name} is not a sentence encoder: give a sentence-transformers model, such as minilm"
        )

    def embed(texts: Sequence[str]) -> Tensor:
        found: Tensor = served.encode(list(texts), convert_to_tensor=True, show_progress_bar=False)
        return found

    return embed


def _coherences(texts: pd.DataFrame, embed: Embed) -> NDArray[np.float64]:
    """Return the cosine of each prompt and its continuation, NaN where one of them has no word."""
    found = np.full(len(texts), np.nan)
    said = texts["prompt"].str.strip().ne("") & texts["text"].str.strip().ne("")
    if said.any():
        own = texts[said]
        prompts, which = np.unique(own["prompt"].to_numpy(dtype=str), return_inverse=True)
        found[said] = (
            coherence(embed(prompts.tolist())[which], embed(own["text"].tolist())).cpu().numpy()
        )
    return found


def _diversity(ids: Sequence[int]) -> float:
    return diversity(ids) if len(ids) >= FEWEST else np.nan


def _measures(texts: pd.DataFrame, scores: Scores | None) -> pd.DataFrame:
    """Return a row for each layer and measure; none where nothing was measured."""
    rows: list[tuple[Any, ...]] = []
    for i, layer in enumerate(() if scores is None else scores.layers):
        own = texts[texts["layer"] == layer]
        assert scores is not None
        accuracy, perplexity = (stderr[i] for stderr in scores.stderrs)
        rows += [
            (layer, "accuracy", scores.accuracy[i], accuracy, scores.tokens),
            (layer, "perplexity", scores.perplexity[i], perplexity, scores.tokens),
            *(
                (layer, name, *mean(torch.tensor(own[name].to_numpy())))
                for name in ("coherence", "diversity")
            ),
        ]
    return typed(pd.DataFrame(rows, columns=[*MEASURED]), MEASURED)
