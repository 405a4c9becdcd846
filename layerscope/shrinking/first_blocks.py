"""How the first 1, 2, … blocks of a model do on a task: one pass over the texts for all, kept as an evaluation."""

import hashlib
from pathlib import Path

from layerscope.models.identity import revision_of
from layerscope.scores.probe_results import ProbeScores, Slot, unpacked
from layerscope.scores.shifts import mean_of
from layerscope.shrinking.tasks import VALIDATION, Floats, Task


class FirstBlocks:
    """The values of a model's first blocks on the validation samples, each computed when it is first needed.

    What is computed lies in a folder as `evaluate` keeps its scores, and is not computed again.
    """

    def __init__(self, task: Task, data: str, digest: str, folder: Path) -> None:
        self.task = task
        about = repr((task.measure, digest, task.part.tolist()))
        facts = {
            "model": task.full.name,
            "revision": revision_of(task.full.loaded),
            "task": data,
            "data": digest,
            "digest": hashlib.sha256(about.encode()).hexdigest(),
            "shifted_from": None,
        }
        self.scores = ProbeScores(folder, facts)
        self.readers = task.by_layer()

    @property
    def full(self) -> Floats:
        """The values of all blocks, in points."""
        return self.values(self.task.full.depth)

    def values(self, blocks: int) -> Floats:
        """Return the value of each validation sample in points, with only the first `blocks` blocks."""
        slot: Slot = (blocks, self.task.full.final, self.task.pooling)
        if not self.scores.has("layer", slot):
            values = self.task.judged(self.readers[blocks - 1], VALIDATION) / 100
            mean, stderr = mean_of(values)
            score = {
                "score": mean,
                "stderr": stderr,
                "low": None,
                "high": None,
                "n": len(values),
                "strengths": None,
                "right": values,
            }
            self.scores.add("layer", slot, score)
        row = next(row for row in self.scores.rows if row["layer"] == blocks)
        return 100 * unpacked(row["right"], row["n"])
