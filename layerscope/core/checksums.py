"""Tensors in a safetensors file that says whether it is still what was written, by a checksum in its header."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open

if TYPE_CHECKING:
    from torch import Tensor

SEAL = "sha256"


def save_sealed(tensors: Mapping[str, "Tensor"], path: Path) -> None:
    """Write tensors with their checksum."""
    from safetensors.torch import save_file

    ready = {key: tensors[key].contiguous() for key in sorted(tensors)}
    save_file(ready, path, {SEAL: _sum(ready.items())})


def is_intact(path: Path) -> bool:
    """Return whether a file that can be read holds what was written; one without a checksum counts as whole."""
    with safe_open(path, framework="pt") as file:
        seal = (file.metadata() or {}).get(SEAL)
        return seal is None or seal == _sum(
            (key, file.get_tensor(key)) for key in sorted(file.keys())
        )


def _sum(tensors: Iterable[tuple[str, "Tensor"]]) -> str:
    import torch

    sums = hashlib.sha256()
    for key, tensor in tensors:
        sums.update(key.encode())
        sums.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sums.hexdigest()
