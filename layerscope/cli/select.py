from __future__ import annotations

from typing import Annotated

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import WHOLE, AsJson, Revision, app

BOUNDS = "Bounds"
FREE = "Without labels"
SCORES = "Which scores"
COSTS = "Costs"
NUMBER = "NUMBER"


@app.command(
    epilog="""
[bold]Examples[/bold]

By the labels of a run, or the tasks of an evaluation:
  layerscope select runs/demo
  layerscope select scores/minilm

The fastest layer that loses at most one point:
  layerscope select runs/demo --max-loss 1.0

A run without labels, by rules tried on models of your own; then by one rule, whatever its record:
  layerscope select runs/new --evidence scores.csv --evidence runs/one --evidence runs/two
  layerscope select runs/new --rule half-text
"""
)
def select(
    path: Annotated[
        str,
        typer.Argument(
            help="Run folder, folder of an evaluation, or CSV of scores.", metavar="RUN_OR_SCORES", show_default=False
        ),
    ],
    rule: Annotated[
        str | None,
        typer.Option(help="one-standard-error or best of scores; half-text, or another rule without labels, by name."),
    ] = None,
    holdout: Annotated[
        str | None,
        typer.Option(
            help="Share of a run's labelled samples that judges the chosen layer without a part in choosing it.",
            show_default="every fold is judged at the layer the others choose",
            metavar="SHARE",
        ),
    ] = None,
    max_loss: Annotated[
        str | None,
        typer.Option(
            help="Largest acceptable loss, in points: the shallowest layer within it is chosen.",
            metavar=NUMBER,
            rich_help_panel=BOUNDS,
        ),
    ] = None,
    max_ms: Annotated[
        str | None, typer.Option(help="Milliseconds a sample at most.", metavar=NUMBER, rich_help_panel=BOUNDS)
    ] = None,
    max_mb: Annotated[
        str | None, typer.Option(help="Megabytes of weights at most.", metavar=NUMBER, rich_help_panel=BOUNDS)
    ] = None,
    first_layer: Annotated[
        str, typer.Option(help="First candidate; 0 takes the embeddings in.", metavar=WHOLE, rich_help_panel=BOUNDS)
    ] = "1",
    with_embeddings: Annotated[
        bool, typer.Option("--with-embeddings", help="The same as --first-layer 0.", rich_help_panel=BOUNDS)
    ] = False,
    evidence: Annotated[
        list[str] | None,
        typer.Option(
            help="A file of rules (evaluate --save-rules), or repeated: scores, then metrics (CSV or run folders).",
            show_default="rules of the package",
            rich_help_panel=FREE,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Texts for half-text.", show_default="those of the run", rich_help_panel=FREE),
    ] = None,
    seed: Annotated[
        str, typer.Option(help="Of the texts that half-text draws.", metavar=WHOLE, rich_help_panel=FREE)
    ] = "0",
    model: Annotated[
        str | None, typer.Option(help="Which model of an evaluation of several.", rich_help_panel=SCORES)
    ] = None,
    revision: Revision = None,
    site: Annotated[
        str | None, typer.Option(help="raw or normed.", show_default="normed if scored", rich_help_panel=SCORES)
    ] = None,
    pooling: Annotated[str | None, typer.Option(help="Which one of several.", rich_help_panel=SCORES)] = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="Tasks that count, with commas, or their weights: STS12=2,trec=1.",
            show_default="all alike",
            rich_help_panel=SCORES,
        ),
    ] = None,
    no_cost: Annotated[
        bool, typer.Option("--no-cost", help="Measure neither size nor speed.", rich_help_panel=COSTS)
    ] = False,
    cost_model: Annotated[
        str | None,
        typer.Option(help="Model to load for it, where its name does not find it.", rich_help_panel=COSTS),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda:0.", rich_help_panel=COSTS)] = "auto",
    as_json: AsJson = False,
) -> None:
    """Choose a layer: [bold]what it scores, wins and costs[/bold], by which rule, and how far that can be trusted."""
    from layerscope.core.progress import paper
    from layerscope.selection import select as verb
    from layerscope.show.terminal import show

    given = (max_loss, max_ms, max_mb, holdout)
    loss, ms, mb, share = (None if text is None else usage.fraction(text) for text in given)
    found = verb(
        path, rule=rule, holdout=share, evidence=evidence or None,
        first_layer=0 if with_embeddings else usage.whole(first_layer),
        max_loss=loss, max_ms=ms, max_mb=mb, model=model, revision=revision, site=site, pooling=pooling,
        tasks=None if tasks is None else dict(map(_weighted, usage.names(tasks, "--tasks") or [])),
        cost=not no_cost, cost_model=cost_model, data=data, device=device, seed=usage.whole(seed),
    )  # fmt: skip
    if as_json:
        output.as_json(found.as_dict())
    else:
        show(found.document(), paper())


def _weighted(text: str) -> tuple[str, float]:
    """Return a task's name and weight: 1 where none is given."""
    from layerscope.core.errors import LayerscopeError

    name, sign, weight = text.rpartition("=")
    if not sign:
        return text, 1.0
    try:
        return name.strip(), float(weight)
    except ValueError:
        raise LayerscopeError(f"--tasks: the weight {weight!r} of {name!r} is not a number: give one above 0") from None
