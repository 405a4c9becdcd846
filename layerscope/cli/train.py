from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import DATA, MODEL, WHOLE, AsJson, Part, app
from layerscope.core.errors import LayerscopeError

OBJECTIVE = "Objective"
STEPS = "Steps"
EVALUATION = "Evaluation and output"
NUMBER = "NUMBER"


@app.command(
    epilog="""
[bold]Examples[/bold]

A sentence encoder becomes a classifier whose every layer can be the last:
  layerscope train minilm --train reviews.csv --eval held.csv --out trained

The same data, the rival: the last layer alone; and separate models of 3 and 6 layers:
  layerscope train minilm --train reviews.csv --objective standard --baseline-depths 3,6 --out standard

A vision model from random weights, the paper's settings but for fewer epochs:
  layerscope train vit/config.json --from-config --train photos/ --preset tracing-deit --epochs 50 --out vit

A language model on running text:
  layerscope train gpt2 --train novel.txt --task causal-lm --max-length 256 --out novelist
"""
)
def train(
    model: Annotated[
        str,
        typer.Argument(
            help="Hub name, local folder, or 'minilm'; with --from-config a folder with config.json, or a JSON file.",
            show_default=False,
        ),
    ],
    train: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            help="CSV, TSV, JSONL, Parquet or text file; folder or archive of images or wavs; hf:NAME; digits.",
            rich_help_panel=DATA,
        ),
    ] = None,
    eval: Annotated[  # noqa: A002
        str | None,
        typer.Option(help="The same, to evaluate on.", show_default="a seeded tenth", rich_help_panel=DATA),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="classification, token-classification, causal-lm, masked-lm, image-classification or "
            "audio-classification.",
            show_default="what data and model make",
            rich_help_panel=DATA,
        ),
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="Column of the texts.", rich_help_panel=DATA)] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of the labels.", rich_help_panel=DATA)] = None,
    max_length: Annotated[
        str | None,
        typer.Option(help="Tokens of a text at most, and of a window.", metavar=WHOLE, rich_help_panel=DATA),
    ] = None,
    augment: Annotated[
        bool | None,
        typer.Option("--augment/--no-augment", help="Crop, flip and turn training images.", rich_help_panel=DATA),
    ] = None,
    from_config: Annotated[
        bool, typer.Option("--from-config", help="Start from random weights.", rich_help_panel=MODEL)
    ] = False,
    processor: Annotated[
        str | None, typer.Option(help="Tokenizer or processor, where the model has none.", rich_help_panel=MODEL)
    ] = None,
    head: Annotated[
        str,
        typer.Option(help="auto, mean (of the tokens), own, or new (own and fresh).", rich_help_panel=MODEL),
    ] = "auto",
    part: Part = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", rich_help_panel=MODEL)] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, or bf16 (mixed).", rich_help_panel=MODEL)] = "float32",
    preset: Annotated[
        str | None,
        typer.Option(help="tracing-glue, tracing-gpt2 or tracing-deit; options override.", rich_help_panel=OBJECTIVE),
    ] = None,
    as_printed: Annotated[
        bool,
        typer.Option("--as-printed", help="The preset's implausible values too.", rich_help_panel=OBJECTIVE),
    ] = False,
    objective: Annotated[
        str,
        typer.Option(help="aligned, standard, cosine, cka or classifiers.", rich_help_panel=OBJECTIVE),
    ] = "aligned",
    schedule: Annotated[
        str | None,
        typer.Option(
            help="alternate (odd steps: last layer alone) or always.",
            show_default="alternate for images",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None,
    weights: Annotated[
        str,
        typer.Option(help="Of the exits: linear, uniform, or numbers with commas.", rich_help_panel=OBJECTIVE),
    ] = "linear",
    layers: Annotated[
        str | None,
        typer.Option(help="The exits, with commas.", show_default="all", rich_help_panel=OBJECTIVE),
    ] = None,
    beta: Annotated[
        str | None, typer.Option(help="Of cosine and cka.", metavar=NUMBER, rich_help_panel=OBJECTIVE)
    ] = None,
    distillation: Annotated[
        str | None,
        typer.Option(help="From the last of the classifiers.", metavar=NUMBER, rich_help_panel=OBJECTIVE),
    ] = None,
    temperature: Annotated[
        str | None, typer.Option(help="Of the distillation.", metavar=NUMBER, rich_help_panel=OBJECTIVE)
    ] = None,
    baseline_depths: Annotated[
        str | None,
        typer.Option(help="Train separate models of these depths too, such as 3,6.", rich_help_panel=OBJECTIVE),
    ] = None,
    epochs: Annotated[
        str | None,
        typer.Option(help="Passes over the data.", metavar=NUMBER, show_default="3", rich_help_panel=STEPS),
    ] = None,
    max_steps: Annotated[
        str | None, typer.Option(help="Optimiser steps, over epochs.", metavar=WHOLE, rich_help_panel=STEPS)
    ] = None,
    learning_rate: Annotated[
        str | None,
        typer.Option(
            help="The highest.", metavar=NUMBER, show_default="2e-5, from a config 5e-4", rich_help_panel=STEPS
        ),
    ] = None,
    batch_size: Annotated[
        str | None,
        typer.Option(help="Samples at once.", metavar=WHOLE, show_default="32", rich_help_panel=STEPS),
    ] = None,
    gradient_accumulation: Annotated[
        str | None, typer.Option(help="Batches of a step.", metavar=WHOLE, show_default="1", rich_help_panel=STEPS)
    ] = None,
    weight_decay: Annotated[
        str | None, typer.Option(help="Of AdamW.", metavar=NUMBER, show_default="0.01", rich_help_panel=STEPS)
    ] = None,
    warmup: Annotated[
        str | None,
        typer.Option(help="Steps, or below 1 a share of all.", metavar=NUMBER, show_default="0", rich_help_panel=STEPS),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="linear, cosine, constant or multistep.", show_default="linear", rich_help_panel=STEPS),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(help="Of weights, order and dropout.", metavar=WHOLE, show_default="0", rich_help_panel=STEPS),
    ] = None,
    eval_every: Annotated[
        str | None,
        typer.Option(
            help="Steps between evaluations.",
            metavar=WHOLE,
            show_default="a tenth of all, in a fifth of the time",
            rich_help_panel=EVALUATION,
        ),
    ] = None,
    eval_samples: Annotated[
        str | None,
        typer.Option(help="Seeded samples of it.", metavar=WHOLE, show_default="all", rich_help_panel=EVALUATION),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder; the same command on it goes on.", rich_help_panel=EVALUATION)
    ] = None,
    keep_checkpoints: Annotated[
        bool,
        typer.Option("--keep-checkpoints", help="Keep the last ones at the end.", rich_help_panel=EVALUATION),
    ] = False,
    report_to: Annotated[
        str, typer.Option(help="Where the Trainer reports: tensorboard, wandb, none.", rich_help_panel=EVALUATION)
    ] = "none",
    as_json: AsJson = False,
) -> None:
    """Train a model so that [bold]every layer[/bold] speaks to its one head; the result is a standard checkpoint."""
    folder = usage.place("--out", out)
    if train is None:
        raise LayerscopeError("train needs --train FILE: what the model is to learn")
    if folder is None:
        raise LayerscopeError("train needs --out DIR: a folder for the model")
    from layerscope.training.training import train_all

    wholes = {
        "max_steps": max_steps, "batch_size": batch_size, "gradient_accumulation": gradient_accumulation,
        "max_length": max_length, "eval_every": eval_every, "eval_samples": eval_samples, "seed": seed,
    }  # fmt: skip
    numbers = {
        "beta": beta, "distillation": distillation, "temperature": temperature, "epochs": epochs,
        "learning_rate": learning_rate, "weight_decay": weight_decay, "warmup": warmup,
    }  # fmt: skip
    settings: dict[str, Any] = {name: usage.whole(value) for name, value in wholes.items()}
    settings |= {name: None if value is None else usage.fraction(value) for name, value in numbers.items()}
    done = train_all(
        model, train, eval, out=folder, preset=preset, as_printed=as_printed, from_config=from_config,
        processor=processor, baseline_depths=usage.layers(baseline_depths, "--baseline-depths") or (), part=part,
        text_column=text_column, label_column=label_column, report_to=report_to, keep_checkpoints=keep_checkpoints,
        task=task, objective=objective, schedule=schedule, weights=_weights(weights),
        layers=usage.layers(layers, "--layers"), head=head, augment=augment, dtype=dtype, device=device,
        scheduler=scheduler, **settings,
    )  # fmt: skip
    if not done.lines:  # one of several processes, of which the first one tells
        return
    if as_json:
        output.as_json(done.as_dict())
        return
    from layerscope.core.progress import paper
    from layerscope.show.terminal import show

    show(done.document(), paper())


def _weights(text: str) -> Any:
    return usage.numbers(text, "--weights") if "," in text else text
