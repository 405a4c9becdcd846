import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

KEY_BYTES = 16
Modality = Literal["text", "image", "audio", "tensor"]


@dataclass(frozen=True, eq=False)
class Waveform:
    """One sound: float32 samples `[T]` between -1 and 1, and their rate in hertz.

    >>> from layerscope.inputs import Waveform
    >>> second = Waveform(np.zeros(16000, dtype=np.float32), rate=16000)
    >>> len(second.samples) / second.rate
    1.0
    """

    samples: NDArray[np.float32]
    rate: int


@dataclass(frozen=True)
class Window:
    """A stretch of running text: its source span, and its token ids with the tokenizer's special tokens.

    >>> from layerscope.inputs import Window
    >>> Window("good food", (101, 2204, 2833, 102)).text
    'good food'
    """

    text: str
    ids: tuple[int, ...]


class Conversation(str):
    """Messages of a chat, each with a role and its content; as a text it is the contents, one a line.

    >>> from layerscope.inputs.samples import Conversation
    >>> Conversation([{"role": "user", "content": "Was the food good?"}])
    'Was the food good?'
    """

    messages: tuple[dict[str, str], ...]

    def __new__(cls, messages: Iterable[dict[str, str]]) -> "Conversation":
        """Make a conversation of its messages."""
        kept = tuple(messages)
        made = super().__new__(cls, "\n".join(each["content"] for each in kept))
        made.messages = kept
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.messages,)


@dataclass(frozen=True, eq=False)
class Picked(Sequence[Any]):
    """Some samples of another sequence, by index, without touching them."""

    base: Sequence[Any]
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Picked(self.base, self.indices[index])
        return self.base[self.indices[index]]


class Lines(tuple[str, ...]):
    """The non-empty lines of a text, which is kept whole beside them."""

    text: str
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> "Lines":
        """Return the lines of a text; they are numbered from 1, empty ones included."""
        filled = [
            (number, line)
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip()
        ]
        lines = cls(line for _, line in filled)
        lines.text = text
        lines.numbers = tuple(number for number, _ in filled)
        return lines


def pick(samples: Sequence[Any], indices: Sequence[int]) -> Sequence[Any]:
    """Return the samples at some indices; what is lazy stays lazy."""
    return (
        tuple(samples[i] for i in indices)
        if isinstance(samples, (list, tuple))
        else Picked(samples, indices)
    )


def content(samples: Sequence[Any], index: int) -> bytes:
    """Return bytes that no other sample has; files are read, not decoded."""
    if isinstance(samples, Picked):
        return content(samples.base, samples.indices[index])
    stored = getattr(samples, "stored", None)
    return _encoded(samples[index]) if stored is None else stored(index)


def key_of(sample: Any) -> bytes:
    """Return the key by which the states of a sample are found, 16 bytes; of a file (a path or bytes) of its bytes.

    A prompt is part of a text.
    """
    return hashlib.sha256(_encoded(sample)).digest()[:KEY_BYTES]


def hash_of(value: Any) -> str:
    """Return the sha256 (hex) of what a value prints."""
    return hashlib.sha256(_encoded(repr(value))).hexdigest()


def _encoded(sample: Any) -> bytes:
    if isinstance(sample, str):
        return sample.encode("utf-8", "surrogatepass")
    if isinstance(sample, bytes):
        return sample
    if isinstance(sample, Path):
        return sample.read_bytes()
    if isinstance(sample, Window):
        return repr(sample.ids).encode() + _encoded(sample.text)
    if isinstance(sample, Waveform):
        return str(sample.rate).encode() + _encoded(sample.samples)
    # a torch tensor; numpy lacks bfloat16, so its bytes are taken as they lie
    if hasattr(sample, "detach"):
        import torch

        flat = sample.detach().cpu().contiguous().reshape(-1)
        data: bytes = flat.view(torch.uint8).numpy().tobytes()
        return f"{sample.dtype}{tuple(sample.shape)}".encode() + data
    if hasattr(sample, "getbands"):  # a PIL image
        pixels: bytes = sample.tobytes()
        return f"{sample.mode}{sample.size}".encode() + pixels
    array = np.asarray(sample)
    return f"{array.dtype}{array.shape}".encode() + array.tobytes()
