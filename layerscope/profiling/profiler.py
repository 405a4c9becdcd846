from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Console, Silent, Teller
from layerscope.inputs import Corpus, draw, make_extreme, open_corpus, pack
from layerscope.inputs.corpus import count, folder_name
from layerscope.inputs.extreme import Extreme
from layerscope.inputs.views import DEFAULT_SHARE, check_views
from layerscope.models import LayeredModel, Loaded, LoadOptions, Override, find_layers, load, vectors_for
from layerscope.models.encode import TextEncoder, modality_of
from layerscope.profiling.available import check_available
from layerscope.profiling.call import spoken
from layerscope.profiling.identity import Origin, describe, refuse_another
from layerscope.profiling.job import Job
from layerscope.profiling.options import Options, options_from
from layerscope.profiling.passing import run_pass
from layerscope.profiling.start import open_or_start, tell_broken
from layerscope.profiling.tables import write_tables
from layerscope.runs import Run
from layerscope.runs.lock import locked

WINDOW = 256
"""Running text is packed into windows of this many tokens for a language model."""
PROBE_SAMPLES = 8
DEFAULT_DATA = {"text": "stdlib-docs", "image": "digits"}


@processes.as_one
def profile(
    model: Any,
    data: Any = None,
    *,
    labels: Iterable[Any] | None = None,
    processor: Any = None,
    out: str | Path | None = None,
    metrics: str | Iterable[str] = "default",
    pooling: str = "auto",
    max_length: int | None = None,
    batch_size: int | None = None,
    samples: int | str | None = 1000,
    views: int = 2,
    view_samples: int = 1000,
    view_kinds: str | Iterable[str] | None = None,
    view_share: float = DEFAULT_SHARE,
    dtype: str = "auto",
    device: str = "auto",
    seed: int = 0,
    alpha: float | Iterable[float] = 1.0,
    exclude_sinks: bool = False,
    prefixes: Iterable[int] | None = None,
    store_dtype: str = "float32",
    lens_tokens: int | str | None = "auto",
    entropy_samples: int | None = None,
    prompt: str = "",
    chunk: int | None = None,
    repeat_tokens: float | None = None,
    random_tokens: float | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    part: str | None = None,
    blocks: str | None = None,
    norm: str | None = None,
    sublayers: bool = False,
    revision: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    progress: bool = True,
    command: str = "",
) -> Run:
    """Measure every layer of a model over a corpus in one pass and return the run.

    Processes that torchrun or accelerate started share the work, each calling this with the same arguments: the run is
    that of one process, but for the last bits where a process has another number of threads.

    Args:
        model: a hub name, a local folder (transformers, sentence-transformers or PEFT adapter), a loaded
            `PreTrainedModel` or `SentenceTransformer`, any `torch.nn.Module` with a stack of blocks, or "minilm".
        data: texts, images, sounds or arrays in memory, a file, a folder, an archive, `hf:name/config:split`,
            "stdlib-docs" or "digits"; None is one of the last two, by what the model reads.
        processor: tokenizer, image processor or feature extractor, where the model is an object.
        labels: a class for each sample of data in memory; a table has them in a column.
        out: the run folder; None is `runs/<model>-<data>`, of data in memory with a short digest of them. The same call
            on it goes on where it stopped.
        metrics: "default", "seven" (Layer by Layer), "all", of each what applies; or names.
        pooling: "auto" (what the model itself uses), or some of mean, cls, last, first with commas between.
        max_length: tokens per text at most; None is the SentenceTransformer's own, else min(tokenizer, positions, 512).
        batch_size: samples per forward; None fits them to their length.
        samples: how many seeded samples to take, or "all".
        views: augmentations of each of `view_samples` seeded samples, for InfoNCE, LiDAR and DiME; 0 is none.
        view_samples: how many samples get views.
        view_kinds: kinds of augmentation; None is all of the modality's.
        view_share: share of a text's words that an augmentation changes.
        dtype: of the weights; "auto" is float32 on a CPU, else the checkpoint's own.
        device: "auto", "cpu", "cuda:0", or "map" to spread the model over what is there.
        seed: of everything drawn.
        alpha: orders of the Rényi entropies, 1 or more.
        exclude_sinks: leave tokens of more than 10 times their sample's median norm out of entropy and mean.
        prefixes: numbers of tokens; prompt entropy is measured over each sample's first so many as well.
        store_dtype: "float32", or "float16" (each vector's norm beside it in float32).
        lens_tokens: token positions read through a language model's head; "auto" is all of them where the head
            takes seconds for that, else 1/32 of them, 256 to 4,096; None is all.
        entropy_samples: samples whose prompt entropy is computed; None is all on a CPU, 256 on a GPU (S₂: all).
        prompt: text put before every text.
        chunk: pack running text into windows of this many tokens (for language models 256 by default).
        repeat_tokens: the probability with which each token is replaced by one token of its own sample.
        random_tokens: the probability with which each token is replaced by one drawn from the vocabulary.
        text_column: column of a table that holds the texts.
        label_column: column that holds the labels.
        part: which stack of blocks, where a model has several: encoder, decoder, text, vision.
        blocks: path of the module that holds the blocks, where the probe is not to decide.
        norm: path of the final norm, or "none".
        sublayers: measure what comes inside each block too, after norm, attention, MLP and residual addition.
        revision: of a hub model.
        trust_remote_code: let the checkpoint's own code run.
        allow_pickle: load pickled weights, which can run code.
        progress: tell what happens on standard error, with bars.
        command: the command line that asks for this run, kept in the run folder; by default the call itself.

    Raises:
        LayerscopeError: for every wrong input, in one line with the mend.

    Example:
        >>> run = layerscope.profile("minilm", "reviews.csv", out="runs/minilm", views=0, progress=False)
        >>> run
        Run('runs/minilm': all-MiniLM-L6-v2, 6 layers, reviews)
        >>> run.metric("linear_probe").index.tolist()
        [0, 1, 2, 3, 4, 5, 6]

    """
    command = command or spoken(profile, locals(), leave_out=("progress", "command"))
    options = options_from(
        metrics, samples, alpha, lens_tokens, view_kinds, prefixes, pooling=pooling, max_length=max_length,
        batch_size=batch_size, views=views, view_samples=view_samples, view_share=view_share,
        dtype=dtype, seed=seed, exclude_sinks=exclude_sinks, store_dtype=store_dtype, entropy_samples=entropy_samples,
        prompt=prompt, chunk=chunk, repeat_tokens=repeat_tokens, random_tokens=random_tokens,
        part=part, blocks=blocks, norm=norm, sublayers=sublayers,
    )  # fmt: skip
    team = processes.team()
    teller: Teller = Console() if progress and team.leads else Silent()
    read = partial(open_corpus, labels=labels, text_column=text_column, label_column=label_column)
    weights = LoadOptions(revision, dtype, device, trust_remote_code, allow_pickle)
    corpus = None if data is None else read(data)  # wrong data is told before the model is loaded
    loaded = load(model, weights, processor)
    data = _default_data(loaded) if data is None else data
    corpus = corpus or read(data)
    check_views(corpus.modality, options.view_kinds, options.view_share)
    layered = find_layers(
        loaded,
        corpus.modality,
        [corpus.samples[i] for i in range(min(PROBE_SAMPLES, len(corpus)))],
        Override(part, blocks, norm),
        max_length=max_length,
        prompt=prompt,
        sublayers=sublayers,
    )
    vectors = vectors_for(layered, options.pooling, options.wants("pairs"))
    corpus = _extreme(draw(_windows(corpus, layered, options), options.samples, options.seed), layered, options)
    job = Job(layered, corpus, options, vectors)
    for note in check_available(options, layered, corpus):
        teller.say(note)
    manifest = describe(job, Origin(_named(model), _named(data), text_column, label_column, command))
    path = (
        Path(out) if out is not None else Path("runs") / folder_name(_called(loaded.name, corpus.name, data, manifest))
    )
    with locked(path) if team.leads else nullcontext():
        if team.leads:
            open_or_start(path, manifest, job, teller)
        team.meet()
        run = Run(path)
        refuse_another(path, run.info, manifest)
        run_pass(job, run.folder, teller, team=team)
        if team.leads:
            tell_broken(run, teller)
        write_tables(run, options, teller, team)
        team.meet()
    return run


def _named(given: Any) -> str:
    """Return a path or a name as it was given, of an object its kind."""
    return str(given) if isinstance(given, (str, Path)) else type(given).__name__


def _called(model: str, name: str, data: Any, manifest: dict[str, Any]) -> str:
    """Return what a run is called: data in memory all have one name, so that their contents tell them apart."""
    own = "" if isinstance(data, (str, Path)) else f"-{manifest['data']['fingerprint'][:8]}"
    return f"{model}-{name}{own}"


def _default_data(loaded: Loaded) -> str:
    modality = modality_of(loaded.module)
    if modality not in DEFAULT_DATA:
        raise LayerscopeError(
            f"{loaded.name} reads {modality}, and no such data come with layerscope: name some with --data"
        )
    return DEFAULT_DATA[modality]


def _windows(corpus: Corpus, model: LayeredModel, options: Options) -> Corpus:
    """Pack running text for a language model, or where it is asked for."""
    if corpus.modality != "text" or not (options.chunk or (corpus.running and model.is_language_model)):
        return corpus
    if options.chunk and not corpus.running:
        raise LayerscopeError("--chunk packs running text: this data has samples of its own, leave --chunk out")
    if options.prompt:
        raise LayerscopeError("--prompt goes before texts, and packed windows are none: leave one of the two out")
    window = min(options.chunk or WINDOW, model.max_length or WINDOW)
    return pack(corpus, model.loaded.processor_for("text"), window)


def _extreme(corpus: Corpus, model: LayeredModel, options: Options) -> Corpus:
    """Replace tokens where it is asked for."""
    kind: Extreme = "repeat" if options.repeat_tokens is not None else "random"
    share = options.repeat_tokens if kind == "repeat" else options.random_tokens
    if share is None:
        return corpus
    if not isinstance(model.encoder, TextEncoder):
        raise LayerscopeError(
            f"--{kind}-tokens is of texts, and {corpus.name} holds {corpus.modality} samples: leave it out"
        )
    if model.encoder.tokenizer is None:
        raise LayerscopeError(f"--{kind}-tokens needs the tokenizer of {model.loaded.name}: leave it out")
    if options.prompt:
        raise LayerscopeError(
            f"--prompt goes before texts, and --{kind}-tokens makes token ids of them: leave one of the two out"
        )
    encoder, total = model.encoder, len(corpus)
    encoder.lengths(corpus.samples)  # counts what is cut: the new ids tell it no more
    if encoder.cut:
        cut = f"{encoder.cut:,} of {total:,} texts are cut at {count(encoder.max_length, 'token')}"
        corpus = replace(corpus, notes=(*corpus.notes, cut))
    table = model.module.get_input_embeddings()  # type: ignore[operator]
    return make_extreme(
        corpus, kind, share, tokenizer=encoder.tokenizer, tokenised=encoder.ids, rows=table.num_embeddings,
        seed=options.seed,
    )  # fmt: skip
