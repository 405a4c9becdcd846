"""Where the models of an evaluation came from, and how deep they are: scores of layers hold neither."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = "models.json"


@dataclass(frozen=True)
class ModelOrigin:
    """What was given to load a model (None for one in memory), and L, its number of layers."""

    source: str | None
    depth: int


def add_origin(folder: Path, name: str, origin: ModelOrigin) -> None:
    """Write a model's origin into an evaluation's folder, beside those that are there."""
    from layerscope.core.files import aside  # runs import torch

    known = {**read_origins(folder), name: origin}
    text = json.dumps({model: asdict(found) for model, found in known.items()}, indent=2, ensure_ascii=False)
    aside(folder / FILE, lambda part: part.write_text(text, encoding="utf-8"))


def read_origins(folder: Path) -> dict[str, ModelOrigin]:
    """Return origins by the model's name; none where the file is absent or damaged, as scores stand without it."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        return from_json(json.loads((folder / FILE).read_text(encoding="utf-8")))
    return {}


def from_json(facts: Mapping[str, Any]) -> dict[str, ModelOrigin]:
    """Return origins from what JSON held."""
    return {str(name): ModelOrigin(entry["source"], int(entry["depth"])) for name, entry in facts.items()}
