"""Tasks that a probe judges: a kind of probe, its data, and other data that judge it under a shift."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core import LayerscopeError, listed
from layerscope.core.labels import is_target
from layerscope.evaluation.probe_states import Shared, labelled
from layerscope.inputs import Corpus
from layerscope.inputs.tagged import Tagged
from layerscope.probes import ProbeScore


@dataclass(frozen=True)
class Draw:
    """How the data of tasks are drawn: of each `samples` seeded rows, None for all.

    A linear probe is also judged on the data `shift`, as a task of its own.
    """

    samples: int | None
    seed: int
    shift: Any
    opened: dict[Any, Any] = field(default_factory=dict)
    """Data by how they are read: the probes of the same data share them, and their states."""


@dataclass(frozen=True)
class ProbeKind:
    """A kind of probe: what it is called beside the name of its data, the states it reads, and its function.

    `probe` takes what `layer` of these states returns, and a seed. `reads` and `score` are words
    for the documentation.
    """

    name: str
    title: str
    states: type[Shared]
    probe: Callable[..., ProbeScore]
    learns_mixes: bool = False
    takes_shift: bool = False
    takes_target: bool = False
    reads: str = "anything that `profile` reads with labels: texts, images, sounds"
    score: str = ""

    def open(self, data: Any, draw: Draw) -> "list[ProbeTask]":
        """Return the probe of these data, and that under a shift; raises for numbers where it takes classes alone."""
        read = self.states.read
        key = read, data if isinstance(data, (str, Path)) else id(data)
        if key not in draw.opened:
            draw.opened[key] = read(data, draw.samples, draw.seed)
        samples = draw.opened[key]
        if isinstance(samples, Corpus) and is_target(samples.labels):
            fault = f"the labels of {samples.name} are numbers to predict, and"
            if not self.takes_target:
                raise LayerscopeError(
                    f"{fault} {self.name} takes classes: give it to a linear-probe"
                )
            if draw.shift is not None:
                raise LayerscopeError(f"{fault} a `shift` takes classes: leave it out")
        task = ProbeTask(self, samples)
        if draw.shift is None or not self.takes_shift:
            return [task]
        return [task, replace(task, shift=_shifted(draw.shift, samples, draw))]


@dataclass(frozen=True)
class ProbeTask:
    """One probe and its data: labelled samples, or for a token probe tagged sentences."""

    kind: ProbeKind
    data: Corpus | Tagged
    shift: Corpus | None = None
    """Other samples that judge a probe of all of `data`; None where these are judged themselves."""

    @property
    def name(self) -> str:
        """What the task is called in tables."""
        shift = "" if self.shift is None else f" → {self.shift.name}"
        return f"{self.data.name}{shift} ({self.kind.title})"


def _shifted(data: Any, source: Corpus, draw: Draw) -> Corpus:
    """Return labelled samples to judge probes of `source` on: none that is in it too."""
    target = labelled(data, draw.samples, draw.seed)
    names = set(map(str, source.labels or ()))
    unknown = sorted(set(map(str, target.labels or ())) - names)
    if unknown:
        raise LayerscopeError(
            f"{target.name} has labels that {source.name} lacks ({listed(unknown)}): leave these samples out, or add "
            f"some to {source.name}"
        )
    new = np.flatnonzero(~np.isin(target.digests, source.digests))
    if not len(new):
        raise LayerscopeError(
            f"every sample of {target.name} is in {source.name} too: give other data as `shift`"
        )
    notes = list(target.notes)
    if len(new) < len(target):
        notes.append(
            f"{len(target) - len(new):,} of {len(target):,} samples of {target.name} are in {source.name} too: left out"
        )
    return replace(target.take(new), notes=tuple(notes))
