from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError, first_line, folder_name, near, needs
from layerscope.core.hub import go_offline_without_hub, hub_answers
from layerscope.inputs.columns import (
    LABEL_COLUMNS,
    Columns,
    choose_column,
    choose_columns,
    frame_corpus,
    labels_of,
)
from layerscope.inputs.corpus import Corpus, row_numbers
from layerscope.inputs.media import Files
from layerscope.inputs.rows import Rows, class_name, iterable_rows
from layerscope.inputs.samples import Modality

_SPLITS = ("validation", "test", "train")
_MEDIA: dict[str, Modality] = {"Image": "image", "Audio": "audio"}


def is_dataset(data: Any) -> bool:
    """Return whether data are named on the hub, `hf:name`, or a folder that `datasets` saved with `save_to_disk`."""
    if isinstance(data, str) and data.startswith("hf:"):
        return True
    if not isinstance(data, (str, Path)):
        return False
    folder = Path(data).expanduser()
    names = ("dataset_info.json", "dataset_dict.json")
    return any((folder / name).exists() for name in names)


def hub_corpus(data: str | Path, columns: Columns) -> Corpus:
    """Return a data set of the hub by `hf:name[/config][:split]`, or a saved one by its local path.

    The split defaults to the first of validation, test and train that exists, and a note says so.
    Without a hub only what is cached opens; everything else raises `LayerscopeError` within
    seconds.
    """
    source, name, where, split = _opened(data)
    return dataset_corpus(source, name, columns, where, split)


def hub_rows(data: str | Path, columns: Columns) -> tuple[str, Rows] | None:
    """Return the name and the rows of the texts that `hub_corpus` would open; None of images and sounds."""
    source, name, where, split = _opened(data, streaming=True)
    source, name, notes = _of_split(source, name, where, split)
    if media_of(source.features or {}, columns):
        return None
    return name, replace(iterable_rows(source, where), notes=notes)


def _opened(data: str | Path, streaming: bool = False) -> tuple[Any, str, str, str]:
    """Return the data, their name, where they are, and the split that is named; those of the hub may be streamed."""
    # hf://name is hf:name
    name = str(data).removeprefix("hf:").removeprefix("//")
    spec, _, split = name.partition(":")
    is_path = not str(data).startswith("hf:") or spec.startswith((".", "/", "~"))
    if is_path:
        path = Path(spec if split else str(data).removeprefix("hf:")).expanduser()
        return _saved(path), path.resolve().name, str(path), split
    parts = spec.split("/")
    if not all(parts) or len(parts) > 3:
        raise LayerscopeError(
            f"'hf:{spec}' is not the name of a data set: write hf:name, hf:org/name or hf:org/name/config:split"
        )
    return _loaded(parts, streaming), "-".join(parts), f"hf:{spec}", split


def _saved(path: Path) -> Any:
    if not path.exists():
        raise LayerscopeError(
            f"{path} does not exist: give a folder written by save_to_disk"
        )
    datasets = _datasets()
    try:
        return datasets.load_from_disk(str(path))
    except Exception as error:  # pyarrow, json and datasets each raise their own
        raise LayerscopeError(
            f"{path} is not a data set written by save_to_disk ({first_line(error, 200)}): save it again"
        ) from error


def _datasets() -> Any:
    with needs(
        "datasets", "Hugging Face data sets need datasets, which is not installed"
    ):
        import datasets
    return datasets


def dataset_name(data: Any, default: str) -> str:
    """Return the name of a data set of `datasets`, where it or any other iterable has one."""
    name = getattr(getattr(data, "info", None), "dataset_name", None)
    return str(name or default)


def dataset_corpus(
    data: Any, name: str, columns: Columns, where: str, split: str = ""
) -> Corpus:
    """Return a `Dataset`, or one split of a `DatasetDict`, as a corpus of its texts, images or sounds."""
    data, name, notes = _of_split(data, name, where, split)
    if not hasattr(data, "num_rows"):
        raise LayerscopeError(
            f"{where} is a stream: give a data set with a length, such as list(stream.take(1000))"
        )
    if media_column := media_of(data.features, columns):
        media, modality = media_column
        label = choose_column(data.column_names, columns.label, LABEL_COLUMNS, where)
        return _media_corpus(data, media, label, modality, name, notes)
    chosen, _ = choose_columns(data.column_names, columns, where)
    texts = data.select_columns(
        [column for column in (chosen.text, chosen.label) if column]
    )
    return frame_corpus(
        iterable_rows(texts, where).frame(), name, columns, where, notes
    )


def _of_split(
    data: Any, name: str, where: str, split: str
) -> tuple[Any, str, list[str]]:
    """Return one split of a dict of them, its name, and a note where it was chosen; other data as they are."""
    if not isinstance(data, dict):
        return data, name, []
    notes = []
    if not split:
        split = min(data, key=lambda name: (*_SPLITS, name).index(name))
        notes.append(f"split: {split} (of {', '.join(data)})")
    if split not in data:
        raise LayerscopeError(
            f"{where} has no split {split!r}{near(split, data)} (its splits: {', '.join(data)})"
        )
    return data[split], f"{name}-{split}", notes


def media_of(
    features: Mapping[str, Any], columns: Columns
) -> tuple[str, Modality] | None:
    """Return the column of images or sounds that is to be read, and which these are; None of texts."""
    for column, feature in features.items():
        kind = _MEDIA.get(type(feature).__name__)
        if kind is not None and columns.text in (None, column):
            return column, kind
    return None


@dataclass(frozen=True, eq=False)
class _DatasetFiles(Sequence[Any]):
    """The undecoded files in one column of a `datasets.Dataset`."""

    data: Any
    column: str

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def __getitem__(self, index: Any) -> Any:
        cell = self.data[int(index)][self.column]
        if cell["bytes"] is None:
            return Path(cell["path"])
        return cell["bytes"]


def _media_corpus(
    data: Any,
    column: str,
    label: str | None,
    modality: Modality,
    name: str,
    notes: list[str],
) -> Corpus:
    undecoded = getattr(_datasets(), modality.capitalize())(decode=False)
    data = data.cast_column(column, undecoded)
    labels = None
    if label is not None:
        cells = list(data[label])
        class_names = getattr(data.features[label], "names", None)
        if class_names is not None:
            cells = [class_name(cell, class_names) for cell in cells]
        if None not in cells:
            labels = labels_of(cells)
        notes.append(f"label column: {label!r}")
    notes.append(f"{modality} column: {column!r}")
    names = row_numbers(data.num_rows)
    files = _DatasetFiles(data.select_columns([column]), column)
    samples = Files(modality, files, names)
    return Corpus(folder_name(name), modality, samples, names, labels, tuple(notes))


def _loaded(parts: Sequence[str], streaming: bool) -> Any:
    """Return the data set `org/name`, where a third part names its configuration."""
    datasets = _datasets()
    reachable = hub_answers()
    if not reachable:  # it would be tried again and again, for half a minute
        datasets.config.HF_HUB_OFFLINE = True
        go_offline_without_hub()
    try:
        name = "/".join(parts[:2])
        return datasets.load_dataset(name, *parts[2:], streaming=streaming)
    except Exception as error:  # each builder, reader and connection raises its own
        fault = "is not cached and the hub cannot be reached: save it elsewhere with save_to_disk and give its folder"
        if reachable:
            fault = f"cannot be loaded ({first_line(error, 200)}): check its name, configuration and access"
        raise LayerscopeError(f"hf:{'/'.join(parts)} {fault}") from error
