"""Data of any kind as one `Corpus`: what is named is found and read, what lies in memory is taken as it is."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from layerscope.core import LayerscopeError, OneOf, existing, folder_name, listed
from layerscope.inputs.arrays import memory_corpus
from layerscope.inputs.built_in import BUILT_IN
from layerscope.inputs.columns import Columns, frame_corpus
from layerscope.inputs.corpus import Corpus
from layerscope.inputs.hub import hub_corpus, is_dataset
from layerscope.inputs.media import (
    LOOKED_FOR,
    SPLITS,
    folder_labels,
    is_hidden,
    media_corpus,
    media_kind,
)
from layerscope.inputs.rows import TABLES, file_rows
from layerscope.inputs.samples import Lines, Modality
from layerscope.inputs.text_files import read_lines

PLAIN_TEXT = "plain text: one sample per non-empty line, named by line number"
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

    `data` is a corpus, texts, images, sounds or array rows in memory (also `(samples, labels)`), a
    pandas frame, a `datasets.Dataset`, token ids, the path of a table, text file or folder,
    `stdlib-docs`, `digits` or `hf:name/config:split`. Raises `LayerscopeError` for data
    that cannot be read.

    >>> from layerscope.inputs import open_corpus
    >>> corpus = open_corpus("reviews.csv")
    >>> len(corpus), corpus.modality, corpus.samples[0], corpus.labels[0]
    (24, 'text', 'the food was good', 'praise')
    >>> corpus.notes
    ("text column: 'text' (guessed)", "label column: 'label' (guessed)")
    """
    if modality is not None:
        OneOf(get_args(Modality)).take("modality", modality)
    columns = Columns(text_column, label_column)
    if labels is not None and isinstance(data, (str, Path, Corpus)):
        raise LayerscopeError(
            "`labels` goes with samples in memory: name a table's column with `label_column`"
        )
    if isinstance(data, Corpus):
        corpus = data
    elif isinstance(data, str) and data in BUILT_IN:
        columns.refuse(data)
        corpus = BUILT_IN[data]()
    elif is_name(data):
        corpus = hub_corpus(data, columns)
    elif isinstance(data, (str, Path)):
        corpus = _open_path(existing_data(data), modality, columns)
    else:
        corpus = memory_corpus(
            data, modality, columns, None if labels is None else list(labels)
        )
    if modality is not None and corpus.modality != modality:
        raise LayerscopeError(
            f"{corpus.name} holds {corpus.modality} samples, not {modality}: leave `modality` out"
        )
    return corpus


def is_name(data: Any) -> bool:
    """Return whether data are named, built in or on the hub, and not given by a path."""
    return isinstance(data, str) and (data in BUILT_IN or data.startswith("hf:"))


def check_there(data: Any) -> None:
    """Raise `LayerscopeError` for the path of data that are not there: a model need not be loaded to say so."""
    if isinstance(data, (str, Path)) and not is_name(data):
        existing_data(data)


def existing_data(data: str | Path) -> Path:
    """Return the path of a file or folder of data.

    Raises `LayerscopeError` for what is neither.
    """
    if isinstance(data, str) and not data.strip():
        raise LayerscopeError(
            "no data is given: give a file, a folder, hf:NAME, stdlib-docs or digits"
        )
    if "://" in str(data):
        raise LayerscopeError(
            f"data {data!r} is a URL: download it and give the file, or give hf:NAME for one on the hub"
        )
    path = existing(data, "data", (*BUILT_IN, "hf:NAME"))
    if path.is_char_device():  # it may never end
        raise LayerscopeError(f"{path} is a device: give a file")
    return path


def _open_path(path: Path, modality: Modality | None, columns: Columns) -> Corpus:
    if path.is_dir():
        return _folder(path, modality, columns)
    name, suffix = data_name(path)
    if suffix in TABLES:
        rows = file_rows([path], suffix)
        return frame_corpus(rows.frame(), name, columns, str(path))
    columns.refuse(str(path))
    if (kind := media_kind(path.name)) is not None:
        raise LayerscopeError(
            f"{path} is a single {kind} file: give the folder it lies in, or a list of paths"
        )
    if suffix != ".npy":
        return lines_corpus("".join(read_lines(path)), name)
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise LayerscopeError(
            f"{path} is not a complete .npy file: save it again with numpy.save"
        ) from error
    return replace(memory_corpus(array, modality, columns), name=folder_name(name))


def lines_corpus(text: str, name: str) -> Corpus:
    """Return the lines of a text that are not blank as running text, each named by its number.

    Numbers count blank lines too, as an editor does.
    """
    lines = Lines.of(text)
    names = tuple(map(str, lines.numbers))
    return Corpus(
        folder_name(name), "text", lines, names, notes=(PLAIN_TEXT,), running=True
    )


def data_name(path: Path) -> tuple[str, str]:
    """Return what the data in a file are called, and the file's suffix, without `.gz`.

    A name that says nothing, such as `train`, comes after that of the folder.

    >>> data_name(Path("data/reviews.csv.gz")), data_name(Path("/data/reviews/train.jsonl"))
    (('reviews', '.csv'), ('reviews-train', '.jsonl'))
    """
    bare = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    name = bare.stem
    if name.lower() in _PLAIN_NAMES:
        name = f"{path.resolve().parent.name}-{name}"
    return name, bare.suffix.lower()


def _folder(path: Path, modality: Modality | None, columns: Columns) -> Corpus:
    """Return the images or sounds in a folder and its sub-folders, or what `datasets` saved in it.

    Raises `LayerscopeError` where it holds none of these.
    """
    if is_dataset(path):
        return hub_corpus(path, columns)
    columns.refuse(str(path))
    files = []
    for file in filter(Path.is_file, path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if not is_hidden(name):
            files.append((name, file))
    files.sort()
    kinds = {kind for name, _ in files if (kind := media_kind(name)) is not None}
    if not kinds:
        held = f" ({listed([name for name, _ in files], 3)})" if files else ""
        raise LayerscopeError(
            f"{path} holds no {LOOKED_FOR}: give one of its files instead{held}, unpacked"
        )
    if len(kinds) > 1 and modality not in kinds:
        raise LayerscopeError(
            f"{path} holds images and sounds: keep each kind in its own folder"
        )
    chosen = modality if modality in kinds else kinds.pop()
    taken = [(name, file) for name, file in files if media_kind(name) == chosen]
    corpus = media_corpus(taken, chosen, path.resolve().name)
    labels = folder_labels(corpus.names)
    if labels is None:
        return corpus
    note = f"label: the last folder ({len(set(labels))} classes)"
    return replace(corpus, labels=labels, notes=(note,))
