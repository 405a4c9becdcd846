"""Data that lie in memory as a corpus: frames, data sets, arrays, and lists of texts, images, sounds or token ids.

The first sample decides what a list holds: texts, paths, images, or sounds with their rates. Where
that is ambiguous, as for one-dimensional arrays, which may be sounds or features, nothing is
guessed, and the error says how to name the one that is meant.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.columns import Columns, frame_corpus, needed_labels, text_corpus
from layerscope.inputs.corpus import Corpus, row_numbers
from layerscope.inputs.hub import dataset_corpus, dataset_name
from layerscope.inputs.media import array_image, media_corpus, media_kind, mono, to_rgb
from layerscope.inputs.samples import Modality, Waveform
from layerscope.inputs.tables import is_a, is_frame

_LABELS = "labels="
Labels = Sequence[Any] | None


def memory_corpus(
    data: Any, modality: Modality | None, columns: Columns, labels: Labels = None
) -> Corpus:
    """Return data that lie in memory as a corpus; `(samples, labels)` gives labels too."""
    if labels is None and _is_labelled(data):
        data, labels = data[0], list(data[1])
    if labels is not None and hasattr(data, "__len__") and len(labels) != len(data):
        raise LayerscopeError(
            f"{len(labels)} labels for {len(data)} samples: give one each"
        )
    if is_frame(data):
        if labels is not None:
            data = data.assign(**{_LABELS: labels})
            columns = replace(columns, label=_LABELS)
        return frame_corpus(data, "frame", columns, "the data frame")
    if is_a(
        data, "datasets.Dataset", "datasets.DatasetDict", "datasets.IterableDataset"
    ):
        if labels is not None:
            raise LayerscopeError(
                "a data set has its labels in a column: name it with `label_column`"
            )
        name = dataset_name(data, "dataset")
        return dataset_corpus(data, name, columns, "the data set")
    if is_a(data, "pandas.Series") or _is_strings(data):
        data = data.tolist()
    if _is_array(data) and modality not in ("image", "audio"):
        return _rows(data, labels)
    return _from_list(data, labels, modality)


def _is_labelled(data: Any) -> bool:
    """Return whether data are (samples, labels), and not a tuple of two samples."""
    if not (isinstance(data, tuple) and len(data) == 2):
        return False
    samples, labels = data
    is_pair = hasattr(samples, "__len__") and hasattr(labels, "__len__")
    return is_pair and not isinstance(samples, str) and getattr(labels, "ndim", 1) == 1


def _from_list(data: Any, labels: Labels, modality: Modality | None) -> Corpus:
    if not (isinstance(data, (list, tuple)) or _is_array(data)):
        raise LayerscopeError(
            f"data of type {type(data).__name__} cannot be read: give texts, images, sounds, paths, an array of rows, "
            "a data frame, a data set or a path"
        )
    if len(data) == 0:
        raise LayerscopeError("the list of samples is empty: give at least one")
    first = data[0]
    samples = list(data)
    if isinstance(first, Path):
        return _files(samples, labels)
    if isinstance(first, str):
        return text_corpus(samples, "texts", "the list of samples", labels=labels)
    if is_a(first, "PIL.Image") or modality == "image" or _is_pixels(first):
        images = tuple(map(_image, samples))
        return _corpus("images", "image", images, labels)
    if isinstance(first, (Waveform, tuple)) and modality in (None, "audio"):
        return _corpus("sounds", "audio", tuple(map(_sound, samples)), labels)
    if modality in (None, "tensor") and all(map(_is_ids, samples)):
        ids = [np.asarray(row, dtype=np.int64) for row in samples]
        return _corpus("tensor", "tensor", _stacked(ids), labels)
    if _is_array(first) or isinstance(first, list):
        return _from_arrays(samples, labels, modality)
    return text_corpus(samples, "texts", "the list of samples", labels=labels)


def _from_arrays(data: list[Any], labels: Labels, modality: Modality | None) -> Corpus:
    if modality != "tensor" and np.ndim(data[0]) == 1:
        raise LayerscopeError(
            "a list of 1-D arrays may be sounds or features: give (array, rate) for each sound, or "
            "`modality='tensor'`"
        )
    shapes = sorted({np.shape(row) for row in data})
    if len(shapes) > 1:
        raise LayerscopeError(
            f"the rows differ in shape ({shapes[0]}, {shapes[1]}): give rows of one shape"
        )
    if is_a(data[0], "torch.Tensor"):
        from torch import stack

        return _rows(stack(data), labels)
    return _rows(np.stack(data), labels)


def _corpus(
    name: str, modality: Modality, samples: Sequence[Any], labels: Labels
) -> Corpus:
    names = row_numbers(len(samples))
    return Corpus(name, modality, samples, names, _classes(labels))


def _classes(labels: Labels) -> Any:
    if labels is None:
        return None
    return needed_labels(labels)


def _is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray) or is_a(data, "torch.Tensor")


def _is_strings(data: Any) -> bool:
    return isinstance(data, np.ndarray) and data.dtype.kind in "UOST"


def _is_pixels(data: Any) -> bool:
    return _is_array(data) and data.ndim in (2, 3) and str(data.dtype).endswith("uint8")


def _is_ids(row: Any) -> bool:
    """Return whether a sample is a row of whole numbers; what arrays of few bits hold may be sounds."""
    if isinstance(row, (list, tuple)):
        return bool(row) and all(type(number) is int for number in row)
    return (
        _is_array(row) and row.ndim == 1 and str(row.dtype).endswith(("int32", "int64"))
    )


def _rows(array: Any, labels: Labels) -> Corpus:
    if array.ndim < 2:
        raise LayerscopeError(
            f"an array of shape {tuple(array.shape)} has no rows of features: give [N, …]"
        )
    if not str(array.dtype).startswith(("float", "int", "uint", "bool", "torch.")):
        raise LayerscopeError(
            f"an array of {array.dtype} does not hold real numbers: give floats or integers"
        )
    return _corpus("tensor", "tensor", array, labels)


def _stacked(rows: list[Any]) -> Any:
    """Return rows of token ids as one array where they have one length."""
    if len({*map(len, rows)}) == 1:
        return np.stack(rows)
    return tuple(rows)


def _files(paths: list[Path], labels: Labels) -> Corpus:
    kind = media_kind(paths[0].name)
    for path in paths:
        if kind is None or media_kind(path.name) != kind or not path.is_file():
            raise LayerscopeError(
                f"{path} is not a file, or not of the same kind as the first: give existing files, "
                "all images or all sounds"
            )
    assert kind is not None
    corpus = media_corpus([(str(path), path) for path in paths], kind, "files")
    return replace(corpus, labels=_classes(labels))


def _image(image: Any) -> Any:
    if is_a(image, "PIL.Image"):
        return to_rgb(image)
    if not _is_array(image):
        raise LayerscopeError(
            f"a sample is of type {type(image).__name__}: give only images"
        )
    return array_image(image)


def _sound(item: Any) -> Waveform:
    if isinstance(item, Waveform):
        item = (item.samples, item.rate)
    is_pair = isinstance(item, tuple) and len(item) == 2 and _is_array(item[0])
    if not is_pair or not np.isscalar(item[1]):
        raise LayerscopeError(
            f"a sample is of type {type(item).__name__}, not a sound: give (array, rate)"
        )
    samples, rate = item
    if rate < 1 or len(samples) == 0:
        raise LayerscopeError(
            f"a sample is a sound of {len(samples)} samples at {rate} Hz: give 1 or more"
        )
    return Waveform(mono(np.asarray(samples)), int(rate))
