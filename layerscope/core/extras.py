"""What needs an extra of layerscope: said before the work begins."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from layerscope.core.errors import LayerscopeError

PACKAGES = {
    "accelerate": ("accelerate",),
    "charts": ("vl_convert",),
    "evaluation": ("mteb",),
    "lm-eval": ("lm_eval",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "sentence-transformers": ("sentence_transformers",),
}
"""The packages that an extra brings and that are needed to the end of a job."""
NEEDED_BY = {
    "report": "charts",
    "train": "accelerate",
    "`figures`": "charts",
    "`format='onnx'`": "onnx",
    "`format='sentence-transformers'`": "sentence-transformers",
    "`task='sentence-similarity'`": "sentence-transformers",
}
"""The extra that a verb needs, an option whatever its value, or one value of an option."""


def lacking(extra: str) -> str | None:
    """Return the first package of an extra that is not installed, None where all of them are."""
    return next(
        (package for package in PACKAGES[extra] if find_spec(package) is None), None
    )


def require(extra: str, what: str) -> None:
    """Raise where a package is not installed that `what` needs.

    >>> from layerscope.core.extras import require
    >>> require("charts", "the picture")
    """
    package = lacking(extra)
    if package is not None:
        raise LayerscopeError(
            f'{what} needs {package}: pip install "layerscope[{extra}]"'
        )


def require_for(verb: str, options: Mapping[str, Any]) -> None:
    """Raise where a call of a verb needs an extra that is not installed."""
    calls = [verb]
    for name, value in options.items():
        if value is not None:
            calls.append(f"`{name}`")
        if isinstance(value, str):
            calls.append(f"`{name}={value!r}`")
    for what in calls:
        if what in NEEDED_BY:
            require(NEEDED_BY[what], what)
