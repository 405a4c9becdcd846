from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from layerscope.core import (
    DATA,
    IN_CODE,
    MODEL,
    OUTPUT,
    SEED,
    Folder,
    Number,
    Several,
    Whole,
    checked,
    processes,
)
from layerscope.core.options import LoadingAndReading
from layerscope.early_exit.options import ExitsOptions

if TYPE_CHECKING:
    from layerscope.early_exit.exit_report import ExitReport
    from layerscope.generation.draft_report import DraftReport

GOAL = "Guarantee"
LEAVING = "Leaving"
DRAFTS = "Language models"


@processes.as_one
def exits(
    model: Any,
    data: Annotated[Any, DATA],
    *,
    samples: Annotated[int | None, Whole(2), DATA] = None,
    seed: Annotated[int, SEED, DATA] = 0,
    max_disagreement: Annotated[
        float, Number(above=0, below=1, such_as="0.01"), GOAL
    ] = 0.01,
    confidence: Annotated[float, Number(above=0, below=1, such_as="0.95"), GOAL] = 0.95,
    batch_size: Annotated[int | None, Whole(1), LEAVING] = None,
    exits: Annotated[
        Sequence[int] | None, Several(Whole(1), such_as="3,6 or 3-6"), LEAVING
    ] = None,
    threshold: Annotated[float | None, Number(0, such_as="0.9"), LEAVING] = None,
    min_speedup: Annotated[float, Number(above=0, such_as="1.05"), LEAVING] = 1.05,
    prefix: Annotated[int, Whole(1), DRAFTS] = 32,
    max_new_tokens: Annotated[int, Whole(1), DRAFTS] = 64,
    draft_tokens: Annotated[int | str, Whole(1, words=("auto",)), DRAFTS] = "auto",
    processor: Annotated[Any, MODEL] = None,
    out: Annotated[str | Path | None, Folder(), OUTPUT] = None,
    progress: Annotated[bool, IN_CODE] = True,
    **shared: Unpack[LoadingAndReading],
) -> "ExitReport | DraftReport":
    """Let easy samples leave early, or early layers draft text, and see what that gains on your machine.

    One pass records what every layer would predict for each sample, and every stage is timed at the
    batch sizes that occur. A fifth of the samples chooses which exits are worth a check, and the
    others certify the threshold. Then the exits, the plain model and the model truncated at every
    depth run the same batches, interleaved. With your own `threshold` nothing is certified: samples
    leave at the first layer (of the `exits`, if given) that is this sure.

    A language model drafts at its exits instead, and all layers verify
    (`layerscope.generation.SelfSpeculation`), so the text stays the same. Plain decoding, drafts of
    some layers and of one that is chosen on the way write the prompts in turns; the fastest, and
    the command that writes with it, are reported. Beside them, tokens leave unverified at one exit
    (`NextTokenExits`) whose threshold is certified on one token of each of up to 1,000 texts, if
    there are enough; texts are the evidence, as the tokens of one are alike.

    Args:
        model: hub name, local folder or PEFT adapter folder of a classifier or language model; in
            Python also a loaded one.
        data: samples the model was not trained on: CSV, TSV, JSONL, Parquet or text file; folder of
            images or sounds; hf:name/config:split; in Python also samples in memory.
        samples: maximum number of samples, drawn with the seed; by default 5000, or 16 prompts for
            a language model.
        seed: random seed.
        max_disagreement: share of predictions that may differ from the full model's; accuracy falls
            by no more.
        confidence: confidence level of the guarantee.
        batch_size: samples served at once, in the order of the data; by default 32, or 1 for a
            language model.
        exits: layers to leave at, or to draft at, such as 3,6 or 3-6; by default those whose
            measured costs pay, or four in the first half.
        threshold: fixed threshold for how sure an exit must be, such as 0.9, instead of a
            calibrated one; gives no guarantee.
        min_speedup: smallest speed-up worth having; near 0, the exit model is written whatever it
            gains.
        prefix: number of tokens at the beginning of each text that serve as its prompt.
        max_new_tokens: maximum number of new tokens per text.
        draft_tokens: tokens drafted before each verification, or auto: by acceptance and cost.
        processor: tokenizer or processor, if the model has none.
        out: folder for the report, with the exit model in `model` if exits pay, and from the
            command line a page; by default nothing is saved.
        progress: show progress on standard error.
        **shared: how the model is loaded and the samples are read: `LoadingAndReading`.

    Raises:
        LayerscopeError: for every wrong input.

    Example:
        >>> report = layerscope.exits("tiny-bert", "reviews.csv", exits=[1], max_disagreement=0.3, progress=False)
        >>> print(report.goal)
        at most 30 % of predictions on new samples like these differ from the full model's, with 95 % confidence (...)

    """
    options = checked(_exits, locals(), ExitsOptions)
    from layerscope.early_exit.pipeline import study_exits

    return study_exits(options)


_exits = exits  # within, the name is that of the layers
