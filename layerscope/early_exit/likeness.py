"""How an exit model stands in for the classifier it wraps: its name, its signature, and one call at a time."""

from __future__ import annotations

import functools
import threading
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from layerscope.models.mean_head import is_mean_head

_LOCKS: WeakKeyDictionary[nn.Module, threading.Lock] = WeakKeyDictionary()


def lock_of(module: nn.Module) -> threading.Lock:
    """Return the lock of a model, whose blocks carry the hooks of one forward at a time."""
    return _LOCKS.setdefault(module, threading.Lock())


@functools.cache
def class_like(base: Any, kind: Any, name: str) -> Any:
    """Return a class of its own below `base`, with the name and the signature of a classifier's class."""

    @functools.wraps(kind.forward)
    def forward(self: Any, *args: Any, **named: Any) -> Any:
        return base.forward(self, *args, **named)

    return type(name, (base,), {"__module__": base.__module__, "forward": forward})


def name_in_pipelines(module: Any) -> str:
    """Return the name that a `pipeline` knows a classifier by."""
    name = type(module).__name__
    if not is_mean_head(module.config):
        return name
    # a token classifier to transformers, but it classifies texts
    return str(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.get(module.config.model_type, name))


def empty_like(base: Any, kind: Any, name: str) -> Any:
    """Return an object of such a class before its state is restored, as copying and pickling do."""
    found = class_like(base, kind, name)
    return found.__new__(found)
