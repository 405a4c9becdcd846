"""Scores and metrics as files, one row for each that is wrong with its message."""

import gzip
import json
import math

import pytest
from typed import refused

from layerscope.scores import (
    corpus_averages,
    one_variant,
    open_evaluation,
    open_metrics,
)

HEADER = "model,revision,layer,task,main_score\n"
GOOD = HEADER + "m,r,0,a,0.5\nm,r,1,a,\nm,r,0,b,0.25\nm,r,1,b,0.75\n"

WRONG = {
    "empty.csv": (b"", "is empty"),
    "no-task.csv": (
        b"model,revision,layer,main_score\nm,r,0,1\n",
        "has no column 'task': it needs model, layer",
    ),
    "nan.csv": (
        (GOOD + "m,r,2,a,NaN\n").encode(),
        "row 4 has the main_score 'NaN': give a number, or leave it empty",
    ),
    "no-layer.csv": (
        (GOOD + "m,r,,a,0.5\n").encode(),
        "row 4 has no layer: give a whole number",
    ),
    "cut.csv.gz": (gzip.compress(GOOD.encode())[:40], "is not a complete gzip file"),
    "scores.txt": (GOOD.encode(), "is not an evaluation: give a CSV"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files(name, tmp_path):
    content, line = WRONG[name]
    (tmp_path / name).write_bytes(content)
    with refused(line) as error:
        open_evaluation(tmp_path / name)
    assert str(tmp_path / name) in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    (tmp_path / "scores.csv").write_text(GOOD)
    with refused(r"evaluation .*score.csv' does not exist, did you mean scores.csv\?"):
        open_evaluation(tmp_path / "score.csv")
    with refused("is not a path"):
        open_evaluation("~nobody-of-this-name/scores.csv")


def test_empty_values_are_missing_and_counted(tmp_path):
    (tmp_path / "scores.csv.gz").write_bytes(gzip.compress(GOOD.encode()))
    found = open_evaluation(tmp_path / "scores.csv.gz")
    assert found.missing == 1
    assert math.isnan(found.table().loc[1, "a"]) and found.table().loc[1, "b"] == 0.75


@pytest.mark.parametrize("separator", [",", ";"])
def test_what_a_spreadsheet_makes_of_it(tmp_path, separator):
    text = (
        "\ufeff"
        + "task, layer ,main_score,model,revision,note,site\r\na,3.0,55.5,m,,x,normed\r\n\r\na, 4 ,60,m,,x,normed\r\n"
    )
    (tmp_path / "s.csv").write_text(
        text.replace(",", separator), encoding="utf-8", newline=""
    )
    found = open_evaluation(tmp_path / "s.csv")
    assert found.table()["a"].to_dict() == {3: 55.5, 4: 60.0}
    assert (
        found.scores["revision"].tolist() == ["", ""]
        and found.scores["site"].tolist() == ["normed"] * 2
    )


# mteb's own results


def written(cache, score=0.5, task="Mine", **place):
    """Let mteb write one result as its evaluation does; returns the task's file."""
    import mteb
    from mteb.cache import ResultCache
    from mteb.models.model_meta import ModelMeta
    from mteb.results import TaskResult

    about = dict.fromkeys(
        name for name, field in ModelMeta.model_fields.items() if field.is_required()
    )
    about |= {"name": "me/tiny", "revision": "r1", "framework": []}
    meta = ModelMeta(**about, experiment_kwargs=place or None)
    subsets = [
        {"main_score": s, "hf_subset": name, "languages": ["eng-Latn"]}
        for s, name in ((score, "en"), (score + 0.2, "x"))
    ]
    result = TaskResult(
        dataset_revision="1",
        task_name=task,
        mteb_version=mteb.__version__,
        scores={"test": subsets},
        evaluation_time=1.0,
    )
    store = ResultCache(cache)
    store.save_to_cache(result, meta)
    return store.get_task_result_path(task, meta)


def test_per_layer_results_of_mteb(tmp_path):
    for layer in (0, 1, 10):
        for task in ("Mine", "Other"):
            written(
                tmp_path, layer / 20, task, layer=layer, site="normed", pooling="mean"
            )
    written(tmp_path, 0.7)
    found = open_evaluation(tmp_path)
    assert found.table().index.tolist() == [0, 1, 10]
    # the mean of its two subsets
    assert found.table().loc[10, "Other"] == pytest.approx((0.5 + 0.7) / 2)
    assert set(found.scores.loc[found.scores["kind"] == "layer", "site"]) == {"normed"}
    assert found.scores["model"].unique().tolist() == ["me/tiny"]
    assert found.baseline().loc[("me/tiny", "r1"), "Mine"] == pytest.approx(0.8)
    inner = open_evaluation(tmp_path / "results" / "me__tiny" / "r1")
    assert inner.scores.equals(found.scores)


def test_wrong_results_of_mteb(tmp_path):
    file = written(tmp_path, 0.5, layer=1)
    good = file.read_text()
    for content, line in (
        (good[:50], "Mine.json is not a task result that mteb can read"),
        (
            good.replace("0.5", "NaN"),
            "Mine.json: the main score of Mine is nan|no task result",
        ),
    ):
        file.write_text(content)
        with refused(line):
            open_evaluation(tmp_path)
    file.write_text(good)
    (file.parent / "Again.json").write_text(good)
    with refused("two rows for model me/tiny, revision r1, layer 1, task Mine"):
        open_evaluation(tmp_path)


@pytest.mark.parametrize(
    "layer, shown", [("last", "'last'"), (-1, "-1"), (True, "True")]
)
def test_a_layer_of_mteb_that_is_no_number(tmp_path, layer, shown):
    written(tmp_path, 0.5, layer=layer)
    with refused(f"the layer in experiment_kwargs is {shown}: give a whole number"):
        open_evaluation(tmp_path)


def test_folders_without_results(tmp_path):
    with refused(r"holds neither evaluation.json nor any model_meta.json"):
        open_evaluation(tmp_path)
    (tmp_path / "model_meta.json").write_text(
        json.dumps({"name": "me/tiny", "revision": None})
    )
    with refused("no result of any task"):
        open_evaluation(tmp_path)
    (tmp_path / "model_meta.json").write_text("[]")
    with refused(r"is not a model_meta.json of mteb 2"):
        open_evaluation(tmp_path)


# metrics

METRICS = "model,revision,dataset,metric,normalization,layer,value\n"


def test_metrics_are_averaged_over_the_data_sets_of_a_corpus(tmp_path):
    rows = [
        "m,r,mteb/a/test,entropy_sentence,raw,0,1",
        "m,r,mteb/b/test,entropy_sentence,raw,0,3",
        "m,r,mteb/a/test,entropy_sentence,raw,1,5",
        "m,r,mteb/b/test,entropy_sentence,raw,1,",
        "m,r,wikitext,entropy_sentence,raw,0,7",
        "m,r,wikitext,lidar,maxEntropy,0,9",
    ]
    (tmp_path / "m.csv").write_text(METRICS + "\n".join(rows))
    frame = corpus_averages(open_metrics(tmp_path / "m.csv"))
    found = {
        (r.corpus, r.metric, r.layer): (r.value, r.datasets) for r in frame.itertuples()
    }
    assert found == {
        ("tasks", "prompt_entropy", 0): (2.0, 2),
        ("tasks", "prompt_entropy", 1): (5.0, 1),
        ("wikitext", "prompt_entropy", 0): (7.0, 1),
        ("wikitext", "lidar", 0): (9.0, 1),
    }
    assert one_variant(frame)["variant"].unique().tolist() == ["raw", "maxEntropy"]


def test_wrong_metrics(tmp_path):
    path = tmp_path / "m.csv"
    for content, line in (
        (
            METRICS.replace("dataset,", "") + "m,r,lidar,raw,0,1",
            "has no column 'dataset'",
        ),
        (METRICS + "m,r,d,lidar,raw,0,x", "row 0 has the value 'x'"),
        (
            METRICS + "m,r,d,lidar,raw,0,1\nm,r,d,lidar,raw,0,2",
            "two rows for model m, revision r, dataset d",
        ),
    ):
        path.write_text(content)
        with refused(line):
            open_metrics(path)
    path.rename(tmp_path / "m.txt")
    with refused("holds no metrics"):
        open_metrics(tmp_path / "m.txt")
