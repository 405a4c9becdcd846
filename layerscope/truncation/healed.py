"""A cut model that is healed before it is written: it learns from the full model on samples without labels."""

from dataclasses import dataclass
from pathlib import Path

from layerscope.core.errors import count
from layerscope.core.margin import error_of
from layerscope.core.progress import Reporter
from layerscope.healing.healing import Plan, heal
from layerscope.healing.lessons import Lessons
from layerscope.healing.outputs import Pupil, distance_of, distances_on
from layerscope.models import LoadOptions, Override
from layerscope.truncation.source import Source, open_source


@dataclass(frozen=True)
class Healing:
    """How a cut model is healed: its samples, its plan, and the `workdir` that holds its state, where it is resumed."""

    lessons: Lessons
    plan: Plan
    workdir: Path


def open_cut(folder: Path, source: Source) -> Source:
    """Return a cut model from its checkpoint, on the device of the full one."""
    options = LoadOptions(device=str(source.model.device))
    return open_source(folder, None, Override(), options)


def heal_cut(cut: Source, source: Source, healing: Healing, reporter: Reporter) -> str:
    """Heal the model of a cut source in place, and return what that changed in words.

    That is the mean distance from the full model on held-out samples, before and after.
    """
    pupil = Pupil(cut.model, source.model, source.pooled_by)
    lessons = healing.lessons
    dtype = cut.dtype
    before = distances_on(lessons.held, pupil)
    progress = heal(
        pupil,
        lessons.learn,
        lessons.validation,
        healing.plan,
        healing.workdir,
        reporter,
    )
    cut.module.to(dtype)
    after = distances_on(lessons.held, pupil)
    error = error_of(after - before)
    distances = f"{before.mean():.3f} to {after.mean():.3f} (±{error:.3f})"
    judged = f"on {count(len(lessons.held), 'sample')} held out"
    learned = f"{progress.step:,} steps on {count(len(lessons.learn), 'other')}"
    text = f"healed: {distance_of(source.model)} from {distances} {judged}, after {learned}"
    if progress.stopped:
        text += f"; stopped because {progress.stopped}"
    reporter.say(text)
    return text
