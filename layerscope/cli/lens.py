from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import (
    DATA,
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
    Trust,
    app,
)

if TYPE_CHECKING:
    from layerscope.logit_lens import Reading

PAGES = (".html", ".htm")
PAGE = "lens.html"


@app.command(
    epilog="""
[bold]Examples[/bold]

What every layer says comes next, over 24 tokens that the model writes itself:
  layerscope lens gpt2 --prompt "Simply put, the theory of relativity states" --tokens 24

What a masked language model puts into the gap, layer by layer, as a page:
  layerscope lens bert-base-uncased --prompt "Paris is the [MASK] of France." --page gap.html

The class each layer would give your samples, with tables, a page and paper figures:
  layerscope lens ./my-classifier --data tickets.csv --samples 100 --out lens --figures figures
"""
)
def lens(  # noqa: D417
    model: Model,
    prompt: Annotated[
        str | None, typer.Option(help="A text; [MASK] stands for the model's mask.", rich_help_panel=DATA)
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Instead: CSV, TSV, JSONL, Parquet or text file; folder or archive of images or wavs; "
            "hf:name/config:split; stdlib-docs; digits.",
            rich_help_panel=DATA,
        ),
    ] = None,
    samples: Annotated[
        str, typer.Option(help="Of the data the first so many.", metavar=WHOLE, rich_help_panel=DATA)
    ] = "8",
    text_column: Annotated[str | None, typer.Option(help="Column of the texts.", rich_help_panel=DATA)] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of the labels.", rich_help_panel=DATA)] = None,
    max_length: Annotated[
        str | None, typer.Option(help="Tokens of a text at most.", metavar=WHOLE, rich_help_panel=DATA)
    ] = None,
    tokens: Annotated[
        str, typer.Option(help="Continue each text greedily by so many tokens first.", metavar=WHOLE)
    ] = "0",
    top: Annotated[str, typer.Option(help="Predictions kept at each layer.", metavar=WHOLE)] = "5",
    out: Annotated[Path | None, typer.Option(help=f"Folder for the tables and {PAGE}.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write the grid as an HTML file that opens offline.")] = None,
    figures: Figures = None,
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
    """Show what [bold]every layer would predict[/bold], token by token, and where predictions settle."""
    from layerscope.reports.written import PAGE_MARK, ending

    out, figures = usage.place("--out", out), usage.place("--figures", figures)
    page = None if page is None else ending(page, "page", "--page", PAGES, PAGE_MARK)
    from layerscope.logit_lens import lens as verb

    reading = verb(
        model, prompt, data, tokens=usage.whole(tokens), top=usage.whole(top), samples=usage.whole(samples),
        max_length=usage.whole(max_length), text_column=text_column, label_column=label_column, part=part,
        blocks=blocks, norm=norm, revision=revision, dtype=dtype, device=device, trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle, out=out,
    )  # fmt: skip
    pages = [path for path in (page, None if out is None else out / PAGE) if path is not None]
    _finish(reading, out, pages, figures, as_json)


def _finish(reading: Reading, out: Path | None, pages: list[Path], figures: Path | None, json_wanted: bool) -> None:
    """Print a reading, and write its pages and figures where they are asked for."""
    if not json_wanted:
        from layerscope.core.progress import paper
        from layerscope.show.terminal import show

        with output.whoever_reads():
            show(reading.document(), paper())
    if pages:
        from layerscope.reports.page.lens import write_page

        for path in pages:
            write_page(reading, path)
    if figures is not None:
        from layerscope.reports.figures.lens import draw_reading

        drawn = draw_reading(reading, figures)
        print(f"figures: {len(drawn)} files in {figures}", file=sys.stderr)
    if json_wanted:
        output.as_json(reading.as_dict() | {"pages": [str(path) for path in pages]})
        return
    if out is not None:
        print(f"\nwritten: {out}")
    for path in pages:
        print(f"page: {path}")
