"""The commands that look at a model: profile, inspect, lens, compare."""

from dataclasses import asdict
from typing import Annotated

import layerscope
from layerscope.cli import output
from layerscope.cli.making import Options, command, command_line
from layerscope.cli.output import Printing, into
from layerscope.core import processes

Table = Annotated[str | None, into("CSV file for all numbers, one per row.")]


@command(layerscope.profile)
def profile(options: Options, printing: Printing) -> None:
    """Print the run."""
    run = layerscope.profile(**options, command=command_line())
    if processes.team().leads:
        folder = f"\nrun folder: {run.path}"
        output.finish(printing, run, folder, saved=run.path)


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
def lens(options: Options, printing: Printing) -> None:
    """Print the reading, and write its page."""
    output.result(layerscope.lens(**options), printing, options.get("out"))


@command(layerscope.compare, argument="RUNS")
def compare(options: Options, printing: Printing, *, csv: Table = None) -> None:
    """Print the comparison, and write its table and page."""
    file = output.table_file(csv, layerscope.Comparison.HEADER)
    comparison = layerscope.compare(**options)
    output.write_table(file, lambda: comparison.table().to_csv(index=False))
    output.result(comparison, printing, options.get("out"))
