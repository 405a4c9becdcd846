"""The call that would make a run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from layerscope.core.options import declared, every

LONGEST = 20
"""A longer sequence is written as its length."""


def spoken(verb: Callable[..., Any], given: Mapping[str, Any], leave_out: tuple[str, ...] = ()) -> str:
    """Return the call of a verb as Python code, without the arguments left at their defaults.

    What cannot be written as a literal (a model, a frame) stands as its kind in angle brackets.
    """
    parts = []
    parameters, options = signature(verb).parameters, declared(verb)
    for name, value in every(verb, given).items():
        default = options[name].default
        is_default = value is default or (isinstance(value, (str, int, float)) and value == default)
        if name in leave_out or is_default:
            continue
        positional = name in parameters and parameters[name].kind is parameters[name].POSITIONAL_OR_KEYWORD
        parts.append(_literal(value) if positional else f"{name}={_literal(value)}")
    return f"layerscope.{verb.__name__}({', '.join(parts)})"


def _literal(value: Any) -> str:
    if value is None or isinstance(value, (str, bool, int, float)):
        return repr(value)
    if isinstance(value, Path):
        return repr(str(value))
    if isinstance(value, (list, tuple)) and len(value) <= LONGEST and all(isinstance(v, (int, float)) for v in value):
        return repr(value)
    try:
        return f"<{type(value).__name__} of {len(value):,}>"
    except TypeError:  # some models have a length in name only
        return f"<{type(value).__name__}>"
