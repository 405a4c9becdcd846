"""A report of exits in a terminal, its paper figures, and what the command prints and writes."""

import math
import re

from exit_reports import made, never, recorded
from typed import shown

from layerscope.early_exit.findings import (
    against_truncation,
    findings,
    truncations,
)
from layerscope.reports.figures import draw

BY_LAYER = "By layer, and the model truncated there"


def rows(text, title):
    """Return the cells of a table's rows."""
    table = re.split(r"\n\n|\n  [A-Z]", text.split(f"{title}\n")[1])[0]
    lines = table.partition("─\n")[2].splitlines()
    return [re.split(r" {2,}", line.strip()) for line in lines]


def test_tables_hold_the_values_and_mark_the_chosen_threshold():
    report, rec = made(), recorded()
    text = shown(report, 80)
    leaves = rec.leaves((2, 4), 0.9)
    speed = 6 * len(rec) / leaves.sum()
    accuracy, differ = (
        100 * (rec.predicted(leaves) == rec.labels).mean(),
        100 * rec.disagreement(leaves),
    )
    by_threshold = rows(text, "By threshold (● chosen)")
    assert [row[0] for row in by_threshold] == [
        "0.600",
        "0.800",
        "● 0.900",
        "0.970",
        "never",
    ]
    assert by_threshold[2][1:] == [
        f"{leaves.mean():.2f}",
        f"{speed:.2f}×",
        f"{0.98 * speed / 1.02:.2f}× ±0.02",
        f"{accuracy:.1f} %",
        f"{differ:.2f} %",
    ]
    by_layer = rows(text, BY_LAYER)
    counts = [int((leaves == layer).sum()) for layer in range(1, 7)]
    assert [row[1] for row in by_layer] == ["–", "yes", "–", "yes", "–", "end"]
    assert [row[2].partition(" %")[0] for row in by_layer] == [
        f"{count / 4:.1f}" for count in counts
    ]
    assert [row[4] for row in by_layer] == [
        f"{value:.1f} %" for value in report.depths["disagreement"] * 100
    ]
    speeds = (f"{speed}× ±0.03" for speed in ("3.00", "2.00", "1.50", "1.20", "1.00"))
    assert [row[5] for row in by_layer] == ["–", *speeds]


def test_sentences_say_where_samples_leave_and_who_is_faster():
    depths = made().depths.assign(
        accuracy=[0.1, 0.2, 0.3, 0.4, 0.9, 0.95],
        disagreement=[0.9, 0.8, 0.7, 0.6, 0.1, 0],
    )
    # one standard error: 0.0286
    report = made(accuracy=0.91, samples=100, measured=1.1, depths=depths)
    assert findings(report)[0].startswith(
        "Samples leave at layers 2, 4 with a confidence of 0.900 or more; the mean"
    )
    assert against_truncation(report) == [
        "Truncated at layer 5 the model is as accurate, within one standard error, and faster than exits: 90.0 %, "
        "1.20× ±0.03 measured, 10.0 % of predictions differ."
    ]
    for speed, words in (
        (1.3, "and slower than exits"),
        (1.23, "and as fast as exits, within two standard errors"),
    ):
        said = against_truncation(
            made(accuracy=0.91, samples=100, measured=speed, depths=depths)
        )
        assert words in said[0]
    assert against_truncation(made(accuracy=0.94, samples=100, depths=depths)) == [
        "No truncated model is as accurate: at best layer 5, with 90.0 % where exits have 94.0 %."
    ]
    blind = made(labelled=False, disagreement=0.05, depths=depths)
    assert against_truncation(blind) == [
        "No truncated model is as true to the plain model: at best layer 5, with 90.0 % where exits have 95.0 %."
    ]
    assert against_truncation(made(depths=depths.assign(measured=math.nan))) == []
    assert findings(never())[0] == "No sample leaves early: all go through 6 layers."


def test_what_is_drawn_beside_exits():
    report = made()
    measured = [2, 3, 4, 5]
    assert list(truncations(report)["layer"]) == measured, (
        "the first was not, the last is the model"
    )
    drawn = report.plot().data
    assert set(drawn["series"]) == {
        "truncated at a layer",
        "exits, a point for each threshold",
        "plain model",
    }
    far = report.depths.assign(
        accuracy=[0.0, 0.0, 0.0, 0.01, *report.depths["accuracy"].iloc[4:]]
    )
    below = made(depths=far).plot().data
    assert len(below) == len(drawn) - 1, "a model that is far below takes no room"


def test_figures_of_several_reports_name_each(tmp_path):
    reports = [made(), made(model="another")]
    folders = [each.save(tmp_path / each.model) for each in reports]
    paths = draw(folders, tmp_path / "figures")
    speed = next(p for p in paths if p.name.endswith("speed.svg")).read_text()
    assert all(each.model in speed for each in reports)
