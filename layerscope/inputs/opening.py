from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from layerscope.core.errors import LayerscopeError, near, refuse_dangling, unreadable
from layerscope.inputs.archives import archive_corpus, is_archive
from layerscope.inputs.arrays import memory_corpus
from layerscope.inputs.builtin import BUILT_IN, digits, stdlib_docs
from layerscope.inputs.columns import Columns, frame_corpus
from layerscope.inputs.corpus import Corpus, folder_name
from layerscope.inputs.folders import folder_corpus
from layerscope.inputs.hub import hub_corpus
from layerscope.inputs.media import media_kind
from layerscope.inputs.samples import Lines, Modality
from layerscope.inputs.tables import JSON_LINES, PARQUET, SEPARATORS, read_frame, read_text

_PLAIN_NAMES = {"train", "test", "dev", "val", "valid", "validation", "all", "data", "input"}
_NO_PATH = "data {!r}… is not a path: give texts as a list"


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
    if modality is not None and modality not in get_args(Modality):
        known = get_args(Modality)
        raise LayerscopeError(f"modality {modality!r} is unknown{near(modality, known)} ({', '.join(known)})")
    columns = Columns(text_column, label_column)
    if labels is not None and isinstance(data, (str, Path, Corpus)):
        raise LayerscopeError("labels= goes with samples in memory: name a table's column with label_column")
    if isinstance(data, Corpus):
        corpus = data
    elif isinstance(data, str):
        corpus = _named(data, modality, columns)
    elif isinstance(data, Path):
        corpus = open_path(data, modality, columns)
    else:
        corpus = memory_corpus(data, modality, columns, None if labels is None else list(labels))
    if modality is not None and corpus.modality != modality:
        raise LayerscopeError(f"{corpus.name} holds {corpus.modality} samples, not the modality {modality!r} asked for")
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
    return open_path(Path(data), modality, columns)


def open_path(path: Path, modality: Modality | None, columns: Columns) -> Corpus:
    """Return the corpus a file or folder holds; raises `LayerscopeError` where there is none."""
    path = path.expanduser()
    _check_exists(path)
    if path.is_char_device():  # it may never end
        raise LayerscopeError(f"{path} is a device: give a file")
    _check_readable(path)
    if path.is_dir():
        return folder_corpus(path, modality, columns)
    if is_archive(path.name):
        columns.refuse(str(path))
        return archive_corpus(path, modality, [])
    if (kind := media_kind(path.name)) is not None:
        raise LayerscopeError(f"{path} is a single {kind} file: give the folder it lies in, or a list of paths")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    suffix = (suffixes[:-1] if packed else suffixes)[-1:] or [""]
    if packed and suffix[0] in PARQUET:
        raise LayerscopeError(f"{path} is Parquet inside gzip: unpack it first")
    name = path.name.removesuffix(".gz").removesuffix(suffix[0])
    name = f"{path.resolve().parent.name}-{name}" if name.lower() in _PLAIN_NAMES else name
    if suffix[0] in (*SEPARATORS, *JSON_LINES, *PARQUET):
        notes: list[str] = []
        frame = read_frame(path, suffix[0], notes)
        return frame_corpus(frame, name, columns, str(path), notes)
    columns.refuse(str(path))
    if suffix[0] == ".npy":
        return replace(memory_corpus(_numpy(path), modality, columns), name=folder_name(name))
    return _running(path, name)


def _numpy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise LayerscopeError(f"{path} is not a complete .npy file: write it again with numpy.save") from error


def _check_exists(path: Path) -> None:
    try:
        if path.exists():
            return
        refuse_dangling(path)
        siblings = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    except PermissionError as error:
        raise unreadable(path, error) from error
    except OSError as error:  # a text taken for a path is too long for one
        raise LayerscopeError(_NO_PATH.format(str(path)[:40])) from error
    if "\0" in str(path) or "\n" in str(path):
        raise LayerscopeError(_NO_PATH.format(str(path)[:40]))
    hint = near(path.name, siblings) or near(str(path), BUILT_IN)
    built_in = ", ".join(BUILT_IN)
    raise LayerscopeError(f"{path} does not exist{hint or ': check the path'} (without a path: {built_in}, hf:NAME)")


def _check_readable(path: Path) -> None:
    try:
        if path.is_dir():
            next(path.iterdir(), None)
        elif path.is_file():  # a pipe may be opened only once
            path.open("rb").close()
    except OSError as error:
        raise unreadable(path, error) from error


def _running(path: Path, name: str) -> Corpus:
    lines = Lines(read_text(path))
    return Corpus(
        folder_name(name),
        "text",
        lines,
        tuple(map(str, lines.numbers)),
        notes=("plain text: one sample a non-empty line, named by its number",),
        running=True,
    )
