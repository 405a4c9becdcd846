"""From training to deployment, on real text: what `train` reports is what the files it leaves score elsewhere."""

import ast
import sysconfig
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers as hf
from tiny import one_thread

import layerscope
from layerscope.early_exit import ExitModel
from layerscope.models.checks import EMBEDDED, embedded
from layerscope.truncation import truncate_layers

__all__ = ["one_thread"]
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
CLASSES = ("tkinter", "asyncio")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return docstrings of two modules of Python's library, labelled by module: a file to learn and one held out."""
    rows = {
        text: name
        for name in CLASSES
        for file in sorted((Path(sysconfig.get_path("stdlib")) / name).glob("*.py"))
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and (text := ast.get_docstring(node))
    }
    table = pd.DataFrame(rows.items(), columns=["text", "label"]).sample(frac=1, random_state=0)
    folder = tmp_path_factory.mktemp("docs")
    files = [folder / "train.csv", folder / "held.csv"]
    table.iloc[100:700].to_csv(files[0], index=False)
    table.iloc[:100].to_csv(files[1], index=False)
    return files


@pytest.mark.parametrize("objective", ["aligned", "classifiers"])
def test_what_train_reports_is_what_pipelines_and_onnxruntime_score(
    tmp_path: Path, texts: list[Path], objective: str
):
    train, held = texts
    config = hf.BertConfig(
        vocab_size=30_522,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    config.save_pretrained(tmp_path / "bert")
    out = layerscope.train(
        tmp_path / "bert",
        train,
        held,
        out=tmp_path / "out",
        from_config=True,
        processor=embedded(EMBEDDED),
        objective=objective,
        epochs=6,
        learning_rate=3e-3,
        max_length=32,
        device="cpu",
        progress=False,
    )
    reported = pd.read_csv(out / "history" / "depths.csv").set_index("layer")["value"]
    rows = pd.read_csv(held)
    assert reported[2] > rows["label"].value_counts(normalize=True).max() + 0.1

    def served(folder: Path) -> float:
        classify = hf.pipeline("text-classification", model=str(folder), trust_remote_code=True)
        found = classify(rows["text"].tolist(), batch_size=16, truncation=True, max_length=32)
        return float(
            np.mean(
                [
                    one["label"] == str(label)
                    for one, label in zip(found, rows["label"], strict=True)
                ]
            )
        )

    (small,) = truncate_layers(out, [1], tmp_path / "small", progress=False)
    assert served(out) == pytest.approx(reported[2])
    assert served(Path(small.path)) == pytest.approx(reported[1]) == pytest.approx(small.score)
    assert small.full_score == pytest.approx(reported[2])
    card = (Path(small.path) / "README.md").read_text()
    assert f"| accuracy | {small.shown()} | {small.shown(full=True)} |" in card.replace("\\", "")
    assert f"({len(rows)} samples)" in card

    file = layerscope.truncate(out, 1, tmp_path / "onnx", "onnx", progress=False)
    session = onnxruntime.InferenceSession(
        str(file / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    tokenizer, names = (
        hf.AutoTokenizer.from_pretrained(file),
        hf.AutoConfig.from_pretrained(out).id2label,
    )
    right = []
    for start in range(0, len(rows), 7):  # batches of a size that the export never saw
        some = rows.iloc[start : start + 7]
        given = tokenizer(
            some["text"].tolist(), padding=True, truncation=True, max_length=32, return_tensors="np"
        )
        (logits,) = session.run(
            ["logits"], {entry.name: given[entry.name] for entry in session.get_inputs()}
        )
        right += [
            names[int(top)] == str(label)
            for top, label in zip(logits.argmax(-1), some["label"], strict=True)
        ]
    assert np.mean(right) == pytest.approx(reported[1])

    # an exit reads a layer as `train` did, in the report and in the model that is written and
    # opened again
    given = {
        "max_length": 32,
        "max_disagreement": 0.6,
        "min_speedup": 0.01,
        "exits": [1],
        "progress": False,
    }
    left = layerscope.exits(ExitModel(out), held, out=tmp_path / "exits", **given)
    assert left.layers["layer_accuracy"].tolist() == pytest.approx([reported[1], reported[2]])
    early = ExitModel.from_pretrained(left.path).leave([1], 0.0)
    read = early.processor(
        rows["text"].tolist(), padding=True, truncation=True, max_length=32, return_tensors="pt"
    )
    said = early(**read)
    right = [early.config.id2label[int(one)] for one in said.prediction] == rows["label"]
    assert np.mean(right) == pytest.approx(reported[1]) and set(said.exit_layer.tolist()) == {1}
    torch.testing.assert_close(said.logits, ExitModel(small.path)(**read).logits)

    # what would read it wrongly refuses to read it
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        hf.AutoModelForSequenceClassification.from_pretrained(out)
    for task in ("text-classification", "sentiment-analysis"):
        with pytest.raises(ValueError, match="trust_remote_code=True"):
            hf.pipeline(task, model=str(out))
