"""Names of the tensors in a shard."""

from __future__ import annotations

from layerscope.runs.registry import about


def is_scalar(key: str) -> bool:
    """Return whether a tensor of a shard holds one value per sample and layer."""
    return about(key.split(".")[0]).needs == "tokens"


def parse_key(key: str) -> tuple[str, str | None, str]:
    """Return (metric, variant, site) of a per-sample tensor's key."""
    metric, *variant, site = key.split(".")
    return metric, ".".join(variant) or None, site
