"""The work of `generate`: continue texts at every depth, and measure the continuations."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from layerscope.core import LayerscopeError, Reading, Reporter, count, reporting
from layerscope.generation.generation import MEASURED, STORE, Generation
from layerscope.generation.language_model import (
    check_room,
    language_model,
    layers_of,
    token_ids,
)
from layerscope.generation.options import GenerateOptions, Sampling
from layerscope.generation.sampling import (
    continued,
    follows_its_cache,
)
from layerscope.generation.scoring import Scores, scores_of
from layerscope.generation.speculated import Speculated
from layerscope.generation.speculation import SelfSpeculation
from layerscope.inputs import Corpus, draw, open_corpus, pack
from layerscope.metrics import coherence, diversity
from layerscope.metrics.arrays import mean
from layerscope.models import LayeredModel, LoadOptions, TextEncoder, evaluating, load
from layerscope.models.texts import following, refuse_chat
from layerscope.truncation.depth import depth_of

LONGEST = 512
"""Most tokens of a text where no `max_length` is given."""
WINDOW = 256
"""Tokens in a window of running text where no `max_length` is given."""
PROBE_TOKENS = 12
FEWEST = 4
"""Fewest new tokens with a 4-gram, which diversity needs."""


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
    corpus = None
    if options.data is not None:
        corpus = open_texts(options.data, options.reading)
    reporter = reporting(options.progress)
    # the judge of coherence is loaded first, so that nothing is written where it cannot be had
    served = None
    if options.measure:
        served = load("minilm", LoadOptions(device=options.load.device)).served
    loaded = load(options.model, options.load, options.processor)
    model = language_model(loaded, options.override)
    layers = layers_of(model, options.layers)
    data = None
    prefix = None
    if corpus is None:
        assert options.prompt is not None
        subjects = _from_prompts(model, options.prompt)
    else:
        data = corpus.name
        prefix = options.prefix
        subjects = from_data(
            model, corpus, options.samples, sampling.seed, prefix, options.reading
        )
    check_room(model, subjects.prompts, sampling.max_new_tokens)
    for note in subjects.notes:
        reporter.say(note)
    scores = None
    if options.measure:
        scores = scores_of(model, subjects.rows, layers, reporter)
    notes = subjects.notes
    prompts = subjects.prompts
    # every depth writes for itself, or drafts write the last one's text
    if options.draft_layer is None:
        decode = partial(continuations, model, prompts, sampling, reporter)
        tables = [_table(model, subjects, layer, decode(layer)) for layer in layers]
        texts = pd.concat(tables)
    elif layers == [model.depth]:
        speculation = SelfSpeculation(
            model.module,
            options.draft_layer,
            options.draft_tokens,
            fall_back="auto" in (options.draft_layer, options.draft_tokens),
        )
        ids, note = drafted(model, speculation, prompts, sampling, reporter)
        texts = _table(model, subjects, model.depth, ids)
        notes = (*notes, note)
    else:
        raise LayerscopeError(
            "drafts speed up the last layer's text: leave `layers` out"
        )
    if options.measure:
        texts["coherence"] = _coherences(texts, served)
        texts["diversity"] = [*map(_diversity, texts["ids"])]
    generation = Generation(
        model=model.name,
        data=data,
        depth=model.depth,
        layers=tuple(layers),
        sampling=asdict(sampling),
        prefix=prefix,
        texts=texts,
        measures=_measures(texts, scores),
        notes=notes,
    )
    if options.out is not None:
        generation.save(options.out)
    return generation


def _check(options: GenerateOptions) -> None:
    """Refuse options that do not go together, and a folder that holds other things, before anything is loaded."""
    if options.out is not None:
        STORE.folder(options.out)
    new = options.sampling.max_new_tokens
    if (options.prompt is None) == (options.data is None):
        raise LayerscopeError(
            "generate needs texts to continue: give either a prompt or data"
        )
    if options.measure and new < FEWEST:
        raise LayerscopeError(
            f"`max_new_tokens={new}` is too short for diversity, which counts 4-grams: give at least "
            f"{FEWEST}"
        )
    if options.draft_layer is None and "draft_tokens" in options.changed:
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
    """Return prompts as texts of which nothing but the beginning is known."""
    texts = prompt
    if isinstance(prompt, str):
        texts = [prompt]
    rows = token_ids(model, texts)
    names = [str(number) for number in range(len(rows))]
    return Texts(names, rows, rows, texts)


def from_data(
    model: LayeredModel,
    corpus: Corpus,
    samples: int | Literal["all"],
    seed: int,
    prefix: int,
    reading: Reading,
) -> Texts:
    """Return texts drawn from the data, running text packed; one of a single token leaves nothing to predict."""
    assert isinstance(model.encoder, TextEncoder) and model.max_length is not None
    max_length = reading.get("max_length")
    if corpus.running:
        refuse_chat(model)
        window = min(max_length or WINDOW, model.max_length)
        corpus = pack(corpus, model.encoder.tokenizer, window)
    if samples != "all":
        corpus = draw(corpus, samples, seed)
    longest = min(max_length or LONGEST, model.max_length)
    ids = [row[:longest] for row in model.encoder.ids(corpus.samples)]
    kept = [i for i, row in enumerate(ids) if len(row) > 1]
    if not kept:
        raise LayerscopeError(
            f"{corpus.name} holds no text of two tokens: there is nothing to predict"
        )
    notes = corpus.notes
    if len(kept) < len(ids):
        short = count(len(ids) - len(kept), "text")
        notes = (*notes, f"{short} of a single token left out")
    rows = [ids[i] for i in kept]
    prompts = [row[:prefix] for row in rows]
    read = partial(following, model.encoder.tokenizer, [], skip_special_tokens=True)
    names = [corpus.names[i] for i in kept]
    beginnings = [read(prompt) for prompt in prompts]
    return Texts(names, rows, prompts, beginnings, notes)


def continuations(
    model: LayeredModel,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    reporter: Reporter,
    layer: int,
) -> list[tuple[int, ...]]:
    """Return how the model cut at a layer continues each prompt; only this function knows how depths are decoded."""
    module: Any = model.module
    # a cut shares the weights of the whole
    if layer < model.depth:
        module = depth_of(model, kept=range(layer)).build(module, range(layer))
    most = sampling.batch_size
    assert model.lens is not None and model.max_length is not None
    seeded = torch.Generator().manual_seed(0)
    shape = 2, min(PROBE_TOKENS, model.max_length // 2)
    probe = torch.randint(model.lens.classes, shape, generator=seeded)
    if not model.batching:
        probe = probe[:1]
        most = 1

    bar = reporter.bar(f"layer {layer}", len(prompts), "texts")
    with evaluating(model.module), bar as advance:
        cached = follows_its_cache(module, probe.to(model.device))
        if not cached:
            reporter.say(
                f"layer {layer}: cached logits differ from those of the whole text, so every step reads the whole text"
            )
            most = 1
        return continued(
            module,
            prompts,
            sampling,
            most,
            advance,
            layer,
            do_sample=False,
            use_cache=cached,
        )


def drafted(
    model: LayeredModel,
    speculation: SelfSpeculation,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    reporter: Reporter,
) -> tuple[list[tuple[int, ...]], str]:
    """Return what continues each prompt by self-speculation, and a note on what was drafted for all of them."""
    total = Speculated()
    most = sampling.batch_size
    if not model.batching:
        most = 1
    settings: dict[str, Any] = {"do_sample": False}
    if sampling.top_p is not None:
        settings = {
            "do_sample": True,
            "top_p": sampling.top_p,
            "top_k": 0,
            "temperature": sampling.temperature,
        }
    bar = reporter.bar("self-speculation", len(prompts), "texts")
    with evaluating(model.module), torch.random.fork_rng(), bar as advance:

        def add(texts: int) -> None:
            nonlocal total
            total += speculation.report
            advance(texts)

        torch.manual_seed(sampling.seed)
        texts = continued(
            model.module,
            prompts,
            sampling,
            most,
            add,
            custom_generate=speculation,
            **settings,
        )
    rate = total.tokens / total.seconds
    return texts, f"{total}; {rate:,.0f} tokens per second"


def _table(
    model: LayeredModel, texts: Texts, layer: int, new_ids: Sequence[tuple[int, ...]]
) -> pd.DataFrame:
    """Return the rows of one layer."""
    read = partial(
        following, getattr(model.encoder, "tokenizer", None), skip_special_tokens=True
    )
    columns = {
        "layer": layer,
        "sample": texts.names,
        "prompt": texts.beginnings,
        "text": [*map(read, texts.prompts, new_ids)],
        "prompt_ids": [*map(tuple, texts.prompts)],
        "ids": new_ids,
    }
    return pd.DataFrame(columns)


def _coherences(texts: pd.DataFrame, served: Any) -> NDArray[np.float64]:
    """Return the cosine of each prompt and its continuation, NaN where one of them has no word."""
    embed = partial(served.encode, convert_to_tensor=True, show_progress_bar=False)
    cosines = np.full(len(texts), np.nan)
    words = texts[["prompt", "text"]].apply(lambda column: column.str.strip())
    worded = (words != "").all(axis=1).to_numpy()
    if worded.any():
        prompts = embed(texts.loc[worded, "prompt"].tolist())
        written = embed(texts.loc[worded, "text"].tolist())
        cosines[worded] = coherence(prompts, written).cpu().numpy()
    return cosines


def _diversity(ids: Sequence[int]) -> float:
    """Return the diversity of a continuation, NaN where it is too short for any."""
    if len(ids) < FEWEST:
        return np.nan
    return diversity(ids)


def _measures(texts: pd.DataFrame, scores: Scores | None) -> pd.DataFrame:
    """Return a row for each layer and measure; none where nothing was measured."""
    rows: list[tuple[Any, ...]] = []
    if scores is not None:
        accuracy, perplexity = scores.stderrs
        for i, layer in enumerate(scores.layers):
            n = scores.tokens
            at_layer = texts[texts["layer"] == layer]
            rows.append((layer, "accuracy", scores.accuracy[i], accuracy[i], n))
            rows.append((layer, "perplexity", scores.perplexity[i], perplexity[i], n))
            for name in ("coherence", "diversity"):
                values = torch.tensor(at_layer[name].to_numpy())
                rows.append((layer, name, *mean(values)))
    return pd.DataFrame(rows, columns=[*MEASURED])
