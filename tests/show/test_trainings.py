"""Histories of trainings: their values by step and depth as drawn and in a terminal, and what is refused."""

import math

import pandas as pd
import pytest
from typed import refused, shown

from layerscope.reports.verb import report
from layerscope.runs import COLUMNS, RunFolder, open_run
from layerscope.runs.folder import PLANNED

STEPS = (0, 50, 100)
HOSTILE = "</script><script>window.hit = 1</script><b>%{y}</b>"
KNOWN = {
    "variant": None, "part": "model", "site": "head", "pooling": None, "stderr": 0.01, "n": 40, "n_skipped": 0,
}  # fmt: skip


def score(layer, step, depth):
    """Return a value that tells layer, step and depth apart."""
    return 0.5 + layer / 100 + step / 1000 + depth / 10_000


def rows_of(depth, main):
    """Yield the rows that a training of a model writes."""
    for step in STEPS:
        for layer in range(1, depth + 1):
            at = KNOWN | {"layer": layer, "step": step}
            for name in (main, "cross_entropy", "nc1"):
                yield at | {"metric": name, "value": score(layer, step, depth)}
            yield at | {"metric": "saturated", "value": layer / depth}
        end = KNOWN | {"layer": depth, "step": step}
        yield end | {"metric": "saturation_layer", "value": 1.5}
        relative = {
            "metric": "effective_depth",
            "variant": "relative_to=last,epsilon=0.01",
        }
        yield end | relative | {"value": 1.0 + step / 100, "stderr": math.nan}


def history(path, depth, objective, main="layer_accuracy"):
    """Write a history as a training does."""
    model = {
        "name": "tiny", "depth": depth, "width": 8, "parameters": 1000, "sites": ["head"], "lens": "pooled",
        "language_model": main == "perplexity", "part": "model", "class": "Tiny",
    }  # fmt: skip
    facts = {
        "model": model, "data": {"name": "held out", "samples": 40}, "pooling": [], "pair_pooling": [],
        "kind": "training", "options": {"objective": objective, "metrics": []},
    }  # fmt: skip
    folder = RunFolder.create(path, facts, pd.DataFrame(columns=sorted(PLANNED)))
    rows = pd.DataFrame(list(rows_of(depth, main)), columns=list(COLUMNS)).astype(
        COLUMNS
    )
    folder.write_table("training", rows)
    return open_run(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the history of an objective of a hostile name."""
    return history(tmp_path_factory.mktemp("histories") / "history", 6, HOSTILE)


def test_maps_and_lines_are_the_values_by_step_and_by_depth(trained):
    figure = trained.plot("training-layer_accuracy-by-layer")
    (panel,) = figure.spec["concat"]
    assert panel["layer"][0]["encoding"]["color"]["legend"]["title"] == "%"
    squares = figure.data
    square = squares.pivot_table(
        index="layer", columns="step", values="value", sort=False
    )
    wanted = [[100 * score(layer, step, 6) for step in STEPS] for layer in range(1, 7)]
    assert square.to_numpy() == pytest.approx(pd.DataFrame(wanted).to_numpy(), rel=1e-5)
    course = trained.plot("training-effective_depth").data
    assert course["step"].tolist() == list(STEPS) and course["value"].tolist() == [
        1.0,
        1.5,
        2.0,
    ]


def test_a_page_shows_them_and_runs_no_name(browser, trained, tmp_path):
    with browser.open(report(trained, tmp_path / "page.html"), 360, "dark") as opened:
        opened.assert_unharmed()
        assert HOSTILE in opened.text("header")


def test_perplexity_takes_the_place_of_accuracy_and_a_logarithmic_scale(tmp_path):
    run = history(tmp_path / "history", 3, "aligned", "perplexity")
    figure = run.plot("training-perplexity-by-layer")
    (panel,) = figure.spec["concat"]
    assert panel["layer"][0]["encoding"]["color"]["scale"]["type"] == "log"
    with refused("does not exist"):
        run.plot("training-layer_accuracy-by-layer")


def test_a_terminal_shows_the_last_step(trained):
    text = shown(trained, 100)
    lines = [line.split() for line in text.splitlines() if line.strip()]
    by_layer = {words[0]: words for words in lines if words[0].isdigit()}
    assert by_layer["2"][:4] == ["2", "62.1", "±1.0", "%"] and len(by_layer) == 6
    assert (
        "Effective depth 2 of 6; predictions settle at layer 1.50 of 6 on average"
        in text
    )
    assert "40 samples · step 100 · " in text
