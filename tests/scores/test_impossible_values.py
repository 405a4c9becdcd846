"""Published entropies that cannot be."""

import math

import pandas as pd
from frames import scored

from layerscope.scores import Evaluation, line_on_impossible, open_metrics


def test_entropies_beyond_the_logarithm_of_their_samples_are_found(published):
    metrics = open_metrics(published / "metrics.csv.gz")
    # the authors took 1,000 samples; Pythia-160m has 768 features
    names = {"Pythia-160m": math.log(768), "Pythia-410m": math.log(1000)}
    raw = metrics[metrics["variant"] == "raw"]
    raw = raw[raw["metric"].isin(["dataset_entropy", "prompt_entropy"])]
    wrong = raw[raw["value"] > raw["model"].map(names)]
    most = wrong.loc[wrong["value"].idxmax()]
    line = line_on_impossible(metrics)
    assert len(wrong) == 11 and line.startswith("impossible values: 22, such as ")
    assert f"{most['metric']} (raw) 13.78 of {most['model']}" in line


def test_an_entropy_that_cannot_be_is_noted(cli, tmp_path):
    about = {
        "model": "Pythia-14m",
        "revision": "r",
        "dataset": "wikitext",
        "metric": "entropy_dataset",
    }
    rows = [
        {**about, "normalization": variant, "layer": layer, "value": value * scale}
        for layer, value in enumerate((0.5, 2.0))
        for variant, scale in (("raw", math.log(1000)), ("maxEntropy", 1))
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "metrics.csv", index=False)
    scores = Evaluation(scored({"STS17": [0.125, 0.625]}, "Pythia-14m")).save(
        tmp_path / "scores"
    )
    printed = cli("scores", scores, "--metrics", tmp_path / "metrics.csv")
    assert printed.status == 0 and printed.err.splitlines()[0] == (
        f"{tmp_path / 'metrics.csv'}: impossible values: 2, such as dataset_entropy (raw) 13.82 of Pythia-14m at layer "
        "1 on wikitext, whose maximum is 6.908; they are used as they are"
    )
