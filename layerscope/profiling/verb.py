from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from layerscope.core import (
    DATA,
    IN_CODE,
    OUTPUT,
    SEED,
    Folder,
    Number,
    OneOf,
    Several,
    Whole,
    checked,
    processes,
)
from layerscope.core.option_kinds import Names, OneOrSome
from layerscope.core.options import Centrings, Estimators, LoadingReadingAndChat, spoken
from layerscope.profiling.options import ProfileOptions

if TYPE_CHECKING:
    from layerscope.runs import Run

METRIC = "Metrics"
STATES = "States instead of a model"
VIEWS = "Views"
PASS = "The pass"


@processes.as_one
def profile(
    model: Any = None,
    data: Annotated[Any, DATA] = None,
    *,
    states: Annotated[str | Path | None, STATES] = None,
    layers: Annotated[
        Iterable[int] | None, Several(Whole(0), such_as="0,8,16,24"), STATES
    ] = None,
    labels: Annotated[Iterable[Any] | None, IN_CODE] = None,
    processor: Annotated[Any, IN_CODE] = None,
    samples: Annotated[int | str | None, Whole(2, words=("all",)), DATA] = 1000,
    chunk: Annotated[int | None, Whole(2), DATA] = None,
    repeat_tokens: Annotated[float | None, Number(0, 1), DATA] = None,
    random_tokens: Annotated[float | None, Number(0, 1), DATA] = None,
    prompt: Annotated[str, DATA] = "",
    metrics: Annotated[str | Iterable[str], METRIC] = "default",
    pooling: Annotated[str, METRIC] = "auto",
    alpha: Annotated[
        float | Iterable[float], Several(Number(1), such_as="1 or 1,2"), METRIC
    ] = 1.0,
    rows: Annotated[
        str | Iterable[str], Names(("unit", "raw", "centered")), METRIC
    ] = "unit",
    cka: Annotated[Estimators, METRIC] = "debiased",
    cosine: Annotated[Centrings, METRIC] = "centered",
    exclude_sinks: Annotated[bool, METRIC] = False,
    lens_tokens: Annotated[
        int | str | None, Whole(1, words=("all", "auto")), METRIC
    ] = "auto",
    sublayers: Annotated[bool, METRIC] = False,
    ablate: Annotated[str | None, OneOf(("sinks",)), METRIC] = None,
    views: Annotated[int, Whole(0, 1000), VIEWS] = 2,
    view_samples: Annotated[int, Whole(2), VIEWS] = 1000,
    batch_size: Annotated[int | None, Whole(1), PASS] = None,
    seed: Annotated[int, SEED, PASS] = 0,
    keep_states: Annotated[
        str, OneOrSome(("all", "none"), "sample", least=2), PASS
    ] = "all",
    store_dtype: Annotated[str, OneOf(("float32", "float16")), PASS] = "float32",
    out: Annotated[str | Path | None, Folder(), OUTPUT] = None,
    progress: Annotated[bool, IN_CODE] = True,
    command: Annotated[str, IN_CODE] = "",
    **shared: Unpack[LoadingReadingAndChat],
) -> "Run":
    """Measure every layer of a model over your data in one pass.

    Processes started by torchrun or accelerate share the work, each calling this with the same
    arguments. The run is the same as that of one process, except for the last bits if the number of
    threads differs.

    Args:
        model: hub name, local folder, PEFT adapter folder, or minilm, which comes with the package;
            in Python also a loaded model, SentenceTransformer or CrossEncoder, or any
            torch.nn.Module with a stack of blocks.
        data: CSV, TSV, JSONL, Parquet or text file; folder of images or sounds;
            hf:name/config:split; stdlib-docs or digits, which are the default for text and image
            models; in Python also samples in memory.
        states: folder or file of states that another engine wrote, read instead of running a model:
            vLLM's requests, .npy, or a folder of extract; data is then a table of their texts
            and labels, if any.
        layers: layer numbers of the states, in order, if their files do not say; 0 is the embedding
            output.
        labels: a class for each sample of data in memory; a table has them in a column.
        processor: tokenizer, image processor or feature extractor of a model given as an object.
        samples: number of samples, drawn with the seed, or all.
        chunk: pack running text into windows of this many tokens; by default 256 for language
            models.
        repeat_tokens: probability of replacing each token by one token drawn once from its own
            sample.
        random_tokens: probability of replacing each token by a random one of the vocabulary.
        prompt: text prepended to every text.
        metrics: metrics to compute: default, seven (those of Layer by Layer), all, or names
            separated by commas; valley and causal_depth, which change how the model runs, are in no
            set.
        pooling: how tokens become one vector: auto (as in the model itself), or any of mean, cls,
            last, first, separated by commas.
        alpha: orders of the Rényi entropies, such as 1 or 1,2.
        rows: how vectors are scaled before an entropy: unit (to unit length), raw (not at all),
            centered (minus their mean, then to unit length), or several, separated by commas.
        cka: estimators of CKA: debiased, biased (equation 3 of Tracing Representation Progression),
            or both.
        cosine: how states enter cosines and angles: centered (minus their layer's mean),
            uncentered, or both.
        exclude_sinks: leave out tokens whose norm is over 10 times their sample's median.
        lens_tokens: number of token positions read through the head, or all; auto reads all if that
            takes seconds, else a share.
        sublayers: also measure inside each block: what attention and MLP add, and the stream between.
        ablate: what to leave out: sinks, to measure valley also in a forward without the MLP writes
            that make tokens massive.
        views: augmentations of each sample, for InfoNCE, LiDAR and DiME; 0 leaves them out.
        view_samples: number of samples that get views.
        batch_size: samples per forward; by default fitted to their length.
        seed: random seed.
        keep_states: samples whose pooled states are kept: all that are drawn; or none or sample:N (N
            of them), for which data of any size are streamed, and metrics that are not sums over
            samples, such as similarities and probes, use those N, or 1,000.
        store_dtype: data type of the states in the run folder.
        out: run folder, by default runs/MODEL-DATA; repeating the call resumes the run.
        progress: show progress on standard error.
        command: the command line that asks for this run, kept in the run folder; by default the
            call itself.
        **shared: how the model is loaded and the samples are read: `LoadingReadingAndChat`.

    Raises:
        LayerscopeError: for every wrong input, in one line that says how to fix it.

    Example:
        >>> run = layerscope.profile("minilm", "reviews.csv", out="runs/minilm", views=0, progress=False)
        >>> run
        Run('runs/minilm': all-MiniLM-L6-v2, 6 layers, reviews)
        >>> run.metric("linear_probe").index.tolist()
        [0, 1, 2, 3, 4, 5, 6]

    """
    call = dict(locals())
    call["command"] = command or spoken(profile, call)
    options = checked(profile, call, ProfileOptions)
    from layerscope.core.folder_lock import refuse_held

    refuse_held(options.out)
    from layerscope.profiling.pipeline import run_profile

    return run_profile(options)
