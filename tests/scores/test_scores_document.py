"""An evaluation in a terminal, and as JSON; the command that prints it."""

import io
import json
from pathlib import Path

import pandas as pd
import pytest
from frames import measured, scored
from rich.console import Console
from typed import cli

from layerscope.scores import Evaluation, fit_rules
from layerscope.scores.scored import SHIPPED, wide_csv
from layerscope.show.terminal import show

__all__ = ["cli"]

LONG = "all-MiniLM-L6-v2"
M, N = [0.1, 0.6, 0.8, 0.4], [0.9, 0.1, 0.2, 0.4]


@pytest.fixture
def evaluation() -> Evaluation:
    return Evaluation(pd.concat([scored({"a": M, "b": M}), scored({"a": N, "b": [*N[:3], None]}, "n")]), "two models")


@pytest.fixture
def metrics() -> pd.DataFrame:
    return pd.concat([measured({"lidar": [1 - v for v in M]}), measured({"lidar": [1 - v for v in N]}, "n")])


def printed(evaluation: Evaluation, width: int = 120, **more: object) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(evaluation.document(**more), console)
    return console.file.getvalue()


def test_scores_of_layer_0_alone_have_no_best_layer():
    text = printed(Evaluation(scored({"a": [0.5]})))
    assert "50.00" in text and "no layer has scores on enough tasks" in text


def test_a_row_a_model_with_what_was_left_out(evaluation):
    text = printed(evaluation)
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line[:2] in ("m ", "n ")}
    # first, mean, best (layer), last, oracle
    assert rows["m"][1:7] == ["10.00", "47.50", "80.00", "(2)", "40.00", "80.00"]
    assert rows["n"][1:7] == ["90.00", "40.00", "20.00", "(2)", "–", "20.00"]  # layer 0 is no candidate
    assert "m: layers 0 to 3 on 2 tasks." in text
    assert "n: layers 0 to 2 on 2 tasks; left out with scores on fewer than 2 tasks: layer 3; 1 of 8" in text
    assert "1 missing" in text


def test_names_say_what_tells_rows_apart():
    long = "0123456789abcdef0123456789abcdef01234567"
    one = scored({"a": M}, site="normed", pooling="mean")
    several = pd.concat([one, one.assign(revision=long), one.assign(site="raw")])
    text = printed(Evaluation(several))
    assert [line.split("  ")[0] for line in text.splitlines() if line.startswith("m@")] == [
        "m@r normed", "m@0123456 normed", "m@r raw",
    ]  # fmt: skip
    assert "Scores by layer · mean pooling, in %\n" in text
    assert "Scores by layer · m · normed · mean pooling, in %\n" in printed(Evaluation(one))


def shipped(**scores: float) -> pd.DataFrame:
    return pd.DataFrame([{"model": "m", "revision": "r", "task": t, "score": v} for t, v in scores.items()])


def test_one_model_has_its_layers_by_task():
    rows = pd.concat([scored({"a": M, "b": N}), shipped(a=0.5, b=0.25)])
    rows["stderr"] = [0.0123, *[None] * 9]
    text = printed(Evaluation(rows), 80)
    table = text.partition("Layers by task, in %\n")[2].splitlines()
    assert table[0].split() == ["layer", "average", "a", "b"]
    assert [line.split() for line in table[2:7]] == [
        ["0", "50.00", "10.00", "±1.23", "90.00"],  # the highest on b, and no candidate
        ["1", "35.00", "60.00", "10.00"],
        ["2", "50.00", "◂", "80.00", "◂", "20.00"],
        ["3", "40.00", "40.00", "40.00", "◂"],
        ["as", "shipped", "37.50", "50.00", "25.00"],
    ]
    assert "± one standard error." in text
    assert max(map(len, text.splitlines())) <= 80
    assert "Layers by task" not in printed(Evaluation(pd.concat([rows, scored({"a": M}, "n")])))


def test_many_tasks_become_rows_that_fit():
    tasks = {f"{'LongNameOfATask' * 2}{i}": [v - i / 100 for v in M] for i in range(32)}
    text = printed(Evaluation(pd.concat([scored(tasks), shipped(**dict.fromkeys(tasks, 0.5))])), 80)
    table = text.partition("Layers by task, in %\n")[2]
    assert sorted(table.partition("──")[0].split()) == ["as", "best", "by", "first", "last", "layer", "shipped", "task"]
    rows = [line.split()[1:] for line in table.splitlines() if line.count(".") > 2]
    assert rows[31] == ["−21.00", "49.00", "(2)", "9.00", "50.00", "▁▆█▄"]
    assert len(rows) == 32 and max(map(len, text.splitlines())) <= 80


def placed(layers: list[int], site: str, pooling: str, model: str = LONG) -> pd.DataFrame:
    return pd.DataFrame([
        {"model": model, "revision": "r", "layer": layer, "task": task, "score": layer / 10 - 0.3, "site": site,
         "pooling": pooling}
        for layer in layers for task in "ab"
    ])  # fmt: skip


def test_a_legend_tells_the_layers_there_are():
    text = printed(Evaluation(pd.concat([placed([1, 3, 6], "raw", "mean"), placed([6], "raw", "cls")])))
    assert "mean pooling: layers 1, 3, 6 on 2 tasks." in text and "cls pooling: layer 6 on 2 tasks." in text
    assert "embedding output" not in text
    assert "layers 0 to 3, 5, 6 on 2 tasks" in printed(Evaluation(placed([0, 1, 2, 3, 5, 6], "raw", "mean")))
    assert "layer 0, the embedding output" in printed(Evaluation(placed([0, 1], "raw", "mean")))


def test_one_model_at_several_places_has_a_line_each():
    places = [(site, pooling) for site in ("raw", "normed") for pooling in ("mean", "last")]
    rows = [*(placed(list(range(25)), *place) for place in places), shipped(a=0.5, b=0.5).assign(model=LONG)]
    text = printed(Evaluation(pd.concat(rows)), 80)
    table = text.partition(f"Scores by layer · {LONG}\n")[2].splitlines()
    found = [line.split()[:2] for line in table if line.startswith(("raw", "normed"))]
    assert found == [list(place) for place in places] and max(map(len, text.splitlines())) <= 80
    assert "by depth" not in text and "by depth" in printed(Evaluation(pd.concat(rows)), 120)


def test_a_single_layer_has_no_shape():
    one = placed([6], "raw", "mean")
    many = one.assign(task=one["task"] + "LongNameOfATask" * 4)
    for text in (printed(Evaluation(one)), printed(Evaluation(many), 60)):
        assert "Layers by task" in text and not set(text) & set("▁▂▃▄▅▆▇█")
        assert "by layer\n" not in text and "shape" not in text and "by depth" not in text


def test_percents_have_two_decimals():
    assert "46.83" in printed(Evaluation(scored({"a": [45.0, 46.834]})))


def test_correlations_and_rules(evaluation, metrics):
    correlations = evaluation.correlate(metrics, statistics=["spearman", "pearson"], min_share=0.5, first_layer=0)
    text = printed(evaluation, correlations=correlations, rules=fit_rules(metrics, evaluation, min_share=0.5))
    (line,) = {line for line in text.splitlines() if line.startswith("  lidar")}
    assert line.split() == ["lidar", "−1.00", "−1.00", "−1.00"]  # means over models: ρ, r and ρ by task
    by_model = text.partition("Spearman by model")[2].splitlines()
    assert [row.split() for row in by_model[3:6]] == [["mean", "−1.00"], ["m", "−1.00"], ["n", "−1.00"]]
    one = Evaluation(evaluation.scores[evaluation.scores["model"] == "m"])
    alone = one.correlate(metrics, statistics=["spearman", "pearson"], first_layer=0)
    (line,) = {line for line in printed(one, correlations=alone).splitlines() if line.startswith("  lidar")}
    assert line.split() == ["lidar", "−1.00", "−1.00", "…", "−1.00", "−1.00", "−1.00"]
    assert "minimum lidar · d" in text and "+40.00 (2)" in text and "0 of 2" in text
    assert "worst" not in text


def test_a_rule_that_failed_tells_how_wrongly(evaluation, metrics):
    turned = pd.concat([metrics[metrics["model"] == "m"], measured({"lidar": [0, 1, 3, 2]}, "n")])
    text = printed(evaluation, rules=fit_rules(turned, evaluation, min_share=0.5))
    assert "1 of 2" in text and "worst" in text and "−30.00" in text


def test_names_are_shown_as_they_are():
    text = printed(Evaluation(scored({"a": [0.1, 0.2]}, "[red]x[/red]\x1b[2J"), "[bold]s"))
    assert "[red]x[/red]\\x1b[2J" in text and "[bold]s" in text


@pytest.mark.parametrize("width", [80, 100])
def test_no_number_is_cut(evaluation, metrics, width):
    correlations = evaluation.correlate(metrics, statistics=["spearman", "kendall", "pearson"], min_share=0.5)
    rules = fit_rules(metrics, evaluation, min_share=0.5)
    text = printed(evaluation, width, correlations=correlations, rules=rules)
    assert max(map(len, text.splitlines())) <= width
    wide = printed(evaluation, 200, correlations=correlations, rules=rules)
    numbers = [word for word in wide.split() if word[:1] in "+−-" and word[1:2].isdigit()]
    assert [word for word in text.split() if word in set(numbers)] == numbers


def test_json_holds_what_is_missing_as_null(evaluation, metrics):
    rules = fit_rules(metrics, evaluation, min_share=0.5)
    correlations = evaluation.correlate(metrics, statistics=["spearman"], bootstrap=0)
    found = evaluation.as_dict(correlations=correlations, rules=rules)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["missing"] == 1 and found["summary"][1]["left_out"] == [3] and found["summary"][0]["baseline"] is None
    assert [row["score"] for row in found["scores"]][-1] is None
    assert found["correlations"][0]["estimate"] == pytest.approx(-1) and found["correlations"][0]["low"] is None
    assert found["rules"][0]["choices"][0]["gain"] == pytest.approx(0.4)


# the command


@pytest.fixture
def files(evaluation: Evaluation, metrics: pd.DataFrame, tmp_path: Path) -> tuple[Path, Path]:
    columns = ["model", "revision", "layer", "task", "main_score"]
    scores = evaluation.scores.rename(columns={"score": "main_score"})[columns]
    scores.to_csv(tmp_path / "scores.csv", index=False)
    metrics.assign(normalization="raw").to_csv(tmp_path / "metrics.csv", index=False)
    return tmp_path / "scores.csv", tmp_path / "metrics.csv"


def test_command(cli, files, tmp_path):
    scores, metrics = files
    done = cli("scores", scores, "--metrics", metrics, "--min-share", "1/2", "--bootstrap", 20)
    assert done.status == 0 and done.err == ""
    for word in ("Scores by layer", "Metrics and scores by layer", "Rules without labels", "minimum lidar"):
        assert word in done.out
    done = cli("scores", scores, "--save", tmp_path / "saved", "--json")
    found = json.loads(done.out)
    assert found["summary"][0]["best_layer"] == 2 and found["rules"] == [] and done.err == f"saved: {tmp_path}/saved\n"
    assert json.loads(cli("scores", tmp_path / "saved", "--json").out)["summary"] == found["summary"]


def test_layers_by_task_as_csv(cli, files, tmp_path, evaluation):
    scores, _ = files
    done = cli("scores", scores, "--csv", tmp_path / "wide.csv")
    assert done.status == 0 and done.err == f"table: {tmp_path}/wide.csv\n"
    found = pd.read_csv(tmp_path / "wide.csv", float_precision="round_trip")
    assert list(found) == ["model", "revision", "site", "pooling", "layer", "a", "b", "average"]
    assert list(found["a"]) == [*M, *N] and list(found["layer"]) == [0, 1, 2, 3] * 2
    assert pd.isna(found["b"][7]) and found["average"][2] == 0.8
    shipped_too = Evaluation(pd.concat([scored({"layer": M}), shipped(layer=0.5)]))
    assert wide_csv(shipped_too).splitlines()[-1] == "m,r,,,as shipped,0.5,0.5"
    done = cli("scores", scores, "--csv", tmp_path / "wide.txt")
    line = f"--csv '{tmp_path}/wide.txt' is not a valid name for a table: let it end in .csv"
    assert (done.line, done.out) == (line, "")


def test_the_csv_has_a_model_as_shipped_once_after_its_layers():
    places = [placed([1, 2], site, pooling) for site in ("raw", "normed") for pooling in ("mean", "last")]
    rows = [*places, shipped(a=0.5).assign(model=LONG), placed([1], "raw", "mean", "n")]
    found = wide_csv(Evaluation(pd.concat(rows))).splitlines()
    assert found[8].startswith(f"{LONG},r,normed,last,2,") and found[10].startswith("n,r,raw,mean,1,")
    assert found[9] == f"{LONG},r,,,as shipped,0.5,,"
    assert sum(SHIPPED in line for line in found) == 1
    other = placed([1, 2], "raw", "cls").query("task == 'a'")
    found = wide_csv(Evaluation(pd.concat([*places, other, shipped(a=0.5, b=0.75).assign(model=LONG)]))).splitlines()
    assert found[-1] == f"{LONG},r,,,as shipped,0.5,0.75,"  # averages of other tasks compare with no one number
    found = wide_csv(Evaluation(pd.concat([*places, shipped(a=0.5, b=0.75).assign(model=LONG)]))).splitlines()
    assert found[-1] == f"{LONG},r,,,as shipped,0.5,0.75,0.625"


def test_one_model_has_correlations_and_no_rules(cli, files, tmp_path):
    scores, metrics = files
    frame = pd.read_csv(scores)
    frame[frame["model"] == "m"].to_csv(scores, index=False)
    done = cli("scores", scores, "--metrics", metrics, "--bootstrap", 0)
    assert done.status == 0 and "Metrics and scores by layer" in done.out and "Rules" not in done.out
    assert done.err.startswith("no rules: rules are tested on models they were not fitted on, and m is the only one")


BOTH = ["{scores}", "--metrics", "{metrics}"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "layerscope scores needs scores, such as layerscope scores scores.csv"),
        (["{scores}x"], "evaluation '{scores}x' does not exist, did you mean scores.csv?"),
        (["{scores}", "--min-share", "most"], "min_share is 'most': give a number above 0 and at most 1"),
        (["{scores}", "--min-share", "1/0"], "min_share is '1/0'"),
        (["{scores}", "--metrics", "{scores}"], "{scores} has no column 'dataset'"),
        ([*BOTH, "--bootstrap", "few"], "bootstrap is 'few': give a whole number of at least 0"),
        ([*BOTH, "--variant", "rew"], "variant 'rew' is not among these metrics, did you mean raw?"),
        ([*BOTH, "--first-layer", "-1"], "first_layer is -1: give a whole number of at least 0"),
    ],
)
def test_wrong_commands(cli, files, options, line):
    scores, metrics = files
    done = cli("scores", *(str(o).format(scores=scores, metrics=metrics) for o in options))
    assert done.status == 2 and done.out == ""
    assert done.line.startswith(line.format(scores=scores, metrics=metrics))


# the first line


def test_the_first_line_names_the_best_layer_its_error_and_what_it_wins():
    rows = pd.concat([scored({"a": M, "b": [0.1, 0.2, 0.3, 0.7]}), shipped(a=0.4, b=0.3)])
    found = Evaluation(rows.assign(stderr=0.03))
    line = "scores best on the average of 2 tasks: 55.00 ±2.12 %, +20.00 points against the model as shipped"
    assert found.document().answer == f"Layer 2 of 3 {line}; best by task: layers 2, 3"
    assert found.as_dict()["answer"] == found.document().answer == printed(found, 200).splitlines()[0]
    one = Evaluation(scored({"a": M})).document().answer
    assert one == "Layer 2 of 3 scores best on a: 80.00 %, +40.00 points against the last layer"
    last = Evaluation(pd.concat([scored({"a": [0.1, 0.2]}), shipped(a=0.2)])).document().answer
    assert last == "Layer 1 of 1 scores best on a: 20.00 %, as the model as shipped"


def test_of_several_sites_the_first_line_names_the_best():
    rows = [scored({"a": M}, site="raw"), scored({"a": [*M[:3], 0.9]}, site="normed")]
    assert Evaluation(pd.concat(rows)).document().answer == "Layer 3 of 3 (normed) scores best on a: 90.00 %"


def test_of_several_models_the_first_line_counts_those_whose_best_layer_is_another():
    rows = pd.concat([scored({"a": M}), scored({"a": [0.1, 0.2]}, "n")])
    line = "A layer before the last scores best on average in 1 of 2 models: m at layer 2, +40.00 points"
    assert Evaluation(rows).document().answer == line
    many = pd.concat([scored({"a": [0.1, 0.5 + i / 100, 0.4]}, f"m{i}") for i in range(5)])
    line = "in 5 of 5 models: +12.00 points on average, most for m4: +14.00 points"
    assert Evaluation(many).document().answer == f"A layer before the last scores best on average {line}"
    last = pd.concat([scored({"a": [0.1, 0.2]}, model) for model in "mn"])
    assert Evaluation(last).document().answer == "The last layer scores best on average in each of 2 models"


def test_what_to_type_next_names_the_scores_and_the_best_model(cli, files):
    scores, _ = files
    out = cli("scores", scores).out
    assert f"next: layerscope select {scores} --model n\n      layerscope report {scores}\n" in out
    assert "next:" not in printed(Evaluation(scored({"a": M})))


@pytest.mark.parametrize("width", [80, 140])
def test_rules_for_many_models_stay_a_table_that_fits(width):
    models = [f"organisation/some-quite-long-model-name-{i}" for i in range(22)]
    evaluation = Evaluation(pd.concat([scored({"a": M, "b": M[::-1]}, model) for model in models]))
    names = ("lidar", "prompt_entropy", "dataset_entropy", "curvature")
    values = pd.concat([measured(dict.fromkeys(names, [1 - v for v in M]), model) for model in models])
    text = printed(evaluation, width, rules=fit_rules(values, evaluation))
    assert max(map(len, text.splitlines())) <= width
    rules = text.partition("Rules without labels, in points\n")[2].partition("Gain over the last layer by model")
    assert rules[0].split()[:5] == ["rule", "mean", "rival", "failed", "agree"]
    assert "organisation" not in rules[0] and rules[2].count("organisation/") == 22


def test_eleven_tasks_keep_their_names_at_80_columns():
    tasks = {f"{'LongNameOfATask' * 2}{i}": [v - i / 100 for v in M] * 6 for i in range(11)}
    rows = pd.concat([scored(tasks), shipped(**dict.fromkeys(tasks, 0.5))]).assign(stderr=0.02)
    text = printed(Evaluation(rows), 80).partition("Layers by task, in %\n")[2]
    lines = text.partition("In parentheses")[0].splitlines()
    assert max(map(len, lines)) <= 80 and all(any(task in line for line in lines) for task in tasks)


def test_a_notebook_shows_an_evaluation():
    found = Evaluation(scored({"<b>a</b>": M}))._repr_html_()
    assert "scores best on &lt;b&gt;a&lt;/b&gt;" in found and "<b>" not in found
