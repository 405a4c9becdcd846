from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from layerscope.comparison.options import CompareOptions
from layerscope.core import IN_CODE, OUTPUT, Folder, Repeated, checked
from layerscope.core.option_kinds import Names
from layerscope.core.options import Centrings, Estimators

if TYPE_CHECKING:
    from layerscope.comparison.comparison import Comparison
    from layerscope.runs.run import Run


def compare(
    runs: "Annotated[Sequence[Run | str | Path], Repeated()]",
    *,
    similarity: Annotated[str | Iterable[str] | None, Names()] = None,
    metrics: Annotated[str | Iterable[str] | None, Names()] = None,
    cka: Estimators = "debiased",
    cosine: Centrings = "centered",
    pooling: str | None = None,
    site: str | None = None,
    paired: bool = False,
    out: Annotated[str | Path | None, Folder(), OUTPUT] = None,
    progress: Annotated[bool, IN_CODE] = True,
) -> "Comparison":
    """Compare runs: which layers are alike, where metrics differ, and what training changes.

    No model is run. Every run is compared with the first, on the samples that are whole in all of
    them. Where depths differ, each layer of the deeper run is compared with the one of the other
    that is nearest in percent of depth. Three or more runs of one architecture are a series of
    checkpoints, shown by layer and checkpoint in the order given.

    Args:
        runs: folders of two or more runs of the same samples; all are compared with the first.
        similarity: similarities of layers, separated by commas, such as cka,cosine_similarity; by
            default CKA, and cosine if all widths are equal.
        cka: estimators of CKA: debiased, biased (equation 3 of Tracing Representation Progression),
            or both.
        cosine: how states enter cosines and angles: centered (minus their layer's mean),
            uncentered, or both.
        metrics: metrics to compare, separated by commas; by default all that the runs share.
        pooling: pooling to compare; by default the first that all runs have.
        site: where layers are read: raw, normed or projected (the space that two towers share); by
            default raw, and also the last layer after its norm.
        paired: compare the two towers of a model over pairs, such as images and captions: sample i
            of one run belongs to sample i of the other. The layers of each tower are also compared
            with each other (in `--json` and `--csv`).
        out: folder for the numbers, and from the command line a page; by default nothing is saved.
        progress: show progress on standard error.

    Raises:
        LayerscopeError: for samples that do not match, and every other wrong input.

    Example:
        >>> comparison = layerscope.compare(["runs/minilm", "runs/tiny"], similarity="cka", progress=False)
        >>> comparison.similarity().shape  # layers 0 to 6 of one, 0 to 3 of the other
        (7, 4)

    """
    options = checked(compare, locals(), CompareOptions)
    from layerscope.comparison.pipeline import compare_runs

    return compare_runs(options)
