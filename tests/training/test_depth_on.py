"""The effective depth by the accuracy on training data, through the command, against the checkpoint run by hand."""

from pathlib import Path

import learning
import numpy as np
import pandas as pd
import torch
import transformers as hf
from learning import words
from tiny import one_thread
from typed import cli

import layerscope
from layerscope.core.files import read_json, write_json

__all__ = ["cli", "one_thread"]


def test_effective_depth_on_training_data(cli, tmp_path: Path):
    model, data = learning.encoder(tmp_path / "model"), learning.table(tmp_path / "texts.csv", n=60)
    held, out = learning.table(tmp_path / "held.csv", n=24, seed=5), tmp_path / "out"
    command = ["train", model, "--train", data, "--eval", held, "--out", out]
    command += words("--max-steps 4 --seed 3 --device cpu --head own --learning-rate 1e-3")
    printed = cli(*command, "--depth-on", "train")
    assert printed.status == 0, printed.err
    run, learnt = (layerscope.open_run(out / name) for name in ("history", "history/train"))
    assert (run.info["data"]["name"], learnt.info["data"]["name"]) == ("held", "texts")
    assert run.steps == learnt.steps
    chosen = np.sort(np.random.default_rng(3).choice(60, 24, replace=False))
    bert = hf.AutoModelForSequenceClassification.from_pretrained(out).double().eval()
    tokenizer, right = hf.AutoTokenizer.from_pretrained(out), np.zeros(3)
    for text, label in pd.read_csv(data).iloc[chosen].itertuples(index=False):
        with torch.no_grad():
            read = bert.bert(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
            logits = [bert.classifier(bert.bert.pooler(state)) for state in read.hidden_states[1:]]
        right += [bert.config.id2label[int(one.argmax())] == label for one in logits]
    accuracies = right / 24
    assert learnt.metric("layer_accuracy").tolist() == accuracies.tolist()
    for name, aim in (("all", 1.0), ("last", accuracies[-1])):
        reached = [k for k in (1, 2, 3) if accuracies[k - 1] >= aim - 0.01 - 1e-9]
        variant = f"relative_to={name},epsilon=0.01"
        depths = [
            run.metric("effective_depth", variant=f"{variant},on=train")[3],
            learnt.metric("effective_depth", variant=variant)[3],
        ]
        assert depths == [min(reached, default=3)] * 2
    assert "on training data" in " ".join(printed.out.split())

    # a training of a release without the option can be resumed
    about = read_json(out / "training.json")
    del about["settings"]["depth_on"]
    write_json(out / "training.json", about)
    again = cli(*command)
    assert again.status == 0 and "is finished: nothing is left to train" in again.err
