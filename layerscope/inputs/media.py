"""Images and sounds: files that are decoded when they are looked at, and arrays that are taken for one or the other.

An image is 8-bit RGB, upright; a sound one channel of float32 between -1 and 1. All files are
opened once before the long job, so that a broken one is reported before the model is loaded.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.core import LayerscopeError, first_line, folder_name
from layerscope.core.errors import needs
from layerscope.inputs.columns import class_labels
from layerscope.inputs.corpus import Corpus, Labels
from layerscope.inputs.samples import Modality, Waveform, content

SUFFIXES: dict[Modality, tuple[str, ...]] = {
    "image": (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"),
    "audio": (".wav", ".flac", ".ogg"),
}  # fmt: skip
LOOKED_FOR = f"images ({', '.join(SUFFIXES['image'])}) or sounds ({', '.join(SUFFIXES['audio'])})"
SPLITS = {"train", "training", "test", "dev", "val", "valid", "validation"}
File = Path | bytes


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
        with _decoded(self.names[index]):
            return read(self.files[index])

    def stored(self, index: int) -> bytes:
        """Return a file's bytes."""
        return content(self.files, index)


def media_kind(name: str) -> Modality | None:
    """Return `image` or `audio` by a file name's suffix, or None.

    >>> media_kind("cat.JPG"), media_kind("cat.txt")
    ('image', None)
    """
    for modality, suffixes in SUFFIXES.items():
        if name.lower().endswith(suffixes):
            return modality
    return None


def is_hidden(name: str) -> bool:
    """Return whether a relative path is what systems leave behind: dot files and `__MACOSX`.

    >>> is_hidden("cats/.DS_Store"), is_hidden("__MACOSX/cat.png"), is_hidden("./cat.png")
    (True, True, False)
    """
    parts = {*name.split("/")} - {"."}
    return "__MACOSX" in parts or any(part.startswith(".") for part in parts)


def media_corpus(
    files: Sequence[tuple[str, Path]], modality: Modality, name: str
) -> Corpus:
    """Return files, each with its name, as a corpus.

    Raises `LayerscopeError` for the first that is broken.
    """
    for title, file in files:
        with _decoded(title):
            if modality == "image":
                _check_image(file)
            else:
                soundfile().info(str(file))
    names, paths = zip(*files, strict=True)
    samples = Files(modality, paths, names)
    return Corpus(folder_name(name), modality, samples, names)


def folder_labels(names: Sequence[str]) -> Labels | None:
    """Return the last folder of each file; None where all lie in one, or in one for each split of the data.

    >>> folder_labels(["cats/1.png", "dogs/1.png"]), folder_labels(["train/1.png", "test/1.png"])
    (('cats', 'dogs'), None)
    """
    folders = [PurePosixPath(name).parent.name for name in names]
    if len(set(folders)) == 1 or "" in folders or {*map(str.lower, folders)} <= SPLITS:
        return None
    return class_labels(folders)


def _opened(file: File) -> Any:
    """Return what a decoder reads a file from."""
    return BytesIO(file) if isinstance(file, bytes) else str(file)


@contextmanager
def _decoded(name: str) -> Iterator[None]:
    """Within, what a decoder meets in a damaged file becomes one line."""
    try:
        yield
    except LayerscopeError:
        raise
    except Exception as error:
        raise LayerscopeError(
            f"{name} cannot be decoded ({first_line(error)}): replace the file or remove it"
        ) from error


def _check_image(file: Path) -> None:
    from PIL import Image

    with Image.open(file) as image:
        image.verify()


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
    channels = (1, 3, 4)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim == 3 and pixels.shape[2] not in channels:
        pixels = np.moveaxis(pixels, 0, 2)
    if pixels.ndim != 3 or pixels.shape[2] not in channels:
        raise LayerscopeError(
            f"an array of shape {pixels.shape} is not an image: give [H, W] or [H, W, 3]"
        )
    if not np.issubdtype(pixels.dtype, np.integer):
        if not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 1):
            raise LayerscopeError(
                "an image of floats has values outside 0..1: scale it, or give uint8"
            )
        pixels = np.rint(pixels * 255)
    pixels = np.clip(pixels, 0, 255).astype(np.uint8)
    if pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    return to_rgb(Image.fromarray(pixels))


def soundfile() -> Any:
    """Return the module soundfile.

    Raises `LayerscopeError` with the command that installs it.
    """
    with needs("audio", "sound files need soundfile, which is not installed"):
        import soundfile as module
    return module


def read_waveform(file: File) -> Waveform:
    """Read a sound file as one channel of float32; raises what soundfile raises where it is broken."""
    samples, rate = soundfile().read(_opened(file), dtype="float32", always_2d=True)
    return Waveform(mono(samples), int(rate))


def mono(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Return one channel `[T]` of float32 from `[T]`, `[T, C]` or `[C, T]`.

    Integers are scaled to -1..1.
    """
    array = np.asarray(samples)
    if array.ndim == 2:
        # Sounds are longer than they have channels, whichever axis comes first.
        channels = int(np.argmin(array.shape))
        mono = array.mean(axis=channels, dtype=np.float64)
        array = mono.astype(array.dtype)
    if array.ndim != 1:
        raise LayerscopeError(
            f"a sound of shape {array.shape} is not [samples] or [samples, channels]"
        )
    if np.issubdtype(array.dtype, np.integer):
        top = float(np.iinfo(array.dtype).max + 1)
        return (array / top).astype(np.float32)
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

    resampled = resample_poly(samples, rate, waveform.rate)
    return np.asarray(resampled, dtype=np.float32)
