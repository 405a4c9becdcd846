import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from layerscope.core.errors import LayerscopeError
from layerscope.core.words import listed
from layerscope.inputs.columns import Columns
from layerscope.inputs.corpus import Corpus
from layerscope.inputs.hub import saved_corpus
from layerscope.inputs.media import SUFFIXES, is_hidden, media_kind, of_one_kind
from layerscope.inputs.samples import Modality

ARCHIVES = (".tar.gz", ".tar.xz", ".tar.bz2", ".tar", ".tgz", ".txz", ".zip")
MEMORY_LIMIT = 2 * 2**30  # bytes, uncompressed
LOOKED_FOR = f"images ({', '.join(SUFFIXES['image'])}) or sounds ({', '.join(SUFFIXES['audio'])})"
_DESCRIPTIONS = ("readme", "source", "license", "licence")
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, EOFError, lzma.LZMAError, zlib.error, OSError, RuntimeError)


def folder_corpus(path: Path, modality: Modality | None, columns: Columns) -> Corpus:
    """Return the images or sounds in a folder and its sub-folders, or what its only archive holds.

    A folder that `datasets` saved is opened as such. Raises `LayerscopeError` where it holds none of these.
    """
    if (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists():
        return saved_corpus(path, columns)
    columns.refuse(str(path))
    inside = sorted((file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file())
    files = [(name, file) for name, file in inside if not is_hidden(name)]
    if any(media_kind(name) for name, _ in files):
        return of_one_kind(files, modality, path.resolve().name, str(path), ())
    rest = [file for _, file in files if not file.stem.lower().startswith(_DESCRIPTIONS)]
    if len(rest) == 1 and is_archive(rest[0].name):
        return archive_corpus(rest[0], modality, (f"opened the archive {rest[0].name}",))
    if not files:
        raise LayerscopeError(f"{path} is an empty folder: it should hold {LOOKED_FOR}")
    names = listed([name for name, _ in files], 3)
    raise LayerscopeError(f"{path} holds no {LOOKED_FOR}: give one of its files instead ({names})")


def is_archive(name: str) -> bool:
    """Return whether a file name is that of a tar or zip archive."""
    return name.lower().endswith(ARCHIVES)


def archive_corpus(path: Path, modality: Modality | None, notes: tuple[str, ...]) -> Corpus:
    """Return the images or sounds in an archive, read into memory.

    Raises `LayerscopeError` where it is damaged, holds neither, or is larger than 2 GiB unpacked.
    """
    if path.stat().st_size == 0:
        raise LayerscopeError(f"{path} is empty: give an archive of {LOOKED_FOR}")
    found: list[tuple[str, bytes]] = []
    others: list[str] = []
    total = 0
    try:
        for name, size, read in _members(path):
            total += size
            if total > MEMORY_LIMIT:
                raise LayerscopeError(f"{path} holds more than {MEMORY_LIMIT / 2**30:.3g} GiB: unpack it first")
            if media_kind(name) is None or is_hidden(name):
                others.append(name)
            else:
                found.append((name, read()))
    except _DAMAGE as error:
        raise LayerscopeError(f"{path} is not a whole archive ({error}): fetch or pack it again") from error
    if not found:
        held = f"; it holds {listed(others, 3)}: unpack it and give that" if others else ""
        raise LayerscopeError(f"{path} holds no {LOOKED_FOR}{held}")
    suffix = next(end for end in ARCHIVES if path.name.lower().endswith(end))
    return of_one_kind(found, modality, path.name[: -len(suffix)], str(path), notes)


def _members(path: Path) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """Yield the name of each file in an archive, its size and how to read it."""
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    yield entry.filename, entry.file_size, partial(archive.read, entry)
        return
    with tarfile.open(path, "r:*") as rolled:
        for member in rolled:
            stream = rolled.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield member.name, member.size, stream.read
