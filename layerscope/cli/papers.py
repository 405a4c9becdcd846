"""The command that runs the papers' claims."""

from typing import Annotated

import layerscope_papers
from layerscope.cli import output
from layerscope.cli.making import OPTIONS, Options, command, on_or_off
from layerscope.cli.output import Printing
from layerscope.core import LayerscopeError

ALL = on_or_off("Run every recipe of the scale.", OPTIONS)
LIST = on_or_off("List the recipes without running any.", OPTIONS)


@command(layerscope_papers.reproduce, argument="NAME")
def reproduce(
    options: Options,
    printing: Printing,
    *,
    all: Annotated[bool, ALL] = False,
    list: Annotated[bool, LIST] = False,
) -> None:
    """Print the verdicts, and write results, figures and the page."""
    from layerscope_papers.catalogue import Listing

    if list:
        if all or options.get("names"):
            raise LayerscopeError(
                "--list shows every recipe and runs none: leave the others out"
            )
        output.finish(printing, Listing())
        return
    if bool(options.get("names")) == all:
        raise LayerscopeError(
            "name recipes or give --all, not both"
            if all
            else "no recipe is named: layerscope reproduce --list shows them, and --all runs all"
        )
    board = layerscope_papers.reproduce(**options)
    page = f"\npage: {board.folder}/{board.scale}.html"
    output.finish(printing, board, page)
