from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os.path import splitext
from pathlib import Path, PurePosixPath
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.audio import read_waveform, sound_fault
from layerscope.inputs.columns import class_labels
from layerscope.inputs.corpus import Corpus, Labels, count, folder_name, listed
from layerscope.inputs.images import image_fault, read_image
from layerscope.inputs.samples import Modality

SUFFIXES: dict[Modality, tuple[str, ...]] = {
    "image": (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"),
    "audio": (".wav", ".flac", ".ogg"),
}
SPLITS = {"train", "training", "test", "dev", "val", "valid", "validation"}


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
    """Tell whether a relative path is what systems leave behind: dot files and `__MACOSX`."""
    return any(part.startswith(".") and part != "." or part == "__MACOSX" for part in name.split("/"))


def choose_kind(kinds: Counter[Modality], wanted: Modality | None, notes: list[str]) -> Modality:
    """Return the modality to take where files of both kinds lie together; the other is told."""
    chosen = wanted if wanted is not None and wanted in kinds else kinds.most_common(1)[0][0]
    others = sorted(set(kinds) - {chosen})
    notes += [f"{count(kinds[other], f'{other} file')} beside the {chosen} files left out" for other in others]
    return chosen


def media_corpus(
    files: Sequence[tuple[str, Path | bytes]], modality: Modality, name: str, where: str, notes: Sequence[str]
) -> Corpus:
    """Return files as a corpus labelled by folder or name prefix; broken ones are left out and told.

    `files` are pairs of relative name and path or bytes. Raises `LayerscopeError` where all are broken.
    """
    told = list(notes)
    whole = _whole(files, modality, where, told)
    names = tuple(name for name, _ in whole)
    samples = Files(modality, tuple(file for _, file in whole), names)
    return Corpus(folder_name(name), modality, samples, names, _labels(names, told), tuple(told))


def _whole(
    files: Sequence[tuple[str, Path | bytes]], modality: Modality, where: str, notes: list[str]
) -> list[tuple[str, Path | bytes]]:
    fault: Callable[[Path | bytes], str | None] = image_fault if modality == "image" else sound_fault
    faults = {name: reason for name, file in files if (reason := fault(file)) is not None}
    if len(faults) == len(files):
        name, reason = next(iter(faults.items()))
        raise LayerscopeError(
            f"{where}: none of its {count(len(files), f'{modality} file')} can be read ({name}: {reason}): replace them"
        )
    if faults:
        notes.append(f"{count(len(faults), f'broken {modality} file')} left out: {listed(list(faults))}")
    return [(name, file) for name, file in files if name not in faults]


def _labels(names: Sequence[str], notes: list[str]) -> Labels | None:
    paths = [PurePosixPath(name) for name in names]
    folders = {path.parent for path in paths}
    if len(folders) == 1:
        return _prefix_labels(paths, notes)
    leaves = {folder.name for folder in folders}
    if "" in leaves:
        loose = sum(path.parent.name == "" for path in paths)
        notes.append(f"no labels: {count(loose, 'file')} of {len(paths):,} in no sub-folder")
        return None
    tops = {folder.parts[0] for folder in folders}
    if {leaf.lower() for leaf in leaves} <= SPLITS:
        notes.append(f"splits {listed(sorted(leaves))}: all are used")
        return _prefix_labels(paths, notes)
    if len(tops) > 1 and {top.lower() for top in tops} <= SPLITS:
        notes.append(f"splits {listed(sorted(tops))}: all are used")
    notes.append(f"label: the last folder ({len(leaves)} classes)")
    return class_labels([path.parent.name for path in paths])


def _prefix_labels(paths: Sequence[PurePosixPath], notes: list[str]) -> Labels | None:
    """Return what stands before the first `_` of each name, where that looks like a class."""
    prefixes = [path.stem.partition("_")[0] for path in paths]
    all_have_rest = all("_" in path.stem.strip("_") for path in paths)
    if not all_have_rest or not 2 <= len(set(prefixes)) <= len(paths) / 2:
        return None
    notes.append(f"label: the file name before the first '_' ({len(set(prefixes))} classes, such as {prefixes[0]!r})")
    return class_labels(prefixes)
