"""The commands that look at a model: demo, profile, inspect, lens, compare."""

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

import layerscope
from layerscope.cli import output
from layerscope.cli.making import Options, command, command_line
from layerscope.cli.output import Figures, Printing, into
from layerscope.core import processes
from layerscope.core.option_kinds import IN_CODE, Folder, Whole
from layerscope.core.options import OUTPUT, Options as VerbOptions, checked

Page = Annotated[str | None, into("HTML file for the grid; it opens offline.")]
Table = Annotated[str | None, into("CSV file for all numbers, one per row.")]


@dataclass(frozen=True, kw_only=True)
class DemoOptions(VerbOptions):
    """The options of `demo`."""

    out: Path
    samples: int | str
    command: str


def run_demo(
    *,
    out: Annotated[str | Path, Folder(), OUTPUT] = "runs/demo",
    samples: Annotated[int | str, Whole(50, words=("all",))] = 1000,
    command: Annotated[str, IN_CODE] = "",
) -> tuple[str, Any]:
    """Profile the embedded MiniLM on the docstrings of Python's library: no download, a few minutes.

    Return the answer, `layer k: x % · the model as shipped: y % · z× faster · N`, and the run
    behind it: the layer that `select` takes, cross-validated linear-probe accuracies ± one standard
    error, and the speed measured here.

    Args:
        out: run folder.
        samples: number of docstrings, or all; choosing a layer takes at least 50.
        command: the command line that asks for this run, kept in the run folder.

    """
    options = checked(run_demo, locals(), DemoOptions)
    run = layerscope.profile(
        "minilm",
        "stdlib-docs",
        out=options.out,
        samples=options.samples,
        command=options.command,
    )
    return _answer(
        cast(layerscope.Selection, layerscope.select(run, progress=False))
    ), run


def _answer(selection: "layerscope.Selection") -> str:
    """Return the choice in a line, its score that of docstrings which had no part in choosing."""
    from layerscope.core.margin import named

    shipped = _share(selection.baseline)
    about = selection.basis.replace("sample", "docstring", 1).replace(
        "classes", "modules", 1
    )
    if selection.lacking:
        return f"no layer is recommended: {selection.lacking}"
    if selection.as_shipped or selection.apart is None:
        near = [layer for layer in selection.within if layer < selection.layer]
        others = (
            f"{named(near)} within the margin"
            if near
            else "no earlier layer comes close"
        )
        return f"the model as shipped: {shipped} · {others} · {about}"
    best = f"layer {selection.layer}: {_share(selection.apart)}"
    speed = (
        []
        if selection.chosen.speedup is None
        else [f"{selection.chosen.speedup:.1f}× faster"]
    )
    return " · ".join([best, f"the model as shipped: {shipped}", *speed, about])


def _share(scored: Any) -> str:
    return f"{100 * scored.score:.1f} ±{100 * scored.stderr:.1f} %"


@command(run_demo)
def demo(options: Options, printing: Printing) -> None:
    """Print the answer and the run."""
    answer, run = run_demo(**options, command=command_line())
    page = run.report()
    # in one line, however narrow the terminal
    print(answer, file=sys.stderr if printing.json else sys.stdout)
    output.finish(
        printing,
        lambda: run.as_dict() | {"page": str(page)},
        lambda: replace(run.document(), answer=""),
        f"\nrun folder: {run.path}\npage: {page}",
        saved=run.path,
    )


@command(layerscope.profile)
def profile(options: Options, printing: Printing, *, figures: Figures = None) -> None:
    """Print the run, and draw its figures."""
    run = layerscope.profile(**options, command=command_line())
    if processes.team().leads:
        output.draw(run, figures)
        output.finish(
            printing,
            run.as_dict,
            run.document,
            f"\nrun folder: {run.path}",
            saved=run.path,
        )


@command(layerscope.inspect)
def inspect(options: Options, printing: Printing) -> None:
    """Print what is found."""
    inspections = layerscope.inspect(**options)
    if printing.json:
        output.as_json([asdict(entry) for entry in inspections])
        return
    for entry in inspections:
        output.show(entry.document(), printing)


@command(layerscope.lens)
def lens(
    options: Options, printing: Printing, *, page: Page = None, figures: Figures = None
) -> None:
    """Print the reading, and write its pages and figures."""
    from layerscope.show.written import PAGE_MARK, PAGES, ending

    pages = (
        [] if page is None else [ending(Path(page), "page", "--page", PAGES, PAGE_MARK)]
    )
    reading, out = layerscope.lens(**options), options.get("out")
    pages += [] if out is None else [Path(out).expanduser() / "lens.html"]

    def write() -> list[Path]:
        output.draw(reading, figures)
        return [layerscope.report(reading, path) for path in pages]

    output.finish(
        printing, reading.as_dict, reading.document, *output.written(out), write=write
    )


@command(layerscope.compare, argument="RUNS")
def compare(
    options: Options, printing: Printing, *, csv: Table = None, figures: Figures = None
) -> None:
    """Print the comparison, and write its table, page and figures."""
    file = output.table_file(csv, layerscope.Comparison.HEADER)
    comparison = layerscope.compare(**options)
    output.write_table(file, lambda: comparison.table().to_csv(index=False))
    output.result(comparison, printing, options.get("out"), figures)
