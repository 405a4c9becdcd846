from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import (
    PASS,
    WHOLE,
    AsJson,
    Blocks,
    Device,
    Dtype,
    Norm,
    Part,
    Pickle,
    Revision,
    Trust,
    app,
)

if TYPE_CHECKING:
    import pandas as pd

    from layerscope.scores import Evaluation, Rule

SCORES = "Published scores"
TASKS = "Tasks"


@app.command(
    epilog="""
[bold]Examples[/bold]

Every layer of a model on tasks of mteb, each text embedded once; the same command goes on after a kill:
  layerscope evaluate minilm --tasks STSBenchmark,Banking77Classification --out scores/minilm

On your own files (text,label · text_a,text_b,score · text_a,text_b,label · query,document,score):
  layerscope evaluate ./my-model --task-file classification:tickets.csv --task-file sts:pairs.jsonl

Probes, with 95 % intervals, of whatever profile reads with labels, and of words (tokens and labels, lists a row):
  layerscope evaluate ./my-vit --task-file linear-probe:photos/ --task-file attention-probe:photos/
  layerscope evaluate minilm --task-file token-probe:pos.jsonl

First, best and last layer of every model in a table of scores (model, revision, layer, task, main_score):
  layerscope evaluate --results mteb_scores.csv.gz

How metrics by layer go with them, and what choosing a layer by a metric gains on a model held out:
  layerscope evaluate --results mteb_scores.csv.gz --metrics metrics.csv.gz
"""
)
def evaluate(  # noqa: D417
    model: Annotated[
        str | None,
        typer.Argument(
            help="Hub name, local folder, PEFT adapter folder, 'minilm' (comes with the package), or a run folder.",
            metavar="[MODEL_OR_RUN]",
            show_default=False,
        ),
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="Names of mteb tasks, with commas; layer-by-layer is the 32 of the paper, in English.",
            rich_help_panel=TASKS,
        ),
    ] = None,
    task_file: Annotated[
        list[str] | None,
        typer.Option(
            help="Own file as KIND:PATH, repeatable; KIND is classification, clustering, sts, pair-classification or "
            "retrieval; or, of images and sounds too, linear-probe, knn-probe, attention-probe; token-probe of words.",
            rich_help_panel=TASKS,
        ),
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option(help="Seeded rows of each own file.", metavar=WHOLE, rich_help_panel=TASKS, show_default="all"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the results, in mteb's layout; the same command on it goes on.",
            rich_help_panel=TASKS,
            show_default="scores/MODEL",
        ),
    ] = None,
    layers: Annotated[str, typer.Option(help="all, or such as 0,3 or 1-6.", rich_help_panel=PASS)] = "all",
    site: Annotated[
        str | None,
        typer.Option(
            help="Where layers are taken: raw, normed, or both with a comma.",
            rich_help_panel=PASS,
            show_default="normed where there is a final norm, else raw",
        ),
    ] = None,
    pooling: Annotated[str, typer.Option(help="auto, or some of mean,cls,last,first.", rich_help_panel=PASS)] = "auto",
    keep_states: Annotated[
        bool, typer.Option("--keep-states", help="Keep the pooled states in --out.", rich_help_panel=PASS)
    ] = False,
    jobs: Annotated[
        str,
        typer.Option(
            help="Processes that judge layers at a time.",
            metavar=WHOLE,
            rich_help_panel=PASS,
            show_default="auto: the cores, where it pays",
        ),
    ] = "auto",
    results: Annotated[
        str | None,
        typer.Option(
            help="CSV of scores, folder of per-layer mteb results, or a saved evaluation.", rich_help_panel=SCORES
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="CSV of metrics by layer, or a run folder: correlations and rules.", rich_help_panel=SCORES),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            help="Variant (normalization) of the metrics that have it.",
            show_default="raw, else a metric's first",
            rich_help_panel=SCORES,
        ),
    ] = None,
    min_share: Annotated[
        str,
        typer.Option(
            help="Leave out layers with scores on a smaller share of the tasks; all are those of the model with most.",
            rich_help_panel=SCORES,
        ),
    ] = "25/32",
    first_layer: Annotated[
        str,
        typer.Option(
            help="First layer of correlations and rules; 0 takes the embeddings in.",
            metavar=WHOLE,
            rich_help_panel=SCORES,
        ),
    ] = "1",
    bootstrap: Annotated[
        str, typer.Option(help="Resamples of the intervals; 0: none.", metavar=WHOLE, rich_help_panel=SCORES)
    ] = "1000",
    seed: Annotated[
        str, typer.Option(help="Of the resamples, and of the rows drawn.", metavar=WHOLE, rich_help_panel=SCORES)
    ] = "0",
    save: Annotated[
        Path | None, typer.Option(help="Write the scores into this folder.", rich_help_panel=SCORES)
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the scores, layer × task, as CSV.", rich_help_panel=TASKS)
    ] = None,
    save_rules: Annotated[
        Path | None,
        typer.Option(
            help="Write the rules and their record into this file, for select --evidence.", rich_help_panel=SCORES
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="What the models of --save-rules are: causal or bidirectional.", rich_help_panel=SCORES),
    ] = None,
    revision: Revision = None,
    part: Part = None,
    blocks: Blocks = None,
    norm: Norm = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    trust_remote_code: Trust = False,
    allow_pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Score [bold]every layer[/bold] of a model on tasks, or show published scores, and which metrics tell them."""
    from layerscope.core.progress import paper
    from layerscope.reports.written import ending, write
    from layerscope.scores import open_evaluation
    from layerscope.scores.scored import HEADER, wide_csv
    from layerscope.show.terminal import show

    _one_source(model, results, [*(usage.names(tasks, "--tasks") or []), *(task_file or [])])
    _of_models(model, {
        "--layers": layers != "all", "--pooling": pooling != "auto", "--site": site is not None,
        "--out": out is not None, "--samples": samples is not None,
    })  # fmt: skip
    share, table = _share(min_share), None if csv is None else ending(csv, "table", "--csv", (".csv",), HEADER)
    if model is not None:
        evaluation = _judged(
            model, tasks, task_file or [], usage.place("--out", out), sites=site, layers=_layers(layers),
            pooling=pooling,
            samples=usage.whole(samples), seed=usage.whole(seed), keep_states=keep_states,
            jobs=usage.whole(jobs), dtype=dtype, device=device,
            part=part, blocks=blocks, norm=norm, revision=revision, trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
        )  # fmt: skip
    else:
        evaluation = open_evaluation(str(results))
    evaluation.summary(share)  # a share that leaves nothing is told before the long part
    found: dict[str, Any] = {}
    if metrics is not None:
        found = _against(evaluation, metrics, variant, {
            "first_layer": usage.whole(first_layer), "min_share": share,
        }, {"bootstrap": usage.whole(bootstrap), "seed": usage.whole(seed)})  # fmt: skip
    if save_rules is not None:
        _save_rules(found.get("rules") or [], save_rules, kind, results or str(model))
    if save is not None:
        print(f"saved: {evaluation.save(save)}", file=sys.stderr)
    if table is not None:
        print(f"table: {write(table, wide_csv(evaluation, share), 'table', '--csv')}", file=sys.stderr)
    if as_json:
        output.as_json(evaluation.as_dict(min_share=share, **found))
    else:
        show(evaluation.document(min_share=share, **found), paper())
    if evaluation.failed:
        print(f"not judged: {usage.printable(', '.join(evaluation.failed))}", file=sys.stderr)  # why, was told before
        raise typer.Exit(1)


def _one_source(model: str | None, results: str | None, tasks: list[str]) -> None:
    """Refuse a command that names neither a model nor results, or both."""
    from layerscope.core.errors import LayerscopeError

    if model is None and results is None:
        raise LayerscopeError(
            "layerscope evaluate needs a model with --tasks or --task-file, or --results: a CSV of scores, or a folder "
            "of mteb results"
        )
    if model is not None and results is not None:
        raise LayerscopeError("a model is evaluated, --results are shown: give one of them")
    if model is None and tasks:
        raise LayerscopeError("--tasks and --task-file need a model: layerscope evaluate MODEL --tasks NAME")
    if model is not None and not tasks:
        raise LayerscopeError("no task is named: give --tasks STSBenchmark or --task-file classification:FILE.csv")


def _of_models(model: str | None, given: dict[str, bool]) -> None:
    """Refuse options that say how a model is evaluated where scores are shown."""
    from layerscope.core.errors import LayerscopeError

    wrong = next((name for name, there in given.items() if there), None)
    if model is None and wrong is not None:
        raise LayerscopeError(
            f"{wrong} says how a model is evaluated, and --results shows scores there are: leave it out"
        )


def _judged(model: str, tasks: str | None, files: list[str], out: Path | None, **options: Any) -> Evaluation:
    """Evaluate a model into its folder, which is told."""
    from layerscope.evaluation import evaluate as verb

    folder = out or Path("scores") / Path(model).name
    found = verb(model, [*(usage.names(tasks, "--tasks") or []), *map(_own, files)], folder, **options)
    print(f"results: {folder}", file=sys.stderr)
    return found


def _own(text: str) -> str:
    """Return KIND:PATH, which a text without a colon is not."""
    from layerscope.core.errors import LayerscopeError

    kind, colon, path = text.partition(":")
    if not (kind and colon and path):
        raise LayerscopeError(f"--task-file {text!r} is not KIND:PATH: give such as classification:tickets.csv")
    return text.lower().partition(":")[0] + colon + path


def _against(
    evaluation: Evaluation, metrics: str, variant: str | None, shared: dict[str, Any], resampled: dict[str, Any]
) -> dict[str, Any]:
    """Return the correlations of metrics with scores, and the rules where there are models enough to test them."""
    from layerscope.core.errors import LayerscopeError
    from layerscope.scores import corpus_averages, fit_rules, one_variant, open_metrics

    values = one_variant(corpus_averages(open_metrics(metrics)), variant)
    correlations: pd.DataFrame = evaluation.correlate(values, **shared, **resampled)
    rules: list[Rule] = []
    try:
        rules = fit_rules(values, evaluation, **shared)
    except LayerscopeError as error:  # the rest stands without them
        print(f"no rules: {error}", file=sys.stderr)
    return {"correlations": correlations, "rules": rules}


def _save_rules(rules: list[Rule], path: Path, kind: str | None, scores: str) -> None:
    """Write rules with what tells of their record: the scores they were fitted on, and the kind of their models."""
    import shlex
    from dataclasses import replace

    from layerscope.core.errors import LayerscopeError
    from layerscope.scores import save_rules

    if not rules:
        raise LayerscopeError("--save-rules has no rule to write: give --metrics, and scores of two models or more")
    source = f"fitted on {Path(scores).name}"
    told = [
        replace(rule, source=source, choices=tuple(replace(choice, kind=kind) for choice in rule.choices))
        for rule in rules
    ]
    written = save_rules(told, path, command=shlex.join(["layerscope", *sys.argv[1:]]))
    print(f"rules: {written}", file=sys.stderr)


def _share(text: str) -> Any:
    """Return the share a text such as 25/32 or 0.8 holds, or the text itself, which is then refused by name."""
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        return text


def _layers(text: str) -> Any:
    return text if text == "all" else usage.layers(text, "--layers")
