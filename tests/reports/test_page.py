"""The page as a file: what it carries, what it never carries, and how it is refused."""

import json
import math
import re
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from exit_reports import made

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.reports.verb import report
from layerscope.runs.registry import METRICS
from layerscope.show.document import Document
from layerscope.show.page.page import render


def test_a_run_writes_its_page_into_its_folder(labelled):
    page = labelled.report()
    assert page == labelled.path / "report.html"
    assert page.read_text("utf-8").startswith("<!doctype html>")
    # the verb, by the folder's name, over what is there
    assert layerscope.report(labelled.path, page) == page
    page.unlink()


def test_the_same_run_gives_the_same_bytes(labelled, tmp_path):
    first, second = (
        report(labelled, tmp_path / "a.html"),
        report(labelled, tmp_path / "b.html"),
    )
    assert first.read_bytes() == second.read_bytes()


def test_nothing_to_fetch_and_no_script_but_its_own(language, labelled, tmp_path):
    text = report([language, labelled], tmp_path / "page.html").read_text("utf-8")
    assert text.count("<script") == 4
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    assert "default-src &#39;none&#39;" in text and "unsafe-eval" not in text


def test_a_page_of_fifty_layers_stays_under_1_mb(written, by_layer, pairs, tmp_path):
    square = np.random.default_rng(0).random((51, 51))
    rows = [
        row
        for name in METRICS
        if METRICS[name].needs != "pairs"
        for row in by_layer(name, list(square[0]))
    ]
    rows += [
        r
        for name in ("cosine_similarity", "cka")
        for p in ("mean", "last")
        for r in pairs(name, square, p)
    ]
    page = report(written(rows, depth=50), tmp_path / "page.html")
    assert page.stat().st_size < 1e6


def test_the_page_carries_the_whole_long_frame(
    language, labelled, tmp_path, content_of
):
    runs = [language, labelled]
    tables = content_of(report(runs, tmp_path / "page.html"))["tables"]
    columns = next(table for table in tables if table["name"] == "numbers")["columns"]
    tables = [run.table() for run in runs]
    table = pd.concat(tables, ignore_index=True).astype(object)
    assert [c["name"] for c in columns] == ["run", *table.columns]
    for column in columns[1:]:
        wanted = [None if pd.isna(v) else v for v in table[column["name"]]]
        assert column["values"] == wanted, column["name"]


def test_runs_that_differ_say_in_what(labelled, language, tmp_path):
    text = report([labelled, language], tmp_path / "page.html").read_text("utf-8")
    assert (
        "These runs differ in their data, the number of samples: compare their shapes"
        in text
    )
    assert "2 runs compared" in text
    copy = shutil.copytree(labelled.path, tmp_path / "copy")
    text = report([labelled, copy], tmp_path / "same.html").read_text("utf-8")
    assert "These runs differ" not in text
    assert "Nothing: same model, data and options." in text


def test_runs_of_several_depths_are_drawn_by_depth_in_percent(
    labelled, language, bare, tmp_path
):
    for other, axis in ((bare, "percent"), (language, "layer")):
        text = report([labelled, other], tmp_path / "page.html").read_text("utf-8")
        assert f'value="{axis}" checked' in text


def test_a_run_that_was_stopped_says_what_it_lacks(labelled, tmp_path):
    copy = tmp_path / "stopped"
    shutil.copytree(labelled.path, copy)
    (copy / "tables" / "labels.parquet").unlink()
    text = report(copy, tmp_path / "page.html").read_text("utf-8")
    assert (
        "unfinished: linear probe, kNN probe not computed yet; run the same command to resume"
        in text
    )
    (copy / "shards" / "00000.json").unlink()
    assert "unfinished: 1 of " in report(copy, tmp_path / "page.html").read_text(
        "utf-8"
    )


def test_values_that_are_not_finite_stay_off_the_json(
    written, by_layer, tmp_path, content_of
):
    rows = by_layer(
        "effective_rank",
        [1.0, math.nan, math.inf, 2.0, 3.0],
        [0.1, math.nan, math.inf, 0.1, 0.1],
    )
    content = content_of(report(written(rows), tmp_path / "page.html"))
    drawn = content["figures"][0]["parts"][0]["columns"]
    assert drawn["y"] == [1, None, None, 2, 3]


def refused(*arguments, **named):
    with pytest.raises(LayerscopeError) as error:
        report(*arguments, **named)
    return str(error.value)


def test_wrong_input_is_one_line(labelled, tmp_path):
    there = labelled.path
    assert (
        refused([], tmp_path / "a.html")
        == "no result is named: give the folder of one, or of several"
    )
    missing = tmp_path / "none"
    assert refused(missing).startswith(f"result {str(missing)!r} does not exist")
    assert (
        refused([there, str(there)])
        == f"run {str(there)!r} is given twice: name each run once"
    )
    named = tmp_path / "data.csv"
    named.write_text("text\nkept\n")
    assert (
        refused(there, named)
        == f"`out` {str(named)!r} is not a valid name for a page: let it end in .html"
    )
    assert named.read_text() == "text\nkept\n"
    folder = tmp_path / "folder.html"
    folder.mkdir()
    said = f"`out` {str(folder)!r} is a folder: name a file in it, such as {folder / 'report.html'}"
    assert refused(there, folder) == said
    blocked = named / "page.html"
    said = f"page {str(blocked)!r} cannot be written ({str(named)!r} is not a folder): choose another file with `out`"
    assert refused(there, blocked) == said
    nobody = "~nobody-of-this-name/page.html"
    assert refused(there, nobody).startswith(
        f"page {nobody!r} cannot be written (Could not determine home directory"
    )
    long = tmp_path / f"{'x' * 300}.html"
    assert (
        refused(there, long)
        == f"page {str(long)!r} cannot be written (File name too long): choose another file with `out`"
    )
    for neither in (blocked := tmp_path / "notes.txt", tmp_path / "nothing"):
        blocked.write_text("x")
        (tmp_path / "nothing").mkdir(exist_ok=True)
        said = f"{str(neither)!r} is neither a run nor an evaluation: give the folder of a run, or a CSV"
        assert refused(neither, tmp_path / "a.html").startswith(said)
    shelf = tmp_path / "shelf"
    shutil.copytree(there, shelf / "one")
    said = f"{str(shelf)!r} is not a run but holds some: give {shelf / 'one'}"
    assert refused(shelf, tmp_path / "a.html") == said
    said = f"result {str(shelf / 'onee')!r} does not exist, did you mean one?"
    assert refused(shelf / "onee", tmp_path / "a.html") == said


def test_a_page_that_cannot_be_written_whole_leaves_the_one_that_was_there(
    labelled, tmp_path
):
    page = report(labelled, tmp_path / "page.html")
    before, limits = page.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        line = refused(labelled, page)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert line.startswith(f"{str(page)!r} cannot be written (File too large)")
    assert page.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html"]


def test_options_in_sentences_are_code_and_markup_of_data_is_not():
    """A warning names an option in backticks; what came from data stays text, in backticks too."""
    found = Document(
        "<i>answer</i>",
        title=("model",),
        warnings=("choose one with `pooling`, not `<b>`",),
    )
    html = render([found])
    assert "choose one with <code>pooling</code>, not <code>&lt;b&gt;</code>" in html
    assert "<i>answer" not in html


def test_the_section_and_the_column_of_the_guide_stand_on_a_page(
    labelled, written, by_layer, tmp_path, content_of
):
    guide = Path(__file__).parents[2] / "docs" / "guides" / "add-to-a-page.md"
    section, shown, column, added = re.findall(
        r"^```python\n(.*?)^```", guide.read_text("utf-8"), re.M | re.S
    )
    made = {}
    exec(section, made)
    exec(column, made)
    exec(added, made)
    assert "replace(page, sections=(*page.sections, *changes(run)))" in shown
    page, rank = labelled.document(), labelled.metric("effective_rank")
    page = replace(page, sections=(*page.sections, *made["changes"](labelled)))
    out = made["show"].write_page(
        tmp_path / "page.html", lambda: made["show"].render([page])
    )
    table = next(
        table for table in content_of(out)["tables"] if table["name"] == "changes"
    )
    assert [row["name"] for row in table["rows"]] == ["1", "2", "3"]
    found = [row["cells"][0]["value"] for row in table["rows"]]
    assert found == pytest.approx([rank[i] - rank[i - 1] for i in (1, 2, 3)])
    without = written(by_layer("prompt_entropy", [1.0, 2.0, 3.0, 4.0, 5.0]))
    assert [*made["changes"](without)] == []
    cells = [made["block"](labelled, layer) for layer in labelled.layers]
    blocks = [None, *labelled.info["model"]["blocks"]]
    assert [cell.value for cell in cells] == blocks
    by_layer = next(
        part
        for section in labelled.document().sections
        for part in section.parts
        if getattr(part, "name", "") == "quality-by-layer"
    )
    wider = made["with_blocks"](by_layer, labelled)
    assert wider.columns[-1].title == "block"
    assert [row.cells[-1].value for row in wider.rows] == [*blocks, None]


def test_what_was_run_stands_on_the_page(language, tmp_path):
    text = report(language, tmp_path / "page.html").read_text("utf-8")
    for wanted in (
        "layerscope profile tiny-llama",
        "tiny-llama",
        "LlamaForCausalLM",
        "40 samples",
        "layerscope",
        "lens tokens",
    ):
        assert wanted in text, wanted
    for name in set(language.table()["metric"]) & METRICS.keys() - {"saturation_layer"}:
        for said in (
            METRICS[name].meaning,
            METRICS[name].direction,
            METRICS[name].source,
        ):
            assert said.replace("'", "&#39;").replace(">", "&gt;") in text, name


def test_the_command_prints_the_path_of_the_page_and_the_figures(cli, tmp_path):
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    exits = made().save(tmp_path / "exits")
    done = cli("report", exits, "--out", page, "--figures", figures, "--json")
    assert done.status == 0
    printed = json.loads(done.out)
    assert printed["page"] == str(page) and page.is_file()
    assert sorted(printed["figures"]) == sorted(str(path) for path in figures.iterdir())
    assert {Path(path).suffix for path in printed["figures"]} == {
        ".png",
        ".pdf",
        ".svg",
    }
