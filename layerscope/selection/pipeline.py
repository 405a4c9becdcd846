"""The work of `select`: the layer to use, by which rule, with what evidence, what it wins and what it costs."""

from collections.abc import Sequence
from pathlib import Path

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Reporter, reporting
from layerscope.runs.run import Run
from layerscope.scores.evaluation import Evaluation, ModelOrigin
from layerscope.scores.opening import open_run_or_scores
from layerscope.selection.block_drop import remove
from layerscope.selection.choice import Case, choose_layer
from layerscope.selection.cost_model import CostModel, found_by_name
from layerscope.selection.mixes import with_mix
from layerscope.selection.options import SelectOptions
from layerscope.selection.removal import STORE as BLOCKS, Removal
from layerscope.selection.run_scores import has_labels, probed
from layerscope.selection.selection import STORE, Selection
from layerscope.selection.task_scores import by_beginning, grid_of, judged
from layerscope.truncation.costs import Costs

OF_LAYERS = (
    "labels", "rule", "max_loss", "max_ms", "min_speedup", "max_mb", "tasks", "model",
    "revision", "site",
)  # fmt: skip
"""Options that choose a layer."""


def run_select(options: SelectOptions) -> Selection | Removal:
    """Return the choice of a layer, or with `drop` of blocks, and save it where a folder is named."""
    if options.drop is not None:
        options.refuse(OF_LAYERS, "chooses a layer, and `drop` chooses blocks")
    if options.budget.bounds and not options.cost:
        raise LayerscopeError(
            "a bound on ms, speed or MB needs measured costs: do not switch them off"
        )
    store = STORE if options.drop is None else BLOCKS
    folder = None if options.out is None else store.folder(options.out)
    leads = processes.team().leads
    reporter = reporting(options.progress and leads)
    scores = options.given
    if isinstance(scores, (str, Path)):
        scores = open_run_or_scores(scores)
    selection: Selection | Removal
    if options.drop is not None:
        if not isinstance(scores, Run):
            raise LayerscopeError(
                "`drop` runs the model on the samples of a run: give the folder of one"
            )
        source = CostModel(scores, options.device, reporter).source
        pooling = _pooling(scores, options)
        selection = remove(
            scores, source, pooling, options.drop, options.data, options.seed, reporter
        )
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


def _of_evaluation(
    evaluation: Evaluation, options: SelectOptions, reporter: Reporter
) -> Selection:
    tasks = options.tasks
    if tasks is not None:
        tasks = by_beginning(tasks, list(map(str, evaluation.scores["task"].unique())))
    grid = grid_of(evaluation, options.variant, tasks)
    scored, notes = judged(grid, tasks)
    if tasks is None and grid.rows["shifted_from"].any():
        notes.append(
            "source and target of a shift count alike: choose by one of them with `tasks`"
        )
    name, pooling = str(grid.about["model"]), grid.about["pooling"]
    origin = evaluation.origins.get(name, ModelOrigin(None, 0))
    model = found_by_name(name, origin)
    cost_model = CostModel(model, options.device, reporter, origin.part, origin.tokens)
    cost_model.refuse(options.budget, [layer for layer in scored.layers if layer > 0])
    costs, no_costs = _costs(cost_model, scored.layers, options)
    sites = evaluation.scores["site"].dropna().unique()
    if costs is not None:
        sites = cost_model.source.model.sites
    about = {
        "model": name,
        "source": model or name,
        "site": grid.about["site"],
        "pooling": pooling,
        "pooled": origin.modality == "text" and cost_model.is_pooled_by_us(pooling),
        "sites": tuple(map(str, sites)),
        "notes": (*notes, *no_costs),
        "part": origin.part,
    }
    case = Case(about, scored.layers, origin.depth, scored, costs, options.budget)
    selection = choose_layer(case, options.rule)
    # a rule or loss that is given, and tasks of unlike weight, choose among layers alone
    chooses_layer = options.rule is not None or options.budget.max_loss is not None
    weighed = len(set((tasks or {}).values())) > 1
    if selection.lacking or chooses_layer or weighed or grid.gains_of_mixes.empty:
        return selection
    return with_mix(selection, grid, case)


def _of_run(run: Run, options: SelectOptions, reporter: Reporter) -> Selection:
    cost_model = CostModel(run, options.device, reporter)
    pooling = _pooling(run, options)
    has_scores = options.labels is not None or has_labels(run)
    if not has_scores:
        options.refuse(("rule", "max_loss"), "needs scores, and this run has no labels")
    # a model that is not here is refused before the long part, as wrong labels are
    cost_model.refuse(options.budget, [layer for layer in run.layers if layer > 0])
    notes: list[str] = []
    scored = None
    if has_scores:
        scored = probed(run, options.labels, pooling, reporter)
    elif run.info["data"].get("labels"):
        notes.append(
            "the run's labels give no two classes of five samples to probe: they are left out"
        )
    costs, no_costs = _costs(cost_model, run.layers, options)
    is_text = run.info["data"]["modality"] == "text"
    about = {
        "model": str(run.info["model"]["name"]),
        "source": str(run.path) if run.names_model else "",
        "site": run.final,
        "pooling": pooling,
        "pooled": is_text and cost_model.is_pooled_by_us(pooling),
        "notes": (*notes, *no_costs),
    }
    is_language_model = bool(run.info["model"].get("language_model"))
    case = Case(
        about,
        tuple(run.layers),
        run.depth,
        scored,
        costs,
        options.budget,
        is_language_model,
    )
    return choose_layer(case, options.rule)


def _pooling(run: Run, options: SelectOptions) -> str:
    """Return the pooling to choose a layer of; what a run has no choice of is refused."""
    options.refuse(
        ("tasks", "model", "revision", "site"),
        "applies only to evaluations, and this is a run",
    )
    poolings = run.info["pooling"]
    pooling = str(options.variant.pooling or poolings[0])
    if pooling not in poolings:
        raise LayerscopeError(
            f"pooling {pooling!r} is not in this run: it has {', '.join(poolings)}"
        )
    return pooling


def _costs(
    cost_model: CostModel, layers: Sequence[int], options: SelectOptions
) -> tuple[Costs | None, tuple[str, ...]]:
    """Return what every depth costs, or None and the line that says why not; an error where a bound needs them."""
    if not options.cost:
        return None, ()
    try:
        return cost_model.costs([layer for layer in layers if layer > 0]), ()
    except LayerscopeError as error:
        if options.budget.bounds:
            raise
        return None, (f"no costs: {error}",)
