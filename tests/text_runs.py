"""Runs of tiny models on tiny texts."""

from pathlib import Path
from typing import Any

import tiny

import layerscope

TEXTS = tiny.texts(40)
LABELS = [i % 3 for i in range(40)]


def profile(model: Any, out: Path, data: Any = TEXTS, **options: Any) -> layerscope.Run:
    special = "bert" in type(model).__name__.lower()
    defaults = {
        "processor": tiny.tokenizer(special=special),
        "progress": False,
        "views": 0,
    }
    return layerscope.profile(model, data, out=out, **defaults | options)
