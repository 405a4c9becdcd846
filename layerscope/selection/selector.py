from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from layerscope.core.option_kinds import IN_CODE, SEED, Folder, Number, Repeated, Weights, Whole
from layerscope.core.options import OUTPUT, checked

if TYPE_CHECKING:
    from layerscope.selection.removal import Removal
    from layerscope.selection.selection import Selection

BOUNDS = "Bounds"
FREE = "Without labels"
SCORES = "Which scores"
COSTS = "Costs"
BLOCKS = "Samples for half-text and blocks to drop"


def select(
    given: Any,
    *,
    labels: Annotated[Sequence[Any] | None, IN_CODE] = None,
    rule: str | None = None,
    holdout: Annotated[float | None, Number(above=0, below=1, such_as="0.3")] = None,
    target_labels: Annotated[int | None, Whole(10)] = None,
    max_loss: Annotated[float | None, Number(0), BOUNDS] = None,
    max_ms: Annotated[float | None, Number(above=0), BOUNDS] = None,
    max_mb: Annotated[float | None, Number(above=0), BOUNDS] = None,
    max_dim: Annotated[int | None, Whole(1), BOUNDS] = None,
    first_layer: Annotated[int, Whole(0), BOUNDS] = 1,
    evidence: Annotated[Any, Repeated(), FREE] = None,
    drop: Annotated[int | None, Whole(1), BLOCKS] = None,
    data: Annotated[Any, BLOCKS] = None,
    seed: Annotated[int, SEED, BLOCKS] = 0,
    model: Annotated[str | None, SCORES] = None,
    revision: Annotated[str | None, SCORES] = None,
    site: Annotated[str | None, SCORES] = None,
    pooling: Annotated[str | None, SCORES] = None,
    tasks: Annotated[Sequence[str] | Mapping[str, float] | None, Weights(), SCORES] = None,
    cost: Annotated[bool, COSTS] = True,
    cost_model: Annotated[Any, COSTS] = None,
    device: Annotated[str, COSTS] = "auto",
    out: Annotated[str | Path | None, Folder(), OUTPUT] = None,
    progress: Annotated[bool, IN_CODE] = True,
) -> "Selection | Removal":
    """Choose a layer, or blocks to drop: what it scores, gains and costs, and how far to trust that.

    With scores of tasks (an evaluation) or labels (of a run: a cross-validated linear probe) it is the shallowest layer
    within one standard error of the best, the error that of the difference paired over samples, or over three tasks or
    more (of fewer tasks that of the score itself, where it is known). Its gain is that on folds, or on tasks where
    there are three, that had no part in choosing. Fewer than 50 judged samples, or less than half of all, choose
    nothing. Where fewer dimensions were scored too, they are the fewest of that layer. Without scores it is the rule of
    the best gain on models held out whose record may be trusted and whose metric the run has, measured alike; where
    there is none, the model as shipped. Layer 0 is no candidate.

    With `drop` it is that many blocks which matter least: by removing the one that costs least again and again, by how
    little a block turns its input (ShortGPT), by the angle over a row of blocks (Gromov et al. 2024), and the last
    ones. Half of the samples choose; the others say what the model loses by each choice: loss of the next token,
    divergence of its predictions, or angle of the vector it serves.

    Args:
        given: folder of a run or an evaluation, or CSV of scores; in Python also a run or an evaluation itself.
        labels: of a run's samples, one each in their order, instead of its own.
        rule: rule to choose by: one-standard-error or best, which need scores; shift, by few labels of the target of an
            evaluation's shift; or, of a run, the name of one that needs no labels, such as half-text (the two halves of
            a text find each other; runs the model) or fixed-share (the share of depth that ranks best on scored
            models), whatever its record.
        holdout: share of a run's labelled samples that judges the chosen layer and has no part in choosing it, drawn
            evenly over the classes by the run's seed; by default every fold is judged at the layer the others choose.
        target_labels: labels of the target that choose by the rule shift, drawn with the seed; the others judge the
            layer. By default 100.
        max_loss: largest acceptable loss, in points; the shallowest layer within it is chosen.
        max_ms: most milliseconds per sample that a layer may take, as measured on this machine.
        max_mb: most megabytes that the weights may take.
        max_dim: most dimensions of a vector, each of which takes 4 bytes, where an evaluation has scores of fewer.
        first_layer: first layer to consider; 0 includes the embeddings.
        evidence: file of rules that scores saved; or both scores and metrics (runs) of the same models, to fit rules
            on, each a folder or hf://user/name, or a CSV, of which that of scores comes first; by default the rules
            that come with the package.
        drop: number of blocks to leave out; runs the model on the run's samples.
        data: samples for half-text and drop; by default those of the run.
        seed: random seed.
        model: model to choose a layer from, where an evaluation has several.
        revision: revision of the model, where an evaluation has several.
        site: where layers are read, raw or normed; by default normed where it was scored.
        pooling: pooling to judge layers by, where there are several.
        tasks: tasks that count, separated by commas, with weights or without: STS12=2,trec; a beginning that only one
            task has will do; by default all alike.
        cost: measure the size and speed of every depth.
        cost_model: model to measure, where an evaluation's model is not found by its name.
        device: device to measure on: auto, cpu or cuda:0.
        out: folder for the choice; the command line writes a page there too.
        progress: show progress on standard error.

    Returns:
        The choice, the alternatives and the evidence; a `Removal` with `drop`.

    Raises:
        LayerscopeError: for every wrong input, and for bounds that no layer meets, with the least that is possible.

    Example:
        >>> layerscope.select("scores.csv", model="small", cost=False, progress=False)
        Selection('small': layer 2 of 3 by one-standard-error, gain +0.06)

    """
    asked = checked(select, locals())
    from layerscope.selection.deciding import decide

    return decide(asked)
