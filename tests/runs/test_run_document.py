import io
import json
import math
import re

import pytest
from rich.console import Console

from layerscope.runs.registry import METRICS
from layerscope.show import terminal
from layerscope.show.document import MARK


def shown(run, width=80, color=False):
    stream = io.StringIO()
    console = Console(
        file=stream, width=width, force_terminal=color, color_system="truecolor" if color else None
    )
    terminal.show(run.document(), console)
    return stream.getvalue().partition("next: ")[0]  # commands are never folded


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_every_line_fits_and_nothing_is_cut(labelled, width):
    text = shown(labelled, width)
    assert max(len(line) for line in text.splitlines()) <= width
    head = text.split("How to read the metrics")[0]
    assert "…" not in head
    probe = labelled.metric("linear_probe")
    for value in probe:
        assert f"{100 * value:.1f} ±" in head


def test_a_wide_console_takes_one_table_where_a_narrow_one_takes_two(labelled):
    assert "continued" in shown(labelled, 50) and "continued" not in shown(labelled, 120)


def test_rows_are_layers_and_the_final_norm(labelled):
    text = shown(labelled, 120)
    quality = text.split("Quality of each layer")[1].split("Similarity to the last layer")[0]
    assert re.findall(r"^ *(\d|final)  ", quality, re.MULTILINE) == ["0", "1", "2", "3", "final"]
    decisions = text.split("What can be read")[1].split("Quality of each layer")[0]
    assert re.findall(r"^ *(\d|final)  ", decisions, re.MULTILINE) == ["0", "1", "2", "3"]
    assert "layer 3 is the model as it is" in decisions


def test_the_mark_stands_at_the_layer_that_stands_out(written, by_layer):
    lines = shown(
        written(by_layer("prompt_entropy", [1.0, 3.0, 2.0, 4.0, 5.0], [0.02] * 5))
    ).splitlines()
    marked = [line for line in lines if MARK in line and "±" in line]
    assert [line.split() for line in marked] == [["2", "2.00", "±0.02", MARK]]
    assert next(line for line in lines if line.startswith("shape")).split() == ["shape", "▁▅▃▆█"]


def test_what_is_nil_but_for_rounding_has_no_sign_and_no_exponent(written, by_layer, pairs):
    square = [[1, 0, -1e-14], [0, 1, 0.5], [0, 0.5, 1]]
    text = shown(
        written(
            by_layer("dime", [1e-14, -3e-14, 0.25]) + pairs("cosine_similarity", square), depth=2
        )
    )
    assert (
        re.search(r"^ +0 +0.000 ", text, re.MULTILINE)
        and "-" not in text.split("Similarity")[1].split("shape")[0]
    )
    assert "e-14" not in text


def test_names_are_text_not_markup(written, by_layer):
    run = written(
        by_layer("curvature", [1.0, 2.0]),
        depth=1,
        model="[red]x[/red]",
        data="[/] :smile: \x1b[2J\nnext",
    )
    text = shown(run, color=True)
    assert "[red]x[/red]" in text
    assert "[/] :smile: \\x1b[2J\\nnext" in text
    assert "\x1b[2J" not in text


def test_several_poolings_have_a_table_each(written, by_layer):
    rows = by_layer("prompt_entropy", [1.0, 2.0, 3.0, 4.0, 5.0])
    for pooling in ("mean", "cls"):
        rows += by_layer("effective_rank", [1.0, 2.0, 3.0, 4.0, 5.0], pooling=pooling)
    text = shown(written(rows, pooling=["mean", "cls"]))
    titles = [line.strip() for line in text.splitlines() if line.startswith("Quality")]
    assert titles == [
        f"Quality of each layer · {name}" for name in ("by token", "mean pooling", "cls pooling")
    ]


def test_variants_beside_each_other_are_told_apart(written, by_layer):
    rows = by_layer("prompt_entropy", [1.0, 2.0], variant="alpha=1") + by_layer(
        "prompt_entropy", [1.0, 2.0], variant="alpha=2"
    )
    text = shown(written(rows, depth=1))
    header = text.split("────")[0]
    assert "alpha=1" in header and "alpha=2" in header


def test_nan_is_a_dash_and_skipped_samples_are_counted(written, by_layer):
    rows = by_layer("curvature", [math.nan, 2.0, 3.0, math.nan, 2.5], n=47, skipped=3)
    text = shown(written(rows))
    assert re.search(r"^ +0 +–", text, re.MULTILINE)
    assert "N: 47 samples, 3 skipped." in text
    assert "nan" not in text


def test_a_run_of_one_metric_and_one_block(bare):
    text = shown(bare)
    assert "effective" in text and "Similarity" not in text and "What stands out" not in text
    assert "best" not in text


def test_without_labels_no_layer_is_called_best(written, by_layer, pairs):
    rows = by_layer("prompt_entropy", [3.0, 2.0, 1.0]) + by_layer("perplexity", [3.0, 2.0, 1.0])
    rows += pairs("cosine_similarity", [[1, 0.5, 0.4], [0.5, 1, 0.7], [0.4, 0.7, 1]])
    text = shown(written(rows, depth=2, language_model=True))
    assert "Perplexity at the last layer" in text and "best" not in text


def test_tokens_of_a_language_model_are_counted_as_tokens(written, by_layer):
    text = shown(
        written(
            by_layer("perplexity", [9.0, 8.0], n=796, site="normed"),
            depth=1,
            sites=("raw", "normed"),
            language_model=True,
        )
    )
    assert "N: 796 tokens, none skipped" in text


def test_a_run_without_a_value_says_so(written):
    assert "None of the chosen metrics has a value here" in shown(written([]))


def test_json_round_trips_with_null_for_what_is_no_number(labelled):
    summary = labelled.as_dict()
    again = json.loads(json.dumps(summary, allow_nan=False))
    assert again == summary
    assert (
        again["depth"] == 3 and again["pooling"] == ["mean"] and again["path"] == str(labelled.path)
    )
    assert (
        again["model"]["name"] == labelled.info["model"]["name"] and again["data"]["samples"] == 60
    )
    table = labelled.table()
    assert len(again["rows"]) == len(table) and set(again["rows"][0]) == set(table.columns)
    ranks = [
        row for row in again["rows"] if row["metric"] == "effective_rank" and row["site"] == "raw"
    ]
    assert [row["value"] for row in ranks] == list(labelled.metric("effective_rank"))
    assert ranks[0]["stderr"] is None and ranks[0]["layer_b"] is None and ranks[0]["step"] is None
    assert isinstance(ranks[0]["layer"], int)
    best = next(f for f in again["findings"] if f["name"] == "best_layer")
    assert best["last"] == labelled.metric("linear_probe")[3]


def test_json_of_nan_and_infinity(written, by_layer):
    summary = written(by_layer("lidar", [math.nan, math.inf, 2.0, 3.0, 1.0])).as_dict()
    assert [row["value"] for row in summary["rows"]] == [None, None, 2.0, 3.0, 1.0]
    assert summary["stands_out"] == [
        {"metric": "lidar", "variant": None, "pooling": None, "layer": 3}
    ]
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize(
    ("values", "error", "line"),
    [
        (
            [0.4, 0.6, 0.9, 0.8, 0.7],
            0.01,
            "Use layer 2 of 4: it reads your 50 labels at 90.0 ±1.0 %, the model as shipped at 70.0 ±1.0 %",
        ),
        (
            [0.4, 0.6, 0.9, 0.8, 0.88],
            0.05,
            "No layer is measurably better than the model as shipped; layers 2 and 3 are within the margin on your 50 "
            "labels; the best, layer 2, has 90.0 ±5.0 %",
        ),
        (
            [0.4, 0.6, 0.7, 0.88, 0.9],
            0.05,
            "No layer is measurably better than the model as shipped; layer 3 is within the margin on your 50 labels; "
            "the best, the last layer, has 90.0 ±5.0 %",
        ),
        (
            [0.45, 0.47, 0.447, 0.477, 0.467],
            0.029,
            "No layer differs measurably; layers 1 to 3 are within the margin of the model as "
            "shipped on your 50 labels; "
            "the best, layer 3, has 47.7 ±2.9 %",
        ),
        (
            [0.4, 0.6, 0.7, 0.8, 0.9],
            0.01,
            "Keep the whole model: its last layer reads your 50 labels best, at 90.0 ±1.0 %",
        ),
        (
            [0.9, 0.8, 0.8, 0.8, 0.8],
            0.01,
            "Every layer from 1 on reads your 50 labels alike, at 80.0 ±1.0 %",
        ),
        (
            [0.3, 0.3, 0.2, 0.3, 0.3],
            0.05,
            "No layer reads the labels above chance: the highest has 30.0 ±5.0 %, and always "
            "guessing the most frequent label gives 33.3 %",
        ),
    ],
)
def test_the_first_line_is_the_answer(written, by_layer, values, error, line):
    run = written(by_layer("linear_probe", values, [error] * 5, pooling="mean"))
    assert run.document().answer == line == run.as_dict()["answer"]
    assert shown(run, 200).splitlines()[0] == line


def test_the_answer_of_too_few_labels_names_no_layer(written, by_layer):
    run = written(by_layer("linear_probe", [0.4, 0.6, 0.9, 0.8, 0.7], [0.01] * 5, n=12))
    assert run.document().answer.startswith("No layer is named: only 12 samples, 3 classes")
    assert not any("select" in command for command in run.document().commands)


def test_without_labels_the_first_line_is_an_observation(written, by_layer, pairs):
    rows = by_layer("prompt_entropy", [3.0, 2.0, 2.5], [0.01] * 3)
    rows += pairs("cosine_similarity", [[1, 0.5, 0.4], [0.5, 1, 0.95], [0.4, 0.95, 1]])
    told = "prompt entropy is lowest at layer 1; from layer 1 of 2 on, all are close to the last"
    assert (
        written(rows, depth=2).document().answer
        == f"No labels were probed, so no layer is named: {told}"
    )


@pytest.mark.parametrize("width", [80, 140])
def test_many_metrics_of_many_layers_fold_into_groups_that_fit(written, by_layer, width):
    names = [
        name for name, metric in METRICS.items() if metric.needs in ("tokens", "pooled", "views")
    ]
    rows = [
        row for name in names for row in by_layer(name, [i + 0.5 for i in range(51)], [0.01] * 51)
    ]
    text = shown(written(rows, depth=50), width)
    assert max(map(len, text.splitlines())) <= width
    titles = [
        line
        for line in text.splitlines()
        if line.startswith(("Tokens within", "Vectors of", "Views of"))
    ]
    assert len({title.split(",")[0].split(" ·")[0] for title in titles}) == 3
    assert text.count("\n   50   ") == text.count("\nlayer") == text.count("shape")


def test_shares_have_a_percent_sign(labelled):
    table = next(
        part for part in labelled.document().parts if "read from" in getattr(part, "title", "")
    )
    assert all(row.cells[1].detail.endswith("%") and row.cells[1].value < 1 for row in table.rows)
    assert re.search(r" \d\d\.\d ±\d\.\d %", shown(labelled))


def test_a_notebook_shows_the_run(labelled):
    assert labelled.document().answer in labelled._repr_html_()
