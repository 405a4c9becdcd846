"""The folder of a training: what is in it, whether it is the same training, and where it resumes."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core import LayerscopeError, own_folder, write_json
from layerscope.core.files import read_json
from layerscope.core.folder_lock import LOCK, locked

ABOUT = "training.json"
REPORT = "report.html"
FREE = ("device", "report_to")
"""Settings that a training may be resumed with other values of."""


@dataclass(frozen=True)
class TrainingFolder:
    """A folder that holds this training and no other; `about` says which it is."""

    path: Path
    about: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        """Whether the training has come to its end."""
        about = self.path / ABOUT
        return about.is_file() and bool(read_json(about).get("finished"))

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def history(self) -> Path:
        """The run folder of what each layer scored at each evaluation."""
        return self.path / "history"

    def last_checkpoint(self) -> Path | None:
        """Return the last whole checkpoint, None where there is none."""
        checkpoints = self.checkpoints.glob("checkpoint-*")
        for folder in sorted(checkpoints, key=step_of, reverse=True):
            # the Trainer's state is written last, and may be cut short by a kill
            with suppress(OSError, ValueError):
                json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
                return folder
        return None

    def write(self, *, finished: bool) -> None:
        """Write which training this is, and whether it has come to its end."""
        write_json(self.path / ABOUT, {**self.about, "finished": finished})


@contextmanager
def open_training(
    path: Path, about: Mapping[str, Any], *, main: bool
) -> Iterator[TrainingFolder]:
    """Hold the folder of a training, new or begun before; `main` is the one process that writes.

    A start that fails before its first evaluation leaves nothing. Raises `LayerscopeError` for a
    folder that cannot be written, that another job writes to, or that holds another training: what
    differs is named.
    """
    folder = TrainingFolder(path, about)
    if not main:
        yield folder
        return
    own_folder(path, "training", ABOUT)
    with locked(path):
        if _begun(path):
            _refuse_another(path, read_json(path / ABOUT), about)
        else:
            folder.write(finished=False)
        try:
            yield folder
        except BaseException:
            if not _begun(path):
                shutil.rmtree(path, ignore_errors=True)
            raise


def _begun(path: Path) -> bool:
    """Whether a folder holds more than the name of a training."""
    names = {file.name for file in path.rglob("*") if not file.is_dir()}
    return not names <= {ABOUT, f".{ABOUT}.part", LOCK}


def step_of(checkpoint: Path) -> int:
    """Return the optimiser step after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def _refuse_another(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise where a folder holds another training; where it runs does not matter."""
    now = json.loads(json.dumps(new))
    differ = []
    for group in ("settings", "model", "data"):
        before = old[group]
        for name, value in now[group].items():
            if name not in FREE and before.get(name, value) != value:
                differ.append(
                    f"{name} {_shown(before[name])} there, {_shown(value)} here"
                )
    if differ:
        raise LayerscopeError(
            f"out {str(path)!r} holds another training ({'; '.join(differ[:4])}): "
            "name another folder, or give the same settings to resume it"
        )


def _shown(value: Any) -> str:
    """Return a setting as an error names it."""
    if isinstance(value, dict):  # of data
        return f"{value['name']} ({value['samples']} samples, {value['digest'][:8]})"
    return str(value)
