"""Where the weights of a model go, and in which data type: to one device or to all."""

import os

import torch

from layerscope.core import LayerscopeError
from layerscope.models.options import LoadOptions


def torch_device(options: LoadOptions) -> torch.device:
    """Return the device; raise where it is not there."""
    if options.device in ("auto", "map"):
        if not torch.cuda.is_available():
            return torch.device("cpu")
        rank = os.environ.get("LOCAL_RANK")
        if rank is None:
            return torch.device("cuda")
        # of several processes each has its own GPU, as far as there are any
        return torch.device(f"cuda:{int(rank) % torch.cuda.device_count()}")
    try:
        device = torch.device(options.device)
        torch.empty(1, device=device).cpu()
    except Exception:  # each kind of device fails in its own way
        gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        here = ", ".join(("auto", "cpu", *gpus, "map"))
        raise LayerscopeError(
            f"device {options.device!r} is not on this machine: choose {here}"
        ) from None
    return device


def torch_dtype(options: LoadOptions) -> torch.dtype | str:
    """Return the dtype of the weights; `auto` is float32 on a CPU and the checkpoint's own elsewhere."""
    if options.dtype == "auto":
        if torch_device(options).type == "cpu" and not options.as_stored:
            return torch.float32
        return "auto"
    dtype: torch.dtype = getattr(torch, options.dtype)
    return dtype


def placing(options: LoadOptions) -> dict[str, str]:
    """Return what transformers takes to spread the weights; nothing where one device holds them."""
    if options.device != "map":
        return {}
    if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
        raise LayerscopeError(
            "several processes cannot each fill all devices: start one for `device='map'`"
        )
    return {"device_map": "auto"}
