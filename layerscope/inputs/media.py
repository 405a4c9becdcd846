from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import gcd
from os.path import splitext
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.core.errors import LayerscopeError, count, folder_name, listed, needs
from layerscope.inputs.columns import class_labels
from layerscope.inputs.corpus import Corpus, Labels
from layerscope.inputs.samples import Modality, Waveform

SUFFIXES: dict[Modality, tuple[str, ...]] = {
    "image": (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"),
    "audio": (".wav", ".flac", ".ogg"),
}
LOOKED_FOR = f"images ({', '.join(SUFFIXES['image'])}) or sounds ({', '.join(SUFFIXES['audio'])})"
SPLITS = {"train", "training", "test", "dev", "val", "valid", "validation"}
File = Path | bytes
NamedFiles = Sequence[tuple[str, File]]
"""Pairs of a relative name and a path, or the bytes themselves."""


@dataclass(frozen=True)
class Files(Sequence[Any]):
    """Image or sound files, on the disk (paths) or in memory (bytes), each decoded when it is read."""

    modality: Modality
    files: Sequence[File]
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
            raise LayerscopeError(
                f"{name} cannot be decoded ({error}): replace the file or remove it"
            ) from error

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
    return any(
        part.startswith(".") and part != "." or part == "__MACOSX" for part in name.split("/")
    )


def of_one_kind(
    files: NamedFiles, wanted: Modality | None, name: str, where: str, notes: Sequence[str]
) -> Corpus:
    """Return the images or the sounds among files as a corpus, of both kinds the wanted or the more frequent one."""
    kinds = Counter(kind for name, _ in files if (kind := media_kind(name)) is not None)
    chosen = wanted if wanted is not None and wanted in kinds else kinds.most_common(1)[0][0]
    left_out = [count(n, f"{kind} file") for kind, n in kinds.items() if kind != chosen]
    others = [f"{files} beside the {chosen} files left out" for files in left_out]
    taken = sorted(
        ((name, file) for name, file in files if media_kind(name) == chosen),
        key=lambda item: item[0],
    )
    return media_corpus(taken, chosen, name, where, [*notes, *others])


def media_corpus(
    files: NamedFiles, modality: Modality, name: str, where: str, notes: Sequence[str]
) -> Corpus:
    """Return files as a corpus labelled by folder or name prefix; broken ones are left out, and a note says so.

    Raises `LayerscopeError` where all are broken.
    """
    lines = list(notes)
    fault: Callable[[File], str | None] = image_fault if modality == "image" else sound_fault
    faults = {name: reason for name, file in files if (reason := fault(file)) is not None}
    if len(faults) == len(files):
        first, reason = next(iter(faults.items()))
        amount = count(len(files), f"{modality} file")
        raise LayerscopeError(
            f"{where}: none of its {amount} can be read ({first}: {reason}): replace them"
        )
    if faults:
        lines.append(
            f"{count(len(faults), f'broken {modality} file')} left out: {listed(list(faults))}"
        )
    whole = [(name, file) for name, file in files if name not in faults]
    names = tuple(name for name, _ in whole)
    samples = Files(modality, tuple(file for _, file in whole), names)
    return Corpus(folder_name(name), modality, samples, names, _labels(names, lines), tuple(lines))


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
    notes.append(
        f"label: the file name before the first '_' ({len(set(prefixes))} classes, such as {prefixes[0]!r})"
    )
    return class_labels(prefixes)


def _opened(file: File) -> Any:
    return BytesIO(file) if isinstance(file, bytes) else str(file)


def _read(file: File, size: int) -> bytes:
    """Return the first bytes of a file, or with a negative size the last."""
    if isinstance(file, bytes):
        return file[:size] if size > 0 else file[size:]
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size + size) if size < 0 else 0)
        return stream.read(abs(size))


def to_rgb(image: Any) -> Any:
    """Return a PIL image as 8-bit RGB, upright; 16-bit greys are scaled, not clipped."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        grey = np.asarray(image).astype(np.float64) / 257.0
        image = Image.fromarray(np.clip(np.rint(grey), 0, 255).astype(np.uint8))
    return image.convert("RGB")


def read_image(file: File) -> Any:
    """Read an image file as an RGB PIL image; raises what Pillow raises where it is broken."""
    from PIL import Image

    with Image.open(_opened(file)) as image:
        return to_rgb(image)


def array_image(array: Any) -> Any:
    """Return `[H, W]` or `[H, W, 1|3|4]` numbers as an RGB PIL image; floats in 0..1, integers in 0..255."""
    from PIL import Image

    pixels = np.asarray(array)
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4) and pixels.shape[0] in (1, 3, 4):
        pixels = np.moveaxis(pixels, 0, 2)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (3, 4)):
        raise LayerscopeError(
            f"an array of shape {pixels.shape} is not an image: give [H, W] or [H, W, 3]"
        )
    if not np.issubdtype(pixels.dtype, np.integer):
        if not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 1):
            raise LayerscopeError(
                "an image of floats has values outside 0..1: scale it, or give uint8"
            )
        pixels = np.rint(pixels * 255)
    return to_rgb(Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)))


def image_fault(file: File) -> str | None:
    """Return why an image file cannot be used, without decoding its pixels, or None."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(_opened(file)) as image:
            kind = image.format
            image.verify()
    except Exception as error:  # Pillow's readers raise whatever their parser meets
        return "it is not an image" if isinstance(error, UnidentifiedImageError) else str(error)
    # Pillow verifies a PNG's checksums but only a JPEG's header: a cut one lacks its end marker.
    return "it is cut short" if kind == "JPEG" and b"\xff\xd9" not in _read(file, -65536) else None


def soundfile() -> Any:
    """Return the module soundfile; raises `LayerscopeError` with the command that installs it."""
    with needs("audio", "sound files need soundfile, which is not installed"):
        import soundfile as module
    return module


def read_waveform(file: File) -> Waveform:
    """Read a sound file as one channel of float32; raises what soundfile raises where it is broken."""
    samples, rate = soundfile().read(_opened(file), dtype="float32", always_2d=True)
    return Waveform(mono(samples), int(rate))


def sound_fault(file: File) -> str | None:
    """Return why a sound file cannot be used, from its header alone, or None."""
    info: Callable[[Any], Any] = soundfile().info
    try:
        frames = info(_opened(file)).frames
        size = len(file) if isinstance(file, bytes) else file.stat().st_size
        head = _read(file, 8)
        # of a wav; one that was piped says nothing (0 or the most)
        stated = int.from_bytes(head[4:], "little")
        if head.startswith(b"RIFF") and 0 < stated < 2**32 - 1 - 2**16 and stated > size:
            return "it is cut short"
        return None if frames > 0 else "it holds no sound"
    except (RuntimeError, OSError) as error:
        return str(getattr(error, "error_string", error)).rstrip(".")


def mono(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Return one channel `[T]` of float32 from `[T]`, `[T, C]` or `[C, T]`; integers are scaled to -1..1."""
    array = np.asarray(samples)
    if array.ndim == 2:
        # Sounds are longer than they have channels, whichever axis comes first.
        array = array.mean(axis=int(np.argmin(array.shape)), dtype=np.float64).astype(array.dtype)
    if array.ndim != 1:
        raise LayerscopeError(
            f"a sound of shape {array.shape} is not [samples] or [samples, channels]"
        )
    if np.issubdtype(array.dtype, np.integer):
        return (array / float(np.iinfo(array.dtype).max + 1)).astype(np.float32)
    return np.ascontiguousarray(array, dtype=np.float32)


def resample(waveform: Waveform, rate: int) -> NDArray[np.float32]:
    """Return a waveform's samples `[T']` at another rate in hertz, as one channel of float32.

    >>> from layerscope.inputs import Waveform, resample
    >>> resample(Waveform(np.zeros(44100, dtype=np.float32), rate=44100), 16000).shape
    (16000,)
    """
    if rate < 1:
        raise LayerscopeError(f"rate is {rate} Hz: give 1 or more")
    samples = mono(waveform.samples)
    if rate == waveform.rate:
        return samples
    from scipy.signal import resample_poly

    shared = gcd(rate, waveform.rate)
    resampled = resample_poly(samples, rate // shared, waveform.rate // shared)
    return np.asarray(resampled, dtype=np.float32)
