"""Metrics that need more of a model than its states: attention weights, and forwards that lack a part."""

from dataclasses import dataclass
from typing import Any, ClassVar

from layerscope.metrics.metric import How, Needs


@dataclass(frozen=True)
class FromForward(How):
    """A metric that changes how the model runs: it is measured only where it is named."""

    needs: ClassVar[Needs] = "forward"

    def streams(self, options: Any) -> bool:
        """Return True: it is a value of each sample."""
        return True
