"""The command itself, and the options that several of its commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="layerscope",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="See what every layer of a model knows, find the layer that serves you best, and use it.",
    epilog="Start here:  [bold]layerscope demo[/bold]   then   [bold]layerscope profile MODEL --data FILE[/bold]",
)

MODEL = "Model and weights"
DATA = "Data"
PASS = "The pass"
METRIC = "Metrics"
WHOLE = "INTEGER"  # numbers are read as text, so that a wrong one is told in the house's words

Model = Annotated[
    str,
    typer.Argument(
        help="Hub name, local folder, PEFT adapter folder, or 'minilm' (comes with the package).",
        show_default=False,
    ),
]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.", rich_help_panel=MODEL)]
Part = Annotated[
    str | None,
    typer.Option(help="Which stack: encoder, decoder, text, vision, or a module path.", rich_help_panel=MODEL),
]
Blocks = Annotated[str | None, typer.Option(help="Path of the module that holds the blocks.", rich_help_panel=MODEL)]
Norm = Annotated[str | None, typer.Option(help="Path of the final norm, or none.", rich_help_panel=MODEL)]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16 or float64.", rich_help_panel=MODEL)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda:0, or map (spread over all).", rich_help_panel=MODEL)]
Trust = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Let the checkpoint's own code run.", rich_help_panel=MODEL),
]
Pickle = Annotated[bool, typer.Option("--allow-pickle", help="Load pickled weights.", rich_help_panel=MODEL)]
Figures = Annotated[Path | None, typer.Option(help="Draw the paper figures as PNG and PDF into this folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
