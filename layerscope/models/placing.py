"""Where the weights of a model go, and in which data type: to one device, to all, or in parts to processes."""

import os
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError, needs
from layerscope.core.processes import join_tensors
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
        here = [
            "auto",
            "cpu",
            *[f"cuda:{i}" for i in range(torch.cuda.device_count())],
            "map",
        ]
        raise LayerscopeError(
            f"device {options.device!r} is not on this machine: choose {', '.join(here)}"
        ) from None
    return device


def torch_dtype(options: LoadOptions) -> torch.dtype | str:
    """Return the dtype of the weights; `auto` is float32 on a CPU and the checkpoint's own elsewhere."""
    if options.dtype == "auto":
        on_cpu = torch_device(options).type == "cpu"
        return torch.float32 if on_cpu and not options.as_stored else "auto"
    dtype: torch.dtype = getattr(torch, options.dtype)
    return dtype


def placing(options: LoadOptions) -> dict[str, Any]:
    """Return what transformers takes to spread the weights; nothing where one device holds them."""
    name = next(
        (
            name
            for name in ("max_memory", "offload")
            if getattr(options, name) is not None
        ),
        None,
    )
    if options.parallel is not None:
        return _parallel(options, name)
    if options.device != "map":
        if name is not None:
            raise LayerscopeError(
                f"`{name}` is for models spread over several devices: add `device='map'`"
            )
        return {}
    with needs(
        "accelerate",
        "spreading a model over devices needs accelerate, which is not installed",
    ):
        import accelerate  # noqa: F401  # what transformers spreads models with
    most = options.max_memory
    if most is None and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
        raise LayerscopeError(
            "several processes cannot each fill all devices: give each what it may fill with `max_memory`"
        )
    folder = {} if options.offload is None else {"offload_folder": str(options.offload)}
    return {"device_map": "auto", "max_memory": most and dict(most), **folder}


def _parallel(options: LoadOptions, other: str | None) -> dict[str, Any]:
    if options.device != "auto" or other is not None:
        other = other or "device"
        raise LayerscopeError(
            f"`parallel` already places every weight: leave `{other}` out"
        )
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        raise LayerscopeError(
            "`parallel='tensor'` needs one process per part of the weights: start it with torchrun "
            "--nproc-per-node N"
        )
    join_tensors()
    from transformers.distributed import DistributedConfig

    try:
        return {"distributed_config": DistributedConfig(tp_plan="auto")}
    except TypeError:  # transformers before 5.17
        return {"tp_plan": "auto"}
