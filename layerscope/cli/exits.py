from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import (
    DATA,
    MODEL,
    WHOLE,
    AsJson,
    Blocks,
    Device,
    Dtype,
    Figures,
    Model,
    Norm,
    Part,
    Pickle,
    Revision,
    app,
)
from layerscope.core.errors import LayerscopeError

if TYPE_CHECKING:
    from layerscope.early_exit.exit_report import ExitReport

GOAL = "Guarantee"
LEAVING = "Leaving"
NUMBER = "NUMBER"


@app.command(
    epilog="""
[bold]Examples[/bold]

At most one prediction in a hundred may change, with 95 % confidence; labels are not needed:
  layerscope exits ./my-classifier --data held-out.csv --out early

At least 90 % accuracy, in the batches of your server, with paper figures:
  layerscope exits ./my-classifier --data held-out.csv --batch-size 8 --min-accuracy 0.9 --figures figures/

Exits of your own choice, by the margin between the two likeliest classes:
  layerscope exits ./my-vit --data photos/ --exits 4,8 --criterion margin --json
"""
)
def exits(  # noqa: D417
    model: Model,
    data: Annotated[
        str | None,
        typer.Option(
            help="Samples not trained on: CSV, TSV, JSONL, Parquet or text file; folder or archive of images or wavs.",
            rich_help_panel=DATA,
        ),
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="Column of the texts.", rich_help_panel=DATA)] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of the labels.", rich_help_panel=DATA)] = None,
    max_length: Annotated[
        str | None,
        typer.Option(help="Tokens of a text at most.", metavar=WHOLE, show_default="the model's", rich_help_panel=DATA),
    ] = None,
    samples: Annotated[
        str | None,
        typer.Option(help="Seeded samples at most.", metavar=WHOLE, show_default="5000", rich_help_panel=DATA),
    ] = None,
    max_disagreement: Annotated[
        str | None,
        typer.Option(
            help="Share of predictions that may differ from the full model's.",
            metavar=NUMBER,
            show_default="0.01",
            rich_help_panel=GOAL,
        ),
    ] = None,
    min_accuracy: Annotated[
        str | None,
        typer.Option(help="Instead: share of labels that must be met.", metavar=NUMBER, rich_help_panel=GOAL),
    ] = None,
    confidence: Annotated[
        str, typer.Option(help="With which the bound holds.", metavar=NUMBER, rich_help_panel=GOAL)
    ] = "0.95",
    batch_size: Annotated[
        str, typer.Option(help="Samples at once, as you will serve them.", metavar=WHOLE, rich_help_panel=LEAVING)
    ] = "32",
    criterion: Annotated[
        str, typer.Option(help="confidence, margin, entropy or patience.", rich_help_panel=LEAVING)
    ] = "confidence",
    exits: Annotated[
        str | None,
        typer.Option(help="Layers, such as 3,6 or 3-6.", show_default="those that pay here", rich_help_panel=LEAVING),
    ] = None,
    min_speedup: Annotated[
        str, typer.Option(help="From which on exits pay.", metavar=NUMBER, rich_help_panel=LEAVING)
    ] = "1.05",
    processor: Annotated[
        str | None, typer.Option(help="Tokenizer or processor, where the model has none.", rich_help_panel=MODEL)
    ] = None,
    part: Part = None,
    blocks: Blocks = None,
    norm: Norm = None,
    revision: Revision = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    allow_pickle: Pickle = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the exit model, the numbers and a page.")] = None,
    figures: Figures = None,
    seed: Annotated[str, typer.Option(help="Of the samples that are drawn.", metavar=WHOLE)] = "0",
    as_json: AsJson = False,
) -> None:
    """Let sure samples [bold]leave early[/bold], with a guarantee: what it gains on your machine, and if it pays."""
    out, figures = usage.place("--out", out), usage.place("--figures", figures)
    if data is None:
        raise LayerscopeError("exits needs --data FILE: samples that the model was not trained on")
    disagreement, accuracy = (
        None if text is None else usage.fraction(text) for text in (max_disagreement, min_accuracy)
    )
    from layerscope.early_exit.study import exits as verb

    found = verb(
        model, data, max_disagreement=disagreement, min_accuracy=accuracy, confidence=usage.fraction(confidence),
        min_speedup=usage.fraction(min_speedup),
        batch_size=usage.whole(batch_size), samples=usage.whole(samples), max_length=usage.whole(max_length),
        seed=usage.whole(seed), exits=usage.layers(exits, "--exits"),
        criterion=criterion, text_column=text_column, label_column=label_column, processor=processor, part=part,
        blocks=blocks, norm=norm, revision=revision, device=device, dtype=dtype, allow_pickle=allow_pickle, out=out,
    )  # fmt: skip
    _finish(found, out, figures, as_json)


def _finish(found: ExitReport, out: Path | None, figures: Path | None, json_wanted: bool) -> None:
    """Print a report, and write its page and figures where folders are named."""
    if not json_wanted:
        from layerscope.core.progress import paper
        from layerscope.show.terminal import show

        with output.whoever_reads():
            show(found.document(), paper())
    output.draw([], figures, exits=[found])
    page = None
    if out is not None:
        from layerscope.reports.page import report

        page = report(found, out / "report.html")
    if json_wanted:
        output.as_json(found.as_dict() | ({} if page is None else {"page": str(page)}))
    elif page is not None:
        print(f"\nwritten: {out}\npage: {page}")
