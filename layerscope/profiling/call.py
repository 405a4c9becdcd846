"""How a run is told: the call that asks for it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from layerscope.core.options import declared, every

LONGEST = 20
"""A sequence of more values than this is told by its length."""


def spoken(verb: Callable[..., Any], given: Mapping[str, Any], leave_out: tuple[str, ...] = ()) -> str:
    """Return the call of a verb as Python says it, without the arguments left at their defaults.

    What cannot be written as a literal (a model, a frame) stands as its kind in angle brackets.
    """
    parts = []
    positional = [
        name for name, place in signature(verb).parameters.items() if place.kind is place.POSITIONAL_OR_KEYWORD
    ]
    options = declared(verb)
    for name, value in every(verb, given).items():
        if name in leave_out or _is_default(value, options[name].default):
            continue
        shown = _literal(value)
        parts.append(shown if name in positional else f"{name}={shown}")
    return f"layerscope.{verb.__name__}({', '.join(parts)})"


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, (str, int, float)) and value == default)


def _literal(value: Any) -> str:
    if value is None or isinstance(value, (str, bool, int, float)):
        return repr(value)
    if isinstance(value, Path):
        return repr(str(value))
    if isinstance(value, (list, tuple)) and len(value) <= LONGEST and all(isinstance(v, (int, float)) for v in value):
        return repr(value)
    try:
        size = f" of {len(value):,}"
    except TypeError:  # some models have a length in name only
        size = ""
    return f"<{type(value).__name__}{size}>"
