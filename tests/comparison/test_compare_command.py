"""The verb as a person types it, on real runs of language models, and what becomes of its answer."""

import json
import re

import pandas as pd
import pytest
from chromium import unpacked
from typed import shown

import layerscope
from layerscope.reports.verb import report


def test_the_answer_is_printed_first_and_kept(cli, spoken, tmp_path):
    done = cli(
        "compare", *spoken, "--out", tmp_path / "both", "--csv", tmp_path / "all.csv"
    )
    assert done.status == 0, done.err
    answer = r"CKA of each layer of \S+ with the layer of \S+ most like it: \d\.\d\d on average,"
    assert re.match(answer, " ".join(done.out.split()))
    square = layerscope.open_comparison(tmp_path / "both").similarity()
    best = square.loc[1].astype(float).idxmax()
    row = next(
        line.split() for line in done.out.splitlines() if line.split()[:1] == ["1"]
    )
    assert row == ["1", str(best), f"{square.loc[1, best]:.2f}"]
    assert len(pd.read_csv(tmp_path / "all.csv")) == len(
        layerscope.open_comparison(tmp_path / "both").frame
    )
    assert (
        tmp_path / "both/report.html"
    ).is_file() and f"page: {tmp_path / 'both/report.html'}" in done.out


def test_json_has_every_row(cli, spoken):
    done = cli("compare", *spoken, "--metrics", "prompt_entropy,saturated", "--json")
    told = json.loads(done.out)
    assert {row["kind"] for row in told["rows"]} == {"similarity", "difference"}
    assert [run["depth"] for run in told["runs"]] == [3, 3] and told["n"] == 40
    final = [
        row
        for row in told["rows"]
        if row["kind"] == "difference" and row["metric"] == "saturated"
    ]
    assert final and all(
        row["value"] is not None and row["paired"] is False for row in final
    )


@pytest.mark.parametrize("similarity", ["cka", "angular_distance"])
def test_a_series_tells_what_changes_most(three, similarity):
    found = layerscope.compare(three, similarity=similarity, metrics="effective_rank")
    square = found.similarity(0, 2)
    values = pd.Series(
        {layer: square.loc[layer, layer] for layer in square.index if layer}
    )
    most = values.idxmin() if similarity == "cka" else values.idxmax()
    text = shown(found)
    assert text.startswith(
        f"From the first to the last checkpoint layer {most} changes most: "
    )
    assert "to the first checkpoint" in text and values.nunique() > 1


def test_the_page_holds_maps_differences_and_checkpoints(three, tmp_path, content_of):
    found = layerscope.compare(three, out=tmp_path / "kept")
    page = report(tmp_path / "kept")
    assert page == tmp_path / "kept/report.html"
    told, text = content_of(page), page.read_text("utf-8")
    by_title = {figure["title"]: figure for figure in told["figures"]}
    maps = [
        figure
        for title, figure in by_title.items()
        if title.startswith("CKA of layers across")
    ]
    assert [figure["parts"][0]["run"] for figure in maps] == [1, 2]
    assert [entry["name"] for entry in told["runs"]][0] == "3 checkpoints"
    square = found.similarity(0, 1)
    cells = [row for row in unpacked(maps[0]["parts"][0]) if row["row"] == "2"]
    assert [row["value"] for row in cells] == pytest.approx(
        list(square.loc[2]), rel=1e-5
    )
    ringed = [row["column"] for row in cells if row.get("marked")]
    assert ringed == [str(square.loc[2].loc[1:].idxmax())]
    rows = found.table("difference").query(
        "metric == 'effective_rank' and run_b == @found.runs[2].name"
    )
    course = unpacked(by_title["Effective rank by checkpoint"]["parts"][0])
    first = {row["column"]: row["value"] for row in course if row["row"] == "1"}
    assert list(first) == [f"Plain (step{step})" for step in (3, 20, 100)]
    assert first["Plain (step100)"] == pytest.approx(
        rows.set_index("layer").loc[1, "value_b"], rel=1e-4
    )
    assert "<h2>Layers across runs <a" in text and "<bdi>3 checkpoints on " in text
