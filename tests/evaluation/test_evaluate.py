"""Every layer on tasks: mteb's own scores, every text embedded once, resumed after a stop, one line for wrong input."""

import shutil
from dataclasses import replace

import pandas as pd
import pytest
import tiny
from models import zoo
from typed import refused

import layerscope
from layerscope.evaluation import judges
from layerscope.evaluation.judging import UnjudgedError, judge
from layerscope.evaluation.kinds import kind_of
from layerscope.evaluation.tasks import PAPER_TASKS, open_tasks


@pytest.fixture
def model(llama):
    return llama


@pytest.fixture
def tasks(tmp_path):
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


def test_all_layers_with_every_text_embedded_once(model, tasks, counted, tmp_path):
    found = layerscope.evaluate(model, tasks[1], tmp_path / "out", sites="raw,normed")
    assert len(counted) == len(set(counted)) > 40
    assert found.table(site="raw").shape == found.table(site="normed").shape == (4, 1)
    assert (
        found.table(site="normed").loc[3, "pairs"] == found.baseline()["pairs"].item()
    )
    assert found.failed == {} and set(found.scores["model"]) == {"tiny-llama"}
    assert not (tmp_path / "out" / "states").exists()
    layerscope.evaluate(model, tasks[1], tmp_path / "out", sites="raw,normed")
    assert len(counted) == len(set(counted))  # nothing is left to do


def test_failed_in_the_second_task_nothing_is_embedded_twice(
    model, tasks, counted, tmp_path, monkeypatch
):
    judged = []

    def stopping(task, encoder):
        judged.append(encoder)
        if len(judged) == 8:
            encoder.encode(
                [{"text": tiny.texts(40)}],
                task_metadata=None,
                hf_split="",
                hf_subset="",
            )
            raise UnjudgedError("stopped")
        return judge(task, encoder)

    monkeypatch.setattr(judges, "judge", stopping)
    first = layerscope.evaluate(model, tasks, tmp_path / "out")
    assert first.failed == {"pairs": "stopped"} and first.table().shape == (4, 2)
    before = len(counted)
    monkeypatch.setattr(judges, "judge", judge)
    found = layerscope.evaluate(model, tasks, tmp_path / "out")
    assert len(counted) == before and found.missing == 0


@pytest.mark.parametrize("kind", ["sts", "linear-probe"])
def test_other_data_under_the_same_name_are_refused_and_scores_stay(
    model, tasks, tmp_path, kind
):
    task = tasks[1] if kind == "sts" else tasks[0].replace("classification", kind)
    first = layerscope.evaluate(model, task, tmp_path / "out", layers=[1])
    with refused("holds scores of .* on other data .*: name another `out`"):
        layerscope.evaluate(model, task, tmp_path / "out", layers=[2], samples=30)
    assert layerscope.open_evaluation(tmp_path / "out").table().equals(first.table())


def test_an_evaluation_knows_where_its_model_is_and_how_deep(model, tasks, tmp_path):
    found = layerscope.evaluate(model, tasks[1], tmp_path / "out", layers=[1, 2])
    saved = layerscope.open_evaluation(found.save(tmp_path / "saved"))
    for evaluation in (found, saved):
        origin = evaluation.origins["tiny-llama"]
        assert (origin.source, origin.depth) == (model, 3)
    choice = layerscope.select(saved, cost=False)
    assert choice.depth == 3 == choice.baseline.layer and choice.source == model


def test_a_model_and_a_truncated_one_score_as_mteb_scores_them(tasks, tmp_path):
    mteb = pytest.importorskip("mteb")
    from sentence_transformers import SentenceTransformer

    folder = tiny.saved(tiny.bert(), tmp_path / "bert")
    tiny.sentence_encoder(folder).save(str(tmp_path / "whole"))

    def scores_of(model):
        plain = SentenceTransformer(str(model), device="cpu")
        how = {"cache": None, "co2_tracker": False, "show_progress_bar": False}
        results = mteb.evaluate(plain, open_tasks(tasks)[0], **how).task_results
        return {result.task_name: result.get_score() for result in results}

    found = layerscope.evaluate(
        str(tmp_path / "whole"), tasks, layers=[2, 3], device="cpu"
    )
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    layerscope.truncate(str(whole), 2, cut)
    # one of 200 predictions may flip: the vectors of a random model are much alike
    reference = pytest.approx(scores_of(whole), abs=6e-3)
    assert found.baseline().iloc[0].to_dict() == reference
    assert found.table().loc[3].to_dict() == reference
    reference = pytest.approx(scores_of(cut), abs=6e-3)
    assert found.table().loc[2].to_dict() == reference


def written(folder, **columns):
    path = folder / "rows.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return str(path)


@pytest.mark.parametrize(
    "kind, columns, line",
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
            "clusters",
            {"text": ["a"]},
            "task kind 'clusters' does not exist, did you mean clustering",
        ),
    ],
)
def test_wrong_files_are_refused_in_one_line(cli, tmp_path, kind, columns, line):
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


def test_wrong_names_are_refused_in_one_line(cli, model, tasks, tmp_path):
    wrong = cli("evaluate", "minilm", "--tasks", "STSBenchmrk").line
    assert "did you mean STSBenchmark?" in wrong
    kind = cli("evaluate", "minilm", "--tasks", "Sts:pairs.csv").line
    assert "task kind 'Sts' does not exist, did you mean sts?" in kind
    images = cli("evaluate", "minilm", "--tasks", "CIFAR10").line
    assert "task CIFAR10 reads image: evaluate takes tasks of mteb on texts" in images
    assert "no task is named" in cli("evaluate", "minilm").line
    with refused("layer 4 does not exist: tiny-llama has the layers 0 to 3"):
        layerscope.evaluate(model, tasks, tmp_path / "out", layers=[4])
    with refused("site 'norm' is not one of this model, did you mean normed"):
        layerscope.evaluate(model, tasks, tmp_path / "out", sites="norm")


def test_a_side_that_must_be_named(cli, tasks, tmp_path):
    sizes = {"d_ff": 48, "d_kv": 8, "decoder_start_token_id": 0}
    model = zoo.seeded("T5ForConditionalGeneration", 2, **sizes)
    t5 = tiny.saved(model, tmp_path / "tiny-t5")
    line = cli("evaluate", t5, "--data", tasks[1], "--out", tmp_path / "o").line
    assert (
        "encoder" in line
        and "decoder" in line
        and "--part" in line
        and not (tmp_path / "o").exists()
    )
    found = layerscope.evaluate(str(t5), tasks[1], part="encoder")
    assert list(found.table().index) == [0, 1, 2] and found.failed == {}


def test_the_model_of_a_run(model, tasks, tmp_path):
    out, metrics = tmp_path / "run", "effective_rank"
    run = layerscope.profile(
        model, tiny.texts(12), out=out, metrics=metrics, pooling="last"
    )
    found = layerscope.evaluate(run, tasks[1], layers=[2])
    direct = layerscope.evaluate(model, tasks[1], layers=[2], pooling="last")
    assert set(found.scores["pooling"].dropna()) == {"last"}
    assert found.table().equals(direct.table())


def test_the_states_of_a_run_are_read(model, tasks, forwards, tmp_path):
    data = tasks[0].partition(":")[2]
    run = layerscope.profile(
        model, data, out=tmp_path / "run", metrics="effective_rank"
    )
    probes = [f"linear-probe:{data}", f"knn-probe:{data}"]
    direct = layerscope.evaluate(model, probes)
    before = len(forwards)
    found = layerscope.evaluate(str(run.path), probes)
    assert len(forwards) == before
    assert found.table().equals(direct.table())
    layerscope.evaluate(run, probes[0], pooling="first", layers=[1])
    assert len(forwards) > before, "a pooling that the run has not"


def test_the_tasks_of_the_paper(published):
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
    cli, model, tasks, tmp_path, monkeypatch
):
    import mteb

    def unreachable(self, **options):
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


def test_clusters_of_a_file(model, tmp_path):
    groups = written(tmp_path, text=tiny.texts(24), label=list("abc") * 8)
    with refused("two tasks have the name 'rows'"):
        tasks = [f"clustering:{groups}", f"classification:{groups}"]
        layerscope.evaluate(model, tasks)
    found = layerscope.evaluate(model, f"clustering:{groups}")
    assert found.table().shape == (4, 1)
    assert found.table()["rows"].between(0, 1).all()


def test_a_full_disk_is_one_line(cli, model, tasks, tmp_path, monkeypatch):
    # two layers and the last one, 32 floats each, and a key of 16 bytes
    full = shutil.disk_usage("/")._replace(free=(3 * 32 * 4 + 16) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    words = "--data", tasks[1], "--out", tmp_path / "p", "--layers", "1,2"
    line = cli("evaluate", model, *words).line
    assert "take fewer --samples, --layers or poolings, or another --out" in line


def test_a_cls_pooled_encoder_keeps_its_sts_tasks(tasks, tmp_path, capsys):
    folder = tiny.saved(tiny.bert(), tmp_path / "tiny-bert")
    served = tiny.sentence_encoder(folder, pooling="cls")
    found = layerscope.evaluate(served, tasks)
    assert found.failed == {} and "layer 0 has no score" in capsys.readouterr().err
    assert found.table()["pairs"].isna().tolist() == [True, False, False, False]
    (grid,) = found.grids()
    assert grid.left_out == (0,) and set(grid.complete) == {"pairs", "topics"}
    assert found.baseline()["pairs"].notna().all()


@pytest.mark.parametrize("kind", ["sts", "knn-probe"])
def test_what_a_judge_raises_is_one_line_with_task_and_layer(
    model, tasks, monkeypatch, tmp_path, kind
):
    def broken(*args, **options):
        raise ValueError("no such thing\nand more")

    if kind == "sts":
        monkeypatch.setattr("mteb.abstasks.AbsTaskSTS.evaluate", broken)
        line = "no task could be judged; pairs: the model as shipped: ValueError: no such thing"
    else:
        record = replace(kind_of(kind), probe=broken)
        monkeypatch.setattr("layerscope.evaluation.kinds.knn_probe.KIND", record)
        line = "topics .kNN probe. fails at layer 3: ValueError: no such thing"
    task = tasks[1] if kind == "sts" else tasks[0].replace("classification", kind)
    with refused(line):
        layerscope.evaluate(model, task)
