"""Layers at fewer dimensions as rows of a probe: their first ones, and principal components, of stored states."""

from collections.abc import Sequence

from layerscope.evaluation.layer_encoder import Serving
from layerscope.evaluation.probe_states import Pooled, ProbeTask, Tokens
from layerscope.models import LayeredModel
from layerscope.probes import ProbeScore
from layerscope.probes.linear import components_probe
from layerscope.scores.naming import CUTS
from layerscope.scores.probe_results import ProbeScores, Slot

Cut = tuple[str, int]
"""A kind of `CUTS` and a number of dimensions."""


class Shorter:
    """What probes of one data set have to judge at fewer dimensions; nothing where states are not pooled.

    Raises `LayerscopeError` for more dimensions than the model's vectors have.
    """

    def __init__(self, states: Pooled | Tokens, model: LayeredModel, dims: Sequence[int] | None) -> None:
        self.states, self.dims = states, tuple[int, ...]()
        if dims and isinstance(states, Pooled):
            self.dims = Serving(model.loaded).shorter(dims, model.stack.width, model.loaded.name)

    def missing(self, task: ProbeTask, scores: ProbeScores) -> dict[Slot, list[Cut]]:
        """Return by layer, site and pooling the rows that have no score yet."""
        cuts = [(kind, number) for kind in task.kind.cuts for number in self.dims if task.shift is None]
        lacking = {slot: [cut for cut in cuts if scores.find(slot, *cut) is None] for slot in self.states.slots}
        return {slot: wanted for slot, wanted in lacking.items() if wanted}

    def judge(self, task: ProbeTask, slot: Slot, wanted: Sequence[Cut], seed: int) -> dict[Cut, ProbeScore]:
        """Return the scores of one layer that are wanted."""
        states, labels = self.states.layer(slot)
        prefixes, components = ([number for kind, number in wanted if kind == each] for each in CUTS)
        found = {(CUTS[0], number): task.score((states[:, :number], labels), seed) for number in prefixes}
        if components:
            of_components = components_probe(states, labels, components, seed=seed)
            found |= {(CUTS[1], number): score for number, score in of_components.items()}
        return found
