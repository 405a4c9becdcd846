"""The healing of a shortened model: it learns from its full model, for some minutes, and can be resumed.

The number of steps follows from the minutes and from how long one step takes, and is kept with the
state: a healing that was killed goes on with the same schedule and the same batches. The weights
that come closest to the full model on samples that are not learned from are the result; that may
be those of the start.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside
from layerscope.core.progress import Reporter
from layerscope.healing.outputs import Pupil, distances_on, loss_of
from layerscope.models import LayeredModel
from layerscope.models.batching import batches_of
from layerscope.models.capture import evaluating
from layerscope.models.encode import TextEncoder
from layerscope.models.modality import embeddings

STATE = "healing.pt"
"""The file of a healing that goes on."""
EVALUATIONS, PATIENCE = 8, 3
"""How often the distance is measured, and after how many measurements without a lower one healing ends."""
PASSES = 10
"""How often a sample is learned from at most."""
LONGEST = 128
"""Tokens of a text at most: shorter ones are more texts in the same time."""
WINDOW = 8
"""Batches whose samples are sorted by length together."""
TIMED = 5
"""Steps that are timed before the first; they change nothing."""
WARMUP = 0.1
"""Share of the steps in which the learning rate rises; in the rest it falls to 0."""


@dataclass(frozen=True)
class Plan:
    """How a model is healed: for how long, how fast, and with which seed."""

    minutes: float = 10.0
    learning_rate: float = 5e-4
    batch_size: int = 32
    seed: int = 0


@dataclass
class Progress:
    """How far a healing has come: steps done of all, the distance at each measurement, why it ended early."""

    steps: int
    step: int
    measured: list[float]
    stopped: str = ""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        waited = len(self.measured) - 1 - int(np.argmin(self.measured))
        return self.step >= self.steps or bool(self.stopped) or waited >= PATIENCE


def heal(
    pupil: Pupil,
    samples: Sequence[Any],
    validation: Sequence[Any],
    plan: Plan,
    folder: Path,
    reporter: Reporter,
) -> Progress:
    """Train the student towards its teacher, in place, and leave it with its best weights.

    `validation` are samples that are not among `samples`: they say which weights are best. The
    state lies in `folder`, from which a killed healing goes on. Raises `LayerscopeError` where
    another healing lies there.
    """
    pupil = replace(pupil, teacher=_shortened(pupil.teacher))
    student = pupil.student.module
    student.float()
    weights = _trained(student)
    parameters = list(weights.values())
    optimizer: Any = torch.optim.AdamW(parameters, lr=plan.learning_rate)
    about = {**asdict(plan), "samples": len(samples)}
    state = _opened(folder / STATE, about)
    with evaluating(student), evaluating(pupil.teacher.module):
        if state is None:
            steps = _steps(pupil, samples, plan, parameters)
            measured = float(distances_on(validation, pupil).mean())
            progress = Progress(steps, 0, [measured])
            best = _copied(weights)
        else:
            progress = Progress(**state["progress"])
            best = state["best"]
            student.load_state_dict(state["weights"], strict=False)
            optimizer.load_state_dict(state["optimizer"])
            reporter.say(f"healing resumes after step {progress.step:,}")
        every = math.ceil(progress.steps / EVALUATIONS)
        batches = _batches(pupil.teacher, samples, plan, progress.step)
        with reporter.bar("healing", progress.steps, "steps") as advance:
            advance(progress.step)
            while not progress.finished:
                optimizer.param_groups[0]["lr"] = plan.learning_rate * _share(progress)
                loss = loss_of(next(batches), pupil)
                if not bool(torch.isfinite(loss)):
                    progress.stopped = f"the loss of step {progress.step + 1} is NaN"
                    break
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                progress.step += 1
                advance(1, f"loss {loss.item():.3f}")
                if progress.step % every and progress.step < progress.steps:
                    continue
                measured = float(distances_on(validation, pupil).mean())
                if measured < min(progress.measured):
                    best = _copied(weights)
                progress.measured.append(measured)
                content = {
                    "about": about,
                    "progress": asdict(progress),
                    "weights": _copied(weights),
                    "best": best,
                    "optimizer": optimizer.state_dict(),
                }
                aside(folder / STATE, lambda path, kept=content: torch.save(kept, path))
    student.load_state_dict(best, strict=False)
    return progress


def _shortened(teacher: LayeredModel) -> LayeredModel:
    """Return a teacher that reads texts up to the length that is learned from."""
    encoder = teacher.encoder
    if not isinstance(encoder, TextEncoder) or encoder.max_length <= LONGEST:
        return teacher
    return replace(teacher, encoder=replace(encoder, max_length=LONGEST))


def _trained(student: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that learn: all but embeddings, which stay those of the full model."""
    student.requires_grad_(True)
    for table in embeddings(student):
        table.requires_grad_(False)
    named = student.named_parameters()
    return {name: weight for name, weight in named if weight.requires_grad}


def _copied(weights: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in weights.items()}


def _share(progress: Progress) -> float:
    """Return the share of the peak learning rate in the next step."""
    warmup = max(1.0, WARMUP * progress.steps)
    left = (progress.steps - progress.step) / max(1.0, progress.steps - warmup)
    return min((progress.step + 1) / warmup, left)


def _steps(
    pupil: Pupil, samples: Sequence[Any], plan: Plan, weights: list[nn.Parameter]
) -> int:
    """Return how many steps fit into the minutes, by the time of some that change nothing."""
    batches = _batches(pupil.teacher, samples, plan, 0)
    lengths = pupil.teacher.encoder.lengths
    tokens = 0
    seconds = np.zeros(2)
    for number in range(1 + TIMED):
        batch = next(batches)
        start = np.array([time.perf_counter(), time.process_time()])
        torch.autograd.grad(loss_of(batch, pupil), weights, allow_unused=True)
        end = np.array([time.perf_counter(), time.process_time()])
        if number > 0:  # the first one allocates
            seconds += end - start
            tokens += sum(lengths(batch))
    # on a machine that is busy with other work, the time of this process counts
    per_token = seconds.min() / tokens
    per_step = per_token * plan.batch_size * np.mean(lengths(samples))
    most = math.ceil(PASSES * len(samples) / plan.batch_size)
    return max(1, min(most, int(60 * plan.minutes / per_step)))


def _batches(
    teacher: LayeredModel, samples: Sequence[Any], plan: Plan, start: int
) -> Iterator[list[Any]]:
    """Yield batches of samples of like lengths without end, from a step on, in an order that the seed decides."""
    lengths = np.array(teacher.encoder.lengths(samples))
    step = 0
    epoch = 0
    while True:
        generator = np.random.default_rng([plan.seed, epoch])
        order = generator.permutation(len(lengths))
        for window in range(0, len(order), WINDOW * plan.batch_size):
            rows = order[window : window + WINDOW * plan.batch_size]
            batches = batches_of(teacher, lengths[rows].tolist(), plan.batch_size)
            for number in generator.permutation(len(batches)):
                step += 1
                if step > start:
                    yield [samples[int(rows[i])] for i in batches[number]]
        epoch += 1


def _opened(path: Path, about: dict[str, Any]) -> Any:
    """Return the state of a healing that was begun, None where there is none; `about` says of which."""
    if not path.is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        there = state["about"]
    # torch and zip raise many kinds for a damaged file
    except Exception as error:
        raise LayerscopeError(
            f"{str(path)!r} is damaged: delete it to heal from the start"
        ) from error
    if there != about:
        raise LayerscopeError(
            f"{str(path)!r} is of another healing: delete it, or give the same options"
        )
    return state
