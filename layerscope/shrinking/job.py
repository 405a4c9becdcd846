"""One shrinking: what is shrunk, what judges it, its folder and budget, and the results that its phases keep."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from layerscope.core.files import read_json, write_json
from layerscope.core.progress import Reporter
from layerscope.inputs import Corpus
from layerscope.inputs.samples import content
from layerscope.shrinking.first_blocks import FirstBlocks
from layerscope.shrinking.options import ShrinkOptions
from layerscope.shrinking.tasks import LEARN, Task
from layerscope.truncation.budget import Budget
from layerscope.truncation.format import chosen_format
from layerscope.truncation.source import Source

WORK, EVALUATION = "work", "evaluation"
"""The folder of what the phases made, and that of the scores by layer."""


@dataclass(frozen=True)
class Job:
    """One shrinking: its model, what judges it, its folder, and its budget."""

    source: Source
    task: Task
    folder: Path
    budget: Budget
    options: ShrinkOptions
    heal: Corpus | None
    reporter: Reporter

    @property
    def format(self) -> str:
        """The format of the checkpoint, the model's own."""
        return chosen_format("auto", self.source, None)

    @property
    def max_loss(self) -> float:
        """The largest loss, in points."""
        if self.budget.max_loss is None:
            return self.task.max_loss
        return self.budget.max_loss

    @property
    def data(self) -> str:
        """The name of the data."""
        if isinstance(self.options.data, (str, Path)):
            return str(self.options.data)
        return "data"

    @cached_property
    def first(self) -> FirstBlocks:
        """The values of the model's first blocks, and of all, on the validation part."""
        folder = self.folder / EVALUATION
        return FirstBlocks(self.task, self.data, self.digest, folder)

    @cached_property
    def digest(self) -> str:
        """Digest of the samples and their labels or scores, 16 hex digits."""
        digest = hashlib.sha256(self.task.truth.tobytes())
        samples = self.task.texts(LEARN)
        for index in range(len(samples)):
            digest.update(content(samples, index))
        return digest.hexdigest()[:16]

    def phase(self, name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the result of a phase: the one that is kept, or one that is made now and kept."""
        path = self.folder / WORK / f"{name}.json"
        if not path.is_file():
            write_json(path, make())
        return read_json(path)
