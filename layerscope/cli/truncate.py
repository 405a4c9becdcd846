from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import MODEL, WHOLE, AsJson, Blocks, Norm, Part, Pickle, Revision, app


@app.command(
    epilog="""
[bold]Examples[/bold]

The first four layers of a sentence encoder, with its pooling, for `SentenceTransformer("small")`:
  layerscope truncate minilm --layer 4 --out small

Three depths of the model of a run, with what each costs and scores:
  layerscope truncate runs/demo --layers 2,4,6 --out depths

One ONNX file with a tokenizer:
  layerscope truncate ./my-classifier --layer 6 --format onnx --out served
"""
)
def truncate(
    given: Annotated[
        str,
        typer.Argument(
            help="Hub name, local folder, 'minilm'; or the folder of a run or an evaluation, whose model is taken.",
            metavar="MODEL_OR_RUN",
            show_default=False,
        ),
    ],
    layer: Annotated[str | None, typer.Option(help="Last layer that is kept.", metavar=WHOLE)] = None,
    layers: Annotated[
        str | None, typer.Option(help="Several, such as 2,4 or 2-4: each into OUT/layer-K, and one table.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="New folder for the model.")] = None,
    format: Annotated[  # noqa: A002
        str,
        typer.Option(help="transformers, sentence-transformers or onnx.", show_default="as the model itself"),
    ] = "auto",
    pooling: Annotated[
        str | None,
        typer.Option(
            help="mean, cls or last, with --format sentence-transformers.",
            show_default="the model's own, or that of the scores",
        ),
    ] = None,
    site: Annotated[str, typer.Option(help="normed; or raw, before the final norm, for onnx only.")] = "normed",
    revision: Revision = None,
    part: Part = None,
    blocks: Blocks = None,
    norm: Norm = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="Of the weights: float32, bfloat16 or float16.",
            show_default="the checkpoint's own",
            rich_help_panel=MODEL,
        ),
    ] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda:0.", rich_help_panel=MODEL)] = "auto",
    allow_pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Write a model that [bold]ends at one layer[/bold]: a standard checkpoint, checked against the full model."""
    from layerscope.core.errors import LayerscopeError

    kept = _kept(layer, layers)
    out = usage.place("--out", out)
    if out is None:
        raise LayerscopeError("truncate needs --out DIR: a new folder for the model")
    from dataclasses import asdict

    from layerscope.models import LoadOptions, Override
    from layerscope.truncation import truncate_layers

    made = truncate_layers(
        given, kept, out, format, pooling=pooling, override=Override(part, blocks, norm), site=site,
        options=LoadOptions(revision, dtype, device, False, allow_pickle), folders=layers is not None,
    )  # fmt: skip
    if as_json:
        output.as_json([asdict(entry) for entry in made])
        return
    from layerscope.core.progress import paper
    from layerscope.show.terminal import show
    from layerscope.truncation.document import document

    show(document(made), paper())
    print(f"\nwritten: {out}")


def _kept(layer: str | None, layers: str | None) -> list[Any]:
    from layerscope.core.errors import LayerscopeError

    if (layer is None) == (layers is None):
        raise LayerscopeError("truncate needs either --layer K or --layers, such as --layers 3,6,9")
    return [usage.whole(layer)] if layer is not None else usage.layers(layers, "--layers") or []
