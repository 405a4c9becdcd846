"""The page of a reading of the lens: its grids as tables, coloured by probability, and the curve of saturation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from layerscope import __version__
from layerscope.core.errors import LayerscopeError
from layerscope.logit_lens.document import LEGENDS, SHOWN, grids, listed, percent
from layerscope.logit_lens.reading import Reading
from layerscope.show.plain import plain
from layerscope.show.written import write

SCRIPTS = ("theme.js", "lens.js")
HEIGHT, LEFT, STEP, FLOOR = 160, 44, 34, 24


@dataclass(frozen=True)
class Curve:
    """The cumulative saturation curve as a drawing: points with their layer and share, and the size of it all."""

    points: tuple[tuple[float, float, int, str], ...]
    ticks: tuple[tuple[float, str], ...]
    width: float
    height: float
    left: float

    @property
    def path(self) -> str:
        """The line through the points."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in self.points)

    @property
    def every(self) -> int:
        """How many layers lie between two that are named, so that names stay apart."""
        return 1 + (len(self.points) - 1) // 16


def write_page(reading: Reading, out: str | Path) -> Path:
    """Write a reading as one HTML file that opens offline, and return its path; a file that is there is replaced.

    Raises `LayerscopeError` where the file cannot be written, and where jinja2 is not installed.
    """
    try:
        from layerscope.reports.page.template import environment, own, policy
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        raise LayerscopeError(f'the page needs {package}: pip install "layerscope[report]"') from error
    from markupsafe import Markup

    scripts = [own(name) for name in SCRIPTS]
    text = (
        environment()
        .get_template("lens.html")
        .render(
            reading=reading,
            name=plain(reading.model),
            on=None if reading.data is None else plain(reading.data),
            legend=LEGENDS[reading.kind],
            grids=grids(reading),
            more=0 if reading.kind == "class" else max(0, len(reading.samples) - SHOWN),
            curve=curve(reading),
            cumulative=[(row.layer, row.settled, percent(row.share)) for row in reading.cumulative.itertuples()],
            listed=listed,
            percent=percent,
            style=Markup(own("page.css") + own("lens.css")),
            scripts=[Markup(script) for script in scripts],
            policy=policy(scripts),
            version=__version__,
        )
    )
    return write(Path(out).expanduser(), text, "page", "--page")


def curve(reading: Reading) -> Curve:
    """Return the drawing of the share of predictions that have settled by each layer."""
    table = reading.cumulative
    step = max(9.0, min(STEP, 640 / len(table)))
    top = 8

    def height(share: float) -> float:
        return top + (1 - share) * (HEIGHT - top - FLOOR)

    points = tuple(
        (LEFT + step * (i + 0.5), height(row.share), int(row.layer), percent(row.share))
        for i, row in enumerate(table.itertuples())
    )
    ticks = tuple((height(share), f"{share:.0%}") for share in (0.0, 0.5, 1.0))
    return Curve(points, ticks, LEFT + step * len(table) + 12, HEIGHT, LEFT)
