from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from layerscope.core.errors import LayerscopeError, choices, near, refuse_dangling, unreadable
from layerscope.core.words import folder_name
from layerscope.inputs.arrays import memory_corpus
from layerscope.inputs.builtin import BUILT_IN, digits, stdlib_docs
from layerscope.inputs.columns import Columns, frame_corpus
from layerscope.inputs.corpus import Corpus
from layerscope.inputs.folders import archive_corpus, folder_corpus, is_archive
from layerscope.inputs.hub import hub_corpus
from layerscope.inputs.media import SPLITS, media_kind
from layerscope.inputs.samples import Lines, Modality
from layerscope.inputs.tables import PARQUET, TABLES, read_frame, read_text

_PLAIN_NAMES = SPLITS | {"all", "data", "input"}


def open_corpus(
    data: Any,
    *,
    labels: Iterable[Any] | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    modality: Modality | None = None,
) -> Corpus:
    """Return data of any kind as a `Corpus`, with every guess listed in its `notes`.

    `data` is a corpus, texts, images, sounds or array rows in memory (also `(samples, labels)`), a pandas
    frame, a `datasets.Dataset`, token ids, the path of a table, text file, folder or archive, `stdlib-docs`, `digits`
    or `hf:name/config:split`. Raises `LayerscopeError` for data that cannot be read.

    >>> from layerscope.inputs import open_corpus
    >>> corpus = open_corpus("reviews.csv")
    >>> len(corpus), corpus.modality, corpus.samples[0], corpus.labels[0]
    (24, 'text', 'the food was good', 'praise')
    >>> corpus.notes
    ("text column: 'text' (guessed)", "label column: 'label' (guessed)")
    """
    if modality is not None and modality not in (known := get_args(Modality)):
        raise LayerscopeError(f"modality {modality!r} does not exist{choices(str(modality), known)}")
    columns = Columns(text_column, label_column)
    if labels is not None and isinstance(data, (str, Path, Corpus)):
        raise LayerscopeError("`labels` goes with samples in memory: name a table's column with `label_column`")
    if isinstance(data, Corpus):
        corpus = data
    elif isinstance(data, str):
        corpus = _named(data, modality, columns)
    elif isinstance(data, Path):
        corpus = _open_path(data, modality, columns)
    else:
        corpus = memory_corpus(data, modality, columns, None if labels is None else list(labels))
    if modality is not None and corpus.modality != modality:
        raise LayerscopeError(f"{corpus.name} holds {corpus.modality} samples, not {modality}: leave `modality` out")
    return corpus


def _named(data: str, modality: Modality | None, columns: Columns) -> Corpus:
    if data in BUILT_IN:
        columns.refuse(data)
    if data == "stdlib-docs":
        return stdlib_docs()
    if data == "digits":
        return digits()
    if not data.strip():
        raise LayerscopeError("no data is named: give a file, a folder, hf:NAME, stdlib-docs or digits")
    if "://" in data:
        raise LayerscopeError(f"data {data!r} is a URL: fetch it and give the file, or give hf:NAME for one on the hub")
    if data.startswith("hf:"):
        return hub_corpus(data.removeprefix("hf:"), columns)
    return _open_path(Path(data), modality, columns)


def _open_path(path: Path, modality: Modality | None, columns: Columns) -> Corpus:
    path = path.expanduser()
    _check(path)
    if path.is_dir():
        return folder_corpus(path, modality, columns)
    *rest, suffix = ["", *(suffix.lower() for suffix in path.suffixes)]
    if suffix == ".gz" and not is_archive(path.name):
        suffix = rest[-1]
        if suffix in PARQUET:
            raise LayerscopeError(f"{path} is Parquet inside gzip: unpack it first")
    name = path.name.removesuffix(".gz").removesuffix(suffix)
    name = f"{path.resolve().parent.name}-{name}" if name.lower() in _PLAIN_NAMES else name
    if suffix in TABLES:
        notes: list[str] = []
        frame = read_frame(path, suffix, notes)
        return frame_corpus(frame, name, columns, str(path), notes)
    columns.refuse(str(path))
    if is_archive(path.name):
        return archive_corpus(path, modality, ())
    if (kind := media_kind(path.name)) is not None:
        raise LayerscopeError(f"{path} is a single {kind} file: give the folder it lies in, or a list of paths")
    if suffix == ".npy":
        return replace(memory_corpus(_numpy(path), modality, columns), name=folder_name(name))
    lines = Lines.of(read_text(path))
    notes = ["plain text: one sample a non-empty line, named by its number"]
    names = tuple(map(str, lines.numbers))
    return Corpus(folder_name(name), "text", lines, names, notes=tuple(notes), running=True)


def _numpy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise LayerscopeError(f"{path} is not a complete .npy file: write it again with numpy.save") from error


def _check(path: Path) -> None:
    """Raise for a path at which nothing is, or nothing that can be read."""
    no_path = f"data {str(path)[:40]!r}… is not a path: give texts as a list"
    try:
        if path.is_dir():
            next(path.iterdir(), None)
        elif path.is_char_device():  # it may never end
            raise LayerscopeError(f"{path} is a device: give a file")
        elif path.is_file():  # a pipe may be opened only once
            path.open("rb").close()
        if path.exists():
            return
        refuse_dangling(path)
        siblings = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    except PermissionError as error:
        raise unreadable(path, error) from error
    except OSError as error:  # a text taken for a path is too long for one
        raise LayerscopeError(no_path) from error
    if "\0" in str(path) or "\n" in str(path):
        raise LayerscopeError(no_path)
    hint = near(path.name, siblings) or near(str(path), BUILT_IN) or ": check the path"
    raise LayerscopeError(f"{path} does not exist{hint} (without a path: {', '.join(BUILT_IN)}, hf:NAME)")
