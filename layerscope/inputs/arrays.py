from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.audio import mono
from layerscope.inputs.columns import Columns, class_labels, frame_corpus, text_corpus
from layerscope.inputs.corpus import Corpus, Labels
from layerscope.inputs.hub import dataset_corpus
from layerscope.inputs.images import array_image, to_rgb
from layerscope.inputs.media import media_corpus, media_kind
from layerscope.inputs.samples import Modality, Rows, Waveform
from layerscope.inputs.tables import is_a, is_frame

ASSUMED_RATE = 16_000  # hertz, of sounds that come as bare arrays
_LABELS = "labels="
_WANTED = "give texts, images, sounds, paths, an array of rows, a data frame, a data set or a path"


def memory_corpus(
    data: Any, modality: Modality | None, columns: Columns, labels: Sequence[Any] | None = None
) -> Corpus:
    """Return data that lie in memory as a corpus; `(samples, labels)` gives labels too."""
    if is_frame(data):
        return frame_corpus(*_labelled_frame(data, labels, columns), "the data frame")
    if is_a(data, "datasets.Dataset", "datasets.DatasetDict", "datasets.IterableDataset"):
        if labels is not None:
            raise LayerscopeError("a data set has its labels in a column: name it with label_column, leave labels out")
        name = str(getattr(getattr(data, "info", None), "dataset_name", None) or "dataset")
        return dataset_corpus(data, name, columns, "the data set")
    if labels is None and _is_labelled(data):
        data, labels = data
        labels = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if isinstance(data, Mapping) and "input_ids" in data:
        return _masked_ids(data, labels)
    if is_a(data, "pandas.Series"):
        data = data.tolist()
    return _samples(data, labels, modality)


def _samples(data: Any, labels: Sequence[Any] | None, modality: Modality | None) -> Corpus:
    if _is_array(data) and not (_is_strings(data) or modality in ("image", "audio")):
        return _rows(data, labels)
    if _is_array(data):
        data = data.tolist() if _is_strings(data) else list(data)
    if not isinstance(data, (list, tuple)):
        raise LayerscopeError(f"data of type {type(data).__name__} cannot be read: {_WANTED}")
    if not data:
        raise LayerscopeError("the list of samples is empty: give at least one")
    return _listed(list(data), labels, modality)


def _labelled_frame(data: Any, labels: Sequence[Any] | None, columns: Columns) -> tuple[Any, str, Columns]:
    if labels is None:
        return data, "frame", columns
    if len(labels) != len(data):
        raise LayerscopeError(f"{len(labels)} labels for {len(data)} rows: give one a row")
    return data.assign(**{_LABELS: list(labels)}), "frame", replace(columns, label=_LABELS)


def _is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray) or is_a(data, "torch.Tensor")


def _is_strings(data: Any) -> bool:
    return isinstance(data, np.ndarray) and data.dtype.kind in "UOST"


def _is_labelled(data: Any) -> bool:
    if not (isinstance(data, tuple) and len(data) == 2) or isinstance(data[0], (str, Path, Waveform)):
        return False
    samples, labels = data
    flat = getattr(labels, "ndim", 1) == 1 and hasattr(labels, "__len__") and not isinstance(labels, str)
    several = getattr(samples, "ndim", 2) >= 2 or is_a(samples, "pandas.Series") or _is_strings(samples)
    return bool(flat and several and hasattr(samples, "__len__"))


def _numbers(total: int) -> tuple[str, ...]:
    return tuple(map(str, range(total)))


def _classes(labels: Sequence[Any] | None) -> Labels | None:
    if labels is None:
        return None
    classes = class_labels(labels)
    if classes is None:
        raise LayerscopeError("the labels are not classes (text or whole numbers): give classes, or leave them out")
    return classes


def _rows(array: Any, labels: Sequence[Any] | None, notes: tuple[str, ...] = ()) -> Corpus:
    if array.ndim < 2:
        raise LayerscopeError(f"an array of shape {tuple(array.shape)} has no rows of features: give [N, …]")
    if isinstance(array, np.ndarray) and array.dtype.kind not in "fiubc":
        raise LayerscopeError(f"an array of {array.dtype} holds no numbers: give floats or integers")
    if "complex" in str(array.dtype):
        raise LayerscopeError(f"an array of {array.dtype} holds complex numbers: give real ones, such as both parts")
    return Corpus("tensor", "tensor", Rows(array), _numbers(len(array)), _classes(labels), notes)


def _listed(data: list[Any], labels: Sequence[Any] | None, modality: Modality | None) -> Corpus:
    first = data[0]
    if isinstance(first, Path) or (isinstance(first, str) and modality in ("image", "audio")):
        return _paths([Path(item) for item in data], labels, modality)
    if is_a(first, "PIL.Image"):
        return _images(data, labels)
    if isinstance(first, Waveform) or _is_pair(first):
        return _sounds(data, labels, ())
    if modality in (None, "tensor") and _all_ids(data):
        return _ids([np.asarray(row) for row in data], labels)
    if _is_array(first) or (isinstance(first, list) and modality is not None):
        return _arrays([np.asarray(x) if isinstance(x, list) else x for x in data], labels, modality)
    return text_corpus(data, name="texts", where="the list of samples", labels=labels)


def _all_ids(data: list[Any]) -> bool:
    """Whether every sample is a row of whole numbers; what arrays of few bits hold may be sounds."""
    if all(isinstance(row, (list, tuple)) and row for row in data):
        return all(type(number) is int for row in data for number in row)
    wide = ("int32", "int64")
    return all(_is_array(row) and row.ndim == 1 and str(row.dtype).endswith(wide) for row in data)


def _ids(rows: list[Any], labels: Sequence[Any] | None) -> Corpus:
    samples = tuple(row.astype(np.int64) for row in rows)
    if len({len(row) for row in rows}) == 1:
        return _rows(np.stack(samples), labels)
    return Corpus("tensor", "tensor", samples, _numbers(len(rows)), _classes(labels))


def _masked_ids(data: Mapping[str, Any], labels: Sequence[Any] | None) -> Corpus:
    """Return a tokenizer's output as rows of the ids that its mask marks as real."""
    ids = data["input_ids"]
    masks = data.get("attention_mask", None)
    rows = [np.asarray(row) for row in ids]
    if masks is not None:
        rows = [row[np.asarray(mask).astype(bool)] for row, mask in zip(rows, masks, strict=True)]
    if not rows or not all(row.ndim == 1 and row.dtype.kind in "iu" for row in rows):
        raise LayerscopeError("input_ids hold no rows of token ids: give [N, T] or a list of lists")
    return _ids(rows, labels)


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and _is_array(item[0]) and np.isscalar(item[1])


def _paths(paths: list[Path], labels: Sequence[Any] | None, modality: Modality | None) -> Corpus:
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise LayerscopeError(f"{missing} does not exist or is not a file: check the path")
    kind = modality or media_kind(paths[0].name)
    odd = next((path for path in paths if media_kind(path.name) != kind), None)
    if kind is None or odd is not None:
        raise LayerscopeError(f"{odd or paths[0]} is not of the kind of the others: give images only, or sounds only")
    if labels is not None and len(labels) != len(paths):
        raise LayerscopeError(f"{len(labels)} labels for {len(paths)} files: give one a file")
    corpus = media_corpus([(str(path), path) for path in paths], kind, "files", "the list of paths", ())
    classes = _classes(labels)
    if classes is None:
        return corpus
    # By name, because broken files are gone from the corpus.
    by_name = dict(zip(map(str, paths), classes, strict=True))
    notes = tuple(note for note in corpus.notes if not note.startswith("label:"))
    return replace(corpus, labels=tuple(by_name[name] for name in corpus.names), notes=notes)


def _images(data: list[Any], labels: Sequence[Any] | None) -> Corpus:
    odd = next((i for i, image in enumerate(data) if not (is_a(image, "PIL.Image") or _is_array(image))), None)
    if odd is not None:
        raise LayerscopeError(f"sample {odd} is a {type(data[odd]).__name__}, not an image as the others are")
    images = tuple(to_rgb(image) if is_a(image, "PIL.Image") else array_image(image) for image in data)
    return Corpus("images", "image", images, _numbers(len(images)), _classes(labels))


def _sounds(data: list[Any], labels: Sequence[Any] | None, notes: tuple[str, ...]) -> Corpus:
    sounds = []
    for index, item in enumerate(data):
        if not (isinstance(item, Waveform) or _is_pair(item)):
            raise LayerscopeError(f"sample {index} is a {type(item).__name__}, not a sound: give (array, rate)")
        samples, rate = (item.samples, item.rate) if isinstance(item, Waveform) else item
        if rate < 1 or len(samples) == 0:
            raise LayerscopeError(f"sample {index} is a sound of {len(samples)} samples at {rate} Hz: give 1 or more")
        sounds.append(Waveform(mono(np.asarray(samples)), int(rate)))
    return Corpus("sounds", "audio", tuple(sounds), _numbers(len(sounds)), _classes(labels), notes)


def _arrays(data: list[Any], labels: Sequence[Any] | None, modality: Modality | None) -> Corpus:
    if modality == "audio":
        note = f"sounds taken to be at {ASSUMED_RATE:,} Hz: give (array, rate) for another rate"
        return _sounds([(item, ASSUMED_RATE) for item in data], labels, (note,))
    looks_like_image = data[0].ndim in (2, 3) and str(data[0].dtype).endswith("uint8")
    if modality == "image" or (modality is None and looks_like_image):
        return _images(data, labels)
    if modality is None and data[0].ndim == 1:
        raise LayerscopeError("a list of 1-D arrays may be sounds or features: say modality='audio' or 'tensor'")
    shapes = {tuple(item.shape) for item in data}
    if len(shapes) > 1:
        first, second = sorted(shapes)[:2]
        raise LayerscopeError(f"the rows differ in shape ({first}, {second}): give rows of one shape")
    if is_a(data[0], "torch.Tensor"):
        import torch

        return _rows(torch.stack(data), labels)
    return _rows(np.stack(data), labels)
