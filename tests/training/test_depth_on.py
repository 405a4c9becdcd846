"""The effective depth by the accuracy on training data, through the command, against the checkpoint run by hand."""

from pathlib import Path

import learning
import numpy as np
import pandas as pd
import torch
import transformers as hf
from tiny import one_thread
from typed import cli

import layerscope

__all__ = ["cli", "one_thread"]


def test_effective_depth_on_training_data(cli, tmp_path: Path):
    model, data = learning.encoder(tmp_path / "model"), learning.table(tmp_path / "texts.csv", n=60)
    held = learning.table(tmp_path / "held.csv", n=24, seed=5)
    out = tmp_path / "out"
    printed = cli(
        "train",
        model,
        "--train",
        data,
        "--eval",
        held,
        "--out",
        out,
        "--max-steps",
        "4",
        "--seed",
        "3",
        "--device",
        "cpu",
        "--head",
        "own",
        "--learning-rate",
        "1e-3",
        "--depth-on",
        "train",
    )
    assert printed.status == 0, printed.err
    run, learnt = (
        layerscope.open_run(out / "history"),
        layerscope.open_run(out / "history" / "train"),
    )
    assert (run.info["data"]["name"], learnt.info["data"]["name"]) == ("held", "texts")
    assert run.steps == learnt.steps
    chosen = np.sort(np.random.default_rng(3).choice(60, 24, replace=False))
    frame = pd.read_csv(data)
    bert = hf.AutoModelForSequenceClassification.from_pretrained(out).double().eval()
    tokenizer, right = hf.AutoTokenizer.from_pretrained(out), np.zeros(3)
    with torch.no_grad():
        for text, label in frame.iloc[chosen][["text", "label"]].itertuples(index=False):
            states = bert.bert(
                **tokenizer(text, return_tensors="pt"), output_hidden_states=True
            ).hidden_states
            tops = [int(bert.classifier(bert.bert.pooler(state)).argmax()) for state in states[1:]]
            right += [bert.config.id2label[top] == label for top in tops]
    accuracies = right / 24
    assert learnt.metric("layer_accuracy").tolist() == accuracies.tolist()
    for name, aim in (("all", 1.0), ("last", accuracies[-1])):
        wanted = next(
            (k for k, share in enumerate(accuracies, start=1) if share >= aim - 0.01 - 1e-9), 3
        )
        found = run.metric("effective_depth", variant=f"relative_to={name},epsilon=0.01,on=train")[
            3
        ]
        assert (
            found
            == wanted
            == learnt.metric("effective_depth", variant=f"relative_to={name},epsilon=0.01")[3]
        )
    assert "on training data" in " ".join(printed.out.split())


def test_an_older_training_without_the_option_can_be_resumed(cli, tmp_path: Path):
    model, data = learning.encoder(tmp_path / "model"), learning.table(tmp_path / "texts.csv")
    given = (
        "train",
        model,
        "--train",
        data,
        "--out",
        tmp_path / "out",
        "--max-steps",
        "2",
        "--device",
        "cpu",
    )
    assert cli(*given).status == 0
    about = tmp_path / "out" / "training.json"
    known = layerscope.core.files.read_json(about)
    del known["settings"]["depth_on"]
    layerscope.core.files.write_json(about, known)
    again = cli(*given)
    assert again.status == 0 and "is finished: nothing is left to train" in again.err
