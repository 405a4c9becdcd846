"""From what the page says to its HTML: every text escaped, scripts and styles embedded, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from layerscope import __version__
from layerscope.comparison.comparison import Comparison
from layerscope.core.saved import jsonable
from layerscope.early_exit.exit_report import ExitReport
from layerscope.reports.page.comparison import (
    ShownComparison,
    comparison_members,
    comparison_section,
    shown_comparisons,
)
from layerscope.reports.page.content import Json, Shown, sections, shown
from layerscope.reports.page.documents import Held, held, held_members, section
from layerscope.reports.page.facts import differences, facts, unlike
from layerscope.reports.page.score_tables import score_facts, score_frame
from layerscope.reports.page.scores import score_section
from layerscope.reports.page.shown_scores import ShownScores, judged_on, members, overlays, shown_scores
from layerscope.reports.page.sublayers import sublayer_sections
from layerscope.reports.page.tables import layers_table, long_table
from layerscope.reports.page.template import environment, own, policy
from layerscope.reports.page.training import training_sections
from layerscope.runs.curves import SIMILAR
from layerscope.runs.registry import KNOWN
from layerscope.runs.run import Run
from layerscope.scores.evaluation import Evaluation
from layerscope.show.plain import plain

SCRIPTS = ("values.js", "table.js", "plots.js", "training.js", "charts.js", "comparison.js", "page.js")
EXITS = (
    "Samples that are sure leave before the last layer. Times are measured with whole batches, checks and compaction "
    "included."
)


def render(
    runs: Sequence[Run],
    evaluation: Evaluation | None = None,
    reports: Sequence[ExitReport] = (),
    comparisons: Sequence[Comparison] = (),
) -> str:
    """Return the page of runs, an evaluation, reports of exits and comparisons as HTML, UTF-8, complete in itself."""
    known = shown(runs)
    scores = None if evaluation is None else shown_scores(evaluation, known)
    others = _members(known, scores)
    exits = held([report.document() for report in reports], len(others))
    compared = shown_comparisons(comparisons, len(others) + len(exits))
    parts = [comparison_section(compared)] if compared else []
    parts += [section("exits", "Early exit", EXITS, exits)] if exits else []
    parts += [*([] if scores is None else [score_section(scores)]), *training_sections(known), *sections(known)]
    parts += sublayer_sections(known)
    layers = layers_table(known)
    title = page_title(known, scores, exits, compared)
    frame, owners = ([], []) if scores is None else score_frame(scores)
    scripts = [own("theme.js"), get_plotlyjs(), "\n".join(own(name) for name in SCRIPTS)]
    content: Json = {
        "title": title,
        "runs": [*others, *held_members(exits), *comparison_members(compared)],
        "figures": [
            {"kind": f.kind, "title": f.title, "file": f.file, "unit": f.unit, **f.drawn}
            for part in parts
            for f in part.figures
        ],
        "tables": [vars(table) for table in (*(table for part in parts for table in part.tables), layers)],
        "frame": long_table(known),
        "scores": frame,
        "scored": owners,
    }
    return (
        environment()
        .get_template("page.html")
        .render(
            title=title,
            runs=[(entry, facts(entry.run)) for entry in known],
            scores=[] if scores is None else score_facts(scores),
            evaluation=evaluation,
            exits=exits,
            compared=compared,
            differences=differences(runs),
            unlike=unlike(runs),
            sections=parts,
            layers=layers,
            percent=_by_percent(others, known),
            paired=bool(scores and scores.pairings),
            standing_out=standing_out(),
            content=jsonable(content),
            style=Markup(own("page.css")),
            scripts=[Markup(script) for script in scripts],
            policy=policy(scripts),
            version=__version__,
        )
    )


def _members(runs: Sequence[Shown], scores: ShownScores | None) -> list[Json]:
    """Return what has a colour, a name and a depth: the runs, and behind them each series of scores."""
    over = {} if scores is None else overlays(scores)
    found: list[Json] = [
        {
            "name": plain(entry.name), "depth": entry.run.depth, "alone": len(runs) == 1, "look": i,
            "scores": over.get(i),
        }
        for i, entry in enumerate(runs)
    ]  # fmt: skip
    return found + ([] if scores is None else members(scores))


def _by_percent(known: Sequence[Json], runs: Sequence[Shown]) -> bool:
    """Return whether depth is told in percent at first: of several runs, and of scores of models of several depths.

    Trainings of several depths are rivals at the same cost: there a layer is a layer.
    """
    if runs and all(entry.run.steps for entry in runs):
        return False
    return len(runs) > 1 or len({entry["depth"] for entry in known}) > 1


def page_title(
    runs: Sequence[Shown],
    scores: ShownScores | None,
    exits: Sequence[Held] = (),
    compared: Sequence[ShownComparison] = (),
) -> str:
    """Return what the page is about, in one line."""
    if len(runs) > 1:
        return f"{len(runs)} runs compared"
    if runs:
        return _title(runs[0].run)
    if scores is None and compared:
        return compared[0].name if len(compared) == 1 else f"{len(compared)} comparisons"
    if scores is None:
        return exits[0].name if len(exits) == 1 else f"{len(exits)} reports of early exit"
    models = list(dict.fromkeys(str(entry.grid.about["model"]) for entry in scores.entries))
    model = plain(models[0]) if len(models) == 1 else f"{len(models):,} models"
    return f"{model} on {judged_on(scores)}"


def standing_out() -> str:
    """Return the rule by which a layer of a curve is marked."""
    low = ", ".join(metric.title for metric in KNOWN.values() if metric.low)
    return (
        f"the highest of layers 1 and up ({low}: the lowest; similarities: the layer from which on the value stays "
        f"above {SIMILAR}; saturated: above half); no verdict."
    )


def _title(run: Run) -> str:
    return f"{plain(str(run.info['model']['name']))} on {plain(str(run.info['data']['name']))}"
