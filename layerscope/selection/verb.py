from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from layerscope.core import (
    DATA,
    IN_CODE,
    OUTPUT,
    SEED,
    Folder,
    Number,
    OneOf,
    Whole,
    checked,
    processes,
)
from layerscope.core.option_kinds import Names
from layerscope.selection.options import RULES, SelectOptions

if TYPE_CHECKING:
    from layerscope.selection.removal import Removal
    from layerscope.selection.selection import Selection

BOUNDS = "Bounds"
SCORES = "Which scores"
COSTS = "Costs"
BLOCKS = "Blocks to drop"


@processes.as_one
def select(
    given: Any,
    *,
    labels: Annotated[Sequence[Any] | None, IN_CODE] = None,
    rule: Annotated[str | None, OneOf(RULES)] = None,
    max_loss: Annotated[float | None, Number(0), BOUNDS] = None,
    max_ms: Annotated[float | None, Number(above=0), BOUNDS] = None,
    min_speedup: Annotated[float | None, Number(above=0), BOUNDS] = None,
    max_mb: Annotated[float | None, Number(above=0), BOUNDS] = None,
    drop: Annotated[int | None, Whole(1), BLOCKS] = None,
    data: Annotated[Any, DATA] = None,
    text_column: Annotated[str | None, DATA] = None,
    label_column: Annotated[str | None, DATA] = None,
    seed: Annotated[int, SEED, BLOCKS] = 0,
    model: Annotated[str | None, SCORES] = None,
    revision: Annotated[str | None, SCORES] = None,
    site: Annotated[str | None, SCORES] = None,
    pooling: Annotated[str | None, SCORES] = None,
    tasks: Annotated[str | Sequence[str] | None, Names(), SCORES] = None,
    cost: Annotated[bool, COSTS] = True,
    device: Annotated[str, COSTS] = "auto",
    out: Annotated[str | Path | None, Folder(), OUTPUT] = None,
    progress: Annotated[bool, IN_CODE] = True,
) -> "Selection | Removal":
    """Choose a layer, or blocks to drop: what it scores, gains and costs, and how far to trust that.

    With scores of tasks (an evaluation) or labels (of a run, by a cross-validated linear probe),
    the choice is the best layer where it is measurably better than the model as shipped: by more
    than 1.96 standard errors of the difference, paired over samples or over three or more tasks.
    Else the model as shipped is kept, and the shallowest layer that does not differ measurably is
    offered below. The gain is estimated on folds, or on tasks if there are three, that had no part
    in choosing. Nothing is chosen from fewer than 50 judged samples, or from less than half of all.
    Without scores the model as shipped is kept, or with a budget the deepest layer within it; a
    language model that was not trained to embed ends at 80 % of its depth. Layer 0 is not a
    candidate.

    With `drop`, that many blocks are chosen in three ways: by repeatedly removing the one that costs
    least, by how little a block turns its input (ShortGPT), and as the last ones. Half of the
    samples choose; the others show what the model loses by each choice: in the loss of the next
    token, the divergence of its predictions, or the angle of the vector it serves.

    Args:
        given: folder of a run or an evaluation, or CSV of scores; with `data` also a model, which is
            profiled on them first, into runs/MODEL-DATA; in Python also a run, an evaluation or a
            loaded model.
        labels: of a run's samples, one each in their order, instead of its own.
        rule: rule to choose by: best-if-clear (the best layer, or the model as shipped if none is
            measurably better) or best; by default the first, or with `max_loss` the shallowest
            layer within that loss.
        max_loss: largest acceptable loss, in points; the shallowest layer within it is chosen.
        max_ms: largest acceptable time per sample, in milliseconds, measured on this machine in
            batches of 8 texts as long as those of the run or evaluation are on average.
        min_speedup: smallest speed-up over the full model, such as 2 for twice as fast.
        max_mb: largest acceptable size of the weights, in megabytes.
        drop: number of blocks to leave out; runs the model on the run's samples.
        data: samples to profile a model on, in any form that `profile` reads; with a run, the
            samples for drop, by default its own.
        text_column: column of the texts of data, if a model is given.
        label_column: column of the labels of data, if a model is given.
        seed: random seed.
        model: model to choose a layer from, if an evaluation has several.
        revision: revision of the model, if an evaluation has several.
        site: where layers are read, raw or normed; by default normed, if it was scored.
        pooling: pooling to judge layers by, if there are several.
        tasks: tasks that count, separated by commas, such as STS12,trec; an unambiguous prefix is
            enough; by default all.
        cost: measure the size and speed of every depth.
        device: device to measure on: auto, cpu or cuda:0.
        out: folder for the choice, and from the command line a page; by default nothing is saved.
        progress: show progress on standard error.

    Returns:
        The choice, the alternatives and the evidence; a `Removal` with `drop`.

    Raises:
        LayerscopeError: for every wrong input, and for bounds that no layer meets, with the least
            that is possible.

    Example:
        >>> layerscope.select("scores.csv", model="small", cost=False, progress=False)
        Selection('small': layer 2 of 3 by best-if-clear, gain +0.06)

    """
    options = checked(select, locals(), SelectOptions)
    from layerscope.selection.pipeline import run_select

    return run_select(options)
