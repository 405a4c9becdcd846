"""Layers at fewer dimensions as rows of an evaluation: numbers, what is kept and resumed, tables, refusals."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from scipy.stats import spearmanr
from tiny import one_thread
from typed import cli

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.evaluation.dimensions import Shorter
from layerscope.evaluation.probe_states import PROBES, Pooled, ProbeTask
from layerscope.probes import knn_probe, linear_probe
from layerscope.probes.linear import components_probe
from layerscope.scores.grids import grids
from layerscope.scores.tables import wide_csv

__all__ = ["cli", "one_thread"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.saved(tiny.bert(), tmp_path_factory.mktemp("models") / "tiny", special=True))


@torch.no_grad()
def states_of(model: str, texts: list[str]) -> np.ndarray:
    """Mean-pooled states [layers, N, D] of a BERT in float64, each text alone."""
    module, tokenizer = hf.AutoModel.from_pretrained(model).double().eval(), hf.AutoTokenizer.from_pretrained(model)
    given = [module(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states for text in texts]
    return np.stack([[layer[0].mean(0).numpy() for layer in states] for states in given], 1)


def test_probes_at_fewer_dimensions_from_one_pass(model: str, texts: str, tmp_path: Path, forwards: list[int]):
    tasks, options = [f"linear-probe:{texts}", f"knn-probe:{texts}"], {"pooling": "mean", "progress": False}
    plain = layerscope.evaluate(model, tasks, **options)
    once, forwards[:] = sum(forwards), []
    out = tmp_path / "out"
    found = layerscope.evaluate(model, tasks, out, dims=[16, 8, 32], **options)
    assert sum(forwards) == once == 60, "no forward beside that of the layers"
    same = ~found.scores["kind"].isin(["prefix", "PCA"])
    pd.testing.assert_frame_equal(found.scores[same].reset_index(drop=True), plain.scores)
    rows = found.scores[~same].set_index(["task", "kind", "layer", "dims"])["score"]
    frame = pd.read_csv(texts)
    states, labels = states_of(model, list(frame["text"])), frame["label"].to_numpy()
    assert len(rows) == len(states) * (2 + 2 + 2), "32 is all there is: no row beside the layer's"
    for (task, kind, layer, number), score in rows.items():
        cut = states[layer][:, :number]
        if kind == "PCA":
            wanted = components_probe(states[layer], labels, [number])[number]
        else:
            wanted = linear_probe(cut, labels) if "linear" in task else knn_probe(cut, labels)
        assert score == pytest.approx(wanted.mean, abs=1 / 60 + 1e-9), (task, kind, layer, number)
    assert found.origins[found.scores["model"].iloc[0]].width == 32
    kept = {path: path.read_bytes() for path in out.glob("probes/*/*.json")}
    forwards.clear()
    layerscope.evaluate(model, tasks, out, dims=[8, 16], **options)
    assert not forwards
    assert kept == {path: path.read_bytes() for path in out.glob("probes/*/*.json")}
    more = layerscope.evaluate(model, tasks, out, dims=[4], **options)
    assert sorted(more.scores["dims"].dropna().unique()) == [4, 8, 16]
    again = layerscope.open_evaluation(more.save(tmp_path / "saved"))
    pd.testing.assert_frame_equal(again.scores, more.scores)
    assert again.origins == more.origins


def test_mteb_judges_prefixes(model: str, tmp_path: Path):
    one, two = tiny.texts(16)[:8], tiny.texts(16)[8:]
    scores = np.random.default_rng(1).random(8).round(3)
    file = tmp_path / "pairs.csv"
    pd.DataFrame({"text_a": one, "text_b": two, "score": scores}).to_csv(file, index=False)
    found = layerscope.evaluate(model, f"sts:{file}", tmp_path / "o", pooling="mean", dims="8,16", progress=False)
    rows = found.scores[found.scores["kind"] == "prefix"].set_index(["layer", "dims"])["score"]
    states = states_of(model, one + two)
    assert set(rows.index) == {(layer, number) for layer in range(len(states)) for number in (8, 16)}
    for (layer, number), score in rows.items():
        cut = states[layer][:, :number]
        unit = cut / np.linalg.norm(cut, axis=1, keepdims=True)
        assert score == pytest.approx(spearmanr((unit[:8] * unit[8:]).sum(1), scores).statistic, abs=1e-6)
    pd.testing.assert_frame_equal(layerscope.open_evaluation(tmp_path / "o").scores, found.scores)


def test_the_label_is_in_the_first_dimensions_of_one_layer():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    states = {layer: rng.normal(size=(200, 64)) * np.r_[np.ones(16), 6 * np.ones(48)] for layer in range(4)}
    states[2][:, :16] += np.outer(2 * labels - 1, rng.normal(size=16))
    pooled = object.__new__(Pooled)
    pooled.slots = [(layer, "raw", "mean") for layer in states]
    pooled.layer = lambda slot: (states[slot[0]], labels)
    shorter = object.__new__(Shorter)
    shorter.states, shorter.dims = pooled, (16, 32)
    kept: list[dict] = []
    scores = SimpleNamespace(find=lambda *_: None)
    task = ProbeTask(PROBES["linear-probe"], SimpleNamespace(name="planted"))
    for slot, wanted in shorter.missing(task, scores).items():
        for (kind, dims), score in shorter.judge(task, slot, wanted, 0).items():
            kept.append({"kind": kind, "dims": dims, "layer": slot[0], "score": score.mean})
    table = pd.DataFrame(kept).pivot(index="layer", columns=["kind", "dims"], values="score")
    assert table.loc[2, ("prefix", 16)] >= linear_probe(states[2], labels).mean > 0.9
    assert table.loc[2, ("PCA", 16)] < 0.65
    assert table.drop(index=2).to_numpy().max() < 0.65


def grid_of(tasks: int = 2) -> layerscope.Evaluation:
    """Scores of three layers at 8, 16 and all dimensions, and after PCA to 8, each another number."""
    rows = []
    for task in range(tasks):
        for layer in range(3):
            for order, (kind, number) in enumerate((("prefix", 8), ("prefix", 16), ("layer", None), ("PCA", 8))):
                score = 0.5 + 0.1 * layer - 0.05 * (order == 0) + 0.01 * order + 0.02 * task
                rows.append({"model": "m", "layer": layer, "task": f"t{task}", "kind": kind, "dims": number})
                rows[-1] |= {"score": score, "stderr": 0.02}
    return layerscope.Evaluation(pd.DataFrame(rows))


def test_tables_maps_words_and_csv():
    scores = grid_of()
    shown = scores.document()
    tables = [part for part in shown.parts if getattr(part, "name", "").startswith("dims")]
    assert [table.title for table in tables] == [
        "Layers × dimensions, in %", "Layers × dimensions of t0, in %", "Layers × dimensions of t1, in %",
    ]  # fmt: skip
    assert [column.title for column in tables[0].columns] == ["layer", "8", "16", "all", "8 PCA"]
    assert [cell.text for cell in tables[0].rows[2].cells] == ["2", "66.00", "72.00", "73.00", "74.00"]
    assert [cell.marked for cell in tables[1].rows[2].cells] == [False, True, True, True, True]
    assert shown.answer.endswith("; at 16 dimensions −1.00 points (layer 2)"), shown.answer
    maps = [part for part in shown.sections[0].parts if getattr(part, "title", "") == "Layers × dimensions"]
    assert [part.choice for part in maps] == ["average", "t0", "t1"]
    assert maps[0].rows == ("8", "16", "all", "8 PCA")
    assert maps[0].values[1] == pytest.approx((52, 62, 72))
    assert maps[0].rings == (2,) * 4
    table = pd.read_csv(pd.io.common.StringIO(wide_csv(scores)), dtype={"dims": object})
    assert list(table.columns)[:7] == ["model", "revision", "site", "pooling", "layer", "dims", "t0"]
    assert table.set_index(["layer", "dims"]).loc[(1, "8 PCA"), "average"] == pytest.approx(0.64)
    assert table["dims"].isna().sum() == 3
    assert list(scores.table().index) == [0, 1, 2], "layers alone"


def test_nothing_changes_without_dims():
    scores = grid_of()
    plain = layerscope.Evaluation(scores.scores[scores.scores["kind"] == "layer"])
    assert "dims" not in wide_csv(plain).splitlines()[0]
    assert not [part for part in plain.document().parts if getattr(part, "name", "").startswith("dims")]
    assert "dimensions" not in plain.document().answer
    assert "dims" not in plain.document().sections[1].parts[0].frame
    assert scores.summary().equals(plain.summary())
    old = plain.scores.drop(columns="dims")
    pd.testing.assert_frame_equal(layerscope.Evaluation(old).scores, plain.scores)
    one, two = grids(scores.scores, 0.5)[0], grids(plain.scores, 0.5)[0]
    assert [one.at(layer, "t0").value for layer in one.layers] == [two.at(layer, "t0").value for layer in two.layers]


@pytest.mark.parametrize(
    ("dims", "kind", "line"),
    [
        ([64], "linear-probe", "dims is 64: the vectors of tiny have 32 dimensions, give fewer"),
        ([8, 8], "knn-probe", "dims has 8 twice: give each number once"),
        ([0], "linear-probe", "dims is 0: give whole numbers of at least 1, such as 32,64,128"),
        ("8,x", "linear-probe", "dims is 'x': give whole numbers"),
        ([8], "attention-probe", "`dims` applies to mteb tasks, linear-probe and knn-probe, and none is among"),
        ([64], "classification", "dims is 64: the vectors of tiny have 32 dimensions, give fewer"),
    ],
)
def test_wrong_dims_are_one_line(dims: object, kind: str, line: str, model: str, texts: str):
    with pytest.raises(LayerscopeError, match=line):
        layerscope.evaluate(model, f"{kind}:{texts}", dims=dims, pooling="mean", progress=False)


def test_the_command(model: str, texts: str, tmp_path: Path, cli):
    shown = cli(
        "evaluate", model, "--data", f"knn-probe:{texts}", "--dims", "8,16", "--layers", "2-3", "--out",
        tmp_path / "out", "--csv", tmp_path / "t.csv",
    )  # fmt: skip
    assert shown.status == 0
    assert "Layers × dimensions" in shown.out
    assert max(map(len, shown.out.partition("next:")[0].splitlines())) <= 80, "all but commands with long paths"
    assert "dimensions" in " ".join(shown.out.split())[:300], "in the answer"
    assert pd.read_csv(tmp_path / "t.csv", dtype=str)["dims"].dropna().tolist() == ["8", "8", "16", "16"]
