"""The results tree of the authors of Layer by Layer, as a folder and packed, and values of theirs that cannot be."""

import json
import math
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typed import cli

from layerscope.core.errors import LayerscopeError
from layerscope.scores import impossible, open_evaluation, open_metrics

__all__ = ["cli"]
NAMELESS = {"name": "no_model_name_available", "revision": "no_revision_available"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two layers of one task with English and other subsets, as mteb 1 wrote them."""
    for layer in (0, 1):
        folder = tmp_path / "results" / "Pythia" / "14m" / "step512" / "mteb" / f"layer_{layer}"
        folder.mkdir(parents=True)
        (folder / "model_meta.json").write_text(json.dumps(NAMELESS))
        subsets = [("en-en", ["eng-Latn"], 0.25 + layer), ("es-en", ["spa-Latn", "eng-Latn"], 0.75)]
        scores = [
            {"hf_subset": name, "languages": spoken, "main_score": s / 2}
            for name, spoken, s in subsets
        ]
        facts = {
            "dataset_revision": "r",
            "mteb_version": "1.14.19",
            "task_name": "STS17",
            "evaluation_time": 1.0,
        }
        (folder / "STS17.json").write_text(
            json.dumps({**facts, "kg_co2_emissions": None, "scores": {"test": scores}})
        )
    return tmp_path / "results"


def test_model_revision_and_layer_are_read_from_the_path(
    tree: Path, monkeypatch: pytest.MonkeyPatch
):
    found = open_evaluation(tree)
    assert set(zip(found.scores["model"], found.scores["revision"], strict=True)) == {
        ("Pythia-14m", "step512")
    }
    assert found.table()["STS17"].to_dict() == {0: 0.125, 1: 0.625}  # the English subset alone
    monkeypatch.chdir(tree / "Pythia" / "14m" / "step512" / "mteb")
    assert open_evaluation(".").scores.equals(found.scores)


def test_an_archive_of_the_tree_is_read_as_the_folder_is(tree: Path, tmp_path: Path):
    packed = tmp_path / "tree.tar.xz"
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(tree, "experiments/results")
    found = open_evaluation(packed)
    assert found.scores.equals(open_evaluation(tree).scores) and found.source == str(packed)
    packed.write_bytes(packed.read_bytes()[:200])
    with pytest.raises(
        LayerscopeError, match=r"tree.tar.xz cannot be unpacked .*: download it again"
    ):
        open_evaluation(packed)
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        archive.add(__file__, "other.py")
    with pytest.raises(LayerscopeError, match=r"other.tar holds no model_meta.json: give a CSV"):
        open_evaluation(tmp_path / "other.tar")


def test_a_path_that_names_no_layer_is_refused(tree: Path):
    (tree / "Pythia" / "14m" / "step512" / "mteb").rename(tree / "scores")
    with pytest.raises(
        LayerscopeError,
        match="names no model: keep it in folders FAMILY/SIZE/REVISION/mteb/layer_N",
    ):
        open_evaluation(tree)


def test_the_authors_tree_gives_the_scores_of_their_table(published: Path):
    found = open_evaluation(published / "tree_pythia14m.tar.xz").table()
    table = open_evaluation(published / "mteb_scores_more.csv.gz").table("Pythia-14m", "main")
    assert found.shape == (7, 32)
    assert np.allclose(found, table[found.columns], rtol=0, atol=1e-6)


def test_entropies_beyond_the_logarithm_of_their_samples_are_found(published: Path):
    metrics = open_metrics(published / "metrics.csv.gz")
    wrong = impossible(metrics)
    raw = wrong[wrong["variant"] == "raw"]
    # the authors took 1,000 samples; Pythia-160m has 768 features
    assert set(np.exp(raw["bound"]).round(6)) == {768, 1000}
    most = metrics["model"].map({"Pythia-160m": math.log(768), "Pythia-410m": math.log(1000)})
    entropy = metrics["metric"].isin(["dataset_entropy", "prompt_entropy"]) & (
        metrics["variant"] == "raw"
    )
    assert sorted(raw["value"]) == sorted(metrics.loc[entropy & (metrics["value"] > most), "value"])
    assert len(wrong) == 2 * len(raw) == 22
    assert wrong["value"].iloc[0] == pytest.approx(13.779, abs=1e-3)


def test_an_entropy_that_cannot_be_is_noted(cli: Callable, tree: Path, tmp_path: Path):
    about = {
        "model": "Pythia-14m",
        "revision": "step512",
        "dataset": "wikitext",
        "metric": "entropy_dataset",
    }
    rows = [
        {**about, "normalization": variant, "layer": layer, "value": value * scale}
        for layer, value in enumerate((0.5, 2.0))
        for variant, scale in (("raw", math.log(1000)), ("maxEntropy", 1))
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "metrics.csv", index=False)
    printed = cli("scores", tree, "--metrics", tmp_path / "metrics.csv", "--bootstrap", "0")
    assert printed.status == 0 and printed.err.splitlines()[0] == (
        f"{tmp_path / 'metrics.csv'}: impossible values: 2, such as dataset_entropy (raw) 13.82 of Pythia-14m at layer "
        "1 on wikitext, whose maximum is 6.908; they are used as they are"
    )
