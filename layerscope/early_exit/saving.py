"""An exit model as a folder: the classifier's own checkpoint, with one file on where rows leave."""

import functools
import hashlib
import math
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch import nn

from layerscope.core import LayerscopeError, Store
from layerscope.core.hub import CARD, HERE
from layerscope.core.saved import write_facts
from layerscope.early_exit.calibration import Calibration
from layerscope.early_exit.exit_report import ExitReport
from layerscope.early_exit.options import Goal
from layerscope.models import is_mean_head, without_bars
from layerscope.models.weights import numbers_of
from layerscope.models.whereabouts import whereabouts
from layerscope.truncation.card import head, pipeline_of, write_card
from layerscope.truncation.checkpoint import auto_class
from layerscope.truncation.source import copy_terms

FILE = "early_exit.json"
STORE = Store(
    "exit model",
    FILE,
    "run layerscope exits with --out, which writes one",
    {},
)
SAMPLED = 1024
"""Numbers of each weight that its fingerprint reads."""


def fingerprint(classifier: nn.Module, heads: nn.Module) -> str:
    """Return a sha256 (hex) of the weights of a model and its layers' heads: names, shapes, and some numbers of each.

    They are read in bfloat16: the precision in which a checkpoint is loaded makes no other model of
    it.
    """
    digest = hashlib.sha256()
    named_heads = nn.ModuleDict({"exit_heads": heads})
    weights = (*numbers_of(classifier), *numbers_of(named_heads))
    for name, tensor in sorted(weights, key=itemgetter(0)):
        flat = tensor.detach().reshape(-1)
        step = max(1, math.ceil(len(flat) / SAMPLED))
        sampled = flat[::step].to("cpu", torch.bfloat16).contiguous()
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(sampled.view(torch.int16).numpy().tobytes())
    return digest.hexdigest()


def save_exits(model: Any, out: Path, report: ExitReport | None) -> Path:
    """Write an `ExitModel`: card, processor, heads and `early_exit.json` beside the classifier's own files."""
    if out.is_file():
        raise LayerscopeError(f"{str(out)!r} is a file: name a folder")
    if not hasattr(model.model, "save_pretrained"):
        raise LayerscopeError(
            f"{type(model.model).__name__} is a plain torch module: save its weights yourself"
        )
    try:
        with without_bars():
            model.model.save_pretrained(out)
            if model.processor is not None:
                model.processor.save_pretrained(out)
            model.own_heads().save(out)
            if not (out / CARD).exists():
                _write_card(model, out, report)
    except OSError as error:
        raise LayerscopeError(
            f"{str(out)!r} cannot be written ({error.strerror}): name another folder"
        ) from error
    # torch, of a weight without a storage that could be written
    except RuntimeError as error:
        raise LayerscopeError(
            f"the weights of {type(model.model).__name__} cannot be written again, as quantised ones"
        ) from error
    names = ("exits", "threshold", "override", "calibration")
    facts = {name: getattr(model, name) for name in names}
    facts |= {"fingerprint": model.fingerprint(), "sha256": {}}
    write_facts(out / FILE, STORE.what, facts)
    return out


def _write_card(model: Any, out: Path, report: ExitReport | None) -> None:
    """Write the card of an `ExitModel`, with what a report measured of it; the licence of its source comes too."""
    path = getattr(model.config, "_name_or_path", "")
    source = whereabouts(path, model.layered.loaded.revision)
    copy_terms(source[1], out)
    auto = auto_class(model.model)
    mean = is_mean_head(model.config)
    pipeline = pipeline_of(auto)
    if mean:
        pipeline = "text-classification"
    write_card(
        "exits",
        out,
        head=head(source, "transformers", pipeline, ["early-exit"]),
        mean=mean,
        model=model,
        report=report,
        auto=auto,
        here=HERE,
    )


def load_exits(source: str | Path, revision: str | None) -> dict[str, Any]:
    """Return what `early_exit.json` of a folder or a hub model says."""
    folder = Path(source).expanduser()
    if not folder.exists():
        from transformers.utils import cached_file

        with suppress(Exception):  # no hub, no such model, or a model without exits
            folder = Path(cached_file(str(source), FILE, revision=revision)).parent

    def made(facts: dict[str, Any], *_: object) -> dict[str, Any]:
        calibration = facts["calibration"]
        if calibration is not None:
            calibration["goal"] = Goal(**calibration["goal"])
            facts["calibration"] = Calibration(**calibration)
        return facts

    return STORE.open(folder, made)


@functools.cache
def class_like(base: Any, kind: Any, name: str) -> Any:
    """Return a class of its own below `base`, with the name and the signature of a classifier's class."""

    @functools.wraps(kind.forward)
    def forward(self: Any, *args: Any, **named: Any) -> Any:
        return base.forward(self, *args, **named)

    return type(name, (base,), {"__module__": base.__module__, "forward": forward})
