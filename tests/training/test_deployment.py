"""From training to deployment, on real text: what `train` reports is what the files it leaves score elsewhere."""

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf

import layerscope
from layerscope.early_exit import ExitModel
from layerscope.inputs import open_corpus
from layerscope.models.checks import EMBEDDED, embedded

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
HOW = {"padding": True, "truncation": True, "max_length": 32}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Return docstrings of two modules of Python's library, labelled by module: a file to learn and one held out."""
    corpus = open_corpus("stdlib-docs")
    table = pd.DataFrame({"text": corpus.samples, "label": corpus.labels})
    two = table[table["label"].isin(["tkinter", "asyncio"])]
    two = two.sample(frac=1, random_state=0)
    folder = tmp_path_factory.mktemp("docs")
    train, held = folder / "train.csv", folder / "held.csv"
    two[100:700].to_csv(train, index=False)
    two[:100].to_csv(held, index=False)
    return train, held


def test_what_train_reports_is_what_pipelines_and_onnxruntime_score(tmp_path, texts):
    train, held = texts
    sizes = tiny.SIZES | {"num_hidden_layers": 2, "vocab_size": 30_522}
    hf.BertConfig(**sizes).save_pretrained(tmp_path / "bert")
    recipe = {"from_config": True, "objective": "classifiers", "device": "cpu"}
    recipe |= {"epochs": 6, "learning_rate": 3e-3, "max_length": 32}
    recipe["processor"] = embedded(EMBEDDED)
    files = tmp_path / "bert", train, held
    out = layerscope.train(*files, out=tmp_path / "out", **recipe)
    reported = layerscope.open_run(out / "history").metric("layer_accuracy")
    rows = pd.read_csv(held)
    sentences, labels = rows["text"].tolist(), rows["label"].tolist()
    assert reported[2] > rows["label"].value_counts(normalize=True).max() + 0.1

    def right(names):
        return float(np.mean([*map(str.__eq__, names, labels)]))

    def served(folder):
        task = "text-classification"
        classify = hf.pipeline(task, model=str(folder), trust_remote_code=True)
        found = classify(sentences, batch_size=16, truncation=True, max_length=32)
        return right([one["label"] for one in found])

    small = layerscope.truncate(out, 1, tmp_path / "small")
    assert served(out) == pytest.approx(reported[2])
    assert served(small) == pytest.approx(reported[1])

    file = layerscope.truncate(out, 1, tmp_path / "onnx", "onnx")
    session = onnxruntime.InferenceSession(str(file / "model.onnx"))
    tokenizer = hf.AutoTokenizer.from_pretrained(file)
    # a batch of a size that the export never saw
    batch = tokenizer(sentences, return_tensors="np", **HOW)
    inputs = {entry.name: batch[entry.name] for entry in session.get_inputs()}
    tops = session.run(["logits"], inputs)[0].argmax(-1)
    names = hf.AutoConfig.from_pretrained(out).id2label
    assert right([names[int(top)] for top in tops]) == pytest.approx(reported[1])

    # an exit reads a layer as `train` did, in the report and in the model that is written and
    # opened again
    loose = {"max_disagreement": 0.6, "min_speedup": 0.01, "exits": [1]}
    left = layerscope.exits(out, held, out=tmp_path / "exits", max_length=32, **loose)
    accuracy = left.depths.set_index("layer")["accuracy"]
    assert accuracy[[1, 2]].tolist() == pytest.approx(reported[[1, 2]].tolist())
    early = ExitModel.from_pretrained(left.path).leave([1], 0.0)
    batch = early.processor(sentences, return_tensors="pt", **HOW)
    output = early(**batch)
    found = [names[int(top)] for top in output.prediction]
    assert right(found) == pytest.approx(reported[1])
    assert {*output.exit_layer.tolist()} == {1}
    torch.testing.assert_close(output.logits, ExitModel(small)(**batch).logits)

    # what would read it wrongly refuses to read it
    for task in ("text-classification", "sentiment-analysis"):
        with pytest.raises(ValueError, match="trust_remote_code=True"):
            hf.pipeline(task, model=str(out))
