from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from layerscope.core.option_kinds import IN_CODE, Folder, OneOf, Several, Whole
from layerscope.core.options import checked
from layerscope.core.shared_options import DATA, MODEL, OUTPUT
from layerscope.training.settings import OBJECTIVE, PRESETS, Settings

if TYPE_CHECKING:
    from layerscope.training.depths import Trained


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
    baseline_depths: Annotated[Sequence[int] | None, Several(Whole(1), such_as="3,6"), OBJECTIVE] = None,
    keep_checkpoints: Annotated[bool, OUTPUT] = False,
    report_to: Annotated[str, OUTPUT] = "none",
    progress: Annotated[bool, IN_CODE] = True,
    **settings: Annotated[Any, Settings],
) -> Path:
    """Train a model so that every layer can be its last; the result is a standard checkpoint.

    All layers are read by one head. The same call on the same folder resumes from its last checkpoint, to the same
    weights. What each layer scores at each evaluation is a run in `out/history`. Returns the folder.

    Args:
        model: hub name, local folder, or minilm; for random weights a folder with config.json, or a JSON file; in
            Python also a transformers model.
        train: training data: CSV, TSV, JSONL, Parquet or text file; folder or archive of images or sounds; hf:NAME;
            digits; or a table of words and tags.
        eval: evaluation data, in the same forms; by default a tenth of the training data, drawn with the seed.
        out: folder of the checkpoint; the same call on it resumes the training.
        text_column: column of the texts; by default it is guessed.
        label_column: column of the labels; by default it is guessed.
        from_config: start from random weights of the model's config.
        processor: tokenizer or processor, where the model has none.
        part: stack of blocks, of several: encoder, decoder, text, vision, or a module path.
        preset: published settings; options override them.
        as_printed: use the paper's values exactly as printed.
        baseline_depths: train separate models of these depths too, for comparison, such as 3,6.
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


def trained(given: dict[str, Any]) -> Trained:
    """Train as the options of `train` say; return what every depth scores and costs, in the process that writes."""
    asked = checked(train, given)
    chosen = given.get("settings", given)  # in Python a dictionary of its own; a command has all options in one
    settings = {field.name: vars(asked)[field.name] for field in fields(Settings) if field.name in chosen}
    from layerscope.training.run_training import run_training

    return run_training(asked, settings)
