"""The mask of a model's states where it gives one for many values of its input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from layerscope.models.forward import FAILURES

COUNTERS = ("_get_feat_extract_output_lengths", "_get_subsampling_output_length")
"""What speech models of transformers call the function that says how many states an input of a length gives."""


def frame_mask(mask: Tensor | None, frames: int, module: nn.Module) -> Tensor | None:
    """Return a mask of the states' own length from one of the inputs' length.

    Speech models read thousands of samples or 10 ms features and give one state for several; a model that can count
    them is asked, else the share of real inputs is kept.
    """
    if mask is None or mask.shape[1] == frames:
        return mask
    real = mask.sum(1)
    lengths = counted(real, mask.shape[1], frames, module)
    lengths = torch.ceil(real * (frames / mask.shape[1])) if lengths is None else lengths
    lengths = lengths.long().clamp(1, frames)
    return (torch.arange(frames, device=mask.device) < lengths[:, None]).long()


def counted(real: Tensor, whole: int, frames: int, module: nn.Module) -> Tensor | None:
    """Return how many states inputs of these lengths give by the model's own count, None where it has none.

    Of `whole` inputs it must count the `frames` that there are.
    """
    for name in COUNTERS:
        count = getattr(module, name, None)
        if count is None:
            continue
        try:
            lengths, most = count(real), count(torch.tensor([whole], device=real.device))
        except FAILURES:  # one that counts something else
            continue
        if isinstance(lengths, Tensor) and isinstance(most, Tensor) and int(most) == frames:
            return lengths
    return None
