import lzma
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.corpus import Corpus, listed
from layerscope.inputs.media import SUFFIXES, choose_kind, is_hidden, media_corpus, media_kind
from layerscope.inputs.samples import Modality

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".zip")
MEMORY_LIMIT = 2 * 2**30  # bytes, uncompressed
LOOKED_FOR = f"images ({', '.join(SUFFIXES['image'])}) or sounds ({', '.join(SUFFIXES['audio'])})"
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, EOFError, lzma.LZMAError, zlib.error, OSError, RuntimeError)


def is_archive(name: str) -> bool:
    """Tell whether a file name is that of a tar or zip archive."""
    return name.lower().endswith(ARCHIVES)


def archive_corpus(path: Path, modality: Modality | None, notes: list[str]) -> Corpus:
    """Return the images or sounds in an archive, read into memory.

    Raises `LayerscopeError` where it is damaged, holds neither, or is larger than 2 GiB unpacked.
    """
    if path.stat().st_size == 0:
        raise LayerscopeError(f"{path} is empty: give an archive of {LOOKED_FOR}")
    members = _zip_members if path.suffix.lower() == ".zip" else _tar_members
    found: list[tuple[str, bytes]] = []
    others: list[str] = []
    try:
        for name, data in members(path):
            if data is None:
                others.append(name)
            else:
                found.append((name, data))
    except _DAMAGE as error:
        raise LayerscopeError(f"{path} is not a whole archive ({error}): fetch or pack it again") from error
    if not found:
        held = f"; it holds {listed(others, 3)}: unpack it and give that" if others else ""
        raise LayerscopeError(f"{path} holds no {LOOKED_FOR}{held}")
    kind = choose_kind(Counter(media_kind(name) or "image" for name, _ in found), modality, notes)
    files = sorted((name, data) for name, data in found if media_kind(name) == kind)
    stem = path.name[: -len(next(end for end in ARCHIVES[::-1] if path.name.lower().endswith(end)))]
    return media_corpus(files, kind, stem, str(path), notes)


def _wanted(name: str, size: int, total: int, path: Path) -> bool:
    if total + size > MEMORY_LIMIT:
        raise LayerscopeError(f"{path} holds more than {MEMORY_LIMIT / 2**30:.3g} GiB: unpack it first")
    return media_kind(name) is not None and not is_hidden(name)


def _tar_members(path: Path) -> Iterator[tuple[str, bytes | None]]:
    total = 0
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is None:
                continue
            wanted = _wanted(member.name, member.size, total, path)
            total += member.size
            yield member.name, stream.read() if wanted else None


def _zip_members(path: Path) -> Iterator[tuple[str, bytes | None]]:
    total = 0
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            wanted = _wanted(member.filename, member.file_size, total, path)
            total += member.file_size
            yield member.filename, archive.read(member) if wanted else None
