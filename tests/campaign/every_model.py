"""Every type that transformers knows, small, through the verbs, each answer checked or refused."""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SECONDS, PATIENCE = 60, 400
"""A class may take so much processor time, and on a busy machine so much of the clock's."""
GIBIBYTES = 8
VERBS = ("inspect", "profile", "lens", "truncate")
HEADS = (
    "CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_CLASSIFICATION", "SEQUENCE_CLASSIFICATION",
    "IMAGE_TEXT_TO_TEXT", "",
)  # fmt: skip
CLASSIFIERS = ("SEQUENCE_CLASSIFICATION", "IMAGE_CLASSIFICATION")


@dataclass(frozen=True)
class Case:
    """A model type and one of its classes."""

    kind: str
    name: str


@dataclass
class Row:
    """What came of one class: a word for each verb ("ok", "refused: why", "DEFECT: what"), or why it was skipped."""

    kind: str
    name: str
    skipped: str | None = None
    verbs: dict[str, str] = field(default_factory=dict)


def cases() -> list[Case]:
    """Return for every model type the class that says most about it, and its classifier."""
    from transformers.models.auto import modeling_auto as auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    found: list[Case] = []
    for kind in CONFIG_MAPPING_NAMES:
        classes = [name for head in HEADS if (name := _class(auto, head, kind))]
        second = [name for head in CLASSIFIERS if (name := _class(auto, head, kind))]
        found += [
            Case(kind, name) for name in dict.fromkeys([*classes[:1], *second[:1]])
        ]
    return list({case.name: case for case in found}.values())


def _class(auto: Any, head: str, kind: str) -> str | None:
    names = getattr(
        auto, f"MODEL_FOR_{head}_MAPPING_NAMES" if head else "MODEL_MAPPING_NAMES"
    )
    found = names.get(kind)
    return found[0] if isinstance(found, (tuple, list)) else found


def attempt(case: Case) -> Row:
    """Try one class in a process of its own, which may neither last nor take too much memory."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _confined(case, write)
    os.close(write)
    answer = _answer(read, PATIENCE)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not answer:
        why = f"DEFECT: the process ended without an answer (of {SECONDS} s of processor time)"
        return Row(case.kind, case.name, verbs={"inspect": why})
    return Row(**json.loads(answer))


def _answer(read: int, seconds: float) -> bytes:
    end, parts = time.monotonic() + seconds, b""
    while (left := end - time.monotonic()) > 0:
        if not select.select([read], [], [], left)[0]:
            break
        part = os.read(read, 1 << 16)
        if not part:
            break
        parts += part
    os.close(read)
    return parts


def _confined(case: Case, write: int) -> None:
    """Run in the child: everything it prints is dropped, and it never returns."""
    # of the child alone: a fork starts at zero
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (GIBIBYTES << 30, GIBIBYTES << 30))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    folder = tempfile.mkdtemp()
    try:
        row = examine(case, Path(folder))
    except BaseException as error:  # the examination itself failed
        row = Row(case.kind, case.name, skipped=f"campaign: {_line(error)}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    os.write(write, json.dumps(asdict(row)).encode())
    os._exit(0)


def examine(case: Case, folder: Path) -> Row:
    """Build a class small and put it through every verb."""
    from campaign.checks import Examination
    from campaign.small import NotSmall, small_model

    row = Row(case.kind, case.name)
    try:
        model = small_model(case.kind, case.name)
    except NotSmall as error:
        row.skipped = str(error)
        return row
    examination = Examination(model, folder)
    for verb in VERBS:
        row.verbs[verb] = verdict(getattr(examination, verb))
    return row


def verdict(check: Any) -> str:
    """Return "ok", "refused: the line", or "DEFECT: what" of one check."""
    from layerscope.core.errors import LayerscopeError

    try:
        return check() or "ok"
    except LayerscopeError as error:
        line = str(error)
        return (
            f"refused: {line}"
            if "\n" not in line
            else f"DEFECT: refused in several lines: {line[:200]!r}"
        )
    except AssertionError as error:
        return f"DEFECT: {_line(error)}"
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        return f"DEFECT: traceback at {frames[-1].name}: {_line(error)}"


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:220]}"


def defects(row: Row) -> list[str]:
    """Return what must not be: a traceback, a wrong number."""
    return [
        f"{row.name} {verb}: {word}"
        for verb, word in row.verbs.items()
        if word.startswith("DEFECT")
    ]


def prepare() -> None:
    """Load once what every child needs."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import campaign.checks  # noqa: F401
    import torch
    import transformers

    import layerscope.logit_lens
    import layerscope.models.inspection
    import layerscope.profiling
    import layerscope.truncation.verb  # noqa: F401
    from layerscope.truncation import costs

    torch.set_num_threads(1)
    costs.FEWEST = costs.MOST = 1  # how fast these models are is not looked at
    transformers.logging.set_verbosity(50)
    folder = tempfile.mkdtemp()
    # imports what verbs import when they run
    examine(Case("bert", "BertForSequenceClassification"), Path(folder))
    shutil.rmtree(folder, ignore_errors=True)
