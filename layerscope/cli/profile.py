from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import (
    DATA,
    METRIC,
    PASS,
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
)  # fmt: skip
from layerscope.core import processes


@app.command(
    epilog="""
[bold]Examples[/bold]

Every layer of a sentence encoder on the documentation of Python's library, without a download:
  layerscope profile minilm --data stdlib-docs

A language model on running text, with perplexity and saturation by layer:
  layerscope profile gpt2 --data novel.txt --out runs/novel

Your classifier's layers on your labels, 5,000 rows, CLS vectors:
  layerscope profile ./my-model --data tickets.csv --text-column body --label-column team --samples 5000 --pooling cls

Images and sounds, a folder each, sub-folder = label:
  layerscope profile google/vit-base-patch16-224 --data photos/
  layerscope profile openai/whisper-tiny --part encoder --data calls/
"""
)
def profile(  # noqa: D417
    model: Model,
    data: Annotated[
        str,
        typer.Option(
            help="CSV, TSV, JSONL, Parquet or text file; folder or archive of images or wavs; hf:name/config:split; "
            "stdlib-docs; digits.",
            rich_help_panel=DATA,
            show_default="stdlib-docs, or digits for image models",
        ),
    ] = "auto",
    text_column: Annotated[str | None, typer.Option(help="Column of the texts.", rich_help_panel=DATA)] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of the labels.", rich_help_panel=DATA)] = None,
    samples: Annotated[str, typer.Option(help="How many seeded samples, or all.", rich_help_panel=DATA)] = "1000",
    chunk: Annotated[
        str | None,
        typer.Option(help="Pack running text into windows of N tokens.", metavar=WHOLE, rich_help_panel=DATA),
    ] = None,
    repeat_tokens: Annotated[
        str | None,
        typer.Option(help="Chance of each token to become one that repeats.", metavar="SHARE", rich_help_panel=DATA),
    ] = None,
    random_tokens: Annotated[
        str | None,
        typer.Option(help="Chance of each token to become a random one.", metavar="SHARE", rich_help_panel=DATA),
    ] = None,
    prompt: Annotated[str, typer.Option(help="Text put before every text.", rich_help_panel=DATA)] = "",
    max_length: Annotated[
        str | None, typer.Option(help="Tokens per text at most.", metavar=WHOLE, rich_help_panel=DATA)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder; the same command on it goes on.", show_default="runs/MODEL-DATA"),
    ] = None,
    figures: Figures = None,
    metrics: Annotated[
        str,
        typer.Option(help="default, seven (Layer by Layer), all, or names with commas.", rich_help_panel=METRIC),
    ] = "default",
    pooling: Annotated[
        str, typer.Option(help="auto, or some of mean,cls,last,first.", rich_help_panel=METRIC)
    ] = "auto",
    alpha: Annotated[
        str, typer.Option(help="Orders of the entropies, such as 1 or 1,2.", rich_help_panel=METRIC)
    ] = "1",
    exclude_sinks: Annotated[
        bool,
        typer.Option("--exclude-sinks", help="Leave out tokens of over 10x the median norm.", rich_help_panel=METRIC),
    ] = False,
    prefixes: Annotated[
        str | None,
        typer.Option(help="Prompt entropy of the first N tokens too, such as 8,16,32.", rich_help_panel=METRIC),
    ] = None,
    views: Annotated[
        str, typer.Option(help="Augmentations per sample; 0: none.", metavar=WHOLE, rich_help_panel=METRIC)
    ] = "2",
    view_samples: Annotated[
        str, typer.Option(help="Samples that get views.", metavar=WHOLE, rich_help_panel=METRIC)
    ] = "1000",
    view_kinds: Annotated[
        str | None,
        typer.Option(
            help="Kinds of views with commas: swap,typo,split · crop,flip,color · noise,shift.",
            rich_help_panel=METRIC,
        ),
    ] = None,
    view_share: Annotated[
        str, typer.Option(help="Share of a text's words a view changes.", metavar="SHARE", rich_help_panel=METRIC)
    ] = "0.1",
    lens_tokens: Annotated[
        str, typer.Option(help="Token positions read through the head, all, or auto.", rich_help_panel=METRIC)
    ] = "auto",
    entropy_samples: Annotated[
        str | None,
        typer.Option(
            help="Samples of prompt entropy.", metavar=WHOLE, rich_help_panel=METRIC, show_default="all; 256 on a GPU"
        ),
    ] = None,
    sublayers: Annotated[
        bool,
        typer.Option(
            "--sublayers", help="Measure inside each block too: norm, attention, MLP, residual.", rich_help_panel=METRIC
        ),
    ] = False,
    batch_size: Annotated[
        str | None,
        typer.Option(help="Samples per forward.", metavar=WHOLE, rich_help_panel=PASS, show_default="by length"),
    ] = None,
    seed: Annotated[str, typer.Option(help="Of everything that is drawn.", metavar=WHOLE, rich_help_panel=PASS)] = "0",
    store_dtype: Annotated[str, typer.Option(help="float32 or float16.", rich_help_panel=PASS)] = "float32",
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
    """Measure [bold]every layer[/bold] of a model over your data in one pass."""
    from layerscope.profiling import profile as verb

    out, figures = usage.place("--out", out), usage.place("--figures", figures)
    run = verb(
        model, None if data == "auto" else data, out=out, metrics=metrics, pooling=pooling, samples=samples,
        max_length=usage.whole(max_length), batch_size=usage.whole(batch_size), views=usage.whole(views),
        view_samples=usage.whole(view_samples), view_kinds=usage.names(view_kinds, "--view-kinds"),
        view_share=usage.fraction(view_share), alpha=usage.numbers(alpha, "--alpha"), seed=usage.whole(seed),
        entropy_samples=usage.whole(entropy_samples), chunk=usage.whole(chunk), dtype=dtype, device=device,
        repeat_tokens=None if repeat_tokens is None else usage.fraction(repeat_tokens),
        random_tokens=None if random_tokens is None else usage.fraction(random_tokens),
        exclude_sinks=exclude_sinks, prefixes=usage.wholes(prefixes, "--prefixes"), store_dtype=store_dtype,
        lens_tokens=lens_tokens, prompt=prompt, text_column=text_column, label_column=label_column, part=part,
        blocks=blocks, norm=norm, sublayers=sublayers, revision=revision, trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        command=shlex.join(["layerscope", *sys.argv[1:]]),
    )  # fmt: skip
    if processes.team().leads:
        output.finish(run, figures, as_json)
