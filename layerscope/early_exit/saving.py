"""An exit model as a folder: the classifier's own checkpoint, with one file on where and when rows leave."""

from __future__ import annotations

import hashlib
import json
import math
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside
from layerscope.early_exit.calibration import Calibration
from layerscope.early_exit.criteria import NEVER
from layerscope.models import Override
from layerscope.models.load import without_bars
from layerscope.models.weights import numbers_of

if TYPE_CHECKING:
    from layerscope.early_exit.exit_model import ExitModel

FILE = "early_exit.json"
SAMPLED = 1024
"""Numbers of each weight that its fingerprint reads."""
OTHER = "thresholds are a model's own, calibrate this one"


def fingerprint(model: ExitModel) -> str:
    """Return a sha256 (hex) of the weights of a model and of the heads of its layers.

    Taken of names, shapes, and up to 1,024 numbers of each, spread over it.

    Read in bfloat16, so that the precision in which a checkpoint is loaded makes no other model of it.
    """
    told = hashlib.sha256()
    own = ((f"exit_heads.{name}", tensor) for name, tensor in numbers_of(model.exit_heads))
    for name, tensor in sorted((*numbers_of(model.model), *own), key=itemgetter(0)):
        flat = tensor.detach().reshape(-1)
        some = flat[:: max(1, math.ceil(len(flat) / SAMPLED))].to("cpu", torch.bfloat16)
        told.update(f"{name}{tuple(tensor.shape)}".encode())
        told.update(some.contiguous().view(torch.int16).numpy().tobytes())
    return told.hexdigest()


def precision(module: nn.Module) -> str:
    """Return the dtype of a model's weights, such as "float32"."""
    return str(next(module.parameters()).dtype).removeprefix("torch.")


def check_made_for(model: ExitModel, calibration: Calibration) -> None:
    """Raise `LayerscopeError` where a calibration was made for another model."""
    name = model.layered.loaded.name
    for what, theirs, own in (
        ("layers", calibration.depth, model.depth),
        ("classes", calibration.classes, model.classes),
    ):
        if theirs != own:
            raise LayerscopeError(f"this calibration is of a model of {theirs} {what}, and {name} has {own}: {OTHER}")
    if calibration.fingerprint != fingerprint(model):
        raise LayerscopeError(f"this calibration is of other weights than those of {name}: {OTHER}")
    if calibration.dtype != precision(model.model):
        raise LayerscopeError(
            f"this calibration was made in {calibration.dtype}, and {name} runs in {precision(model.model)}: "
            "calibrate it as it runs"
        )


def save(model: ExitModel, folder: str | Path) -> Path:
    """Write the model, its processor, its layers' heads and `early_exit.json`; transformers loads the plain model."""
    place = Path(folder).expanduser()
    if place.is_file():
        raise LayerscopeError(f"{str(place)!r} is a file: name a folder")
    before = _files(place)
    try:
        with without_bars():
            model.model.save_pretrained(place)
            if model.processor is not None:
                model.processor.save_pretrained(place)
            if (heads := model.own_heads()) is not None:
                heads.save(place)
    except OSError as error:
        raise LayerscopeError(f"{str(place)!r} cannot be written ({error.strerror}): name another folder") from error
    override = model.override
    told = {
        "exits": list(model.exits),
        "criterion": model.criterion,
        "threshold": None if model.threshold == NEVER else model.threshold,
        "fingerprint": fingerprint(model),
        "part": override.part,
        "blocks": override.blocks,
        "norm": override.norm,
        "calibration": None if model.calibration is None else json.loads(model.calibration.to_json()),
        "files": sorted(_files(place) - before),
    }
    text = json.dumps(told, indent=2, allow_nan=False)
    aside(place / FILE, lambda part: part.write_text(text, encoding="utf-8"))
    return place


def strangers(folder: Path) -> list[str]:
    """Return the files in the folder of an exit model that were not saved with it; none where there is no folder."""
    there = _files(folder) - {FILE}
    try:
        own = json.loads((folder / FILE).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):  # written by no save of ours: nothing of it is
        own = []
    return sorted(there.difference(own))


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def load_exits(source: str | Path, revision: str | None) -> dict[str, Any]:
    """Return what `early_exit.json` of a folder or a hub model says."""
    path = _file(source, revision)
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        calibration = told["calibration"]
        found = {name: told[name] for name in ("exits", "criterion", "fingerprint")}
        found["threshold"] = NEVER if told["threshold"] is None else told["threshold"]
        found["override"] = Override(told["part"], told["blocks"], told["norm"])
        found["calibration"] = None if calibration is None else Calibration.from_json(json.dumps(calibration))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise LayerscopeError(f"{str(path)!r} is not what an exit model was saved with: save it again") from error
    return found


def _file(source: str | Path, revision: str | None) -> Path:
    place = Path(source).expanduser() / FILE
    if place.is_file():
        return place
    if not Path(source).expanduser().exists():
        from transformers.utils import cached_file

        try:
            return Path(cached_file(str(source), FILE, revision=revision))
        except Exception:  # no hub, no such model, or a model without exits: all are told alike
            pass
    raise LayerscopeError(
        f"{str(source)!r} holds no {FILE}: give a folder that an exit model was saved into, or wrap the classifier "
        "with ExitModel(...) and calibrate it"
    )
