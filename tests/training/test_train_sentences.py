"""`layerscope train --task sentence-similarity`: sentence encoders trained at every layer and number of dimensions."""

import json
import random
import re
from functools import partial

import learning
import numpy as np
import pandas as pd
import pytest
import tiny
from learning import stopped_after
from models import zoo
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize
from trainers import same, weights
from typed import refused

import layerscope
from layerscope.core.files import read_json

HOW = {"task": "sentence-similarity", "device": "cpu"}


def pairs(path, n=48, seed=0, header="text_a,text_b,score"):
    """Pairs of texts of low or of high words, alike where both are of one kind; no word occurs in both texts."""
    rng, columns = random.Random(seed), header.split(",")
    rows = []
    for _ in range(n):
        kinds = rng.random() < 0.5, rng.random() < 0.5
        first, second = (rng.sample(tiny.WORDS[45 * kind :][:45], 8) for kind in kinds)
        rows.append((" ".join(first[:4]), " ".join(second[4:]), kinds[0] == kinds[1]))
    frame = pd.DataFrame(rows).astype({2: int}).iloc[:, : len(columns)]
    frame.to_csv(path, index=False, header=columns)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("made")
    served = tiny.sentence_encoder(learning.encoder(made / "bert"), Normalize())
    served.save_pretrained(str(made / "encoder"))
    learning.decoder(made / "gpt2")
    zoo.of_class("ViTModel", **zoo.IMAGE).save_pretrained(made / "vit")
    pairs(made / "pairs.csv", 120)
    pairs(made / "held.csv", 60, seed=1)
    pairs(made / "found.csv", 64, header="anchor,positive")
    learning.table(made / "texts.csv")
    learning.novel(made / "novel.txt")
    (made / "alike.csv").write_text("text_a,text_b,score\n" + "w1,w2,3\n" * 40)
    (made / "odd.csv").write_text("text_a,text_b,score\nw1,w2,3\nw1,w3,high\n")
    (made / "hole.csv").write_text("text_a,text_b,score\nw1,w2,3\nw1,,2\n")
    return made


def train(cli, folder, line, out):
    task = ("--task", "sentence-similarity", "--out", out)
    return learning.train(cli, folder, line, *task)


def test_the_verb_end_to_end(cli, folder, tmp_path):
    out = tmp_path / "out"
    how = "encoder pairs.csv --eval held.csv --dims 8,4 --epochs 6 --learning-rate 3e-3 --batch-size 16 --eval-every 24"
    printed = train(cli, folder, how, out)
    assert printed.status == 0, printed.err
    assert "scores: column 'score', learnt as an order (CoSENT)" in printed.err
    assert "· spearman 0." in printed.err
    shown = " ".join(printed.out.split())
    assert shown.startswith(("Layer ", "All 3 layers: Spearman "))
    assert "N = 60)" in shown
    assert "layer Spearman 8 dims 4 dims" in shown

    # every number is that of a plain SentenceTransformer cut at the layer and the dimensions
    run, table = layerscope.open_run(out / "history"), pd.read_csv(folder / "held.csv")
    assert run.steps == (0, 24, 48)
    scores, first = (partial(run.metric, "pair_spearman", step=n) for n in (48, 0))
    for layer in (1, 2, 3):
        plain = SentenceTransformer(str(out), device="cpu")
        plain[0].auto_model.encoder.layer = plain[0].auto_model.encoder.layer[:layer]
        sides = [plain.encode(table[side].tolist()) for side in ("text_a", "text_b")]
        for d, variant in ((32, None), (8, "dims=8"), (4, "dims=4")):
            one, two = (
                side[:, :d] / np.linalg.norm(side[:, :d], axis=1)[:, None]
                for side in sides
            )
            wanted = spearmanr((one * two).sum(1), table["score"])[0]
            assert scores(variant=variant)[layer] == pytest.approx(wanted, abs=2e-3)
            assert first(variant=variant)[layer] < 0.5 < 0.6 < wanted

    card = (out / "README.md").read_text()
    depths = re.findall(r"^\| ([0-9]+) \|.* ([0-9.]+) \|$", card, re.M)  # with a time
    assert [layer for layer, _ in depths] == ["1", "2", "3"]
    assert "library_name: sentence-transformers" in card and "truncate_dim=D" in card
    assert "| layer | Spearman | 8 dimensions | 4 dimensions | ms per sample |" in card
    assert read_json(out / "training.json")["settings"]["dims"] == [8, 4]
    assert not (out / "checkpoints").exists() and not list(out.rglob("*.bin"))
    assert "dims=8" in (out / "report.html").read_text()


def test_pairs_without_scores_are_found_among_the_others(cli, folder, tmp_path):
    line = "encoder found.csv --max-steps 6 --batch-size 8 --objective standard --eval-samples 5 --json"
    printed = train(cli, folder, line, tmp_path / "out")
    assert printed.status == 0, printed.err
    assert "no scores: a pair's second text is to be found" in printed.err
    assert "a tenth of the training data is held out (6 samples, seed 0)" in printed.err
    found = json.loads(printed.out)
    depths = pd.DataFrame(found["depths"])
    assert depths["layer"].tolist() == [1, 2, 3] and set(depths["n"]) == {5}
    assert set(depths["metric"]) == {"pair_accuracy"} and found["dims"] == {}


def test_a_stopped_training_goes_on_to_the_same_weights(folder, tmp_path, monkeypatch):
    how = HOW | {"dims": [8], "max_steps": 8, "batch_size": 12, "eval_every": 3}
    run = partial(layerscope.train, folder / "encoder", folder / "found.csv", **how)
    whole = run(out=tmp_path / "whole")
    with stopped_after(7, monkeypatch):  # the checkpoint of step 6, in the second epoch
        run(out=tmp_path / "cut")
    ends = whole, run(out=tmp_path / "cut")
    assert same(*(weights(SentenceTransformer(str(p), device="cpu")) for p in ends))
    tables = (layerscope.open_run(path / "history").table() for path in ends)
    pd.testing.assert_frame_equal(*tables)


def test_a_plain_model_gets_mean_pooling_and_an_object_is_trained(folder, tmp_path):
    data = folder / "pairs.csv"
    run = partial(layerscope.train, train=data, max_steps=1, **HOW)
    out = run(folder / "gpt2", out=tmp_path / "out")
    pooled = SentenceTransformer(str(out), device="cpu")
    assert type(pooled[1]).__name__ == "Pooling"
    run(pooled, out=tmp_path / "more")


CASES = {
    "encoder texts.csv": "texts.csv has no pairs of texts: it needs text_a and text_b, or anchor and positive, and has "
                         "text, label",
    "encoder novel.txt":
        "novel.txt is no table: sentence-similarity reads pairs of texts from CSV, TSV, JSONL or Parquet",
    "encoder pairs.csv --label-column scores":
        "pairs.csv has no column 'scores', did you mean score? it has text_a, text_b, score",
    "encoder alike.csv": "every score of {}/alike.csv is 3: give two different ones",
    "encoder odd.csv": "odd.csv: row 1 has no number as its score: fill it in, or leave the row out",
    "encoder hole.csv": "hole.csv: row 1 has no text_b: fill it in, or leave the row out",
    "encoder pairs.csv --dims 64,8": "dims [64, 8]: give whole numbers from 1 to 32, the model's width",
    "encoder pairs.csv --objective cka":
        "the task sentence-similarity has no objective 'cka': choose standard or aligned",
    "encoder pairs.csv --augment": "--augment ",
    "vit pairs.csv": "vit is not a sentence encoder: ",
}  # fmt: skip


@pytest.mark.parametrize("line, message", CASES.items(), ids=CASES)
def test_wrong_input_is_one_line_and_leaves_nothing(
    cli, folder, tmp_path, line, message
):
    printed = train(cli, folder, line, tmp_path / "out")
    assert printed.status == 2 and message.format(folder) in printed.line
    assert not (tmp_path / "out").exists()


def test_a_loss_that_is_not_finite_stops_with_its_step_and_layer(folder, tmp_path):
    line = "the loss of step 2 is NaN or infinite, layer 1 is the first"
    files = folder / "encoder", folder / "pairs.csv"
    how = HOW | {"max_steps": 3, "learning_rate": 1e30}
    with refused(line):
        layerscope.train(*files, out=tmp_path / "out", **how)
