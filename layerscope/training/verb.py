from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from layerscope.core import DATA, IN_CODE, MODEL, OUTPUT, Folder, checked
from layerscope.training.options import Settings, TrainOptions

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
        train: training data: CSV, TSV, JSONL, Parquet or text file; folder of images or
            sounds; hf:NAME; digits; a table of words and tags; or, for sentence-similarity, of
            text_a, text_b and optionally score.
        eval: evaluation data, in the same forms; by default a tenth of the training data, drawn
            with the seed.
        out: folder of the checkpoint; repeating the call resumes the training.
        text_column: column of the texts; by default the one with a usual name, such as text.
        label_column: column of the labels; by default the one with a usual name, such as label.
        from_config: start from random weights of the model's config.
        processor: tokenizer or processor, if the model has none.
        progress: show progress on standard error.
        **settings: fields of `Settings`.

    Raises:
        LayerscopeError: for every wrong input; nothing that was trained is lost.

    Example:
        >>> folder = layerscope.train("tiny-bert", "reviews.csv", out="trained", max_steps=2, progress=False)
        >>> layerscope.open_run(folder / "history").steps
        (0, 1, 2)

    """
    return trained(locals()).path


def trained(call: Mapping[str, Any]) -> "Trained":
    """Train as `train` does; return what every depth scores and costs, in the process that writes."""
    options = checked(train, {**call, **call.get("settings", {})}, TrainOptions)
    from layerscope.training.pipeline import run_training

    return run_training(options)
