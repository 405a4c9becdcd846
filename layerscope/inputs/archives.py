"""Images or sounds in an archive, read into memory."""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from layerscope.core.errors import LayerscopeError, listed
from layerscope.inputs.corpus import Corpus
from layerscope.inputs.media import LOOKED_FOR, is_hidden, media_kind, of_one_kind
from layerscope.inputs.samples import Modality

ARCHIVES = (".tar.gz", ".tar.xz", ".tar.bz2", ".tar", ".tgz", ".txz", ".zip")
MEMORY_LIMIT = 2 * 2**30  # bytes, uncompressed
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    lzma.LZMAError,
    zlib.error,
    OSError,
    RuntimeError,
)


def is_archive(name: str) -> bool:
    """Return whether a file is an archive, by its name."""
    return name.lower().endswith(ARCHIVES)


def archive_corpus(path: Path, modality: Modality | None, notes: tuple[str, ...]) -> Corpus:
    """Return the images or sounds in an archive, read into memory.

    Raises `LayerscopeError` where it is damaged, holds neither, or is larger than 2 GiB unpacked.
    """
    if path.stat().st_size == 0:
        raise LayerscopeError(f"{path} is empty: give an archive of {LOOKED_FOR}")
    media: list[tuple[str, bytes]] = []
    others: list[str] = []
    total = 0
    try:
        for name, size, read in _members(path):
            total += size
            if total > MEMORY_LIMIT:
                raise LayerscopeError(
                    f"{path} holds more than {MEMORY_LIMIT / 2**30:.3g} GiB: unpack it first"
                )
            if media_kind(name) is None or is_hidden(name):
                others.append(name)
            else:
                media.append((name, read()))
    except _DAMAGE as error:
        raise LayerscopeError(
            f"{path} is not a complete archive ({error}): download or pack it again"
        ) from error
    if not media:
        held = f"; it holds {listed(others, 3)}: unpack it and give that" if others else ""
        raise LayerscopeError(f"{path} holds no {LOOKED_FOR}{held}")
    suffix = next(end for end in ARCHIVES if path.name.lower().endswith(end))
    return of_one_kind(media, modality, path.name[: -len(suffix)], str(path), notes)


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
