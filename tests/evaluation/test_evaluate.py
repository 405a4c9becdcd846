"""Every layer on tasks: mteb's own scores, every text embedded once, resumed after a stop, one line for wrong input."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import tiny
import transformers
from tiny import one_thread
from typed import cli

import layerscope
from layerscope import LayerscopeError
from layerscope.evaluation import judges
from layerscope.evaluation.judging import UnjudgedError, judge
from layerscope.evaluation.kinds import kind_of
from layerscope.evaluation.tasks import PAPER_TASKS, open_tasks

__all__ = ["cli", "one_thread"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(
        tiny.saved(
            tiny.llama(),
            tmp_path_factory.mktemp("models") / "tiny-llama",
            special=False,
        )
    )


@pytest.fixture
def tasks(tmp_path: Path) -> list[str]:
    """A classification and an STS of 40 rows each."""
    texts = tiny.texts(40)
    pd.DataFrame({"text": texts, "label": ["a", "b"] * 20}).to_csv(
        tmp_path / "topics.csv", index=False
    )
    pairs = pd.DataFrame(
        {
            "text_a": texts,
            "text_b": tiny.texts(40, seed=1),
            "score": [i % 6 for i in range(40)],
        }
    )
    pairs.to_json(tmp_path / "pairs.jsonl", orient="records", lines=True)
    return [
        f"classification:{tmp_path / 'topics.csv'}",
        f"sts:{tmp_path / 'pairs.jsonl'}",
    ]


def test_all_layers_with_every_text_embedded_once(
    model, tasks, counted, tmp_path: Path
):
    found = layerscope.evaluate(
        model, tasks[1], tmp_path / "out", sites="raw,normed", progress=False
    )
    assert len(counted) == len(set(counted)) > 40
    assert found.table(site="raw").shape == found.table(site="normed").shape == (4, 1)
    assert (
        found.table(site="normed").loc[3, "pairs"] == found.baseline()["pairs"].item()
    )
    assert found.failed == {} and set(found.scores["model"]) == {"tiny-llama"}
    assert not (tmp_path / "out" / "states").exists()
    layerscope.evaluate(
        model, tasks[1], tmp_path / "out", sites="raw,normed", progress=False
    )
    assert len(counted) == len(set(counted))  # nothing is left to do


@pytest.mark.parametrize("stop", [KeyboardInterrupt, UnjudgedError])
def test_stopped_in_the_second_task_nothing_is_embedded_twice(
    model, tasks, counted, tmp_path, monkeypatch, stop
):
    judged = []

    def stopping(task: object, encoder: object) -> object:
        judged.append(encoder)
        if len(judged) == 8:
            encoder.encode(
                [{"text": tiny.texts(40)}],
                task_metadata=None,
                hf_split="",
                hf_subset="",
            )
            raise stop("stopped")
        return judge(task, encoder)

    monkeypatch.setattr(judges, "judge", stopping)
    if stop is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            layerscope.evaluate(model, tasks, tmp_path / "out", progress=False)
    else:
        first = layerscope.evaluate(model, tasks, tmp_path / "out", progress=False)
        assert first.failed == {"pairs": "stopped"} and first.table().shape == (4, 2)
    before = len(counted)
    monkeypatch.setattr(judges, "judge", judge)
    found = layerscope.evaluate(model, tasks, tmp_path / "out", progress=False)
    assert len(counted) == before and found.missing == 0
    whole = layerscope.evaluate(model, tasks, tmp_path / "whole", progress=False)
    assert found.table().equals(whole.table())


@pytest.mark.parametrize("kind", ["sts", "linear-probe"])
def test_other_data_under_the_same_name_are_refused_and_scores_stay(
    model, tasks, tmp_path: Path, kind: str
):
    task = tasks[1] if kind == "sts" else tasks[0].replace("classification", kind)
    first = layerscope.evaluate(
        model, task, tmp_path / "out", layers=[1], progress=False
    )
    with pytest.raises(
        LayerscopeError, match="holds scores of .* on other data .*: name another `out`"
    ):
        layerscope.evaluate(
            model, task, tmp_path / "out", layers=[2], samples=30, progress=False
        )
    assert layerscope.open_evaluation(tmp_path / "out").table().equals(first.table())


def test_an_evaluation_knows_where_its_model_is_and_how_deep(
    model, tasks, tmp_path: Path
):
    found = layerscope.evaluate(
        model, tasks[1], tmp_path / "out", layers=[1, 2], progress=False
    )
    saved = layerscope.open_evaluation(found.save(tmp_path / "saved"))
    for evaluation in (found, saved):
        origin = evaluation.origins["tiny-llama"]
        assert (origin.source, origin.depth) == (model, 3)
    choice = layerscope.select(saved, cost=False, progress=False)
    assert choice.depth == 3 == choice.baseline.layer and choice.source == model


def test_minilm_and_a_truncated_one_score_as_mteb_scores_them(
    shared: Path, tmp_path: Path
):
    mteb = pytest.importorskip("mteb")
    from sentence_transformers import SentenceTransformer

    from layerscope.models.checks import embedded

    def tasks() -> list[object]:
        files = [("classification", "trec"), ("sts", "stsbenchmark")]
        return open_tasks(
            [f"{kind}:{shared}/data/{name}" for kind, name in files], 100
        )[0]

    def scores_of(model: object) -> dict[str, float]:
        plain = SentenceTransformer(str(model), device="cpu")
        how = {"cache": None, "co2_tracker": False, "show_progress_bar": False}
        results = mteb.evaluate(plain, tasks(), **how).task_results
        return {result.task_name: result.get_score() for result in results}

    found = layerscope.evaluate(
        "minilm", tasks(), layers=[3, 6], device="cpu", progress=False
    )
    whole = scores_of(embedded("minilm"))
    assert found.baseline().iloc[0].to_dict() == pytest.approx(whole, abs=1e-3)
    assert found.table().loc[6].to_dict() == pytest.approx(whole, abs=1e-3)
    cut = layerscope.truncate("minilm", 3, tmp_path / "small", progress=False)
    assert found.table().loc[3].to_dict() == pytest.approx(scores_of(cut), abs=1e-3)


def written(folder: Path, **columns: list[object]) -> str:
    path = folder / "rows.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return str(path)


@pytest.mark.parametrize(
    ("kind", "columns", "line"),
    [
        (
            "classification",
            {"text": ["a", "b"], "label": ["x", "x"]},
            "every row has the label 'x'",
        ),
        (
            "classification",
            {"text": ["a", "b"], "label": ["x", "y"]},
            "a different label",
        ),
        (
            "sts",
            {"text_a": ["a", "b"], "text_b": ["a", ""], "score": [1, 2]},
            "row 1 has no text_b: fill it in",
        ),
        (
            "pair-classification",
            {"text_a": list("abc"), "text_b": list("abc"), "label": [0, 2, 2]},
            "has the label '2': give",
        ),
        (
            "clusters",
            {"text": ["a"]},
            "task kind 'clusters' does not exist, did you mean clustering",
        ),
    ],
)
def test_wrong_files_are_refused_in_one_line(
    cli: Callable, tmp_path: Path, kind, columns, line
):
    printed = cli(
        "evaluate",
        "minilm",
        "--data",
        f"{kind}:{written(tmp_path, **columns)}",
        "--out",
        tmp_path / "o",
    )
    assert (
        printed.status == 2 and line in printed.line and not (tmp_path / "o").exists()
    )


def test_wrong_names_are_refused_in_one_line(
    cli: Callable, model, tasks, tmp_path: Path
):
    assert (
        "did you mean STSBenchmark?"
        in cli("evaluate", "minilm", "--tasks", "STSBenchmrk").line
    )
    assert "no task is named" in cli("evaluate", "minilm").line
    with pytest.raises(
        LayerscopeError,
        match="layer 4 does not exist: tiny-llama has the layers 0 to 3",
    ):
        layerscope.evaluate(model, tasks, tmp_path / "out", layers=[4], progress=False)
    with pytest.raises(
        LayerscopeError,
        match="site 'norm' is not one of this model, did you mean normed",
    ):
        layerscope.evaluate(
            model, tasks, tmp_path / "out", sites="norm", progress=False
        )


def test_a_side_that_must_be_named_and_places_that_are_no_folder(
    cli: Callable, tasks, tmp_path: Path
):
    config = transformers.T5Config(
        vocab_size=94,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    t5 = tiny.saved(
        tiny.seeded(transformers.T5ForConditionalGeneration, config),
        tmp_path / "tiny-t5",
        special=True,
    )
    line = cli("evaluate", t5, "--data", tasks[1], "--out", tmp_path / "o").line
    assert (
        "encoder" in line
        and "decoder" in line
        and "--part" in line
        and not (tmp_path / "o").exists()
    )
    found = layerscope.evaluate(str(t5), tasks[1], part="encoder", progress=False)
    assert list(found.table().index) == [0, 1, 2] and found.failed == {}
    file = tmp_path / "topics.csv"
    assert cli("evaluate", t5, "--data", tasks[1], "--out", file).line.endswith(
        "is a file): name a folder"
    )


def test_the_model_of_a_run(model, tasks, tmp_path: Path):
    run = layerscope.profile(
        model,
        tiny.texts(12),
        out=tmp_path / "run",
        metrics="effective_rank",
        pooling="last",
        progress=False,
    )
    found = layerscope.evaluate(run, tasks[1], progress=False)
    named = layerscope.evaluate(
        str(tmp_path / "run"), tasks[1], layers=[2], pooling="mean", progress=False
    )
    direct = layerscope.evaluate(model, tasks[1], pooling="mean,last", progress=False)
    assert set(found.scores.loc[found.scores["kind"] == "layer", "pooling"]) == {"last"}
    assert found.table().equals(direct.table(pooling="last"))
    assert named.table().loc[2, "pairs"] == direct.table(pooling="mean").loc[2, "pairs"]


def test_the_tasks_of_the_paper(published: Path):
    mteb = pytest.importorskip("mteb")
    names = set(pd.read_csv(published / "mteb_scores.csv.gz")["task"])
    found = {
        task.metadata.name: task
        for task in open_tasks(["layer-by-layer", "NFCorpus"])[0]
    }
    assert (
        set(PAPER_TASKS) == names
        and set(found) == names | {"NFCorpus"}
        and len(names) == 32
    )
    subsets = {
        name: task.hf_subsets
        for name, task in found.items()
        if task.hf_subsets != ["default"]
    }
    assert subsets.pop("STS17") == ["en-en"] and sorted(
        subsets.pop("AmazonCounterfactualClassification")
    ) == [
        "en",
        "en-ext",
    ]
    assert len(subsets) == 5 and all(names == ["en"] for names in subsets.values())
    assert all(list(found[name].eval_splits) == ["test"] for name in names)
    assert mteb.get_task("STS17").hf_subsets != ["en-en"]


def test_data_that_cannot_be_loaded_are_named_and_the_rest_goes_on(
    cli: Callable, model, tasks, tmp_path, monkeypatch
):
    import mteb

    def unreachable(self: object, **options: object) -> None:
        raise ConnectionError("no hub")

    monkeypatch.setattr(type(mteb.get_task("STSBenchmark")), "load_data", unreachable)
    printed = cli(
        "evaluate",
        model,
        "--tasks",
        "STSBenchmark",
        "--data",
        tasks[1],
        "--out",
        tmp_path / "o",
        "--json",
    )
    assert (
        printed.status == 1
        and "mteb/stsbenchmark-sts' cannot be loaded (the hub cannot be reached)"
        in printed.err
        and '"failed"' in printed.out
    )
    assert layerscope.open_evaluation(tmp_path / "o").table().shape == (4, 1)


def test_clustering_and_pairs_of_a_file(model, tmp_path: Path):
    texts = tiny.texts(24)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    groups = written(tmp_path / "a", text=texts, label=list("abc") * 8)
    twins = written(
        tmp_path / "b",
        text_a=texts,
        text_b=texts[:12] + texts[:12],
        label=[1] * 12 + [0] * 12,
    )
    with pytest.raises(LayerscopeError, match="two tasks have the name 'rows'"):
        layerscope.evaluate(
            model,
            [f"clustering:{groups}", f"pair-classification:{twins}"],
            progress=False,
        )
    clusters = layerscope.evaluate(model, f"clustering:{groups}", progress=False)
    pairs = layerscope.evaluate(
        model, f"pair-classification:{twins}", layers=[1, 3], progress=False
    )
    assert (
        clusters.table().shape == (4, 1)
        and clusters.table()["rows"].between(0, 1).all()
    )
    assert list(pairs.table().index) == [1, 3] and (pairs.table()["rows"] > 0.9).all()


def test_a_full_disk_is_one_line(
    cli: Callable, model, tasks, tmp_path: Path, monkeypatch
):
    # two layers and the last one, 32 floats each, and a key of 16 bytes
    full = shutil.disk_usage("/")._replace(free=(3 * 32 * 4 + 16) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    words = "--data", tasks[1], "--out", tmp_path / "p", "--layers", "1,2"
    line = cli("evaluate", model, *words).line
    assert "take fewer --samples, --layers or poolings, or another --out" in line


def test_a_cls_pooled_encoder_keeps_its_sts_tasks(
    tasks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    body = Transformer(
        str(tiny.saved(tiny.bert(), tmp_path / "tiny-bert", special=True))
    )
    served = SentenceTransformer(
        modules=[body, Pooling(32, pooling_mode="cls")], device="cpu"
    )
    found = layerscope.evaluate(served, tasks)
    assert found.failed == {} and "layer 0 has no score" in capsys.readouterr().err
    assert found.table()["pairs"].isna().tolist() == [True, False, False, False]
    (grid,) = found.grids()
    assert grid.left_out == (0,) and set(grid.complete) == {"pairs", "topics"}
    assert found.baseline()["pairs"].notna().all()


@pytest.mark.parametrize("kind", ["sts", "knn-probe"])
def test_what_a_judge_raises_is_one_line_with_task_and_layer(
    model, tasks, monkeypatch, tmp_path: Path, kind: str
):
    def broken(*args: object, **options: object) -> object:
        raise ValueError("no such thing\nand more")

    if kind == "sts":
        monkeypatch.setattr("mteb.abstasks.AbsTaskSTS.evaluate", broken)
        line = "no task could be judged; pairs: the model as shipped: ValueError: no such thing"
    else:
        record = replace(kind_of(kind), probe=broken)
        monkeypatch.setattr("layerscope.evaluation.kinds.knn_probe.KIND", record)
        line = "topics .kNN probe. fails at layer 3: ValueError: no such thing"
    task = tasks[1] if kind == "sts" else tasks[0].replace("classification", kind)
    with pytest.raises(LayerscopeError, match=line):
        layerscope.evaluate(model, task, progress=False)
