"""The folder of a training: what is in it, whether it is the same training, and where it resumes."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import own_folder, read_json, write_json
from layerscope.core.folder_lock import LOCK, locked

ABOUT = "training.json"
DEPTHS, REPORT = "depths.csv", "report.html"
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
        return bool(
            (self.path / ABOUT).is_file()
            and read_json(self.path / ABOUT).get("finished")
        )

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
        # the Trainer's state is written last, and may be cut short by a kill
        for folder in sorted(
            self.checkpoints.glob("checkpoint-*"), key=step_of, reverse=True
        ):
            with suppress(OSError, ValueError):
                if isinstance(
                    json.loads(
                        (folder / "trainer_state.json").read_text(encoding="utf-8")
                    ),
                    dict,
                ):
                    return folder
        return None

    def write(self, *, finished: bool) -> None:
        """Write which training this is, and whether it has come to its end."""
        write_json(self.path / ABOUT, {**self.about, "finished": finished})


def open_training(
    out: str | Path, about: Mapping[str, Any], *, main: bool
) -> TrainingFolder:
    """Return the folder of a training, new or begun before; `main` is the one process that writes.

    Raises `LayerscopeError` for one that cannot be written, that another job writes to, or that
    holds another training: what differs is named.
    """
    path = Path(out).expanduser()
    folder = TrainingFolder(path, about)
    if main:
        # left by a job that was killed, or held by one that lives
        if (path / LOCK).exists():
            with locked(path):
                pass
        begun = (
            not _unbegun(path)
            and (own_folder(path, "training", ABOUT) / ABOUT).is_file()
        )
        try:
            if begun:
                _refuse_another(path, read_json(path / ABOUT), about)
            else:
                path.mkdir(parents=True, exist_ok=True)
                folder.write(finished=False)
            if not os.access(path, os.W_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise LayerscopeError(
                f"out {str(path)!r} cannot be written ({error.strerror}): name another folder"
            ) from error
    return folder


@contextmanager
def nothing_left(folder: TrainingFolder, *, main: bool) -> Iterator[None]:
    """Within, a start that fails before its first evaluation deletes the folder again, in the one main process."""
    try:
        yield
    except BaseException:
        if main and _unbegun(folder.path):
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


def _unbegun(path: Path) -> bool:
    """Whether a folder names a training, or its baselines, and holds nothing of them."""
    files = {file.name for file in path.rglob("*") if not file.is_dir()}.difference(
        [LOCK]
    )
    return bool(files) and files <= {ABOUT, f".{ABOUT}.part"}


def step_of(checkpoint: Path) -> int:
    """Return the optimiser step after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def _refuse_another(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise where a folder holds another training; where it runs does not matter."""
    now = json.loads(json.dumps(new))
    differ = []
    for group in ("settings", "model", "data"):
        there = old.get(group, {})
        for name, value in now[group].items():
            # an older training lacks an option's default
            if name in there and name not in FREE and there[name] != value:
                differ.append(
                    f"{name} {_shown(there[name])} there, {_shown(value)} here"
                )
    if differ:
        raise LayerscopeError(
            f"out {str(path)!r} holds another training ({'; '.join(differ[:4])}{'; …' if len(differ) > 4 else ''}): "
            "name another folder, or give the same settings to resume it"
        )


def _shown(value: Any) -> str:
    if isinstance(value, dict):  # of data
        return f"{value['name']} ({value['samples']} samples, {value['digest'][:8]})"
    text = json.dumps(value) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else f"{text[:36]}…"
