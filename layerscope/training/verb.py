from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import IN_CODE, SEED, Folder, Number, OneOf, Several, Whole
from layerscope.core.options import DATA, MODEL, OUTPUT, Asked, checked, declared

if TYPE_CHECKING:
    from layerscope.training.depths import Trained

OBJECTIVE = "Objective"
STEPS = "Steps"
EVALUATION = "Evaluation"
SENTENCES = "sentence-similarity"
TASKS = {
    "classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "image-classification": "AutoModelForImageClassification",
    "audio-classification": "AutoModelForAudioClassification",
    SENTENCES: "SentenceTransformer",
}
"""What is learnt, and the class that has a head for it, or needs none."""
UNREAD = ("preset", "schedule", "rotation", "beta", "layer_dropout", "distillation", "temperature", "head", "augment",
          "depth_on", "from_config", "processor", "part", "text_column")  # fmt: skip
"""Options that a training of sentence encoders has no use for."""
WEIGHTS = ("linear", "uniform", "layerskip")
Name = Literal["standard", "aligned", "cosine", "cka", "classifiers"]
Schedule = Literal["alternate", "always", "rotating", "gradual"]
FINE_TUNED, FROM_SCRATCH = 2e-5, 5e-4
"""Learning rates where none is given."""
IMAGE = "image-classification"
PRESETS: dict[str, dict[str, Any]] = {
    "tracing-glue": dict(
        task="classification",
        head="own",
        schedule="always",
        learning_rate=2e-5,
        batch_size=32,
        epochs=3,
        max_length=256,
    ),
    "tracing-gpt2": dict(
        task="causal-lm",
        schedule="always",
        learning_rate=2e-5,
        batch_size=8,
        max_steps=40_000,
        max_length=256,
    ),
    # the print has a learning rate of 0.1, at which AdamW does not learn; this is the rate of DeiT
    # itself
    "tracing-deit": dict(
        task=IMAGE,
        schedule="alternate",
        learning_rate=5e-4,
        batch_size=256,
        epochs=200,
        weight_decay=1e-4,
        scheduler="multistep",
        augment=True,
    ),
    # those of its model of 24 layers trained from scratch; learning rates are those of `train`
    "layerskip": dict(
        task="causal-lm", schedule="rotating", weights="layerskip", beta=0.2, layer_dropout=0.1
    ),
}
"""Published settings by name: Tracing Representation Progression, section 3.1 and appendices B and C.2; Elhoushi et al.
2024, LayerSkip, section 5."""
PRINTED: dict[str, dict[str, Any]] = {"tracing-deit": {"learning_rate": 0.1}}
"""The printed values that the preset replaces."""


@dataclass(frozen=True)
class Settings:
    """The settings of one training; None is a default that the model and the data decide.

    Attributes:
        task: task to learn; auto is what the data and the model suggest.
        objective: loss over the exits: standard (only the last layer), aligned (one head for all
            exits), cosine or cka (the last layer, and every layer's similarity to it), or
            classifiers (a head for each exit).
        schedule: when exits are trained: always (all in every step); alternate, the default for
            images (in odd steps only the last layer); rotating (in turn, the last in every step);
            gradual (from the last one down, all after half of the steps).
        rotation: steps until the schedule rotating trains the same exit again; by default the
            number of exits minus one.
        weights: weights of the exits: linear, uniform, layerskip (quadratic in depth), or one
            number per exit, separated by commas.
        layers: layers to use as exits, such as 3,6 or 3-6; by default every layer.
        dims: numbers of leading dimensions that sentence embeddings of every layer learn to work
            with alone, such as 32,64,128.
        beta: weight of the cosine or CKA regulariser, or of the earlier exits in the weights
            layerskip.
        layer_dropout: probability that training skips the last block for a sample, falling to 0 at
            the first block; with random weights it rises from 0 over the training.
        distillation: weight of distillation from the last exit; only with the objective
            classifiers.
        temperature: temperature of the distillation.
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
        depth_on: data on which effective depth is measured: eval, or train (as many training
            samples; definition 3.1).
        seed: random seed.
        dtype: precision of training: float32, or bf16 (mixed).
        device: device to train on.

    """

    task: Annotated[str, OneOf(("auto", *TASKS)), DATA] = "auto"
    objective: Annotated[Name, OneOf(get_args(Name)), OBJECTIVE] = "aligned"
    schedule: Annotated[Schedule | None, OneOf(get_args(Schedule)), OBJECTIVE] = None
    rotation: Annotated[int | None, Whole(1), OBJECTIVE] = None
    weights: Annotated[str | Sequence[float], Several(Number(0), WEIGHTS), OBJECTIVE] = "linear"
    beta: Annotated[float, Number(0), OBJECTIVE] = 1.0
    layer_dropout: Annotated[float, Number(0, below=1), OBJECTIVE] = 0.0
    distillation: Annotated[float, Number(0), OBJECTIVE] = 0.0
    temperature: Annotated[float, Number(above=0), OBJECTIVE] = 1.0
    layers: Annotated[Sequence[int] | None, Several(Whole(), such_as="3,6 or 3-6"), OBJECTIVE] = (
        None
    )
    dims: Annotated[Sequence[int] | None, Several(Whole(1), such_as="32,64,128"), OBJECTIVE] = None
    head: Annotated[str, OneOf(("auto", "mean", "own", "new")), MODEL] = "auto"
    epochs: Annotated[float, Number(above=0), STEPS] = 3
    max_steps: Annotated[int | None, Whole(1), STEPS] = None
    learning_rate: Annotated[float | None, Number(above=0), STEPS] = None
    batch_size: Annotated[int, Whole(1), STEPS] = 32
    gradient_accumulation: Annotated[int, Whole(1), STEPS] = 1
    weight_decay: Annotated[float, Number(0), STEPS] = 0.01
    warmup: Annotated[float, Number(0), STEPS] = 0.0
    scheduler: Annotated[str, OneOf(("linear", "cosine", "constant", "multistep")), STEPS] = (
        "linear"
    )
    max_length: Annotated[int | None, Whole(1), DATA] = None
    augment: Annotated[bool | None, DATA] = None
    eval_every: Annotated[int | None, Whole(1), EVALUATION] = None
    eval_samples: Annotated[int | None, Whole(1), EVALUATION] = None
    depth_on: Annotated[str, OneOf(("eval", "train")), EVALUATION] = "eval"
    seed: Annotated[int, SEED, STEPS] = 0
    dtype: Annotated[str, OneOf(("float32", "bf16")), MODEL] = "float32"
    device: Annotated[str, OneOf(("auto", "cpu", "cuda")), MODEL] = "auto"

    def decided(self, task: str, asked: Asked) -> "Settings":
        """Return the same with what the task decides filled in; raises `LayerscopeError` where it forbids a setting."""
        if self.augment and task != IMAGE:
            raise LayerscopeError(
                f"augment crops and turns images, and {task} reads none: leave it out"
            )
        if self.dims is not None and task != SENTENCES:
            raise LayerscopeError(
                f"dims are those of sentence embeddings, and {task} makes none: leave `dims` out"
            )
        for name in UNREAD if task == SENTENCES else ():
            if getattr(asked, name) != declared(train)[name].default:
                raise LayerscopeError(f"the task {task} has no {name}: leave `{name}` out")
        if task == SENTENCES and self.objective not in ("standard", "aligned"):
            raise LayerscopeError(
                f"the task {task} has no objective {self.objective!r}: choose standard or aligned"
            )
        return replace(
            self,
            task=task,
            augment=bool(self.augment),
            schedule=self.schedule or ("alternate" if task == IMAGE else "always"),
            learning_rate=self.learning_rate or (FROM_SCRATCH if asked.from_config else FINE_TUNED),
        )


def train(
    model: Any,
    train: Annotated[Any, DATA],
    eval: Annotated[Any, DATA] = None,  # the word of the Trainer
    *,
    out: Annotated[str | Path, Folder(), OUTPUT],
    text_column: Annotated[str | None, DATA] = None,
    label_column: Annotated[str | None, DATA] = None,
    from_config: Annotated[bool, MODEL] = False,
    processor: Annotated[Any, MODEL] = None,
    part: Annotated[str | None, MODEL] = None,
    preset: Annotated[str | None, OneOf(tuple(PRESETS)), OBJECTIVE] = None,
    as_printed: Annotated[bool, OBJECTIVE] = False,
    baseline_depths: Annotated[
        Sequence[int] | None, Several(Whole(1), such_as="3,6"), OBJECTIVE
    ] = None,
    keep_checkpoints: Annotated[bool, OUTPUT] = False,
    report_to: Annotated[str, OUTPUT] = "none",
    progress: Annotated[bool, IN_CODE] = True,
    **settings: Annotated[Any, Settings],
) -> Path:
    """Train a model so that every layer can be its last; the result is a standard checkpoint.

    All layers are read by one head. Repeating the call resumes from the last checkpoint and ends
    with the same weights. The scores of each layer at each evaluation are kept as a run in
    `out/history`. Returns the folder.

    Args:
        model: hub name, local folder, or minilm; for random weights a folder with config.json, or a
            JSON file; in Python also a transformers model, or a plain classifier of rows, such as
            an MLP.
        train: training data: CSV, TSV, JSONL, Parquet or text file; folder or archive of images or
            sounds; hf:NAME; digits; a table of words and tags; or, for sentence-similarity, of
            text_a, text_b and optionally score.
        eval: evaluation data, in the same forms; by default a tenth of the training data, drawn
            with the seed.
        out: folder of the checkpoint; repeating the call resumes the training.
        text_column: column of the texts; by default it is guessed.
        label_column: column of the labels; by default it is guessed.
        from_config: start from random weights of the model's config.
        processor: tokenizer or processor, if the model has none.
        part: stack of blocks to train, if the model has several: encoder, decoder, text, vision, or
            a module path.
        preset: published settings; options override them.
        as_printed: use the paper's values exactly as printed.
        baseline_depths: depths of separate models to train for comparison, such as 3,6.
        keep_checkpoints: keep the last checkpoints at the end.
        report_to: where the Trainer reports to: tensorboard, wandb or none.
        progress: show progress on standard error.
        **settings: fields of `Settings`, which override a preset.

    Raises:
        LayerscopeError: for every wrong input; nothing that was trained is lost.

    Example:
        >>> folder = layerscope.train("tiny-bert", "reviews.csv", out="trained", max_steps=2, progress=False)
        >>> layerscope.open_run(folder / "history").steps
        (0, 1, 2)

    """
    return trained(locals()).path


def trained(given: dict[str, Any]) -> "Trained":
    """Train as the options of `train` say; return what every depth scores and costs, in the process that writes."""
    asked = checked(train, given)
    chosen = given.get(
        "settings", given
    )  # in Python a dictionary of its own; a command has all options in one
    settings = {
        field.name: vars(asked)[field.name] for field in fields(Settings) if field.name in chosen
    }
    from layerscope.training.pipeline import run_training

    return run_training(asked, settings)


def settings_of(
    given: Mapping[str, Any], preset: str | None = None, *, as_printed: bool = False
) -> Settings:
    """Return settings: those given (None is not given) over those of a preset over the defaults."""
    if as_printed and preset is None:
        raise LayerscopeError(
            "`as_printed=True` needs a preset, whose printed values it takes: give `preset`"
        )
    named = {name: value for name, value in given.items() if value is not None}
    return Settings(**_preset(preset, as_printed) | named)


def described(preset: str, given: Mapping[str, Any], *, as_printed: bool) -> str:
    """Return a line on what a preset sets, without what was given beside it."""

    def listed(values: Mapping[str, Any]) -> str:
        return ", ".join(
            f"{key} {value}" for key, value in values.items() if given.get(key) is None
        )

    printed = "" if as_printed else listed(PRINTED.get(preset, {}))
    note = f" (the paper prints {printed}: see `as_printed=True`)" if printed else ""
    return f"preset {preset}: {listed(_preset(preset, as_printed))}{note}"


def _preset(name: str | None, as_printed: bool) -> dict[str, Any]:
    return PRESETS.get(name or "", {}) | (PRINTED.get(name or "", {}) if as_printed else {})
