"""The command line: parse, call a verb, print."""

from __future__ import annotations

import json
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from layerscope import usage

if TYPE_CHECKING:
    from layerscope.runs import Run

INTERRUPTED = 130
UsageError: Any = typer.BadParameter.__base__  # typer may bring a click of its own, whose name is private

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
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


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
    prompt: Annotated[str, typer.Option(help="Text put before every text.", rich_help_panel=DATA)] = "",
    max_length: Annotated[
        str | None, typer.Option(help="Tokens per text at most.", metavar=WHOLE, rich_help_panel=DATA)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder; the same command on it goes on.", show_default="runs/MODEL-DATA"),
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Draw curves and heat maps as PNG into this folder.")] = None,
    metrics: Annotated[
        str,
        typer.Option(help="default, seven (Layer by Layer), or names with commas.", rich_help_panel=METRIC),
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
        exclude_sinks=exclude_sinks, store_dtype=store_dtype, lens_tokens=lens_tokens, prompt=prompt,
        text_column=text_column, label_column=label_column, part=part, blocks=blocks, norm=norm, revision=revision,
        trust_remote_code=trust_remote_code, allow_pickle=allow_pickle,
        command=shlex.join(["layerscope", *sys.argv[1:]]),
    )  # fmt: skip
    _show(run, figures, as_json)


@app.command(epilog="Example:  layerscope inspect google-t5/t5-small --part encoder")
def inspect(
    model: Model,
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
    """Show what is found in a model: blocks, final norm, head, and what a run would take."""
    from dataclasses import asdict

    from layerscope.inspecting import inspect as verb

    found = verb(
        model, revision=revision, part=part, blocks=blocks, norm=norm, dtype=dtype, device=device,
        trust_remote_code=trust_remote_code, allow_pickle=allow_pickle,
    )  # fmt: skip
    if as_json:
        print(json.dumps([asdict(entry) for entry in found], indent=2, allow_nan=False))
        return
    from layerscope.reports.inspection import show

    for entry in found:
        show(entry)


@app.command(epilog="Example:  layerscope demo --out demo")
def demo(
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    samples: Annotated[str, typer.Option(help="How many docstrings.")] = "1000",
    as_json: AsJson = False,
) -> None:
    """Profile the embedded MiniLM on the docstrings of Python's library: no hub, about a minute."""
    from layerscope.demo import run_demo

    out = usage.place("--out", out) or out
    answer, run = run_demo(out, samples, shlex.join(["layerscope", *sys.argv[1:]]))
    print(answer, file=sys.stderr if as_json else sys.stdout)
    _show(run, None, as_json)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """See what every layer of a model knows, find the layer that serves you best, and use it."""
    if show:
        from layerscope import __version__

        print(f"layerscope {__version__}")
        raise typer.Exit


def _show(run: Run, figures: Path | None, as_json: bool) -> None:
    if figures is not None:
        from layerscope.reports.figures import draw

        for path in draw(run, figures):
            print(path, file=sys.stderr)
    from layerscope.errors import LayerscopeError

    try:
        _print(run, as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        usage.drop_output()
        reason = error.strerror or error
        raise LayerscopeError(
            f"standard output cannot be written ({reason}): the run is whole in {str(run.path)!r}"
        ) from error


def _print(run: Run, as_json: bool) -> None:
    from layerscope.reports import terminal

    if as_json:
        print(json.dumps(terminal.summary_json(run), indent=2, allow_nan=False))
        return
    from layerscope.progress import paper

    terminal.show(run, paper())
    print(f"\nrun folder: {run.path}")


def _quiet() -> None:
    """Keep the libraries' own chatter off the screen; LAYERSCOPE_DEBUG lets it through."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def main() -> NoReturn:
    """Run the command line; a wrong input is one line and exit status 2, never a traceback."""
    debug = bool(os.environ.get("LAYERSCOPE_DEBUG"))
    if not debug:
        _quiet()
    usage.ready_output()
    try:
        status = app(prog_name="layerscope", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except BrokenPipeError:  # who reads has seen enough (| head); what was computed is in its folder
        usage.drop_output()
        status = 0
    except UsageError as error:
        _fail(usage.told(error), 2)
    except Exception as error:
        if debug:
            raise
        from layerscope.errors import LayerscopeError

        if isinstance(error, LayerscopeError):
            _fail(str(error), 2)
        line = (str(error).strip().splitlines() or [""])[0]
        _fail(f"unexpected {type(error).__name__}: {line} (LAYERSCOPE_DEBUG=1 shows where)", 1)
    if status == INTERRUPTED:  # typer may turn Ctrl-C into a status of its own
        _fail("stopped: the same command goes on from here", INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(line: str, status: int) -> NoReturn:
    with suppress(OSError):  # where nobody reads standard error, the status still tells
        print(f"layerscope: {usage.printable(line)}", file=sys.stderr)
    sys.exit(status)
