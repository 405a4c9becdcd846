import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from layerscope.core import (
    DATA,
    IN_CODE,
    OUTPUT,
    Folder,
    LayerscopeError,
    OneOf,
    Several,
    Whole,
    checked,
    processes,
)
from layerscope.core.option_kinds import Kind, shown
from layerscope.core.options import LoadingAndReading, spoken
from layerscope.extraction.options import ExtractOptions

if TYPE_CHECKING:
    from layerscope.extraction.extraction import Extraction

STATES = "States"
WORK = "The work"
SITES = ("normed", "raw")


@dataclass(frozen=True)
class Shard(Kind):
    """Which of n equal shares of a job: I/N, counted from 0."""

    metavar = "I/N"

    def take(self, name: str, value: Any) -> Any:
        """Return both numbers."""
        text = (
            "/".join(map(str, value))
            if isinstance(value, (tuple, list))
            else str(value)
        )
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if match is None or int(match[1]) >= int(match[2]):
            raise LayerscopeError(
                f"{name} is {shown(value)}: give I/N with I from 0 to N - 1, such as 0/4"
            )
        return int(match[1]), int(match[2])


@processes.as_one
def extract(
    model: Any,
    data: Annotated[Any, DATA],
    layers: Annotated[
        int | str | Iterable[int], Several(Whole(), ("all",), "8,12 or -1"), STATES
    ],
    *,
    out: Annotated[str | Path, Folder(), OUTPUT],
    labels: Annotated[Iterable[Any] | None, IN_CODE] = None,
    processor: Annotated[Any, IN_CODE] = None,
    prompt: Annotated[str, DATA] = "",
    site: Annotated[str, OneOf(SITES), STATES] = "normed",
    pooling: Annotated[str, STATES] = "auto",
    tokens: Annotated[bool, STATES] = False,
    store_dtype: Annotated[
        str, OneOf(("float32", "float16", "bfloat16")), STATES
    ] = "float32",
    format: Annotated[str, OneOf(("safetensors", "parquet")), STATES] = "safetensors",
    batch_size: Annotated[int | None, Whole(1), WORK] = None,
    chunk_rows: Annotated[int | None, Whole(1), WORK] = None,
    shard: Annotated[str | tuple[int, int] | None, Shard(), WORK] = None,
    progress: Annotated[bool, IN_CODE] = True,
    command: Annotated[str, IN_CODE] = "",
    **shared: Unpack[LoadingAndReading],
) -> "Extraction":
    """Write the states of chosen layers for all your data, in one process or in many.

    Files and streams are read piece by piece, and blocks after the deepest layer are not run. The
    states are written in chunks, each complete or absent, and the same call resumes where it
    stopped. Processes that torchrun or accelerate started share the work.

    Args:
        model: hub name, local folder, PEFT adapter folder, or minilm, which comes with the package;
            in Python also a loaded model, SentenceTransformer or CrossEncoder, or any
            torch.nn.Module with a stack of blocks.
        data: CSV, TSV, JSONL, Parquet or text file; folder of such tables; folder of images
            or sounds; hf:name/config:split; stdlib-docs or digits; in Python also samples in
            memory and iterables of texts or dicts, such as a datasets.IterableDataset.
        layers: layers to keep, such as 8,12, or all; negative ones are counted from the end, -1 is
            the last.
        out: folder for the states; the same call on it resumes.
        labels: a class for each sample of data in memory; a table has them in a column.
        processor: tokenizer, image processor or feature extractor of a model given as an object.
        prompt: text prepended to every text.
        site: where a layer is read: normed (after the model's final norm, if it has one), or raw.
        pooling: how tokens become one vector: auto (as in the model itself), or any of mean, cls,
            last, first, separated by commas.
        tokens: keep the state of every token, with the token ids, instead of one vector per sample.
        store_dtype: data type of the states that are written.
        format: format of the files.
        batch_size: samples per forward; by default fitted to their length.
        chunk_rows: rows of the data per file; by default 1,024, and 128 with tokens.
        shard: compute only share I of N equal shares, such as 0/8; each may run anywhere. The
            last one marks the folder as whole; without this, the same call computes what is missing.
        progress: show progress on standard error.
        command: the command line that asks for this, kept in the folder; by default the call
            itself.
        **shared: how the model is loaded and the samples are read: `LoadingAndReading`.

    Raises:
        LayerscopeError: for every wrong input, in one line with the mend; chunks that are finished
            are kept.

    Example:
        >>> found = layerscope.extract("minilm", "reviews.csv", [3, -1], out="states", progress=False)
        >>> found
        Extraction('states': layers 3,6 of all-MiniLM-L6-v2, 24 samples of reviews)
        >>> from safetensors.numpy import load_file
        >>> load_file("states/chunks/000000.safetensors")["states"].shape
        (2, 24, 384)

    """
    call = dict(locals())
    call["command"] = command or spoken(extract, call, "shard")
    options = checked(extract, call, ExtractOptions)
    from layerscope.extraction.pipeline import run_extraction

    return run_extraction(options)
