"""Tasks of lm-evaluation-harness, by name or YAML file."""

from typing import Any

from layerscope.core import require
from layerscope.evaluation.probe_tasks import Draw, ProbeTask


class LmKind:
    """The kind whose data are the names and files of lm-evaluation-harness."""

    name = "lm"
    reads = "a task of lm-evaluation-harness, by name or YAML file, whose answers are judged by their likelihood"
    score = (
        "its first metric for which higher is better, or another such after `@`; at the last layer "
        "equal to its backend `hf`"
    )

    def open(self, data: Any, draw: Draw) -> list[ProbeTask]:
        """Return the tasks that the harness has for a name or file."""
        require("lm-eval", "a task of lm-evaluation-harness")
        # it takes seconds to import
        from layerscope.evaluation.lm_tasks import open_lm_tasks

        return open_lm_tasks(data, draw.samples, draw.seed)


KIND = LmKind()
