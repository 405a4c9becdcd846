from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os.path import splitext
from pathlib import Path, PurePosixPath
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.words import count, folder_name, listed
from layerscope.inputs.audio import read_waveform, sound_fault
from layerscope.inputs.columns import class_labels
from layerscope.inputs.corpus import Corpus, Labels
from layerscope.inputs.images import image_fault, read_image
from layerscope.inputs.samples import Modality

SUFFIXES: dict[Modality, tuple[str, ...]] = {
    "image": (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"),
    "audio": (".wav", ".flac", ".ogg"),
}
SPLITS = {"train", "training", "test", "dev", "val", "valid", "validation"}
NamedFiles = Sequence[tuple[str, Path | bytes]]
"""Pairs of a relative name and a path, or the bytes themselves."""


@dataclass(frozen=True)
class Files(Sequence[Any]):
    """Image or sound files, on the disk (paths) or in memory (bytes), each decoded when it is read."""

    modality: Modality
    files: Sequence[Path | bytes]
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Files(self.modality, self.files[index], self.names[index])
        read = read_image if self.modality == "image" else read_waveform
        try:
            return read(self.files[index])
        except LayerscopeError:
            raise
        except Exception as error:  # whatever a decoder meets in a damaged file
            name = self.names[index]
            raise LayerscopeError(f"{name} cannot be decoded ({error}): replace the file or remove it") from error

    def stored(self, index: int) -> bytes:
        """Return a file's bytes."""
        file = self.files[index]
        return file if isinstance(file, bytes) else file.read_bytes()


def media_kind(name: str) -> Modality | None:
    """Return `image` or `audio` by a file name's suffix, or None."""
    suffix = splitext(name)[1].lower()
    return next((modality for modality, suffixes in SUFFIXES.items() if suffix in suffixes), None)


def is_hidden(name: str) -> bool:
    """Return whether a relative path is what systems leave behind: dot files and `__MACOSX`."""
    return any(part.startswith(".") and part != "." or part == "__MACOSX" for part in name.split("/"))


def of_one_kind(files: NamedFiles, wanted: Modality | None, name: str, where: str, notes: Sequence[str]) -> Corpus:
    """Return the images or the sounds among files as a corpus, of both kinds the wanted or the more frequent one."""
    kinds = Counter(kind for name, _ in files if (kind := media_kind(name)) is not None)
    chosen = wanted if wanted is not None and wanted in kinds else kinds.most_common(1)[0][0]
    others = [
        f"{count(kinds[kind], f'{kind} file')} beside the {chosen} files left out" for kind in kinds if kind != chosen
    ]
    taken = sorted(((name, file) for name, file in files if media_kind(name) == chosen), key=lambda item: item[0])
    return media_corpus(taken, chosen, name, where, [*notes, *others])


def media_corpus(files: NamedFiles, modality: Modality, name: str, where: str, notes: Sequence[str]) -> Corpus:
    """Return files as a corpus labelled by folder or name prefix; broken ones are left out, and a note says so.

    Raises `LayerscopeError` where all are broken.
    """
    found = list(notes)
    fault: Callable[[Path | bytes], str | None] = image_fault if modality == "image" else sound_fault
    faults = {name: reason for name, file in files if (reason := fault(file)) is not None}
    if len(faults) == len(files):
        first, reason = next(iter(faults.items()))
        amount = count(len(files), f"{modality} file")
        raise LayerscopeError(f"{where}: none of its {amount} can be read ({first}: {reason}): replace them")
    if faults:
        found.append(f"{count(len(faults), f'broken {modality} file')} left out: {listed(list(faults))}")
    whole = [(name, file) for name, file in files if name not in faults]
    names = tuple(name for name, _ in whole)
    samples = Files(modality, tuple(file for _, file in whole), names)
    return Corpus(folder_name(name), modality, samples, names, _labels(names, found), tuple(found))


def _labels(names: Sequence[str], notes: list[str]) -> Labels | None:
    """Return the last folder of each file; in one folder, or in one for each split, the prefix of its name."""
    paths = [PurePosixPath(name) for name in names]
    folders = {path.parent for path in paths}
    if len(folders) == 1:
        return _prefix_labels(paths, notes)
    loose = sum(path.parent.name == "" for path in paths)
    if loose:
        notes.append(f"no labels: {count(loose, 'file')} of {len(paths):,} in no sub-folder")
        return None
    leaves, tops = ({folder.parts[part] for folder in folders} for part in (-1, 0))
    for parts in (leaves, tops):
        if len(parts) > 1 and {part.lower() for part in parts} <= SPLITS:
            notes.append(f"splits {listed(sorted(parts))}: all are used")
            break
    if {leaf.lower() for leaf in leaves} <= SPLITS:
        return _prefix_labels(paths, notes)
    notes.append(f"label: the last folder ({len(leaves)} classes)")
    return class_labels([path.parent.name for path in paths])


def _prefix_labels(paths: Sequence[PurePosixPath], notes: list[str]) -> Labels | None:
    """Return what comes before the first `_` of each name, where that looks like a class."""
    prefixes = [path.stem.partition("_")[0] for path in paths]
    all_have_rest = all("_" in path.stem.strip("_") for path in paths)
    if not all_have_rest or not 2 <= len(set(prefixes)) <= len(paths) / 2:
        return None
    notes.append(f"label: the file name before the first '_' ({len(set(prefixes))} classes, such as {prefixes[0]!r})")
    return class_labels(prefixes)
