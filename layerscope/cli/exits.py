from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from layerscope.cli import output
from layerscope.cli.making import Figures, Json, Options, command
from layerscope.early_exit.study import exits as verb

if TYPE_CHECKING:
    from layerscope.early_exit.exit_report import ExitReport

EXAMPLES = """
At most one prediction in a hundred may change, with 95 % confidence; labels are not needed:
  layerscope exits ./my-classifier --data held-out.csv --out early

At least 90 % accuracy, in the batches of your server, with paper figures:
  layerscope exits ./my-classifier --data held-out.csv --batch-size 8 --min-accuracy 0.9 --figures figures/

Exits of your own choice, by the margin between the two likeliest classes:
  layerscope exits ./my-vit --data photos/ --exits 4,8 --criterion margin --json
"""


@command(verb, EXAMPLES)
def exits(options: Options, *, figures: Figures = None, json: Json = False) -> None:
    """Print the report, and write its page and figures."""
    _finish(verb(**options), options.get("out"), figures, json)


def _finish(found: ExitReport, out: str | None, figures: Path | None, json_wanted: bool) -> None:
    """Print a report, and write its page and figures where folders are named."""
    if not json_wanted:
        from layerscope.core.progress import paper
        from layerscope.show.terminal import show

        with output.whoever_reads():
            show(found.document(), paper())
    output.draw([], figures, exits=[found])
    page = None
    if out is not None:
        from layerscope.reports.page import report

        page = report(found, Path(out).expanduser() / "report.html")
    if json_wanted:
        output.as_json(found.as_dict() | ({} if page is None else {"page": str(page)}))
    elif page is not None:
        print(f"\nwritten: {out}\npage: {page}")
