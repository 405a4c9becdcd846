"""Tasks that a probe judges: a kind of probe, its data, and other data that judge it under a shift."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError, listed
from layerscope.evaluation.probe_states import Pooled, Tokens, labelled
from layerscope.evaluation.table_tasks import tables_named, task_name
from layerscope.inputs import Corpus
from layerscope.inputs.tagged import Tagged
from layerscope.probes import ProbeScore
from layerscope.probes.attention import validation


@dataclass(frozen=True)
class Draw:
    """How the data of tasks are drawn: of each `samples` seeded rows, None for all.

    An attention probe is judged on the share `split` of them; a linear probe is also judged on the
    data `shift`, as a task of its own.
    """

    samples: int | None = None
    seed: int = 0
    split: float | None = None
    shift: Any = None
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
    states: type[Pooled | Tokens]
    probe: Callable[..., ProbeScore]
    learns_mixes: bool = False
    takes_split: bool = False
    takes_shift: bool = False
    reads: str = "anything that `profile` reads with labels: texts, images, sounds"
    score: str = ""

    def open(self, data: Any, draw: Draw) -> "list[ProbeTask]":
        """Return the probe of these data, and that under a shift."""
        shift = draw.shift if self.takes_shift else None
        name, files = None, _train_and_test(data) if self.takes_shift else ()
        if files:
            if shift is not None:
                raise LayerscopeError(
                    f"{data} has a test file, which judges its probes: leave `shift` out"
                )
            name, (data, shift) = task_name(Path(data)), files
        read = self.states.read
        key = read, data if isinstance(data, (str, Path)) else id(data)
        if key not in draw.opened:
            samples = read(data, draw.samples, draw.seed)
            draw.opened[key] = samples if name is None else replace(samples, name=name)
        samples = draw.opened[key]
        split = draw.split if self.takes_split else None
        if split is not None:  # refused before the model runs
            validation(np.unique(samples.labels, return_inverse=True)[1], split, draw.seed)
        task = ProbeTask(self, samples, split)
        if shift is None:
            return [task]
        # a draw may lack a label of its file
        whole = samples if draw.samples is None else read(data, None, draw.seed)
        return [task, replace(task, shift=_shifted(shift, samples, whole, draw))]


@dataclass(frozen=True)
class ProbeTask:
    """One probe and its data: labelled samples, or for a token probe tagged sentences."""

    kind: ProbeKind
    data: Corpus | Tagged
    split: float | None = None
    """Share of the samples that judges the probe, trained once on the others; None where it has folds."""
    shift: Corpus | None = None
    """Other samples that judge a probe of all of `data`; None where these are judged themselves."""

    @property
    def name(self) -> str:
        """What the task is called in tables."""
        held_out = "" if self.split is None else f", {100 * self.split:g} % held out"
        shift = "" if self.shift is None else f" → {self.shift.name}"
        return f"{self.data.name}{shift} ({self.kind.title}{held_out})"

    def score(self, states: tuple[Any, ...], seed: int) -> ProbeScore:
        """Return the score of the probe on the states of one layer."""
        options = {} if self.split is None else {"split": self.split}
        return self.kind.probe(*states, seed=seed, **options)


def _train_and_test(data: Any) -> tuple[Path, ...]:
    """Return the tables `train.*` and `test.*` of a folder, none where it lacks one."""
    if not isinstance(data, (str, Path)) or not Path(data).is_dir():
        return ()
    files = tables_named(Path(data), ("train", "test"))
    return (files["train"], files["test"]) if len(files) == 2 else ()


def _shifted(data: Any, source: Corpus, whole: Corpus, draw: Draw) -> Corpus:
    """Return labelled samples to judge probes of `source`, drawn from `whole`, on: none that is in it too."""
    target = labelled(data, draw.samples, draw.seed)
    unknown = sorted(set(map(str, target.labels or ())) - set(map(str, whole.labels or ())))
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
    copies, notes = len(target) - len(new), list(target.notes)
    if copies:
        notes.append(
            f"{copies:,} of {len(target):,} samples of {target.name} are in {source.name} too: left out"
        )
    classes, of = len(set(target.labels or ())), len(set(source.labels or ()))
    if 2 * classes < of:
        notes.append(
            f"{target.name} has {classes:,} of the {of:,} classes of {source.name}: scores on it cover only these"
        )
    return replace(target.take(new.tolist()), notes=tuple(notes))
