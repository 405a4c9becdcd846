"""Every kind of task on your own data, found in the files beside this one."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from layerscope.evaluation.kind import FileKind, ProbeKind

_kinds = [import_module(found.name).KIND for found in iter_modules(__path__, f"{__name__}.")]
FILES: dict[str, FileKind] = {kind.name: kind for kind in _kinds if isinstance(kind, FileKind)}
"""Kinds that mteb judges."""
PROBES: dict[str, ProbeKind] = {kind.name: kind for kind in _kinds if isinstance(kind, ProbeKind)}
