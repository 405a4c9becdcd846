"""The mask of a model's states where it gives one for many values of its input."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def frame_mask(mask: Tensor | None, frames: int, module: nn.Module) -> Tensor | None:
    """Return a mask of the states' own length from one of the inputs' length.

    Speech models read thousands of samples or 10 ms features and give one state for several; where the model says
    how many (`_get_feat_extract_output_lengths`) it is asked, else the share of real inputs is kept.
    """
    if mask is None or mask.shape[1] == frames:
        return mask
    real = mask.sum(1)
    lengths = None
    if hasattr(module, "_get_feat_extract_output_lengths"):
        lengths = module._get_feat_extract_output_lengths(real)  # type: ignore[operator]
        whole = module._get_feat_extract_output_lengths(torch.tensor(mask.shape[1]))  # type: ignore[operator]
        if int(whole) != frames:
            lengths = None
    if lengths is None:
        lengths = torch.ceil(real * (frames / mask.shape[1]))
    lengths = lengths.long().clamp(1, frames)
    return (torch.arange(frames, device=mask.device) < lengths[:, None]).long()
