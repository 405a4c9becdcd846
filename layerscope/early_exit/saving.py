"""An exit model as a folder: the classifier's own checkpoint, with one file on where rows leave; and as a pickle."""

import functools
import hashlib
import json
import math
import tempfile
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from layerscope.core.errors import LayerscopeError
from layerscope.core.hub import CARD, HERE
from layerscope.core.saved import Store, write_facts
from layerscope.early_exit.calibration import Calibration, Goal
from layerscope.models.loading import without_bars
from layerscope.models.mean_head import is_mean_head
from layerscope.models.weights import is_quantised, numbers_of
from layerscope.show.plain import escape
from layerscope.truncation.card import head, pipeline_of, write_card
from layerscope.truncation.checkpoint import auto_class
from layerscope.truncation.source import copy_terms, whereabouts

if TYPE_CHECKING:
    from layerscope.early_exit.exit_model import ExitModel
    from layerscope.early_exit.exit_report import ExitReport

FILE = "early_exit.json"
STORE = Store(
    "exit model", FILE, "wrap the classifier with ExitModel(...), calibrate it and save it", {}
)
SAMPLED = 1024
"""Numbers of each weight that its fingerprint reads."""


def fingerprint(model: "ExitModel") -> str:
    """Return a sha256 (hex) of the weights of a model and its layers' heads: names, shapes, and some numbers of each.

    They are read in bfloat16: the precision in which a checkpoint is loaded makes no other model of
    it.
    """
    found = hashlib.sha256()
    own = ((f"exit_heads.{name}", tensor) for name, tensor in numbers_of(model.exit_heads))
    for name, tensor in sorted((*numbers_of(model.model), *own), key=itemgetter(0)):
        flat = tensor.detach().reshape(-1)
        some = flat[:: max(1, math.ceil(len(flat) / SAMPLED))].to("cpu", torch.bfloat16)
        found.update(f"{name}{tuple(tensor.shape)}".encode())
        found.update(some.contiguous().view(torch.int16).numpy().tobytes())
    return found.hexdigest()


def precision(module: nn.Module) -> str:
    """Return the dtype of a model's weights, such as "float32"."""
    return str(next(module.parameters()).dtype).removeprefix("torch.")


def check_made_for(model: "ExitModel", calibration: Calibration) -> None:
    """Raise `LayerscopeError` where a calibration was made for another model, or for it in another precision."""
    name, runs_in = model.layered.loaded.name, precision(model.model)
    for theirs, own, other in (
        (calibration.depth, model.depth, "is of a model of {} layers, and {} has {}"),
        (calibration.classes, model.classes, "is of a model of {} classes, and {} has {}"),
        (calibration.fingerprint, fingerprint(model), "is of other weights than {1}'s"),
        (calibration.dtype, runs_in, "was made in {}, and {} runs in {}"),
    ):
        if theirs != own:
            raise LayerscopeError(
                f"this calibration {other.format(theirs, name, own)}: calibrate this model as it is"
            )


def check_can_be_saved(model: "ExitModel") -> None:
    """Raise `LayerscopeError` before the work where transformers cannot write the quantised weights of a model."""
    if not is_quantised(model.model):
        return
    try:
        with tempfile.TemporaryDirectory() as folder, without_bars():
            model.model.save_pretrained(folder)
    except RuntimeError as error:  # torch, of a weight without a storage that could be written
        name = model.layered.loaded.name
        raise LayerscopeError(
            f"the quantised weights of {name} cannot be written again: leave `out` out"
        ) from error


def save(model: "ExitModel", folder: str | Path, report: "ExitReport | None" = None) -> Path:
    """Write the model with card, processor, heads and `early_exit.json`; transformers loads the plain model."""
    out = Path(folder).expanduser()
    if out.is_file():
        raise LayerscopeError(f"{str(out)!r} is a file: name a folder")
    if not hasattr(model.model, "save_pretrained"):
        raise LayerscopeError(
            f"{type(model.model).__name__} is a plain torch module: save its weights yourself"
        )
    before = _files(out)
    try:
        with without_bars():
            model.model.save_pretrained(out)
            if model.processor is not None:
                model.processor.save_pretrained(out)
            if (heads := model.own_heads()) is not None:
                heads.save(out)
            if not (out / CARD).exists():
                _describe(model, out, report)
    except OSError as error:
        raise LayerscopeError(
            f"{str(out)!r} cannot be written ({error.strerror}): name another folder"
        ) from error
    names = ("exits", "criterion", "threshold", "override", "calibration")
    facts = {"fingerprint": fingerprint(model), "files": sorted(_files(out) - before), "sha256": {}}
    write_facts(out / FILE, STORE.what, {name: getattr(model, name) for name in names} | facts)
    return out


def _describe(model: "ExitModel", out: Path, report: "ExitReport | None") -> None:
    """Write the card of an exit model, with what a report measured of it; the licence beside its source comes too."""
    whence = whereabouts(getattr(model.config, "_name_or_path", ""), model.layered.loaded.revision)
    copy_terms(whence[1], out)
    auto, name, mean = (
        auto_class(model.model),
        model.layered.loaded.name,
        is_mean_head(model.config),
    )
    score = (
        ("accuracy with early exits", report.accuracy, report.data) if report else ("", None, "")
    )
    pipeline = "text-classification" if mean else pipeline_of(auto)
    write_card(
        "exits",
        out,
        head=head(
            whence, "transformers", pipeline, ["early-exit"], f"{name} with early exits", score
        ),
        name=escape(name),
        mean=mean,
        model=model,
        report=report,
        format="transformers",
        auto=auto,
        modality=model.layered.encoder.modality,
        here=HERE,
    )


def strangers(folder: Path) -> list[str]:
    """Return the files in the folder of an exit model that were not saved with it; none where there is no folder."""
    own: list[str] = []
    with suppress(
        OSError, ValueError, KeyError, TypeError
    ):  # written by no save of ours: nothing in there is
        own = json.loads((folder / FILE).read_text(encoding="utf-8"))["files"]
    return sorted(_files(folder) - {FILE, *own})


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def load_exits(source: str | Path, revision: str | None) -> dict[str, Any]:
    """Return what `early_exit.json` of a folder or a hub model says."""
    folder = Path(source).expanduser()
    if not folder.exists():
        from transformers.utils import cached_file

        with suppress(Exception):  # no hub, no such model, or a model without exits
            folder = Path(cached_file(str(source), FILE, revision=revision)).parent

    def made(facts: dict[str, Any], *_: object) -> dict[str, Any]:
        if facts["calibration"] is not None:
            goal = Goal(**facts["calibration"]["goal"])
            facts["calibration"] = Calibration(**{**facts["calibration"], "goal": goal})
        return facts

    return STORE.open(folder, made)


@functools.cache
def class_like(base: Any, kind: Any, name: str) -> Any:
    """Return a class of its own below `base`, with the name and the signature of a classifier's class."""

    @functools.wraps(kind.forward)
    def forward(self: Any, *args: Any, **named: Any) -> Any:
        return base.forward(self, *args, **named)

    return type(name, (base,), {"__module__": base.__module__, "forward": forward})


def empty_like(base: Any, kind: Any, name: str) -> Any:
    """Return an object of such a class before its state is restored, as copying and pickling do."""
    found = class_like(base, kind, name)
    return found.__new__(found)
