"""A run in a terminal, in a notebook and as JSON."""

import json
import math
import re

import pytest
from typed import shown

from layerscope.show.document import MARK


def folded(run, width=80):
    return shown(run, width).partition("next: ")[0]  # commands are never folded


@pytest.mark.parametrize("width", [40, 80, 120])
def test_every_line_fits_and_nothing_is_cut(labelled, width):
    text = folded(labelled, width)
    assert max(len(line) for line in text.splitlines()) <= width
    head = text.split("How to read the metrics")[0]
    assert "…" not in head
    for value in labelled.metric("linear_probe"):
        assert f"{100 * value:.1f} ±" in head


def test_the_mark_stands_at_the_layer_that_stands_out(written, by_layer):
    values = [1.0, 3.0, 2.0, 4.0, 5.0]
    text = folded(written(by_layer("prompt_entropy", values, [0.02] * 5)))
    marked = [line for line in text.splitlines() if MARK in line and "±" in line]
    assert [line.split() for line in marked] == [["2", "2.00", "±0.02", MARK]]


def test_what_is_nil_but_for_rounding_has_no_sign_and_no_exponent(
    written, by_layer, pairs
):
    rows = by_layer("dime", [1e-14, -3e-14, 0.25])
    rows += pairs("cosine_similarity", [[1, 0, -1e-14], [0, 1, 0.5], [0, 0.5, 1]])
    text = folded(written(rows, depth=2))
    assert re.search(r"^ +0 +0.000 ", text, re.MULTILINE) and "e-14" not in text


def test_the_facts_name_all_layers_at_once(labelled):
    assert labelled.document().facts[0] == "layers 0 to 3"


def test_tokens_of_a_language_model_are_counted_as_tokens(written, by_layer):
    rows = by_layer("perplexity", [9.0, 8.0], n=796, site="normed")
    run = written(rows, depth=1, sites=("raw", "normed"), language_model=True)
    assert "N: 796 tokens, none skipped" in folded(run)


def test_json_round_trips_with_null_for_what_is_no_number(labelled):
    summary = labelled.as_dict()
    again = json.loads(json.dumps(summary, allow_nan=False))
    assert again == summary
    assert (again["depth"], again["pooling"], again["path"]) == (
        3,
        ["mean"],
        str(labelled.path),
    )
    assert again["model"]["name"] == labelled.info["model"]["name"]
    table = labelled.table()
    assert len(again["rows"]) == len(table) and set(again["rows"][0]) == set(
        table.columns
    )
    ranks = [
        row
        for row in again["rows"]
        if row["metric"] == "effective_rank" and row["site"] == "raw"
    ]
    assert [row["value"] for row in ranks] == list(labelled.metric("effective_rank"))
    assert (
        ranks[0]["stderr"] is None
        and ranks[0]["layer_b"] is None
        and ranks[0]["step"] is None
    )
    assert isinstance(ranks[0]["layer"], int)
    best = next(f for f in again["findings"] if f["name"] == "best_layer")
    assert best["last"] == labelled.metric("linear_probe")[3]


def test_json_of_nan_and_infinity(written, by_layer):
    summary = written(by_layer("lidar", [math.nan, math.inf, 2.0, 3.0, 1.0])).as_dict()
    assert [row["value"] for row in summary["rows"]] == [None, None, 2.0, 3.0, 1.0]
    assert summary["stands_out"] == [
        {"metric": "lidar", "variant": None, "pooling": None, "layer": 3}
    ]


def test_a_share_is_shown_and_kept_in_percent(labelled):
    parts = labelled.document().parts
    table = next(
        part for part in parts if getattr(part, "title", "") == "What your labels say"
    )
    column = [column.title for column in table.columns].index("linear probe")
    values = [row.cells[column].value for row in table.rows]
    assert values == pytest.approx(
        [100 * value for value in labelled.metric("linear_probe")]
    )
    assert re.search(r" \d\d\.\d ±\d\.\d %", folded(labelled))
