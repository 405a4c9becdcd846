from collections.abc import Callable
from io import BytesIO
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.samples import Waveform


def soundfile() -> Any:
    """Return the module soundfile; raises `LayerscopeError` with the command that installs it."""
    try:
        import soundfile as module
    except (ImportError, OSError) as error:  # OSError: its C library is missing
        raise LayerscopeError(
            'sound files need soundfile, which is not installed: pip install "layerscope[audio]"'
        ) from error
    return module


def read_waveform(file: Path | bytes) -> Waveform:
    """Read a sound file as one channel of float32; raises what soundfile raises where it is broken."""
    samples, rate = soundfile().read(_opened(file), dtype="float32", always_2d=True)
    return Waveform(mono(samples), int(rate))


def sound_fault(file: Path | bytes) -> str | None:
    """Return why a sound file cannot be used, from its header alone, or None."""
    info: Callable[[Any], Any] = soundfile().info
    try:
        frames = info(_opened(file)).frames
        if _is_cut(file):
            return "it is cut short"
        return None if frames > 0 else "it holds no sound"
    except (RuntimeError, OSError) as error:
        return str(getattr(error, "error_string", error)).rstrip(".")


def _is_cut(file: Path | bytes) -> bool:
    """Return whether a wav is shorter than it says; one that was piped says nothing (0 or the largest number)."""
    if isinstance(file, bytes):
        head, size = file[:8], len(file)
    else:
        with file.open("rb") as stream:
            head, size = stream.read(8), file.stat().st_size
    stated = int.from_bytes(head[4:], "little")
    return head.startswith(b"RIFF") and 0 < stated < 2**32 - 1 - 2**16 and stated > size


def _opened(file: Path | bytes) -> Any:
    return BytesIO(file) if isinstance(file, bytes) else str(file)


def mono(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Return one channel `[T]` of float32 from `[T]`, `[T, C]` or `[C, T]`; integers are scaled to -1..1."""
    array = np.asarray(samples)
    if array.ndim == 2:
        # Sounds are longer than they have channels, whichever axis comes first.
        array = array.mean(axis=int(np.argmin(array.shape)), dtype=np.float64).astype(array.dtype)
    if array.ndim != 1:
        raise LayerscopeError(f"a sound of shape {array.shape} is not [samples] or [samples, channels]")
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
