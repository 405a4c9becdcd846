"""The work of `select`: the layer to use, by which rule, with what evidence, what it wins and what it costs."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked
from layerscope.core.progress import Reporter, reporting
from layerscope.models import LoadOptions, Override
from layerscope.models.checks import EMBEDDED, EMBEDDED_IN
from layerscope.profiling.identity import weights_fingerprint
from layerscope.runs.run import Run
from layerscope.scores.evaluation import Evaluation, ModelOrigin
from layerscope.scores.opening import open_run_or_scores
from layerscope.selection.block_drop import remove
from layerscope.selection.by_score import has_labels, judged, probed
from layerscope.selection.choice import Budget, Case, by_scores, without_scores
from layerscope.selection.mixes import with_mix
from layerscope.selection.removal import STORE as BLOCKS, Removal
from layerscope.selection.selection import STORE, Selection
from layerscope.truncation.costs import Costs, costs_by_depth
from layerscope.truncation.source import Source, open_source

POOLINGS = ("mean", "cls", "last")
"""Poolings that `truncate` can record in a checkpoint."""
MINILM = "all-MiniLM-L6-v2"
OF_LAYERS = (
    "labels", "rule", "holdout", "max_loss", "max_ms", "min_speedup", "max_mb", "tasks", "model",
    "revision", "site",
)  # fmt: skip
"""Options that choose a layer."""


@dataclass
class Opened:
    """A model by name or a run, loaded at the first call of `source`; `given` None is a model that is not here."""

    given: Any
    device: str
    reporter: Reporter
    revision: str | None = None
    part: str | None = None
    tokens: int | None = None
    _source: Source | None = field(default=None, init=False)

    def source(self) -> Source:
        """Return the model with its layers found; raises `LayerscopeError` where it cannot be truncated."""
        if self.given is None:
            raise LayerscopeError("the model itself is not here: name it with `cost_model`")
        if self._source is None:
            source = self._source = open_source(
                self.given, None, Override(self.part), LoadOptions(device=self.device)
            )
            if self.tokens is not None:
                source = self._source = replace(source, tokens=self.tokens)
            served, scored = source.model.loaded.served, self.revision or ""
            own = weights_fingerprint(served if served is not None else source.module)
            if scored.startswith("weights-") and not own.startswith(
                scored.removeprefix("weights-")
            ):
                self.reporter.say(
                    f"{source.name} has other weights than those that were scored: the costs are its own"
                )
        return self._source

    def costs(self, layers: Sequence[int]) -> Costs:
        """Return what the model costs at these depths, measured on this machine."""
        source = self.source()
        depth = source.model.stack.depth
        beyond = [layer for layer in layers if layer > depth]
        if beyond:
            raise LayerscopeError(
                f"{source.name} has {depth} layers, and layer {beyond[0]} was scored: it is another model"
            )
        self.reporter.say(f"costs: {source.name} at {len(layers)} depths")
        return processes.team().lead(lambda: costs_by_depth(source, layers))

    def pools_as_ours(self, pooling: str | None) -> bool:
        """Return whether a layer was pooled by us: by another pooling than the model's makers serve it with, if any.

        A model that was not opened is taken for one that pools nothing: a checkpoint may always
        record its pooling.
        """
        if pooling not in POOLINGS:
            return False
        loaded = None if self._source is None else self._source.model.loaded
        return loaded is None or loaded.served is None or (loaded.pooling or ()) != (pooling,)


def source_of(name: str, origin: ModelOrigin | None = None) -> str | None:
    """Return what opens a model that an evaluation names, or None where that is not on this machine."""
    if origin is not None and origin.source is not None:
        name = origin.source
    if name == EMBEDDED or Path(name).expanduser().is_dir():
        return name
    if name == MINILM and find_spec(EMBEDDED_IN) is not None:
        return "minilm"
    if name.count("/") == 1:
        with suppress(ValueError):  # no name that the hub could have
            return name if isinstance(try_to_load_from_cache(name, "config.json"), str) else None
    return None


def decide(asked: Asked) -> Selection | Removal:
    """Do what `select` is asked for."""
    budget = asked.of(Budget)
    wrong = (
        [name for name in OF_LAYERS if getattr(asked, name) is not None]
        if asked.drop is not None
        else []
    )
    if wrong:
        raise LayerscopeError(
            f"{wrong[0]} chooses a layer, and `drop` chooses blocks: give one of them"
        )
    if budget.costs and not asked.cost:
        raise LayerscopeError(
            "a bound on ms, speed or MB needs measured costs: do not switch them off"
        )
    folder = (
        None if asked.out is None else (STORE if asked.drop is None else BLOCKS).folder(asked.out)
    )
    leads = processes.team().leads
    reporter = reporting(asked.progress and leads)
    given = asked.given
    if isinstance(given, (str, Path)):
        given = open_run_or_scores(given)
    if isinstance(given, Evaluation) and asked.tasks is not None:
        asked.tasks = by_beginning(asked.tasks, given.scores["task"].unique())
    found: Selection | Removal
    if asked.drop is not None:
        if not isinstance(given, Run):
            raise LayerscopeError(
                "`drop` runs the model on the samples of a run: give the folder of one"
            )
        opened = Opened(
            given if asked.cost_model is None else asked.cost_model, asked.device, reporter
        )
        found = remove(given, opened.source(), _pooling(given, asked), asked, reporter)
    elif isinstance(given, Evaluation):
        found = _of_evaluation(given, asked, budget, reporter)
    elif isinstance(given, Run):
        given.need_states()
        found = _of_run(given, asked, budget, reporter)
    else:
        raise LayerscopeError(f"select takes a run or an evaluation, not a {type(given).__name__}")
    if folder is not None and leads:
        found.save(folder)
    return found


def by_beginning(weights: Mapping[str, float], known: Iterable[str]) -> dict[str, float]:
    """Return the weights of tasks by their whole names: a beginning stands for the only one that begins so.

    >>> from layerscope.selection.pipeline import by_beginning
    >>> by_beginning({"trec": 2.0}, ["TREC (linear probe)", "STS12"])
    {'TREC (linear probe)': 2.0}
    """
    names, found = list(map(str, known)), {}
    for given, weight in weights.items():
        begun = [name for name in names if name.lower().startswith(given.lower())]
        found[begun[0] if len(begun) == 1 and given not in names else given] = weight
    return found


def _of_evaluation(
    evaluation: Evaluation, asked: Asked, budget: Budget, reporter: Reporter
) -> Selection:
    if asked.holdout is not None:
        raise LayerscopeError(
            "holdout needs the states of samples, and an evaluation keeps one score per task: give a run with labels"
        )
    grid, scored, notes = judged(evaluation, asked)
    if asked.tasks is None and grid.rows["shifted_from"].any():
        notes.append("source and target of a shift count alike: choose by one of them with `tasks`")
    _refuse_first(asked.first_layer, scored.layers)
    name, pooling = str(grid.about["model"]), grid.about["pooling"]
    origin = evaluation.origins.get(name, ModelOrigin(None, 0))
    model = source_of(name, origin) if asked.cost_model is None else asked.cost_model
    opened = Opened(
        model, asked.device, reporter, str(grid.about["revision"]), origin.part, origin.tokens
    )
    costs, missing = _costs(opened, list(dict.fromkeys(scored.layers)), asked, budget)
    sites = (
        opened.source().model.sites
        if costs is not None
        else evaluation.scores["site"].dropna().unique()
    )
    about = {
        "model": name,
        "source": str(model) if isinstance(model, (str, Path)) else name,
        "site": grid.about["site"],
        "pooling": pooling,
        "pooled": origin.modality == "text" and opened.pools_as_ours(pooling),
        "sites": tuple(map(str, sites)),
        "notes": (*notes, *missing),
        "part": origin.part,
    }
    case = Case(about, budget, asked.first_layer, origin.depth, scored, costs)
    return with_mix(by_scores(case, scored, asked.rule), grid, case, asked)


def _of_run(run: Run, asked: Asked, budget: Budget, reporter: Reporter) -> Selection:
    opened = Opened(run if asked.cost_model is None else asked.cost_model, asked.device, reporter)
    pooling, has_scores = _pooling(run, asked), asked.labels is not None or has_labels(run)
    if asked.rule is not None and not has_scores:
        raise LayerscopeError(
            f"rule {asked.rule!r} needs scores, and this run has no labels: give labels"
        )
    if budget.max_loss is not None and not has_scores:
        raise LayerscopeError(
            "max_loss needs scores: a run with labels, or an evaluation; without them no loss is known"
        )
    if asked.holdout is not None and not has_scores:
        raise LayerscopeError(
            "holdout needs labels to choose by, and this run has none: leave it out"
        )
    _refuse_first(asked.first_layer, run.layers)
    if budget.costs:
        opened.source()  # a model that is not here is refused before the long part, as wrong labels are
    scored = probed(run, asked.labels, pooling, asked.holdout, reporter) if has_scores else None
    costs, notes = _costs(opened, run.layers, asked, budget)
    if not has_scores and run.info["data"].get("labels"):
        notes = (
            "the run's labels give no two classes of five samples to probe: they are left out",
            *notes,
        )
    about = {
        "model": str(run.info["model"]["name"]),
        "source": str(run.path) * run.names_model,
        "site": run.final,
        "pooling": pooling,
        "pooled": run.info["data"]["modality"] == "text" and opened.pools_as_ours(pooling),
        "notes": notes,
    }
    case = Case(about, budget, asked.first_layer, run.depth, scored, costs, run.layers)
    return without_scores(case) if scored is None else by_scores(case, scored, asked.rule)


def _pooling(run: Run, asked: Asked) -> str:
    """Return the pooling to choose a layer of; what a run has no choice of is refused."""
    known, model = run.info["pooling"], run.info["model"]["name"]
    if asked.pooling is not None and asked.pooling not in known:
        raise LayerscopeError(
            f"pooling {asked.pooling!r} is not in this run: it has {', '.join(known)}"
        )
    if asked.site not in (None, run.final):
        raise LayerscopeError(
            f"site {asked.site!r} of a run cannot be chosen: a truncated model yields {run.final}"
        )
    if asked.model not in (None, model):
        raise LayerscopeError(
            f"model applies only to evaluations, and this is a run of {model}: leave it out"
        )
    if asked.tasks is not None:
        raise LayerscopeError("`tasks` applies only to evaluations: a run is judged by its labels")
    return str(asked.pooling or known[0])


def _refuse_first(layer: int, layers: Sequence[int]) -> None:
    if layer > layers[-1]:
        raise LayerscopeError(f"first layer {layer} is beyond the last one, {layers[-1]}")


def _costs(
    opened: Opened, layers: Sequence[int], asked: Asked, budget: Budget
) -> tuple[Costs | None, tuple[str, ...]]:
    """Return what every depth costs, or None and the line that says why not; an error where a bound needs them."""
    if not asked.cost:
        return None, ()
    try:
        return opened.costs([layer for layer in layers if layer > 0]), ()
    except LayerscopeError as error:
        if budget.costs:
            raise
        return None, (f"no costs: {error}",)
