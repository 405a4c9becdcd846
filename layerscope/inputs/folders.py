from collections import Counter
from pathlib import Path

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.archives import LOOKED_FOR, archive_corpus, is_archive
from layerscope.inputs.columns import Columns
from layerscope.inputs.corpus import Corpus, listed
from layerscope.inputs.hub import saved_corpus
from layerscope.inputs.media import choose_kind, is_hidden, media_corpus, media_kind
from layerscope.inputs.samples import Modality

_DESCRIPTIONS = ("readme", "source", "license", "licence")


def folder_corpus(path: Path, modality: Modality | None, columns: Columns) -> Corpus:
    """Return the images or sounds in a folder and its sub-folders, or what its only archive holds.

    A folder that `datasets` saved is opened as such. Raises `LayerscopeError` where it holds none of these.
    """
    if (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists():
        return saved_corpus(path, columns)
    columns.refuse(str(path))
    relative = sorted((file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file())
    visible = [(name, file) for name, file in relative if not is_hidden(name)]
    kinds = Counter(kind for name, _ in visible if (kind := media_kind(name)) is not None)
    notes: list[str] = []
    if kinds:
        kind = choose_kind(kinds, modality, notes)
        files = [(name, file) for name, file in visible if media_kind(name) == kind]
        return media_corpus(files, kind, path.resolve().name, str(path), notes)
    packed = [file for name, file in visible if is_archive(name)]
    if len(packed) == 1 and all(_describes(file) for _, file in visible if file not in packed):
        return archive_corpus(packed[0], modality, [f"opened the archive {packed[0].name}"])
    if not visible:
        raise LayerscopeError(f"{path} is an empty folder: it should hold {LOOKED_FOR}")
    held = listed([name for name, _ in visible], 3)
    raise LayerscopeError(f"{path} holds no {LOOKED_FOR}: give one of its files instead ({held})")


def _describes(file: Path) -> bool:
    return file.stem.lower().startswith(_DESCRIPTIONS)
