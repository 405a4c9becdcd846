"""From training to deployment, on real text: what `train` reports is what the files it leaves score elsewhere."""

import ast
import sysconfig
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers as hf

import layerscope
from layerscope.early_exit import ExitModel
from layerscope.models.checks import EMBEDDED, embedded

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
HOW = {"padding": True, "truncation": True, "max_length": 32}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Return docstrings of two modules of Python's library, labelled by module: a file to learn and one held out."""
    rows = {}
    for name in ("tkinter", "asyncio"):
        for file in sorted((Path(sysconfig.get_path("stdlib")) / name).glob("*.py")):
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                    rows[ast.get_docstring(node)] = name
    rows.pop(None, None)
    table = pd.DataFrame(rows.items(), columns=["text", "label"]).sample(
        frac=1, random_state=0
    )
    folder = tmp_path_factory.mktemp("docs")
    train, held = folder / "train.csv", folder / "held.csv"
    table.iloc[100:700].to_csv(train, index=False)
    table.iloc[:100].to_csv(held, index=False)
    return train, held


def test_what_train_reports_is_what_pipelines_and_onnxruntime_score(tmp_path, texts):
    train, held = texts
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = hf.BertConfig(
        vocab_size=30_522, intermediate_size=48, max_position_embeddings=64, **small
    )
    config.save_pretrained(tmp_path / "bert")
    recipe = {
        "from_config": True,
        "processor": embedded(EMBEDDED),
        "objective": "classifiers",
    }
    steps = {"epochs": 6, "learning_rate": 3e-3, "max_length": 32, "device": "cpu"}
    files = tmp_path / "bert", train, held
    out = layerscope.train(*files, out=tmp_path / "out", **recipe, **steps)
    scores = layerscope.open_run(out / "history").at()
    scores = scores[scores["metric"] == "layer_accuracy"]
    reported = scores.set_index("layer")["value"]
    rows = pd.read_csv(held)
    sentences, labels = rows["text"].tolist(), rows["label"].tolist()
    assert reported[2] > rows["label"].value_counts(normalize=True).max() + 0.1

    def right(names):
        return float(
            np.mean([name == label for name, label in zip(names, labels, strict=True)])
        )

    def served(folder):
        classify = hf.pipeline(
            "text-classification", model=str(folder), trust_remote_code=True
        )
        found = classify(sentences, batch_size=16, truncation=True, max_length=32)
        return right([one["label"] for one in found])

    small = layerscope.truncate(out, 1, tmp_path / "small")
    assert served(out) == pytest.approx(reported[2])
    assert served(small) == pytest.approx(reported[1])

    file = layerscope.truncate(out, 1, tmp_path / "onnx", "onnx")
    session = onnxruntime.InferenceSession(str(file / "model.onnx"))
    tokenizer = hf.AutoTokenizer.from_pretrained(file)
    names, found = hf.AutoConfig.from_pretrained(out).id2label, []
    for start in range(0, len(rows), 7):  # batches of a size that the export never saw
        batch = tokenizer(sentences[start : start + 7], return_tensors="np", **HOW)
        inputs = {entry.name: batch[entry.name] for entry in session.get_inputs()}
        found += [
            names[int(top)] for top in session.run(["logits"], inputs)[0].argmax(-1)
        ]
    assert right(found) == pytest.approx(reported[1])

    # an exit reads a layer as `train` did, in the report and in the model that is written and
    # opened again
    loose = {
        "max_length": 32,
        "max_disagreement": 0.6,
        "min_speedup": 0.01,
        "exits": [1],
    }
    left = layerscope.exits(out, held, out=tmp_path / "exits", **loose)
    accuracy = left.depths.set_index("layer")["accuracy"]
    assert accuracy.loc[[1, 2]].tolist() == pytest.approx([reported[1], reported[2]])
    early = ExitModel.from_pretrained(left.path).leave([1], 0.0)
    batch = early.processor(sentences, return_tensors="pt", **HOW)
    output = early(**batch)
    found = [early.config.id2label[int(one)] for one in output.prediction]
    assert right(found) == pytest.approx(reported[1]) and {
        *output.exit_layer.tolist()
    } == {1}
    torch.testing.assert_close(output.logits, ExitModel(small)(**batch).logits)

    # what would read it wrongly refuses to read it
    for task in ("text-classification", "sentiment-analysis"):
        with pytest.raises(ValueError, match="trust_remote_code=True"):
            hf.pipeline(task, model=str(out))
