from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.columns import Columns, frame_corpus, needed_classes, text_corpus
from layerscope.inputs.corpus import Corpus
from layerscope.inputs.hub import dataset_corpus
from layerscope.inputs.media import array_image, media_corpus, media_kind, mono, to_rgb
from layerscope.inputs.samples import Modality, Waveform
from layerscope.inputs.tables import is_a, is_frame

ASSUMED_RATE = 16_000  # hertz, of sounds that come as bare arrays
_LABELS = "labels="
Labels = Sequence[Any] | None


def memory_corpus(
    data: Any, modality: Modality | None, columns: Columns, labels: Labels = None
) -> Corpus:
    """Return data that lie in memory as a corpus; `(samples, labels)` gives labels too."""
    if is_frame(data):
        if labels is not None:
            _one_each(labels, data)
            data, columns = data.assign(**{_LABELS: list(labels)}), replace(columns, label=_LABELS)
        return frame_corpus(data, "frame", columns, "the data frame")
    if is_a(data, "datasets.Dataset", "datasets.DatasetDict", "datasets.IterableDataset"):
        if labels is not None:
            raise LayerscopeError(
                "a data set has its labels in a column: name it with `label_column`"
            )
        name = getattr(getattr(data, "info", None), "dataset_name", None)
        return dataset_corpus(data, str(name or "dataset"), columns, "the data set")
    if labels is None and _is_labelled(data):
        data, labels = data
        labels = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if isinstance(data, Mapping) and "input_ids" in data:
        return _masked_ids(data, labels)
    if _is_array(data) and not _is_strings(data) and modality not in ("image", "audio"):
        return _rows(data, labels)
    if is_a(data, "pandas.Series") or _is_strings(data):
        data = data.tolist()
    return _from_list(data, labels, modality)


def _from_list(data: Any, labels: Labels, modality: Modality | None) -> Corpus:
    if not (isinstance(data, (list, tuple)) or _is_array(data)):
        raise LayerscopeError(
            f"data of type {type(data).__name__} cannot be read: give texts, images, sounds, paths, an array of rows, "
            "a data frame, a data set or a path"
        )
    if len(data) == 0:
        raise LayerscopeError("the list of samples is empty: give at least one")
    if labels is not None:
        _one_each(labels, data)
    first, data = data[0], list(data)
    if isinstance(first, Path) or (isinstance(first, str) and modality in ("image", "audio")):
        return _files([Path(item) for item in data], labels, modality)
    if is_a(first, "PIL.Image"):
        return _images(data, labels)
    if isinstance(first, Waveform) or _is_pair(first):
        return _sounds(data, labels)
    if modality in (None, "tensor") and _all_ids(data):
        return _ids([np.asarray(row) for row in data], labels)
    if _is_array(first) or (isinstance(first, list) and modality is not None):
        return _from_arrays(
            [np.asarray(x) if isinstance(x, list) else x for x in data], labels, modality
        )
    return text_corpus(data, "texts", "the list of samples", labels=labels)


def _from_arrays(data: list[Any], labels: Labels, modality: Modality | None) -> Corpus:
    if modality == "audio":
        sounds = _sounds([(item, ASSUMED_RATE) for item in data], labels)
        note = (
            f"sounds are assumed to be at {ASSUMED_RATE:,} Hz: give (array, rate) for another rate"
        )
        return replace(sounds, notes=(note,))
    looks_like_image = data[0].ndim in (2, 3) and str(data[0].dtype).endswith("uint8")
    if modality == "image" or (modality is None and looks_like_image):
        return _images(data, labels)
    if modality is None and data[0].ndim == 1:
        raise LayerscopeError(
            "a list of 1-D arrays may be sounds or features: give `modality='audio'` or 'tensor'"
        )
    if len(shapes := sorted({tuple(item.shape) for item in data})) > 1:
        raise LayerscopeError(
            f"the rows differ in shape ({shapes[0]}, {shapes[1]}): give rows of one shape"
        )
    if is_a(data[0], "torch.Tensor"):
        from torch import stack

        return _rows(stack(data), labels)
    return _rows(np.stack(data), labels)


def _corpus(name: str, modality: Modality, samples: Sequence[Any], labels: Labels) -> Corpus:
    classes = None if labels is None else needed_classes(labels)
    return Corpus(name, modality, samples, tuple(map(str, range(len(samples)))), classes)


def _one_each(labels: Sequence[Any], samples: Any) -> None:
    if len(labels) != len(samples):
        raise LayerscopeError(f"{len(labels)} labels for {len(samples)} samples: give one each")


def _is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray) or is_a(data, "torch.Tensor")


def _is_strings(data: Any) -> bool:
    return isinstance(data, np.ndarray) and data.dtype.kind in "UOST"


def _is_labelled(data: Any) -> bool:
    """Return whether data are (samples, labels), and not a list of two samples."""
    if not (isinstance(data, tuple) and len(data) == 2) or isinstance(
        data[0], (str, Path, Waveform)
    ):
        return False
    samples, labels = data
    flat = (
        getattr(labels, "ndim", 1) == 1
        and hasattr(labels, "__len__")
        and not isinstance(labels, str)
    )
    several = (
        getattr(samples, "ndim", 2) >= 2 or is_a(samples, "pandas.Series") or _is_strings(samples)
    )
    return bool(flat and several and hasattr(samples, "__len__"))


def _rows(array: Any, labels: Labels) -> Corpus:
    if array.ndim < 2:
        raise LayerscopeError(
            f"an array of shape {tuple(array.shape)} has no rows of features: give [N, …]"
        )
    if "complex" in str(array.dtype) or (
        isinstance(array, np.ndarray) and array.dtype.kind not in "fiub"
    ):
        raise LayerscopeError(
            f"an array of {array.dtype} does not hold real numbers: give floats or integers"
        )
    return _corpus("tensor", "tensor", array, labels)


def _all_ids(data: list[Any]) -> bool:
    """Return whether every sample is a row of whole numbers; what arrays of few bits hold may be sounds."""
    if all(isinstance(row, (list, tuple)) and row for row in data):
        return all(type(number) is int for row in data for number in row)
    return all(
        _is_array(row) and row.ndim == 1 and str(row.dtype).endswith(("int32", "int64"))
        for row in data
    )


def _ids(rows: list[Any], labels: Labels) -> Corpus:
    samples: Any = tuple(row.astype(np.int64) for row in rows)
    if len({len(row) for row in rows}) == 1:
        samples = np.stack(samples)
    return _corpus("tensor", "tensor", samples, labels)


def _masked_ids(data: Mapping[str, Any], labels: Labels) -> Corpus:
    """Return a tokenizer's output as rows of the ids that its mask marks as real."""
    rows = [np.asarray(row) for row in data["input_ids"]]
    masks = data.get("attention_mask", None)
    if masks is not None:
        rows = [row[np.asarray(mask).astype(bool)] for row, mask in zip(rows, masks, strict=True)]
    if not rows or not all(row.ndim == 1 and row.dtype.kind in "iu" for row in rows):
        raise LayerscopeError("input_ids hold no rows of token ids: give [N, T] or a list of lists")
    return _ids(rows, labels)


def _files(paths: list[Path], labels: Labels, modality: Modality | None) -> Corpus:
    kind = modality or media_kind(paths[0].name)
    for path in paths:
        if not path.is_file():
            raise LayerscopeError(f"{path} does not exist or is not a file: check the path")
    odd = next((path for path in paths if media_kind(path.name) != kind or kind is None), None)
    if kind is None or odd is not None:
        raise LayerscopeError(
            f"{odd} is not of the same kind as the others: give only images, or only sounds"
        )
    corpus = media_corpus(
        [(str(path), path) for path in paths], kind, "files", "the list of paths", ()
    )
    if labels is None:
        return corpus
    # By name, because broken files are gone from the corpus.
    by_name = dict(zip(map(str, paths), needed_classes(labels), strict=True))
    notes = tuple(note for note in corpus.notes if not note.startswith("label:"))
    return replace(corpus, labels=tuple(by_name[name] for name in corpus.names), notes=notes)


def _images(data: list[Any], labels: Labels) -> Corpus:
    for i, image in enumerate(data):
        if not (is_a(image, "PIL.Image") or _is_array(image)):
            raise LayerscopeError(f"sample {i} is of type {type(image).__name__}: give only images")
    images = tuple(
        to_rgb(image) if is_a(image, "PIL.Image") else array_image(image) for image in data
    )
    return _corpus("images", "image", images, labels)


def _is_pair(item: Any) -> bool:
    return (
        isinstance(item, tuple) and len(item) == 2 and _is_array(item[0]) and np.isscalar(item[1])
    )


def _sounds(data: list[Any], labels: Labels) -> Corpus:
    sounds = []
    for index, item in enumerate(data):
        if not (isinstance(item, Waveform) or _is_pair(item)):
            raise LayerscopeError(
                f"sample {index} is of type {type(item).__name__}, not a sound: give (array, rate)"
            )
        samples, rate = (item.samples, item.rate) if isinstance(item, Waveform) else item
        if rate < 1 or len(samples) == 0:
            raise LayerscopeError(
                f"sample {index} is a sound of {len(samples)} samples at {rate} Hz: give 1 or more"
            )
        sounds.append(Waveform(mono(np.asarray(samples)), int(rate)))
    return _corpus("sounds", "audio", tuple(sounds), labels)
