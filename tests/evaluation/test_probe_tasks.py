"""Probes as tasks of `evaluate`: equal to plain scikit-learn, joined with mteb's tasks."""

import json

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from sklearn.datasets import load_digits
from typed import refused

import layerscope
from layerscope.evaluation.tasks import open_tasks
from layerscope.inputs import draw, open_corpus
from layerscope.probes import knn_probe, linear_probe


def test_linear_and_nearest_neighbour_probes_read_every_layer(vit, tmp_path, forwards):
    tasks = ["linear-probe:digits", "knn-probe:digits"]
    found = layerscope.evaluate(
        vit, tasks, tmp_path / "out", samples=150, pooling="mean"
    )
    assert sum(forwards) == 150, "one pass for both, and for all layers"
    chosen = np.array(list(map(int, draw(open_corpus("digits"), 150, seed=0).names)))
    digits, labels = load_digits().images[chosen], load_digits().target[chosen]
    images = [
        np.rint(image * 255 / 16).astype("uint8")[..., None].repeat(3, 2)
        for image in digits
    ]
    module = hf.ViTModel.from_pretrained(vit).eval()
    states = {}
    for layer, block in enumerate(module.layers, start=1):
        block.register_forward_hook(
            lambda _, __, out, layer=layer: states.__setitem__(layer, hidden(out))
        )
    with torch.no_grad():
        module(**hf.ViTImageProcessor.from_pretrained(vit)(images, return_tensors="pt"))
        rows = {
            layer: module.layernorm(state).mean(1).double().numpy()
            for layer, state in states.items()
        }
    table = found.table(site="normed", pooling="mean")
    for layer in (1, 2, 3):
        assert table.loc[layer, "digits (linear probe)"] == pytest.approx(
            linear_probe(rows[layer], labels).mean, abs=0.015
        )
        assert table.loc[layer, "digits (kNN probe)"] == pytest.approx(
            knn_probe(rows[layer], labels).mean, abs=0.015
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


def hidden(output):
    return output if isinstance(output, torch.Tensor) else output[0]


def test_probes_and_tasks_of_mteb_stand_in_one_table(llama, texts, tmp_path):
    tasks = [
        f"{kind}:{texts}" for kind in ("classification", "linear-probe", "knn-probe")
    ]
    words = [
        {"tokens": text.split(), "tags": ["ab"[len(word) % 2] for word in text.split()]}
        for text in tiny.texts(20)
    ]
    (tmp_path / "pos.jsonl").write_text("\n".join(map(json.dumps, words)))
    tasks.append(f"token-probe:{tmp_path / 'pos.jsonl'}")
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
    rows = [
        {"tokens": text.split(), "tags": ["ab"[len(w) % 2] for w in text.split()]}
        for text in tiny.texts(20)
    ]
    (tmp_path / "pos.jsonl").write_text("\n".join(map(json.dumps, rows)))
    kinds = {"linear-probe": texts, "token-probe": str(tmp_path / "pos.jsonl")}
    frames = {kind: pd.read_csv(texts) for kind in kinds} | {
        "token-probe": pd.DataFrame(rows)
    }
    options = {"layers": [1]}
    one = layerscope.evaluate(
        llama, [f"{kind}:{path}" for kind, path in kinds.items()], **options
    ).scores
    two = layerscope.evaluate(llama, frames, **options).scores
    assert sorted(one["score"]) == sorted(two["score"]) and len(two) == 4
    assert set(two["task"]) == {"frame (linear probe)", "frame (token probe)"}
    for tasks, line in (
        ({"sts": frames["linear-probe"]}, "the data frame has no column 'text_a'"),
        (
            {"classification": [1]},
            "classification reads a pandas frame or a file, not a list",
        ),
        ({"probe": texts}, "task kind 'probe' does not exist"),
    ):
        with refused(line):
            layerscope.evaluate(llama, tasks, **options)


def test_a_sentence_transformer_as_shipped_is_probed_with_all_its_modules(
    texts, tmp_path
):
    from sentence_transformers.models import Dense

    torch.manual_seed(0)
    folder = tiny.saved(tiny.bert(), tmp_path / "bert")
    whole, other = (
        tiny.sentence_encoder(folder, Dense(32, 3), pooling=pooling)
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
    model = tiny.llama()
    model.model.embed_tokens.weight.data[len(tiny.SPECIAL) + 7] = torch.nan
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
