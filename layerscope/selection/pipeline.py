"""The work of `select`: the layer to use, by which rule, with what evidence, what it gains and what it costs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layerscope.core import LayerscopeError, Reporter, processes, reporting
from layerscope.profiling import profile
from layerscope.runs.lookup import need
from layerscope.runs.opening import run_of
from layerscope.runs.run import Run
from layerscope.scores import Evaluation
from layerscope.scores.evaluation import ModelOrigin
from layerscope.scores.opening import holds_scores, open_run_or_scores
from layerscope.selection.block_drop import remove
from layerscope.selection.choice import Case, choose_layer
from layerscope.selection.cost_model import (
    UNKNOWN,
    costs_of,
    found_by_name,
    is_pooled_by_us,
    open_model,
)
from layerscope.selection.mixes import with_mix
from layerscope.selection.options import SelectOptions
from layerscope.selection.removal import STORE as BLOCKS, Removal
from layerscope.selection.run_scores import has_labels, probed
from layerscope.selection.selection import STORE, Selection
from layerscope.selection.task_scores import grid_of, judged, whole_names
from layerscope.truncation.costs import Costs
from layerscope.truncation.source import Source

OF_LAYERS = (
    "labels", "rule", "max_loss", "max_ms", "min_speedup", "max_mb", "tasks", "model",
    "revision", "site",
)  # fmt: skip
"""Options that choose a layer."""


def run_select(options: SelectOptions) -> Selection | Removal:
    """Return the choice of a layer, or with `drop` of blocks, and save it where a folder is named."""
    store = STORE
    if options.drop is not None:
        options.refuse(OF_LAYERS, "chooses a layer, and `drop` chooses blocks")
        store = BLOCKS
    if options.budget.within and not options.cost:
        raise LayerscopeError(
            "a bound on ms, speed or MB needs measured costs: do not switch them off"
        )
    folder = None
    if options.out is not None:
        folder = store.folder(options.out)
    leads = processes.team().leads
    reporter = reporting(options.progress and leads)
    scores = _opened(options, reporter)
    selection: Selection | Removal
    if options.drop is not None:
        selection = _blocks(scores, options, options.drop, reporter)
    elif isinstance(scores, Evaluation):
        selection = _of_evaluation(scores, options, reporter)
    elif isinstance(scores, Run):
        scores.need_states()
        selection = _of_run(scores, options, reporter)
    else:
        raise LayerscopeError(
            f"select takes a run or an evaluation, not a {type(scores).__name__}"
        )
    if folder is not None and leads:
        selection.save(folder)
    return selection


def _opened(options: SelectOptions, reporter: Reporter) -> Any:
    """Return the run or the scores to choose by; of a model with data the run that is made of these first."""
    given = options.given
    data = options.data
    if isinstance(given, (str, Path)):
        path = Path(given).expanduser()
        holds_run = path.exists() and run_of(path) is not None
        if data is None or holds_run or holds_scores(path):
            try:
                return open_run_or_scores(given)
            except LayerscopeError as error:
                if path.exists():
                    raise
                mend = "to choose a layer of a model give `data`, too"
                raise LayerscopeError(f"{error}; {mend}") from error
    if data is None or isinstance(given, (Run, Evaluation)):
        return given
    run = profile(
        given,
        data,
        views=0,
        text_column=options.text_column,
        label_column=options.label_column,
        seed=options.seed,
        device=options.device,
        progress=options.progress,
    )
    reporter.say(f"run: {run.path}")
    return run


def _blocks(run: Any, options: SelectOptions, n: int, reporter: Reporter) -> Removal:
    """Return the blocks of a run's model that matter least."""
    if not isinstance(run, Run):
        raise LayerscopeError(
            "`drop` runs the model on the samples of a run: give the folder of one"
        )
    pooling = _pooling(run, options)
    source = open_model(run, options.device)
    return remove(run, source, pooling, n, options.data, options.seed, reporter)


def _of_evaluation(
    evaluation: Evaluation, options: SelectOptions, reporter: Reporter
) -> Selection:
    """Return the choice by the scores of tasks."""
    tasks = None
    if options.tasks is not None:
        tasks = whole_names(options.tasks, evaluation.scores["task"].unique().tolist())
    grid = grid_of(evaluation, options.variant, tasks)
    scored, notes = judged(grid, tasks)
    if tasks is None and grid.rows["shifted_from"].any():
        notes.append(
            "source and target of a shift count alike: choose by one of them with `tasks`"
        )
    name = str(grid.about["model"])
    pooling = grid.about["pooling"]
    origin = evaluation.origins.get(name, UNKNOWN)
    given = found_by_name(name, origin)
    source, costs, no_costs = _costs(given, scored.layers, options, reporter, origin)
    sites = evaluation.scores["site"].dropna().unique()
    if source is not None:
        sites = source.model.sites
    about = {
        "model": name,
        "source": given or name,
        "site": grid.about["site"],
        "pooling": pooling,
        "pooled": origin.modality == "text" and is_pooled_by_us(pooling, source),
        "sites": tuple(sites),
        "notes": (*notes, *no_costs),
        "part": origin.part,
    }
    case = Case(about, scored.layers, origin.depth, scored, costs, options.budget)
    selection = choose_layer(case, options.rule)
    # a rule or loss that is given chooses among layers alone
    chooses_layer = options.rule is not None or options.budget.max_loss is not None
    if selection.lacking or chooses_layer or grid.gains_of_mixes.empty:
        return selection
    return with_mix(selection, grid, case)


def _of_run(run: Run, options: SelectOptions, reporter: Reporter) -> Selection:
    """Return the choice by probes of a run's states, where there are labels."""
    pooling = _pooling(run, options)
    has_scores = options.labels is not None or has_labels(run)
    if not has_scores:
        options.refuse(("rule", "max_loss"), "needs scores, and this run has no labels")
    # bounds that no layer meets are refused before the probes
    source, costs, notes = _costs(run, run.layers, options, reporter)
    scored = None
    if has_scores:
        scored = probed(run, options.labels, pooling, reporter)
    elif run.info["data"].get("labels"):
        notes.append(
            "the run's labels give no two classes of five samples to probe: they are left out"
        )
    model_source = ""
    if run.names_model:
        model_source = str(run.path)
    is_text = run.info["data"]["modality"] == "text"
    about = {
        "model": str(run.info["model"]["name"]),
        "source": model_source,
        "site": run.final,
        "pooling": pooling,
        "pooled": is_text and is_pooled_by_us(pooling, source),
        "notes": tuple(notes),
    }
    case = Case(
        about,
        run.layers,
        run.depth,
        scored,
        costs,
        options.budget,
        bool(run.info["model"].get("language_model")),
    )
    return choose_layer(case, options.rule)


def _pooling(run: Run, options: SelectOptions) -> str:
    """Return the pooling to judge layers by; raises for one that the run lacks, and for options of evaluations."""
    options.refuse(
        ("tasks", "model", "revision", "site"),
        "applies only to evaluations, and this is a run",
    )
    poolings = run.info["pooling"]
    pooling = str(options.variant.pooling or poolings[0])
    need("pooling", pooling, poolings)
    return pooling


def _costs(
    given: Any,
    layers: Sequence[int],
    options: SelectOptions,
    reporter: Reporter,
    origin: ModelOrigin = UNKNOWN,
) -> tuple[Source | None, Costs | None, list[str]]:
    """Return the model and what every depth costs, or None and the line that says why not.

    Raises where bounds need the costs, or none of the depths meets them.
    """
    if not options.cost:
        return None, None, []
    candidates = [layer for layer in layers if layer > 0]
    try:
        source = open_model(given, options.device, origin)
        costs = costs_of(source, candidates, reporter)
    except LayerscopeError as error:
        if options.budget.within:
            raise
        return None, None, [f"no costs: {error}"]
    options.budget.layers(candidates, costs.layers)
    return source, costs, []
