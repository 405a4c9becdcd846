from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from layerscope.core.option_kinds import IN_CODE, SEED, Folder, Number, Whole
from layerscope.core.options import DATA, OUTPUT, Loading, checked
from layerscope.shrinking.options import ShrinkOptions

if TYPE_CHECKING:
    from layerscope.shrinking.shrunk import Shrunk

BUDGET = "Budget"
HEALING = "Healing"


def shrink(
    model: Any,
    data: Annotated[Any, DATA],
    *,
    out: Annotated[str | Path, Folder(), OUTPUT],
    max_loss: Annotated[float | None, Number(0), BUDGET] = None,
    speed: Annotated[float | None, Number(above=0), BUDGET] = None,
    max_mb: Annotated[float | None, Number(above=0), BUDGET] = None,
    heal: Annotated[Any, HEALING] = None,
    minutes: Annotated[float, Number(0), HEALING] = 10.0,
    same_space: Annotated[bool, HEALING] = False,
    text_column: Annotated[str | None, DATA] = None,
    label_column: Annotated[str | None, DATA] = None,
    samples: Annotated[int | None, Whole(1), DATA] = None,
    seed: Annotated[int, SEED] = 0,
    progress: Annotated[bool, IN_CODE] = True,
    **shared: Unpack[Loading],
) -> "Shrunk":
    """Make a model smaller within a budget: a standard checkpoint, healed, and judged on held-out data.

    Blocks that matter least are left out: those without which the full model's outputs change
    least, or the last ones, whichever lose less on your data. What is left learns to give the full
    model's outputs again. A quarter of the data is held out before anything else happens, and
    judges the checkpoint that was written. Repeating the call resumes it.

    The loss is in points, hundredths of the score. With labels the score is the accuracy of a
    linear probe (of a classifier, that of its predictions), or R² of a ridge probe if they are
    numbers. With pairs of texts and scores it is Spearman's correlation. With samples alone it is
    agreement with the full model: the cosine of the vectors, or the share of equal predictions. For
    a language model the loss is that of the next token, in hundredths of a nat, which is about the
    percent by which perplexity rises.

    Args:
        model: hub name, local folder, or minilm.
        data: samples like those that the model will read, in any form that `profile` reads, or a
            table with the columns text_a, text_b and score; 100 or more.
        out: folder of everything; the smaller model is OUT/model. Repeating the call resumes it.
        max_loss: largest loss, in points, half its standard error included; by default 1, or 5
            where the loss is agreement with the full model.
        speed: smallest speed-up, such as 2 for twice as fast.
        max_mb: largest size of the weights, in megabytes.
        heal: more samples without labels to learn from, beside those of the data.
        minutes: minutes of healing for each depth that is tried and loses something; 0 heals nothing.
        same_space: keep an index of the full model's vectors usable: what was healed is kept with or
            without a linear map to the full model's vectors, whichever finds more of a sample's ten
            nearest neighbours in the index.
        text_column: column of the texts; by default the one with a usual name, such as text.
        label_column: column of the labels; by default the one with a usual name, such as label.
        samples: number of samples, drawn with the seed; by default all.
        seed: random seed.
        progress: show progress on standard error.
        **shared: how the model is loaded: `Loading`.

    Returns:
        What `open_shrunk(out)` reads. Where no depth meets the budget, `met` is False, there is no
        model, and `offers` says what was nearest.

    Raises:
        LayerscopeError: for every wrong input; nothing that was computed is lost.

    Example:
        >>> budget = {"max_loss": 100, "minutes": 0}
        >>> shrunk = layerscope.shrink("tiny-bert", "tickets.csv", out="shrunk", progress=False, **budget)
        >>> shrunk.kept, shrunk.depth
        ((1,), 3)

    """
    options = checked(shrink, locals(), ShrinkOptions)
    from layerscope.shrinking.pipeline import run_shrink

    return run_shrink(options)
