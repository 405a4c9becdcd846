"""Every layer on tasks: mteb's own scores, every text embedded once, resumed after a stop, one line for wrong input."""

import shutil
from dataclasses import replace

import mteb
import pandas as pd
import pytest
import tiny
from evaluation.references import scores_by_mteb
from models import zoo
from sentence_transformers import SentenceTransformer
from typed import refused

import layerscope
from layerscope.evaluation import judges
from layerscope.evaluation.judging import UnjudgedError, judge
from layerscope.evaluation.kinds import kind_of
from layerscope.evaluation.tasks import PAPER_TASKS, open_tasks


@pytest.fixture
def tasks(table, tmp_path):
    """A classification and an STS of 40 rows each."""
    texts = tiny.texts(40)
    pairs = {
        "text_a": texts,
        "text_b": tiny.texts(40, seed=1),
        "score": [i % 6 for i in range(40)],
    }
    file = tmp_path / "pairs.jsonl"
    pd.DataFrame(pairs).to_json(file, orient="records", lines=True)
    topics = table("topics", text=texts, label=["a", "b"] * 20)
    return [f"classification:{topics}", f"sts:{file}"]


def test_all_layers_with_every_text_embedded_once(llama, tasks, counted, tmp_path):
    found = layerscope.evaluate(llama, tasks[1], tmp_path / "out", sites="raw,normed")
    assert len(counted) == len(set(counted)) > 40
    assert found.table(site="raw").shape == found.table(site="normed").shape == (4, 1)
    assert (
        found.table(site="normed").loc[3, "pairs"] == found.baseline()["pairs"].item()
    )
    assert found.failed == {} and set(found.scores["model"]) == {"tiny-llama"}
    assert not (tmp_path / "out" / "states").exists()
    layerscope.evaluate(llama, tasks[1], tmp_path / "out", sites="raw,normed")
    assert len(counted) == len(set(counted))  # nothing is left to do


def test_failed_in_the_second_task_nothing_is_embedded_twice(
    llama, tasks, counted, tmp_path, monkeypatch
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
    first = layerscope.evaluate(llama, tasks, tmp_path / "out")
    assert first.failed == {"pairs": "stopped"} and first.table().shape == (4, 2)
    before = len(counted)
    monkeypatch.setattr(judges, "judge", judge)
    found = layerscope.evaluate(llama, tasks, tmp_path / "out")
    assert len(counted) == before and found.missing == 0


@pytest.mark.parametrize("kind", ["sts", "linear-probe"])
def test_other_data_under_the_same_name_are_refused_and_scores_stay(
    llama, tasks, tmp_path, kind
):
    task = tasks[1] if kind == "sts" else tasks[0].replace("classification", kind)
    first = layerscope.evaluate(llama, task, tmp_path / "out", layers=[1])
    with refused("holds scores of .* on other data .*: name another `out`"):
        layerscope.evaluate(llama, task, tmp_path / "out", layers=[2], samples=30)
    assert layerscope.open_evaluation(tmp_path / "out").table().equals(first.table())


def test_an_evaluation_knows_where_its_model_is_and_how_deep(llama, tasks, tmp_path):
    found = layerscope.evaluate(llama, tasks[1], tmp_path / "out", layers=[1, 2])
    saved = layerscope.open_evaluation(found.save(tmp_path / "saved"))
    for evaluation in (found, saved):
        origin = evaluation.origins["tiny-llama"]
        assert (origin.source, origin.depth) == (str(llama), 3)
    choice = layerscope.select(saved, cost=False)
    assert choice.depth == 3 == choice.baseline.layer and choice.source == str(llama)


def test_a_model_and_a_truncated_one_score_as_mteb_scores_them(bert, tasks, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    tiny.sentence_encoder(bert).save(str(whole))
    layerscope.truncate(str(whole), 2, cut)
    found = layerscope.evaluate(str(whole), tasks, layers=[2, 3], device="cpu")

    # one of 200 predictions may flip: the vectors of a random model are much alike
    reference, truncated = (
        pytest.approx(
            scores_by_mteb(SentenceTransformer(str(path), device="cpu"), tasks),
            abs=6e-3,
        )
        for path in (whole, cut)
    )
    assert found.baseline().iloc[0].to_dict() == reference
    assert found.table().loc[3].to_dict() == reference
    assert found.table().loc[2].to_dict() == truncated


def test_wrong_names_are_refused_in_one_line(refusal, llama, tasks, tmp_path):
    for name, line in (
        ("STSBenchmrk", "did you mean STSBenchmark?"),
        ("Sts:pairs.csv", "task kind 'Sts' does not exist, did you mean sts?"),
        ("CIFAR10", "task CIFAR10 reads image: evaluate takes tasks of mteb on texts"),
    ):
        assert line in refusal("evaluate", "minilm", "--tasks", name)
    assert "no task is named" in refusal("evaluate", "minilm")
    with refused("layer 4 does not exist: tiny-llama has the layers 0 to 3"):
        layerscope.evaluate(llama, tasks, tmp_path / "out", layers=[4])
    with refused("site 'norm' is not one of this model, did you mean normed"):
        layerscope.evaluate(llama, tasks, tmp_path / "out", sites="norm")


def test_a_side_that_must_be_named(refusal, tasks, tmp_path):
    sizes = {"d_ff": 48, "d_kv": 8, "decoder_start_token_id": 0}
    model = zoo.seeded("T5ForConditionalGeneration", 2, **sizes)
    t5 = tiny.saved(model, tmp_path / "tiny-t5")
    line = refusal("evaluate", t5, "--data", tasks[1], "--out", tmp_path / "o")
    assert all(word in line for word in ("encoder", "decoder", "--part"))
    found = layerscope.evaluate(str(t5), tasks[1], part="encoder")
    assert list(found.table().index) == [0, 1, 2] and found.failed == {}


def test_the_model_of_a_run(llama, tasks, tmp_path):
    out, metrics = tmp_path / "run", "effective_rank"
    run = layerscope.profile(
        llama, tiny.texts(12), out=out, metrics=metrics, pooling="last"
    )
    found = layerscope.evaluate(run, tasks[1], layers=[2])
    direct = layerscope.evaluate(llama, tasks[1], layers=[2], pooling="last")
    assert set(found.scores["pooling"].dropna()) == {"last"}
    assert found.table().equals(direct.table())


def test_the_states_of_a_run_are_read(llama, tasks, forwards, tmp_path):
    data = tasks[0].partition(":")[2]
    run = layerscope.profile(
        llama, data, out=tmp_path / "run", metrics="effective_rank"
    )
    probes = [f"linear-probe:{data}", f"knn-probe:{data}"]
    direct = layerscope.evaluate(llama, probes)
    before = len(forwards)
    found = layerscope.evaluate(str(run.path), probes)
    assert len(forwards) == before
    assert found.table().equals(direct.table())
    layerscope.evaluate(run, probes[0], pooling="first", layers=[1])
    assert len(forwards) > before, "a pooling that the run has not"


def test_the_tasks_of_the_paper(published):
    names = set(pd.read_csv(published / "mteb_scores.csv.gz")["task"])
    opened = open_tasks(["layer-by-layer", "NFCorpus"])[0]
    tasks = {task.metadata.name: task for task in opened}
    assert set(PAPER_TASKS) == names == set(tasks) - {"NFCorpus"} and len(names) == 32
    subsets = {name: task.hf_subsets for name, task in tasks.items()}
    assert subsets["STS17"] == ["en-en"] != mteb.get_task("STS17").hf_subsets
    assert sorted(subsets["AmazonCounterfactualClassification"]) == ["en", "en-ext"]
    assert list(subsets.values()).count(["en"]) == 5
    assert list(subsets.values()).count(["default"]) == 33 - 7
    assert all(list(tasks[name].eval_splits) == ["test"] for name in names)


def test_data_that_cannot_be_loaded_are_named_and_the_rest_goes_on(
    cli, llama, tasks, tmp_path, monkeypatch
):

    def unreachable(self, **options):
        raise ConnectionError("no hub")

    monkeypatch.setattr(type(mteb.get_task("STSBenchmark")), "load_data", unreachable)
    printed = cli(
        "evaluate",
        llama,
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


def test_clusters_of_a_file(llama, table):
    groups = table(text=tiny.texts(24), label=list("abc") * 8)
    scores = layerscope.evaluate(llama, f"clustering:{groups}").table()
    assert scores.shape == (4, 1) and scores["rows"].between(0, 1).all()


def test_a_full_disk_is_one_line(cli, llama, tasks, tmp_path, monkeypatch):
    # two layers and the last one, 32 floats each, and a key of 16 bytes
    full = shutil.disk_usage("/")._replace(free=(3 * 32 * 4 + 16) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    words = "--data", tasks[1], "--out", tmp_path / "p", "--layers", "1,2"
    line = cli("evaluate", llama, *words).line
    assert "take fewer --samples, --layers or poolings, or another --out" in line


def test_a_cls_pooled_encoder_keeps_its_sts_tasks(bert, tasks, capsys):
    served = tiny.sentence_encoder(bert, pooling="cls")
    found = layerscope.evaluate(served, tasks)
    assert found.failed == {} and "layer 0 has no score" in capsys.readouterr().err
    assert found.table()["pairs"].isna().tolist() == [True, False, False, False]
    (grid,) = found.grids()
    assert grid.left_out == (0,) and set(grid.complete) == {"pairs", "topics"}
    assert found.baseline()["pairs"].notna().all()


@pytest.mark.parametrize("kind", ["sts", "knn-probe"])
def test_what_a_judge_raises_is_one_line_with_task_and_layer(
    llama, tasks, monkeypatch, tmp_path, kind
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
        layerscope.evaluate(llama, task)
