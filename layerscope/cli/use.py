"""The commands that make something of a model and its results: truncate, train, exits, generate, extract, report."""

import shlex
import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import layerscope
from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Printing, into
from layerscope.core import Folder, checked, processes

Figures = Annotated[
    str | None, into("Folder for paper figures, as PNG, PDF and SVG.", "FOLDER")
]


@command(layerscope.shrink)
def shrink(options: Options, printing: Printing) -> None:
    """Print what was kept, or what was nearest, and write its page."""
    shrunk = layerscope.shrink(**options)
    output.result(shrunk, printing, options["out"])
    if not shrunk.met:
        sys.exit(1)


@command(layerscope.truncate, argument="MODEL_OR_RUN")
def truncate(options: Options, printing: Printing) -> None:
    """Print what the model costs."""
    options = _chosen(options)
    from layerscope.truncation.options import TruncateOptions
    from layerscope.truncation.pipeline import cut

    made = cut(checked(layerscope.truncate, options, TruncateOptions))
    output.finish(printing, made, f"\nwritten: {options['out']}")


def _chosen(options: Options) -> Options:
    """Return the options with the choice that a folder of `select` holds: a layer with its model, or blocks to drop."""
    from layerscope.reports.results import KINDS

    folder = Path(options["given"])
    kinds = [kind for file, kind in KINDS.items() if (folder / file).is_file()]
    if "selection" in kinds:
        return {**options, "given": layerscope.open_selection(folder)}
    if "removal" not in kinds:
        return options
    drop = layerscope.open_removal(folder)
    return {"drop": drop.blocks, **options, "given": drop.source}


@command(layerscope.train)
def train(options: Options, printing: Printing) -> None:
    """Print what each depth scores and costs."""
    from layerscope.training.verb import trained

    done = trained(options)
    if done.lines:  # of several processes, only the first one has some
        output.finish(printing, done, f"written: {done.path}")


@command(layerscope.exits)
def exits(options: Options, printing: Printing) -> None:
    """Print the report, and write its page."""
    output.result(layerscope.exits(**options), printing, options.get("out"))


@command(layerscope.generate)
def generate(options: Options, printing: Printing) -> None:
    """Print the texts and how good they are, and write their page."""
    output.result(layerscope.generate(**options), printing, options.get("out"))


@command(layerscope.extract)
def extract(options: Options, printing: Printing) -> None:
    """Print what was written."""
    words = [word for word in sys.argv[1:] if not word.startswith("--shard=")]
    at = words.index("--shard") if "--shard" in words else len(words)
    # makes whatever is missing, of any shard
    again = shlex.join(["layerscope", *words[:at], *words[at + 2 :]])
    states = layerscope.extract(**options, command=again)
    if processes.team().leads:
        output.finish(printing, states, saved=states.path)


@command(layerscope.report, argument="RUNS", prints=False)
def report(options: Options, printing: Printing, *, figures: Figures = None) -> None:
    """Write the page and the figures."""
    from layerscope.reports.figures import draw
    from layerscope.reports.results import opened

    folder = None if figures is None else Folder().take("figures", figures)
    shown = list(chain(*opened(options.pop("shown"))))
    page = layerscope.report(shown, **options)
    drawn = [] if folder is None else [*map(str, draw(shown, folder))]
    if printing.json:
        output.as_json({"page": str(page), "figures": drawn})
        return
    print(f"page: {page}")
    if drawn:
        print(f"figures: {len(drawn)} files in {folder}")
