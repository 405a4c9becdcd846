from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from layerscope.core import (
    IN_CODE,
    OUTPUT,
    SEED,
    Folder,
    Several,
    Whole,
    checked,
    processes,
)
from layerscope.core.option_kinds import Names
from layerscope.core.options import LoadingAndChat
from layerscope.evaluation.options import EvaluateOptions

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation

TASKS = "Tasks"
PASS = "The pass"


@processes.as_one
def evaluate(
    model_or_run: Any,
    tasks: Annotated[Any, TASKS] = (),
    out: Annotated[str | Path | None, Folder(), OUTPUT] = None,
    *,
    samples: Annotated[int | None, Whole(2), TASKS] = None,
    seed: Annotated[int, SEED, TASKS] = 0,
    shift: Annotated[Any, TASKS] = None,
    sites: Annotated[str | Sequence[str] | None, Names(), PASS] = None,
    layers: Annotated[
        str | Iterable[int], Several(Whole(0), ("all",), "0,3 or 1-6"), PASS
    ] = "all",
    pooling: Annotated[str, PASS] = "auto",
    mixes: Annotated[bool, TASKS] = False,
    processor: Annotated[Any, IN_CODE] = None,
    progress: Annotated[bool, IN_CODE] = True,
    **shared: Unpack[LoadingAndChat],
) -> "Evaluation":
    """Score every layer of a model and the model as shipped on tasks; every sample is embedded once.

    Processes that torchrun or accelerate started share the layers.

    Args:
        model_or_run: hub name, local folder, PEFT adapter folder, minilm, or the folder of a run,
            whose model, revision, part, blocks, norm and pooling apply unless they are given here;
            in Python also what `profile` takes.
        tasks: names of mteb tasks, separated by commas, on texts; layer-by-layer stands for the
            paper's 32, all in English. In Python a list of names, mteb task objects, and
            `KIND:PATH` of your own files; for data in memory `{KIND: data}`, a pandas frame or a
            `datasets.Dataset` with the columns of such a file. Kinds for texts are classification,
            clustering (columns text, label), sts (text_a, text_b, score), pair-classification
            (text_a, text_b, label 0 or 1) and retrieval (query, document and, if given, score);
            linear-probe and knn-probe read labelled texts, images or sounds in any form that
            `profile` reads, and token-probe reads sentences with a label for each word.
            lm:NAME and lm:FILE.yaml are tasks of lm-evaluation-harness that are judged by
            likelihoods; @METRIC after them chooses a metric other than their first one for which
            higher is better.
        out: folder of the results, in mteb's own layout and in `probes`; repeating the call resumes
            it. The command line takes scores/MODEL by default; in Python nothing is kept without
            it.
        samples: number of rows of each file of your own, and of documents of an lm task, drawn with
            the seed; by default all.
        seed: random seed.
        shift: labelled data from another source or time, on which every layer's linear-probe,
            fitted only on its own data, is judged as well; the scores form a task beside the
            cross-validated one.
        sites: where layers are read: raw, normed, or both, separated by a comma; by default normed
            if there is a final norm.
        layers: layers to score: all, or some, such as 0,3 or 1-6; 0 is the embedding output.
        pooling: how tokens become one vector: auto (as in the model itself), or any of mean, cls,
            last, first, separated by commas.
        mixes: also score mixes of layers for mteb's tasks and linear-probe: means of the last layers
            and of the first and the last, and for the probe weights of all layers, learned inside
            the folds.
        processor: the tokenizer of a model given as an object.
        progress: show progress on standard error.
        **shared: how the model is loaded and texts are wrapped: `LoadingAndChat`.

    Returns:
        What `open_evaluation(out)` reads; `failed` has the tasks that could not be scored, and why.

    Raises:
        LayerscopeError: for every wrong input, and if no task could be scored.

    Example:
        >>> layerscope.evaluate("tiny-bert", "knn-probe:reviews.csv", pooling="mean", progress=False)
        Evaluation('tiny-bert': 1 model, 4 layers, 1 task, 0 missing)

    """
    options = checked(evaluate, locals(), EvaluateOptions)
    from layerscope.core.folder_lock import refuse_held

    refuse_held(options.out)
    from layerscope.evaluation.pipeline import evaluate_layers

    return evaluate_layers(options)
