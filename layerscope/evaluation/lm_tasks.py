"""Tasks of lm-evaluation-harness: opened by name or from a file, and scored at every layer of a language model."""

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache, partial
from io import StringIO
from typing import Any

from layerscope.core import (
    LayerscopeError,
    choices,
    existing,
    go_offline_without_hub,
    near,
)
from layerscope.evaluation.judging import line_of, quiet
from layerscope.evaluation.layer_lm import LayerLM
from layerscope.evaluation.probe_states import TOKENS, Pass, Shared
from layerscope.evaluation.probe_tasks import ProbeKind, ProbeTask
from layerscope.inputs import Corpus
from layerscope.inputs.drawing import drawn_rows
from layerscope.models import LayeredModel
from layerscope.probes import ProbeScore
from layerscope.scores.probe_results import Slot

FEW_SHOT_SEED = 1234
"""The harness's own: examples in prompts are those of published numbers."""
BOOTSTRAPS = 1000
SCORED = ("loglikelihood", "multiple_choice")
"""Types of tasks that are judged by the likelihood of continuations, which one forward gives at every layer."""


class Answers(Shared):
    """The answers of every layer to the requests of a task; attributes as of `Pooled`."""

    def __init__(self, data: Any, model: LayeredModel, slots: Sequence[Slot]) -> None:
        super().__init__(data, model, slots)
        site = model.final
        depth = model.depth
        layers = sorted({layer for layer, *where in slots if where[0] == site})
        if not layers:
            raise LayerscopeError(
                f"lm tasks read layers at the site {site}: include it in `sites`"
            )
        self.slots = [(layer, site, TOKENS) for layer in layers]
        self.last = depth, site, TOKENS
        self.lm = LayerLM(model, sorted({*layers, depth}))

    def compute(self, work: Pass) -> None:
        """Leave the work to the first layer that is scored, which gives the answers of all."""
        self.lm.reporter = work.reporter
        self.lm.team = work.team

    def layer(self, slot: Slot) -> tuple[LayerLM]:
        """Return the model as it answers at a layer."""
        self.lm.layer = slot[0]
        return (self.lm,)


@contextmanager
def _harness(fault: str) -> Iterator[None]:
    """Keep the harness's bars and lines off the screen, and begin the line on whatever it raises with `fault`."""
    # its bootstraps would start a process for each core and layer
    os.environ.setdefault("DISABLE_MULTIPROC", "1")
    try:
        with quiet(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield
    except LayerscopeError:
        raise
    except Exception as error:  # YAML, jinja, datasets, the hub and a task's own code fail in many ways
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        reason = line_of(cause)
        if isinstance(error, ConnectionError):
            reason = "its data are not cached and the hub cannot be reached"
        raise LayerscopeError(f"{fault}: {reason}") from error


@cache
def _manager(includes_defaults: bool) -> Any:
    """Return what loads tasks; to know the harness's own it reads thousands of files."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_defaults=includes_defaults)


def open_lm_tasks(
    spec: Any, samples: int | None = None, seed: int = 0
) -> list[ProbeTask]:
    """Return the harness's task of a name or YAML file, and of a group's name all its tasks.

    It may end in `@METRIC`; by default that is the task's first metric of which more is better.
    `samples` takes that many seeded documents of each. Raises `LayerscopeError` for what the
    harness does not know or cannot load, and for tasks of other types than `SCORED`.
    """
    source, _, metric = str(spec).partition("@")
    what = f"lm task {source!r}"
    is_file = source.endswith((".yaml", ".yml"))
    if is_file:
        existing(source, "task file")
    go_offline_without_hub()
    with _harness(f"{what} cannot be loaded"):
        manager = _manager(not is_file)
        if not is_file and source not in manager.task_index:
            mend = ": give a name of lm-evaluation-harness, or a file like task.yaml"
            hint = near(source, manager.all_tasks) or mend
            raise LayerscopeError(f"{what} does not exist{hint}")
        tasks = manager.load([source])["tasks"].values()
        return [_task(task, metric, samples, seed) for task in tasks]


def _task(task: Any, metric: str, samples: int | None, seed: int) -> ProbeTask:
    """Build the requests of a task, once for all layers."""
    name = task.config.task
    if task.OUTPUT_TYPE not in SCORED:
        raise LayerscopeError(
            f"lm task {name!r} is of the type {task.OUTPUT_TYPE}: evaluate scores those of {' and '.join(SCORED)}"
        )
    better = [each for each, is_higher in task.higher_is_better().items() if is_higher]
    if not better or (metric and metric not in better):
        raise LayerscopeError(
            f"lm task {name!r} has no metric {metric!r} of which more is better{choices(metric, better, 'it has')}"
        )
    metric = metric or better[0]
    if task.get_config("num_fewshot") is None:
        task.set_config("num_fewshot", 0)
    task.set_fewshot_seed(FEW_SHOT_SEED)
    total = len(task.eval_docs)
    chosen = None
    if samples is not None and total > samples:
        chosen = drawn_rows(total, None, samples, seed)[0]
    task.build_all_requests(samples=chosen)

    # the harness would build the same again for every layer
    def forget_answers(**_: Any) -> None:
        for instance in task.instances:
            instance.resps = []
            instance.filtered_resps = {}

    task.build_all_requests = forget_answers
    texts = ["".join(one.args) for one in task.instances]
    documents = tuple(json.dumps(one.doc, default=str) for one in task.instances)
    numbers = [*map(str, range(len(texts)))]
    data = Corpus(name, "text", texts, numbers, documents)
    return ProbeTask(
        ProbeKind("lm", metric, Answers, partial(_score, task, metric, chosen)), data
    )


def _score(
    task: Any, metric: str, chosen: list[int] | None, lm: LayerLM, seed: int
) -> ProbeScore:
    """Return what the harness makes of a model's answers at its layer."""
    from lm_eval.evaluator import evaluate

    name = task.config.task
    samples = None if chosen is None else {name: chosen}
    with _harness(f"lm-evaluation-harness fails at layer {lm.layer}"):
        outcome = evaluate(
            lm,
            {"tasks": {name: task}},
            samples=samples,
            bootstrap_iters=BOOTSTRAPS,
            log_samples=False,
        )
        values = {
            key.partition(",")[0]: value
            for key, value in reversed(outcome["results"][name].items())
        }
        score = float(values[metric])
        stderr = values.get(f"{metric}_stderr")
    if not math.isfinite(score):
        raise LayerscopeError(
            f"its {metric} at layer {lm.layer} is {score}: choose another metric with @METRIC"
        )
    stderr = stderr if isinstance(stderr, float) else math.nan
    wide = 1.96 * stderr  # a 95 % interval
    n = outcome["n-samples"][name]["effective"]
    return ProbeScore(score, stderr, score - wide, score + wide, n, 0, ())
