"""Probes as tasks of `evaluate`: equal to plain scikit-learn, joined with mteb's tasks."""

import datasets
import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from typed import refused

import layerscope
from layerscope.evaluation.tasks import open_tasks
from layerscope.inputs import draw, open_corpus
from layerscope.probes import knn_probe, linear_probe


def test_probes_read_images_of_a_whole_data_set_of_the_hub(vit, tmp_path):
    digits = draw(open_corpus("digits"), 60, seed=0)
    columns = {"image": list(digits.samples), "label": list(digits.labels)}
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.Value("int64")}
    )
    saved = datasets.Dataset.from_dict(columns, features=features)
    saved.save_to_disk(tmp_path / "data")
    tasks = [f"linear-probe:hf:{tmp_path / 'data'}"]
    found = layerscope.evaluate(vit, tasks, tmp_path / "out", pooling="mean")
    assert len(found.table(site="normed", pooling="mean")) == 4


def test_linear_and_nearest_neighbour_probes_read_every_layer(vit, tmp_path, forwards):
    tasks = ["linear-probe:digits", "knn-probe:digits"]
    found = layerscope.evaluate(
        vit, tasks, tmp_path / "out", samples=150, pooling="mean"
    )
    assert sum(forwards) == 150, "one pass for both, and for all layers"
    digits = draw(open_corpus("digits"), 150, seed=0)
    labels = np.array(digits.labels)
    pixels = hf.ViTImageProcessor.from_pretrained(vit)(
        list(digits.samples), return_tensors="pt"
    )
    module = hf.ViTModel.from_pretrained(vit).eval()
    states = []
    for block in module.layers:
        block.register_forward_hook(lambda _, __, out: states.append(out))
    with torch.no_grad():
        module(**pixels)
        rows = [module.layernorm(state).mean(1).double().numpy() for state in states]
    table = found.table(site="normed", pooling="mean")
    for layer in (1, 2, 3):
        assert table.loc[layer, "digits (linear probe)"] == pytest.approx(
            linear_probe(rows[layer - 1], labels).mean, abs=0.015
        )
        assert table.loc[layer, "digits (kNN probe)"] == pytest.approx(
            knn_probe(rows[layer - 1], labels).mean, abs=0.015
        )
    scores = found.scores
    assert (
        (scores["n"] == 150).all()
        and (scores["low"] < scores["score"]).all()
        and (scores["high"] < 1).all()
    )
    assert layerscope.open_evaluation(tmp_path / "out").scores.equals(scores)
    assert (
        set(found.scores["task"]) == set(found.baseline().columns)
        and found.failed == {}
    )
    assert not (tmp_path / "out" / "states").exists()


def tagged(folder):
    """Write words with tags into a file; return its path, and the same as a frame."""
    words = [text.split() for text in tiny.texts(20)]
    tags = [["ab"[len(word) % 2] for word in row] for row in words]
    frame = pd.DataFrame({"tokens": words, "tags": tags})
    frame.to_json(folder / "pos.jsonl", orient="records", lines=True)
    return folder / "pos.jsonl", frame


def test_probes_and_tasks_of_mteb_stand_in_one_table(llama, texts, tmp_path):
    tasks = [
        f"{kind}:{texts}" for kind in ("classification", "linear-probe", "knn-probe")
    ]
    tasks.append(f"token-probe:{tagged(tmp_path)[0]}")
    found = layerscope.evaluate(
        llama,
        tasks,
        tmp_path / "out",
        pooling="mean,last",
        layers=[1, 3],
    )
    names = ["topics", "topics (kNN probe)", "topics (linear probe)"]
    one, two = found.table(pooling="mean"), found.table(pooling="last")
    for table in (one, two):
        assert set(table) == set(names) and table.notna().all(axis=None)
    assert not one["topics (linear probe)"].equals(two["topics (linear probe)"])
    of_words = found.table(pooling="tokens")
    assert list(of_words) == ["pos (token probe)"] and len(of_words) == 2
    last = one.loc[3].to_dict() | of_words.loc[3].to_dict()
    assert found.baseline().iloc[0].to_dict() == last
    judged_by_mteb = found.scores[found.scores["task"] == "topics"]
    assert judged_by_mteb["n"].notna().all() and judged_by_mteb["stderr"].notna().all()
    saved = layerscope.open_evaluation(found.save(tmp_path / "saved"))
    assert saved.scores.equals(found.scores) and saved.scores.index.is_unique


def test_a_frame_is_read_as_the_file_it_was_written_to(llama, texts, tmp_path):
    path, tags = tagged(tmp_path)
    tasks = [f"linear-probe:{texts}", f"token-probe:{path}"]
    frames = {"linear-probe": pd.read_csv(texts), "token-probe": tags}
    one, two = (
        layerscope.evaluate(llama, either, layers=[1]).scores
        for either in (tasks, frames)
    )
    assert sorted(one["score"]) == sorted(two["score"]) and len(two) == 4
    assert set(two["task"]) == {"frame (linear probe)", "frame (token probe)"}
    with refused("the data frame has no column 'text_a'"):
        layerscope.evaluate(llama, {"sts": tags})
    with refused("classification reads a pandas frame or a file, not a list"):
        layerscope.evaluate(llama, {"classification": [1]})


def test_a_sentence_transformer_as_shipped_is_probed_with_all_its_modules(bert, texts):
    from sentence_transformers.models import Dense

    torch.manual_seed(0)
    whole, other = (
        tiny.sentence_encoder(bert, Dense(32, 3), pooling=pooling)
        for pooling in ("mean", "max")
    )
    found = layerscope.evaluate(whole, f"linear-probe:{texts}", layers=[3])
    table = pd.read_csv(texts)
    own = linear_probe(
        whole.encode(list(table["text"])), table["label"].to_numpy()
    ).mean
    assert found.baseline().iloc[0, 0] == pytest.approx(own, abs=0.035)
    assert found.baseline().iloc[0, 0] == found.table().iloc[0, 0]
    with refused("Transformer, Pooling, Dense: evaluate takes a transfo"):
        layerscope.evaluate(other, f"linear-probe:{texts}")


def test_samples_that_give_nan_are_left_out_and_counted(texts, tmp_path):
    model = tiny.broken_llama("w7")
    broken = sum("w7" in text.split() for text in pd.read_csv(texts)["text"])
    tasks = [f"{kind}:{texts}" for kind in ("linear-probe", "knn-probe")]
    options = {
        "processor": tiny.tokenizer(special=False),
        "layers": [1],
    }
    assert broken > 1
    found = layerscope.evaluate(model, tasks, **options)
    assert (found.scores["n"] == 60 - broken).all() and found.table().notna().all(
        axis=None
    )
    model.model.norm.weight.data[:] = torch.nan
    with refused("NaN or infinity for every sample"):
        layerscope.evaluate(model, tasks, **options)


def test_exact_copies_are_judged_once_and_never_beside_what_they_copy(
    llama, texts, tmp_path
):
    twice = tmp_path / "twice.csv"
    pd.concat([pd.read_csv(texts)] * 2).to_csv(twice, index=False)
    once, found = (
        layerscope.evaluate(
            llama,
            [f"{k}:{path}" for k in ("linear-probe", "knn-probe")],
            layers=[1],
        )
        for path in (texts, twice)
    )
    assert (
        found.scores["score"].tolist() == once.scores["score"].tolist()
        and (found.scores["n"] == 60).all()
    )
    halves = open_tasks(f"classification:{twice}")[0][0].dataset
    assert (
        len(halves["train"]) + len(halves["test"])
        == 60
        == len({*halves["train"]["text"], *halves["test"]["text"]})
    )
