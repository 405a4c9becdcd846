from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from layerscope.core.errors import LayerscopeError, first_line, folder_name, near, needs
from layerscope.core.hub import hub_answers
from layerscope.inputs.columns import LABEL_COLUMNS, Columns, choose_column, choose_columns, class_labels, text_corpus
from layerscope.inputs.corpus import Corpus
from layerscope.inputs.media import Files
from layerscope.inputs.rows import HEAD, ArrowRows, arrow_tables, file_fingerprint
from layerscope.inputs.samples import Modality

_SPLITS = ("validation", "test", "train")
Found: TypeAlias = tuple[ArrowRows, str, str, str]
"""Rows, the name of the data, where they are, and a fingerprint."""
_MEDIA: dict[str, Modality] = {"Image": "image", "Audio": "audio"}


def hub_corpus(spec: str, columns: Columns) -> Corpus:
    """Return a data set of the hub by `name[/config][:split]`, or a saved one by its local path.

    The split defaults to the first of validation, test and train that exists, and a note says so. Without a hub only
    what is cached opens; everything else raises `LayerscopeError` within seconds.
    """
    place, split = _parsed(spec)
    if isinstance(place, Path):
        return saved_corpus(place, columns, split)
    return dataset_corpus(_loaded(place), "-".join(place), columns, f"hf:{'/'.join(place)}", split)


def hub_rows(spec: str, columns: Columns) -> Found | None:
    """Return the rows of texts that `hub_corpus` would open, read as they are needed; None of images and sounds."""
    place, split = _parsed(spec)
    if isinstance(place, Path):
        return saved_rows(place, columns, split)
    where = f"hf:{'/'.join(place)}"
    data, name, notes = _of_split(_loaded(place, streaming=True), "-".join(place), where, split)
    features = data.features or {}
    if _media_of(features, columns):
        return None
    rows = ArrowRows(lambda: data.with_format("arrow").iter(HEAD), features, where, notes)
    return rows, name, where, sha256(repr(rows.first).encode("utf-8", "surrogatepass")).hexdigest()


def saved_rows(path: Path, columns: Columns, split: str = "") -> Found | None:
    """Return the same of a data set that `datasets` saved with `save_to_disk`."""
    data, name, notes = _of_split(_saved(path), path.resolve().name, str(path), split)
    files = [Path(file["filename"]) for file in data.cache_files]
    if _media_of(data.features, columns) or not files:
        return None
    rows = ArrowRows(lambda: arrow_tables(files), data.features, str(path), notes, data.num_rows)
    return rows, name, str(path), file_fingerprint(files)


def _parsed(spec: str) -> tuple[Path | list[str], str]:
    """Return the folder that `name[/config][:split]` is, or the parts of its name on the hub, and the split."""
    spec, _, split = spec.removeprefix("hf:").removeprefix("//").partition(":")  # hf://name is hf:name
    if spec.startswith((".", "/", "~")):
        return Path(spec).expanduser(), split
    parts = spec.split("/")
    if not all(parts) or len(parts) > 3:
        raise LayerscopeError(
            f"'hf:{spec}' is not the name of a data set: write hf:name, hf:org/name or hf:name/config:split"
        )
    return parts, split


def is_saved(path: Path) -> bool:
    """Return whether `datasets` saved a folder."""
    return any((path / name).exists() for name in ("dataset_info.json", "dataset_dict.json"))


def saved_corpus(path: Path, columns: Columns, split: str = "") -> Corpus:
    """Return a data set that `datasets` saved with `save_to_disk`."""
    return dataset_corpus(_saved(path), path.resolve().name, columns, str(path), split)


def _saved(path: Path) -> Any:
    if not path.exists():
        raise LayerscopeError(f"{path} does not exist: give a folder written by save_to_disk")
    try:
        return _datasets().load_from_disk(str(path))
    except LayerscopeError:
        raise
    except Exception as error:  # pyarrow, json and datasets each raise their own
        raise LayerscopeError(
            f"{path} is not a data set written by save_to_disk ({first_line(error, 200)}): save it again"
        ) from error


def _datasets() -> Any:
    with needs("datasets", "Hugging Face data sets need datasets, which is not installed"):
        import datasets
    return datasets


def dataset_corpus(data: Any, name: str, columns: Columns, where: str, split: str = "") -> Corpus:
    """Return a `Dataset`, or one split of a `DatasetDict`, as a corpus of its texts, images or sounds."""
    data, name, notes = _of_split(data, name, where, split)
    if not hasattr(data, "num_rows"):
        raise LayerscopeError(f"{where} is a stream: give a data set with a length, such as list(stream.take(1000))")
    if data.num_rows == 0:
        raise LayerscopeError(f"{where} has no rows: give at least one sample")
    if found := _media_of(data.features, columns):
        media, modality = found
        label = choose_column(data.column_names, columns.label, LABEL_COLUMNS, where)
        return _media_corpus(data, media, label, modality, name, notes)
    head = data.select(range(min(HEAD, data.num_rows))).to_pandas()
    text, label, guessed = choose_columns(head, columns, where)
    named = Columns(text, label), columns.label is not None, [*notes, *guessed]
    return text_corpus(list(data[text]), name, where, _label_cells(data, label), *named)


def _of_split(data: Any, name: str, where: str, split: str) -> tuple[Any, str, list[str]]:
    """Return one split of a dict of them, its name, and a note where it was chosen; other data as they are."""
    if not isinstance(data, dict):
        return data, name, []
    notes = [] if split else [f"split: {(split := _usual(data))} (of {', '.join(data)})"]
    if split not in data:
        raise LayerscopeError(f"{where} has no split {split!r}{near(split, data)} (its splits: {', '.join(data)})")
    return data[split], f"{name}-{split}", notes


def _usual(splits: Iterable[str]) -> str:
    known = list(splits)
    return next((split for split in _SPLITS if split in known), known[0])


def _media_of(features: Mapping[str, Any], columns: Columns) -> tuple[str, Modality] | None:
    """Return the column of images or sounds that is to be read, and which these are; None of texts."""
    kinds = {column: _MEDIA.get(type(feature).__name__) for column, feature in features.items()}
    media = columns.text or next((column for column, kind in kinds.items() if kind), "")
    kind = kinds.get(media)
    return None if kind is None else (media, kind)


def _label_cells(data: Any, label: str | None) -> list[Any] | None:
    """Return a column's cells, classes by their names; -1, which hides a test set's labels, becomes None."""
    if label is None:
        return None
    cells = list(data[label])
    names = getattr(data.features[label], "names", None)
    if names is None:
        return cells
    return [None if cell is None or cell < 0 else names[cell] for cell in cells]


class _DatasetFiles(Sequence[Any]):
    """The undecoded files in one column of a `datasets.Dataset`."""

    def __init__(self, data: Any, column: str) -> None:
        self._data, self._column = data, column

    def __len__(self) -> int:
        return int(self._data.num_rows)

    def __getitem__(self, index: Any) -> Any:
        cell = self._data[int(index)][self._column]
        return cell["bytes"] if cell["bytes"] is not None else Path(cell["path"])


def _media_corpus(data: Any, column: str, label: str | None, modality: Modality, name: str, notes: list[str]) -> Corpus:
    data = data.cast_column(column, getattr(_datasets(), modality.capitalize())(decode=False))
    cells = _label_cells(data, label)
    labels = None
    if cells is not None and None not in cells:
        labels = class_labels(cells)
        notes.append(f"label column: {label!r}")
    names = tuple(map(str, range(data.num_rows)))
    samples = Files(modality, _DatasetFiles(data.select_columns([column]), column), names)
    return Corpus(folder_name(name), modality, samples, names, labels, (*notes, f"{modality} column: {column!r}"))


def _loaded(parts: Sequence[str], streaming: bool = False) -> Any:
    """Return `org/name`, or where that does not exist `name` with the second part as its configuration."""
    datasets = _datasets()
    tries: list[tuple[str, str | None]] = [("/".join(parts[:2]), parts[2] if len(parts) == 3 else None)]
    if len(parts) == 2:
        tries.append((parts[0], parts[1]))
    reachable, shown = hub_answers(), "/".join(parts)
    failed: list[Exception] = []
    for name, config in tries:
        try:
            with _hub_offline(not reachable):
                return datasets.load_dataset(name, config, streaming=streaming)
        except Exception as error:  # each builder, reader and connection raises its own
            unknown = type(error).__name__ in ("DatasetNotFoundError", "FileNotFoundError")
            failed = failed if failed and unknown else [error]
    if reachable:
        fault = f"cannot be loaded ({first_line(failed[0], 200)}): check its name, configuration and access"
    else:
        fault = "is not cached and the hub cannot be reached: save it elsewhere with save_to_disk and give its folder"
    raise LayerscopeError(f"hf:{shown} {fault}") from failed[0]


@contextmanager
def _hub_offline(offline: bool) -> Iterator[None]:
    """Keep `datasets` from trying the hub again and again, which takes half a minute."""
    import datasets.config
    import huggingface_hub.constants

    modules = (datasets.config, huggingface_hub.constants)
    before = [module.HF_HUB_OFFLINE for module in modules]
    for module in modules:
        module.HF_HUB_OFFLINE = offline or module.HF_HUB_OFFLINE
    try:
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = value
