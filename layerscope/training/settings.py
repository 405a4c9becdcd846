"""How a training runs: every choice in one place, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from layerscope.core.errors import LayerscopeError, choices, near
from layerscope.training.objectives import Objective
from layerscope.training.presets import IMAGE, preset_settings
from layerscope.training.weights import NAMED

TASKS = (
    "classification", "token-classification", "causal-lm", "masked-lm", "image-classification", "audio-classification",
)  # fmt: skip
HEADS = ("auto", "mean", "own", "new")
SCHEDULERS = ("linear", "cosine", "constant", "multistep")
DTYPES = ("float32", "bf16")
DEVICES = ("auto", "cpu", "cuda")
FINE_TUNED, FROM_SCRATCH = 2e-5, 5e-4
"""Learning rates where none is given."""
MOST_SEED = 2**32 - 1
"""What all generators take."""


@dataclass(frozen=True)
class Settings:
    """The settings of one training; None is a default that the model and the data decide.

    Attributes:
        task: what is learnt, one of `TASKS`, or "auto".
        objective: "standard", "aligned", "cosine", "cka" or "classifiers": see `Objective`.
        schedule: "alternate" (odd steps take the last layer's loss) or "always"; None: alternate for images.
        weights: of the exits: "linear", "uniform", or one number an exit.
        beta: of the regulariser, in "cosine" and "cka".
        distillation: from the last classifier, in "classifiers".
        temperature: of the distillation.
        layers: the exits; None is every layer.
        head: "mean" (a linear head over the mean of the tokens), "own" (as the model's makers have it), "new" (own, and
            fresh), "auto": mean for text encoders without a trained head.
        epochs: passes over the training data, where `max_steps` is not given.
        max_steps: optimiser steps.
        learning_rate: the highest; None: 2e-5, from a config 5e-4.
        batch_size: samples a device takes at once.
        gradient_accumulation: batches of an optimiser step.
        weight_decay: of AdamW.
        warmup: steps, or below 1 the share of all steps.
        scheduler: "linear", "cosine", "constant", "multistep" (a tenth after 50 % and 75 % of the steps).
        max_length: tokens of a text at most, and of a window of running text.
        augment: random crops, flips and rotations of the training images.
        eval_every: steps between evaluations; None: a tenth of all, or more where evaluation would take over a fifth of
            the time.
        eval_samples: seeded samples of an evaluation; None: all.
        seed: of weights, order, dropout and everything else.
        dtype: "float32", or "bf16" (mixed precision).
        device: "auto", "cpu" or "cuda".

    """

    task: str = "auto"
    objective: str = "aligned"
    schedule: str | None = None
    weights: str | Sequence[float] = "linear"
    beta: float = 1.0
    distillation: float = 0.0
    temperature: float = 1.0
    layers: Sequence[int] | None = None
    head: str = "auto"
    epochs: float = 3
    max_steps: int | None = None
    learning_rate: float | None = None
    batch_size: int = 32
    gradient_accumulation: int = 1
    weight_decay: float = 0.01
    warmup: float = 0.0
    scheduler: str = "linear"
    max_length: int | None = None
    augment: bool = False
    eval_every: int | None = None
    eval_samples: int | None = None
    seed: int = 0
    dtype: str = "float32"
    device: str = "auto"

    def __post_init__(self) -> None:
        """Refuse what does not exist or makes no sense."""
        for name, known in (
            ("task", ("auto", *TASKS)),
            ("head", HEADS),
            ("scheduler", SCHEDULERS),
            ("dtype", DTYPES),
            ("device", DEVICES),
        ):
            value = getattr(self, name)
            if value not in known:
                raise LayerscopeError(f"{name} {value!r} does not exist{choices(str(value), known)}")
        self.for_exits()
        if isinstance(self.weights, str) and self.weights not in NAMED:
            raise LayerscopeError(f"weights {self.weights!r} do not exist{choices(self.weights, NAMED)}")
        for name in ("batch_size", "gradient_accumulation", "max_steps", "max_length", "eval_every", "eval_samples"):
            _whole(name, getattr(self, name), 1)
        _whole("seed", self.seed, 0)
        if self.seed > MOST_SEED:
            raise LayerscopeError(f"seed is {self.seed}: give at most {MOST_SEED}")
        for name in ("epochs", "learning_rate"):
            _number(name, getattr(self, name), above=True)
        for name in ("weight_decay", "warmup"):
            _number(name, getattr(self, name), above=False)

    def for_exits(self, schedule: str = "always") -> Objective:
        """Return the objective of these settings; `schedule` stands in where none is given."""
        for name in ("beta", "distillation", "temperature"):
            _number(name, getattr(self, name), above=False)
        return Objective(
            self.objective,  # type: ignore[arg-type]
            self.schedule or schedule,  # type: ignore[arg-type]
            self.weights,
            self.beta,
            self.distillation,
            self.temperature,
        )

    def decided(self, task: str, *, from_config: bool) -> Settings:
        """Return the same with what the task decides filled in; raises `LayerscopeError` where it forbids a setting."""
        if self.augment and task != IMAGE:
            raise LayerscopeError(f"augment crops and turns images, and {task} reads none: leave it out")
        return replace(
            self,
            task=task,
            schedule=self.schedule or ("alternate" if task == IMAGE else "always"),
            learning_rate=self.learning_rate or (FROM_SCRATCH if from_config else FINE_TUNED),
        )


def settings_of(given: Mapping[str, Any], preset: str | None = None, *, as_printed: bool = False) -> Settings:
    """Return settings: those given (None is not given) over those of a preset over the defaults.

    Raises:
        LayerscopeError: for a name or a value that does not exist, and for `as_printed` without a preset.

    """
    known = [field.name for field in fields(Settings)]
    for name in given:
        if name not in known:
            raise LayerscopeError(f"train has no setting {name!r}{near(name, known) or ': ' + ', '.join(known)}")
    named = {name: value for name, value in given.items() if value is not None}
    return Settings(**{**preset_settings(preset, as_printed=as_printed), **named})


def _whole(name: str, value: Any, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise LayerscopeError(f"{name} is {value!r}: give a whole number from {least} on")


def _number(name: str, value: Any, *, above: bool) -> None:
    if value is None:
        return
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or value < 0 or (above and value == 0):
        raise LayerscopeError(f"{name} is {value!r}: give a number {'above' if above else 'from'} 0")
