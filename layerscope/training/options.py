"""The options of `train`: the settings of a training, and what a task decides or refuses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from layerscope.core import (
    DATA,
    MODEL,
    OUTPUT,
    SEED,
    LayerscopeError,
    Number,
    OneOf,
    Options,
    Several,
    Whole,
)

OBJECTIVE = "Objective"
STEPS = "Steps"
EVALUATION = "Evaluation"
SENTENCES = "sentence-similarity"
TAGGING = "token-classification"
IMAGES = "image-classification"
TASKS = {
    "classification": "AutoModelForSequenceClassification",
    TAGGING: "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    IMAGES: "AutoModelForImageClassification",
    "audio-classification": "AutoModelForAudioClassification",
    SENTENCES: "SentenceTransformer",
}
"""The tasks, and the class that has a head for each, or needs none."""
MODALITIES = {IMAGES: "image", "audio-classification": "audio"}
"""What the samples of a task are; those of the other tasks are texts."""
NOT_FOR_SENTENCES = ("schedule", "beta", "distillation", "head", "augment", "from_config", "processor",
                     "part", "text_column")  # fmt: skip
WEIGHTS = ("linear", "uniform")
Name = Literal["standard", "aligned", "cosine", "cka", "classifiers"]
Schedule = Literal["alternate", "always"]
FINE_TUNED = 2e-5
"""Learning rate of pretrained weights where none is given."""
FROM_SCRATCH = 5e-4
"""Learning rate of random weights where none is given."""


@dataclass(frozen=True)
class Settings:
    """The settings of one training; None is a default that the model and the data decide.

    Attributes:
        task: task to learn; auto is what the data and the model suggest.
        objective: loss over the exits: standard (only the last layer), aligned (one head for all
            exits), cosine or cka (the last layer, and every layer's similarity to it), or
            classifiers (a head for each exit).
        schedule: when exits are trained: always (in every step), or alternate, the default for
            images (in odd steps only the last layer).
        weights: weights of the exits: linear, uniform, or one number per exit, separated by commas.
        layers: layers to use as exits, such as 3,6 or 3-6; by default every layer.
        dims: numbers of leading dimensions that sentence embeddings of every layer learn to work
            with alone, such as 32,64,128.
        beta: weight of the cosine or CKA regulariser.
        distillation: weight of distillation from the last exit; only with the objectives aligned
            and classifiers.
        head: head to train: mean (a linear head over the mean of the tokens), own (the model's),
            new (the model's, from random weights); auto is mean for text encoders without a trained
            head.
        epochs: passes over the training data.
        max_steps: number of optimiser steps, instead of epochs.
        learning_rate: peak learning rate; by default 2e-5, and 5e-4 from a config.
        batch_size: samples per batch and device.
        gradient_accumulation: batches accumulated per optimiser step.
        weight_decay: AdamW weight decay.
        warmup: warm-up steps or, below 1, their share of all steps.
        scheduler: learning rate schedule; multistep divides by ten after 50 % and 75 % of the
            steps.
        max_length: maximum number of tokens per text, and per window of running text.
        augment: crop, flip and rotate the training images at random.
        eval_every: steps between evaluations; by default a tenth of all, or more where evaluation
            is slow.
        eval_samples: number of evaluation samples, drawn with the seed; by default all.
        seed: random seed.
        dtype: precision of training: float32, or bf16 (mixed).
        device: device to train on.
        part: stack of blocks to train, if the model has several: encoder, decoder, text, vision, or
            a module path.
        report_to: where the Trainer reports to: tensorboard, wandb or none.

    """

    task: Annotated[str, OneOf(("auto", *TASKS)), DATA] = "auto"
    objective: Annotated[Name, OneOf(get_args(Name)), OBJECTIVE] = "aligned"
    schedule: Annotated[Schedule | None, OneOf(get_args(Schedule)), OBJECTIVE] = None
    weights: Annotated[
        str | Sequence[float], Several(Number(0), WEIGHTS), OBJECTIVE
    ] = "linear"
    beta: Annotated[float, Number(0), OBJECTIVE] = 1.0
    distillation: Annotated[float, Number(0), OBJECTIVE] = 0.0
    layers: Annotated[
        Sequence[int] | None, Several(Whole(), such_as="3,6 or 3-6"), OBJECTIVE
    ] = None
    dims: Annotated[
        Sequence[int] | None, Several(Whole(1), such_as="32,64,128"), OBJECTIVE
    ] = None
    head: Annotated[str, OneOf(("auto", "mean", "own", "new")), MODEL] = "auto"
    epochs: Annotated[float, Number(above=0), STEPS] = 3
    max_steps: Annotated[int | None, Whole(1), STEPS] = None
    learning_rate: Annotated[float | None, Number(above=0), STEPS] = None
    batch_size: Annotated[int, Whole(1), STEPS] = 32
    gradient_accumulation: Annotated[int, Whole(1), STEPS] = 1
    weight_decay: Annotated[float, Number(0), STEPS] = 0.01
    warmup: Annotated[float, Number(0), STEPS] = 0.0
    scheduler: Annotated[
        str, OneOf(("linear", "cosine", "constant", "multistep")), STEPS
    ] = "linear"
    max_length: Annotated[int | None, Whole(1), DATA] = None
    augment: Annotated[bool | None, DATA] = None
    eval_every: Annotated[int | None, Whole(1), EVALUATION] = None
    eval_samples: Annotated[int | None, Whole(1), EVALUATION] = None
    seed: Annotated[int, SEED, STEPS] = 0
    dtype: Annotated[str, OneOf(("float32", "bf16")), MODEL] = "float32"
    device: Annotated[str, OneOf(("auto", "cpu", "cuda")), MODEL] = "auto"
    part: Annotated[str | None, MODEL] = None
    report_to: Annotated[str, OUTPUT] = "none"


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """The options of `train`."""

    model: Any
    train: Any
    eval: Any
    out: Path
    text_column: str | None
    label_column: str | None
    from_config: bool
    processor: Any
    progress: bool
    settings: Settings


def settings_for(task: str, options: TrainOptions) -> Settings:
    """Return the settings with what the task decides; raises `LayerscopeError` for those that it has no use for."""
    settings = options.settings
    if task != IMAGES and settings.augment:
        options.refuse(["augment"], f"crops and turns images, and {task} reads none")
    if task == SENTENCES:
        options.refuse(NOT_FOR_SENTENCES, f"is not used by the task {task}")
        if settings.objective not in ("standard", "aligned"):
            raise LayerscopeError(
                f"the task {task} has no objective {settings.objective!r}: choose standard or aligned"
            )
    else:
        options.refuse(
            ["dims"], f"are those of sentence embeddings, and {task} makes none"
        )
    rate = FROM_SCRATCH if options.from_config else FINE_TUNED
    return replace(
        settings,
        task=task,
        augment=bool(settings.augment),
        schedule=settings.schedule or ("alternate" if task == IMAGES else "always"),
        learning_rate=settings.learning_rate or rate,
    )
