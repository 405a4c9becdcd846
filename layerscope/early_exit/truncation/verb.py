"""The verb `truncate`: one or several depths of a model, each written aside, checked, measured, and then named."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from layerscope.early_exit.truncation.agreement import Expected, expected_at
from layerscope.early_exit.truncation.card import write_card
from layerscope.early_exit.truncation.checkpoint import write_checkpoint
from layerscope.early_exit.truncation.depth import Depth, find_depth
from layerscope.early_exit.truncation.figures import Made, Truncated, measure
from layerscope.early_exit.truncation.onnx_file import write_onnx
from layerscope.early_exit.truncation.sentence import write_sentence_transformer
from layerscope.early_exit.truncation.source import Source, open_source
from layerscope.errors import LayerscopeError, choices
from layerscope.models import LoadOptions, Override
from layerscope.models.load import without_bars
from layerscope.progress import Console, Silent, Teller

__all__ = ["Truncated", "truncate", "truncate_layers"]
FORMATS = ("auto", "transformers", "sentence-transformers", "onnx")
SITES = ("normed", "raw")


def truncate(
    model_or_run: Any,
    layer: int,
    out: str | Path,
    format: str = "auto",  # noqa: A002  the word that every library has for it
    *,
    part: str | None = None,
    site: str = "normed",
    processor: Any = None,
    blocks: str | None = None,
    norm: str | None = None,
    revision: str | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    progress: bool = True,
) -> Path:
    """Write a model that ends at one layer, as a checkpoint that loads without layerscope, and return its folder.

    What is written gives the full model's layer `layer`, after the final norm where there is one, to 1e-5 in float32:
    it is loaded again and compared before it gets its name. Heads of classifiers and language models are kept, and read
    that layer. A model card in the folder tells what it costs beside the full model, measured.

    Args:
        model_or_run: a hub name, a local folder, "minilm", a loaded transformers model or SentenceTransformer, or a run
            (or its folder), whose model, part and scores are taken.
        layer: the last layer that is kept, 1 … L.
        out: the folder to write; it must not exist, or be empty.
        format: "transformers", "sentence-transformers", "onnx"; "auto" is what the model itself comes in.
        part: which stack of blocks, where a model has several.
        site: "normed"; or "raw", before the final norm, which only "onnx" can hold.
        processor: tokenizer, image processor or feature extractor of a transformers model given as an object.
        blocks: path of the module that holds the blocks, where the probe is not to decide.
        norm: path of the final norm, or "none".
        revision: of a hub model.
        device: where the model is run.
        allow_pickle: load pickled weights.
        progress: tell what happens on standard error.

    Raises:
        LayerscopeError: for every wrong input, and where no standard checkpoint can hold that layer, with the reason;
            nothing is left behind.

    """
    options = LoadOptions(revision, "float32", device, False, allow_pickle)
    (made,) = truncate_layers(
        model_or_run, [layer], out, format, override=Override(part, blocks, norm), site=site, processor=processor,
        options=options, progress=progress, folders=False,
    )  # fmt: skip
    return Path(made.path)


def truncate_layers(
    model_or_run: Any,
    layers: Sequence[int],
    out: str | Path,
    format: str = "auto",  # noqa: A002
    *,
    override: Override | None = None,
    site: str = "normed",
    processor: Any = None,
    options: LoadOptions | None = None,
    progress: bool = True,
    folders: bool = True,
) -> list[Truncated]:
    """Write a model at several depths into `out/layer-K`, all or none, and return what each costs and scores.

    As `truncate`, which says what the arguments are; with `folders` false the one layer is written to `out` itself.
    """
    _check_words(format, site)
    place = _free(Path(out).expanduser())
    teller: Teller = Console() if progress else Silent()
    loading = options or LoadOptions(dtype="float32")
    source = open_source(model_or_run, processor, override or Override(), loading)
    kept = checked_layers(layers, source.model.stack.depth)
    chosen = _format(format, site, source)
    for note in source.model.notes:
        teller.say(note)
    with without_bars(), _aside(place) as aside, teller.bar("layers", len(kept), "layers") as advance:
        made: list[Made] = []
        for layer in kept:
            folder = aside / f"layer-{layer}" if folders else aside
            made.append(Made(layer, _write(source, layer, chosen, site, folder), folder))
            advance(1)
        told = measure(source, made, chosen, site)
        for entry in told:
            write_card(source, entry, Path(entry.path))
    return [entry.at(place / Path(entry.path).relative_to(aside)) for entry in told]


def _write(source: Source, layer: int, format: str, site: str, folder: Path) -> Depth:  # noqa: A002
    folder.mkdir(exist_ok=True)
    heads = source.heads
    with heads.reading(source.module, layer) if heads is not None else nullcontext():
        expected: Expected = expected_at(source.model, layer, source.samples)
        depth = find_depth(source.module, source.model.stack, expected)
        if format == "onnx":
            write_onnx(source, depth, layer, site, folder)
        else:
            writers: dict[str, Callable[[Source, Depth, Expected, Path], None]] = {
                "transformers": write_checkpoint,
                "sentence-transformers": write_sentence_transformer,
            }
            writers[format](source, depth, expected, folder)
    if heads is not None and format == "transformers":
        heads.below(layer).save(folder)
    return depth


def _check_words(format: str, site: str) -> None:  # noqa: A002
    if format not in FORMATS:
        raise LayerscopeError(f"--format {format!r} does not exist{choices(str(format), FORMATS)}")
    if site not in SITES:
        raise LayerscopeError(f"--site {site!r} does not exist{choices(str(site), SITES)}")


def _format(asked: str, site: str, source: Source) -> str:
    own = "transformers" if source.model.loaded.served is None else "sentence-transformers"
    chosen = own if asked == "auto" else asked
    if site == "raw" and chosen != "onnx" and source.model.stack.norm is not None:
        raise LayerscopeError(
            f"--site raw is not what a standard checkpoint of {source.name} can yield: its final norm "
            f"({source.model.stack.norm}) follows the last block at any depth; take --site normed, or --format onnx"
        )
    return chosen


def checked_layers(layers: Sequence[Any], depth: int) -> list[int]:
    """Return layers in order, each once; raises `LayerscopeError` for what is none of 1 … L."""
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, int):
            raise LayerscopeError(f"layer {layer!r} is no whole number: give 1..{depth}")
        if not 0 <= layer <= depth:
            raise LayerscopeError(f"layer {layer} does not exist: this model has layers 0..{depth}")
        if layer == 0:
            raise LayerscopeError(
                f"layer 0 is what the first block reads: no block would be left of the model, give 1..{depth}"
            )
    if not layers:
        raise LayerscopeError(f"no layer is named: give one or several of 1..{depth}")
    return sorted(set(layers))


def _free(place: Path) -> Path:
    """Return where to write; a file, and a folder that holds anything, are refused."""
    try:
        if place.exists() and not place.is_dir():
            raise LayerscopeError(f"--out {str(place)!r} is a file: name a new folder")
        if place.is_dir() and any(place.iterdir()):
            raise LayerscopeError(f"--out {str(place)!r} exists and is not empty: name a new folder")
    except OSError as error:
        raise LayerscopeError(f"--out {str(place)!r} cannot be read ({error.strerror}): name a new folder") from error
    return place


@contextmanager
def _aside(place: Path) -> Iterator[Path]:
    """Yield a hidden folder beside a place, which gets its name where all goes well and is gone where not."""
    made = [above for above in place.absolute().parents if not above.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent))
    except OSError as error:
        raise LayerscopeError(
            f"--out {str(place)!r} cannot be written ({error.strerror}): name another folder"
        ) from error
    try:
        yield aside
        aside.chmod(0o755)  # a temporary folder is its maker's alone
        if place.is_dir():
            place.rmdir()  # it was empty before the long job; what came into it since is not ours to delete
        aside.rename(place)
    except OSError as error:
        raise LayerscopeError(
            f"--out {str(place)!r} cannot be written ({error.strerror or error}): make room or name another folder"
        ) from error
    finally:
        if aside.exists():
            shutil.rmtree(aside, ignore_errors=True)
            for above in made:
                if above.is_dir() and not any(above.iterdir()):
                    above.rmdir()
