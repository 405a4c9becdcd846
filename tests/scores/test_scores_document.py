"""An evaluation in a terminal, in a notebook and as JSON."""

import io
import json

import pandas as pd
import pytest
from frames import LONG, M, N, measured, placed, scored, shipped
from rich.console import Console

import layerscope
from layerscope.core.margin import named
from layerscope.scores import Evaluation, correlate, rules_table
from layerscope.show.terminal import show


def printed(evaluation: Evaluation, width: int = 120, **more: object) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(evaluation.document(**more), console)
    return console.file.getvalue()


def test_scores_of_layer_0_alone_have_no_best_layer():
    text = printed(Evaluation(scored({"a": [0.5]})))
    assert "50.00" in text and "no layer has scores on enough tasks" in text


def test_a_row_a_model_with_what_was_left_out(two_models):
    text = printed(two_models)
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line[:2] in ("m ", "n ")}
    # first, mean, best (layer), last, oracle
    assert rows["m"][1:7] == ["10.00", "47.50", "80.00", "(2)", "40.00", "80.00"]
    assert rows["n"][1:7] == [
        "90.00",
        "40.00",
        "20.00",
        "(2)",
        "–",
        "20.00",
    ]  # layer 0 is not a candidate
    assert "m: layers 0 to 3 on 2 tasks." in text
    assert (
        "n: layers 0 to 2 on 2 tasks; left out with scores on fewer than 2 tasks: layer 3; 1 of 8"
        in text
    )
    assert "1 missing" in text


def test_names_say_what_tells_rows_apart():
    long = "0123456789abcdef0123456789abcdef01234567"
    one = scored({"a": M}, site="normed", pooling="mean")
    several = pd.concat([one, one.assign(revision=long), one.assign(site="raw")])
    text = printed(Evaluation(several))
    assert [line.split("  ")[0] for line in text.splitlines() if line.startswith("m@")] == [
        "m@r normed",
        "m@0123456 normed",
        "m@r raw",
    ]
    assert "Scores by layer · mean pooling, in %\n" in text
    assert "Scores by layer · m · normed · mean pooling, in %\n" in printed(Evaluation(one))


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
    assert sorted(table.partition("──")[0].split()) == [
        "as",
        "best",
        "by",
        "first",
        "last",
        "layer",
        "shipped",
        "task",
    ]
    rows = [line.split()[1:] for line in table.splitlines() if line.count(".") > 2]
    assert rows[31] == ["−21.00", "49.00", "(2)", "9.00", "50.00", "▁▆█▄"]
    assert len(rows) == 32 and max(map(len, text.splitlines())) <= 80


def test_a_legend_tells_the_layers_there_are():
    text = printed(
        Evaluation(pd.concat([placed([1, 3, 6], "raw", "mean"), placed([6], "raw", "cls")]))
    )
    assert (
        "mean pooling: layers 1, 3, 6 on 2 tasks." in text
        and "cls pooling: layer 6 on 2 tasks." in text
    )
    assert "embedding output" not in text
    assert "layers 0 to 3, 5, 6 on 2 tasks" in printed(
        Evaluation(placed([0, 1, 2, 3, 5, 6], "raw", "mean"))
    )
    assert "layer 0, the embedding output" in printed(Evaluation(placed([0, 1], "raw", "mean")))


def test_one_model_at_several_places_has_a_line_each():
    places = [(site, pooling) for site in ("raw", "normed") for pooling in ("mean", "last")]
    rows = [
        *(placed(list(range(25)), *place) for place in places),
        shipped(a=0.5, b=0.5).assign(model=LONG),
    ]
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


def test_correlations_and_rules(two_models, lidar):
    correlations = correlate(
        lidar, two_models, statistics=["spearman", "pearson"], min_share=0.5, first_layer=0
    )
    text = printed(
        two_models, correlations=correlations, rules=rules_table(two_models, lidar, min_share=0.5)
    )
    (line,) = {line for line in text.splitlines() if line.startswith("  lidar")}
    assert line.split() == [
        "lidar",
        "−1.00",
        "−1.00",
        "−1.00",
    ]  # means over models: ρ, r and ρ by task
    by_model = text.partition("Spearman by model")[2].splitlines()
    assert [row.split() for row in by_model[3:6]] == [
        ["mean", "−1.00"],
        ["m", "−1.00"],
        ["n", "−1.00"],
    ]
    one = Evaluation(two_models.scores[two_models.scores["model"] == "m"])
    alone = correlate(lidar, one, statistics=["spearman", "pearson"], first_layer=0)
    (line,) = {
        line for line in printed(one, correlations=alone).splitlines() if line.startswith("  lidar")
    }
    assert line.split() == ["lidar", "−1.00", "−1.00", "…", "−1.00", "−1.00", "−1.00"]
    by_rule = [line.split("  ")[0] for line in text.splitlines()]
    line = text.splitlines()[by_rule.index("minimum lidar · d")]
    assert line.split()[-4:] == [
        "+20.00",
        "0.00",
        "+40.00",
        "+0.00",
    ]  # gain and regret, then the gain of each family
    assert "+40.00 (2)" in text and "best of 12 rules looks better here than it is" in " ".join(
        text.split()
    )
    assert "'minimum lidar · d' gains most: +20.00 points over the last layer" in " ".join(
        text.split()
    )


def test_names_are_shown_as_they_are():
    text = printed(Evaluation(scored({"a": [0.1, 0.2]}, "[red]x[/red]\x1b[2J"), "[bold]s"))
    assert "[red]x[/red]\\x1b[2J" in text and "[bold]s" in text


@pytest.mark.parametrize("width", [80, 100])
def test_no_number_is_cut(two_models, lidar, width):
    correlations = correlate(
        lidar, two_models, statistics=["spearman", "kendall", "pearson"], min_share=0.5
    )
    rules = rules_table(two_models, lidar, min_share=0.5)
    text = printed(two_models, width, correlations=correlations, rules=rules)
    assert max(map(len, text.splitlines())) <= width
    wide = printed(two_models, 200, correlations=correlations, rules=rules)
    numbers = [word for word in wide.split() if word[:1] in "+−-" and word[1:2].isdigit()]
    assert [word for word in text.split() if word in set(numbers)] == numbers


def test_json_holds_what_is_missing_as_null(two_models, lidar):
    rules = rules_table(two_models, lidar, min_share=0.5)
    correlations = correlate(lidar, two_models, statistics=["spearman"], bootstrap=0)
    found = two_models.as_dict(correlations=correlations, rules=rules)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (
        found["missing"] == 1
        and found["summary"][1]["left_out"] == [3]
        and found["summary"][0]["baseline"] is None
    )
    assert [row["score"] for row in found["scores"]][-1] is None
    assert (
        found["correlations"][0]["estimate"] == pytest.approx(-1)
        and found["correlations"][0]["low"] is None
    )
    assert found["rules"][0]["gain"] == pytest.approx(0.4) and found["rules"][0]["share"] is None


# the command


def test_the_first_line_names_the_best_layer_its_error_and_what_it_wins():
    rows = pd.concat([scored({"a": M, "b": [0.1, 0.2, 0.3, 0.7]}), shipped(a=0.4, b=0.3)])
    found = Evaluation(rows.assign(stderr=0.03))
    line = "scores best on the average of 2 tasks: 55.00 ±2.12 %, +20.00 ±3.00 points against the model as shipped"
    assert found.document().answer == f"Layer 2 of 3 {line}; best by task: layers 2, 3"
    assert (
        found.as_dict()["answer"] == found.document().answer == printed(found, 200).splitlines()[0]
    )
    one = Evaluation(scored({"a": M})).document().answer
    assert one == "Layer 2 of 3 scores best on a: 80.00 %, +40.00 points against the last layer"
    last = Evaluation(pd.concat([scored({"a": [0.1, 0.2]}), shipped(a=0.2)])).document().answer
    assert last == "Layer 1 of 1 scores best on a: 20.00 %, as the model as shipped"


@pytest.mark.parametrize(
    ("values", "baseline", "words"),
    [
        (
            [0.9, 0.42, 0.43, 0.4],
            0.41,
            "No layer differs measurably; layers 1 and 2 are within the margin of the model as shipped on a; "
            "the best layer, 2, has 43.00 ±1.00 %, +2.00 ±1.41 points against the model as shipped; "
            "layer 0, the embedding output, has 90.00 % and is not a candidate",
        ),
        (
            [0.1, 0.2, 0.42, 0.4],
            0.4,
            "No layer is measurably better than the model as shipped; layer 2 is within the margin on a; "
            "the best layer, 2, has 42.00 ±1.00 %, +2.00 ±1.41 points against the model as shipped",
        ),
        (
            [0.1, 0.2, 0.42, 0.43],
            None,
            "No layer is measurably better than the last layer; layer 2 is within the margin on a; "
            "the best layer, 3, has 43.00 ±1.00 %; best by task",
        ),
        (
            [0.1, 0.2, 0.44, 0.4],
            0.4,
            "Layer 2 of 3 scores best on a: 44.00 ±1.00 %, +4.00 ±1.41 points against the model as shipped",
        ),
        (
            [0.1, 0.2, 0.3, 0.4],
            0.4,
            "Layer 3 of 3 scores best on a: 40.00 ±1.00 %, as the model as shipped",
        ),
    ],
)
def test_a_tie_is_called_one_by_the_judge_of_select(values, baseline, words):
    rows = [scored({"a": values}), *([] if baseline is None else [shipped(a=baseline)])]
    found = Evaluation(pd.concat(rows).assign(stderr=0.01))
    assert found.document().answer == words.removesuffix("; best by task")
    chosen = layerscope.select(found, cost=False, progress=False)
    assert chosen.as_shipped == (not words.startswith("Layer 2"))
    if not words.startswith("Layer"):
        assert f"{named(chosen.within)} {'is' if len(chosen.within) == 1 else 'are'}" in words


def test_of_several_sites_the_first_line_names_the_best():
    rows = [scored({"a": M}, site="raw"), scored({"a": [*M[:3], 0.9]}, site="normed")]
    assert (
        Evaluation(pd.concat(rows)).document().answer
        == "Layer 3 of 3 (normed) scores best on a: 90.00 %"
    )


def test_of_several_models_the_first_line_counts_those_whose_best_layer_is_another():
    rows = pd.concat([scored({"a": M}), scored({"a": [0.1, 0.2]}, "n")])
    line = "A layer before the last scores best on average in 1 of 2 models: m at layer 2, +40.00 points"
    assert Evaluation(rows).document().answer == line
    many = pd.concat([scored({"a": [0.1, 0.5 + i / 100, 0.4]}, f"m{i}") for i in range(5)])
    line = "in 5 of 5 models: +12.00 points on average, most for m4: +14.00 points"
    assert (
        Evaluation(many).document().answer
        == f"A layer before the last scores best on average {line}"
    )
    last = pd.concat([scored({"a": [0.1, 0.2]}, model) for model in "mn"])
    assert (
        Evaluation(last).document().answer
        == "The last layer scores best on average in each of 2 models"
    )


@pytest.mark.parametrize("width", [80, 140])
def test_rules_for_many_models_stay_a_table_that_fits(width):
    models = [f"organisation/some-quite-long-model-name-{i}" for i in range(22)]
    evaluation = Evaluation(pd.concat([scored({"a": M, "b": M[::-1]}, model) for model in models]))
    names = ("lidar", "prompt_entropy", "dataset_entropy", "curvature")
    values = pd.concat(
        [measured(dict.fromkeys(names, [1 - v for v in M]), model) for model in models]
    )
    text = printed(evaluation, width, rules=rules_table(evaluation, values))
    assert max(map(len, text.splitlines())) <= width
    rules = text.partition("Rules without labels, in points\n")[2].partition(
        "Gain over the last layer by model"
    )
    assert rules[0].split()[:3] == ["rule", "gain", "regret"]
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


def test_where_the_last_layer_is_best_on_every_task_that_is_said():
    rising = [0.1, 0.2, 0.3, 0.4]
    every = " ".join(printed(Evaluation(scored({"a": rising, "b": rising}))).split())
    assert "The last layer is best on each of the 2 tasks." in every and "On 0 of" not in every
    some = " ".join(printed(Evaluation(scored({"a": rising, "b": M}))).split())
    assert (
        "On 1 of 2 tasks a layer other than the last is best" in some and "each of the" not in some
    )
