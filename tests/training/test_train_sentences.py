"""`layerscope train --task sentence-similarity`: sentence encoders trained at every layer and number of dimensions."""

import csv
import json
import random
from pathlib import Path

import learning
import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from tiny import one_thread
from typed import cli

import layerscope
from layerscope.core.files import read_json

__all__ = ["cli", "one_thread"]
TASK = ["--task", "sentence-similarity", "--device", "cpu"]


def pairs(
    path: Path, n: int = 48, seed: int = 0, header: tuple[str, ...] = ("text_a", "text_b", "score")
) -> Path:
    """Pairs of texts of low or of high words, alike where both are of one kind; no word occurs in both texts."""
    rng, rows = random.Random(seed), []
    for _ in range(n):
        kinds = rng.random() < 0.5, rng.random() < 0.5
        words = [rng.sample(tiny.WORDS[45 * kind :][:45], 8) for kind in kinds]
        rows.append(
            [" ".join(words[0][:4]), " ".join(words[1][4:]), int(kinds[0] == kinds[1])][
                : len(header)
            ]
        )
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def encoder(folder: Path) -> Path:
    learning.encoder(folder / "bert")
    modules = [Transformer(str(folder / "bert")), Pooling(32, pooling_mode="mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder / "encoder"))
    return folder / "encoder"


def test_the_verb_end_to_end(cli, tmp_path: Path):
    model, data, held = (
        encoder(tmp_path),
        pairs(tmp_path / "pairs.csv", 120),
        pairs(tmp_path / "held.csv", 60, seed=1),
    )
    out = tmp_path / "out"
    recipe = [
        "--dims",
        "8,4",
        "--epochs",
        "6",
        "--learning-rate",
        "3e-3",
        "--batch-size",
        "16",
        "--eval-every",
        "24",
    ]
    command = ["train", model, "--train", data, "--eval", held, "--out", out, *recipe, *TASK]
    printed = cli(*command, "--baseline-depths", "1")
    assert printed.status == 0, printed.err
    assert "scores: column 'score', learnt as an order (CoSENT)" in printed.err
    assert "· spearman 0." in printed.err
    answer = " ".join(printed.out.partition("Effective depth")[0].split())
    assert (
        answer.startswith(("Layer ", "All 3 layers: Spearman "))
        and "Spearman 0." in answer
        and "60 pairs)" in answer
    )
    shown = " ".join(printed.out.split())
    assert "layer Spearman 8 dims 4 dims" in shown and "separate model" in shown

    # every number is that of a plain SentenceTransformer cut at the layer and the dimensions
    run = layerscope.open_run(out / "history")
    assert run.steps == (0, 24, 48)
    table = pd.read_csv(held)
    for layer in (1, 2, 3):
        plain = SentenceTransformer(str(out), device="cpu")
        plain[0].auto_model.encoder.layer = plain[0].auto_model.encoder.layer[:layer]
        one, two = (plain.encode(table[side].tolist()) for side in ("text_a", "text_b"))
        for d, variant in ((32, None), (8, "dims=8"), (4, "dims=4")):
            cut = [
                side[:, :d] / np.linalg.norm(side[:, :d], axis=1, keepdims=True)
                for side in (one, two)
            ]
            wanted = spearmanr((cut[0] * cut[1]).sum(1), table["score"])[0]
            rows = run.at()[(run.at()["metric"] == "pair_spearman") & (run.at()["layer"] == layer)]
            rows = (
                rows[rows["variant"].isna()]
                if variant is None
                else rows[rows["variant"] == variant]
            )
            assert rows["value"].item() == pytest.approx(wanted, abs=2e-3)
    before = run.at(0)[(run.at(0)["metric"] == "pair_spearman")]["value"]
    after = run.at()[(run.at()["metric"] == "pair_spearman")]["value"]
    assert before.max() < 0.5 and after.min() > 0.6

    depths = pd.read_csv(out / "history" / "depths.csv")
    assert list(zip(depths["objective"], depths["depth"], depths["layer"], strict=True)) == [
        ("aligned", 3, 1),
        ("aligned", 3, 2),
        ("aligned", 3, 3),
        ("standard", 1, 1),
    ]
    assert depths["ms_per_sample"].notna()[:3].all()
    rival = SentenceTransformer(str(out / "baselines" / "depth-1"), device="cpu")
    assert len(rival[0].auto_model.encoder.layer) == 1 and len(list(rival)) == 3
    card = (out / "README.md").read_text()
    assert "library_name: sentence-transformers" in card and "truncate_dim=D" in card
    assert "| layer | Spearman | 8 dimensions | 4 dimensions | ms per sample |" in card
    assert read_json(out / "training.json")["settings"]["dims"] == [8, 4]
    assert not (out / "checkpoints").exists() and not list(out.rglob("*.bin"))
    page = (out / "report.html").read_text()
    assert "Spearman" in page and "dims=8" in page
    small = cli(
        "truncate",
        out,
        "--layer",
        "1",
        "--out",
        tmp_path / "small",
        "--format",
        "sentence-transformers",
    )
    assert small.status == 0, small.err
    again = cli(*command)
    assert again.status == 0 and f"{out} is finished: nothing is left to train" in again.err


def test_pairs_without_scores_are_found_among_the_others(cli, tmp_path: Path):
    model, data = (
        encoder(tmp_path),
        pairs(tmp_path / "pairs.csv", 64, header=("anchor", "positive")),
    )
    printed = cli(
        "train",
        model,
        "--train",
        data,
        "--out",
        tmp_path / "out",
        "--max-steps",
        "6",
        "--batch-size",
        "8",
        "--objective",
        "standard",
        "--eval-samples",
        "5",
        "--json",
        *TASK,
    )
    assert printed.status == 0, printed.err
    assert "no scores: a pair's second text is to be found" in printed.err
    assert "a tenth of the training data is held out (6 pairs, seed 0)" in printed.err
    found = json.loads(printed.out)
    assert [(row["layer"], row["metric"], row["n"]) for row in found["depths"]] == [
        (layer, "pair_accuracy", 5) for layer in (1, 2, 3)
    ]
    assert "dims" not in found


def test_a_stopped_training_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from layerscope.training import fit

    model, data = encoder(tmp_path), pairs(tmp_path / "pairs.csv", 48)
    common = dict(
        task="sentence-similarity",
        dims=[8],
        max_steps=8,
        batch_size=12,
        eval_every=3,
        device="cpu",
        progress=False,
        learning_rate=1e-3,
    )
    whole = layerscope.train(model, data, out=tmp_path / "whole", **common)
    progress = fit._Progress.on_step_end

    def killed(self, args, state, control, **options):
        if state.global_step == 7:  # after the checkpoint of step 6, in the second epoch
            raise KeyboardInterrupt
        return progress(self, args, state, control, **options)

    monkeypatch.setattr(fit._Progress, "on_step_end", killed)
    with pytest.raises(KeyboardInterrupt):
        layerscope.train(model, data, out=tmp_path / "cut", **common)
    monkeypatch.setattr(fit._Progress, "on_step_end", progress)
    again = layerscope.train(model, data, out=tmp_path / "cut", **common)
    weights = [SentenceTransformer(str(path), device="cpu").state_dict() for path in (whole, again)]
    assert all(torch.equal(one, weights[1][name]) for name, one in weights[0].items())
    tables = [layerscope.open_run(path / "history").table() for path in (whole, again)]
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.parametrize("make", [learning.encoder, learning.decoder], ids=["bert", "gpt2"])
def test_a_plain_model_gets_mean_pooling_and_an_object_is_trained(tmp_path: Path, make):
    data = pairs(tmp_path / "pairs.csv")
    make(tmp_path / "plain")
    out = layerscope.train(
        tmp_path / "plain",
        data,
        out=tmp_path / "out",
        task="sentence-similarity",
        max_steps=1,
        progress=False,
    )
    pooled = SentenceTransformer(str(out), device="cpu")
    assert type(pooled[1]).__name__ == "Pooling"
    layerscope.train(
        pooled, data, out=tmp_path / "more", task="sentence-similarity", max_steps=1, progress=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("made")
    encoder(found)
    pairs(found / "pairs.csv")
    learning.table(found / "texts.csv")
    learning.novel(found / "novel.txt")
    hf.ViTModel(hf.ViTConfig(**learning.SMALL, image_size=16, patch_size=4)).save_pretrained(
        found / "vit"
    )
    (found / "alike.csv").write_text("text_a,text_b,score\n" + "w1,w2,3\n" * 40)
    (found / "odd.csv").write_text("text_a,text_b,score\nw1,w2,3\nw1,w3,high\n")
    (found / "hole.csv").write_text("text_a,text_b,score\nw1,w2,3\nw1,,2\n")
    return found


CASES = [
    (["encoder", "--train", "texts.csv"], "texts.csv has no pairs of texts: it needs text_a and text_b, or anchor and "
     "positive, and has text, label"),
    (["encoder", "--train", "novel.txt"],
     "novel.txt is no table: sentence-similarity reads pairs of texts from CSV, TSV, JSONL or Parquet"),
    (["encoder", "--train", "lost.csv"], "data 'lost.csv' does not exist"),
    (["encoder", "--train", "pairs.csv", "--label-column", "scores"], "pairs.csv has no column 'scores', did you mean "
     "score? it needs text_a, text_b, scores and has text_a, text_b, score"),
    (["encoder", "--train", "alike.csv"],
     "alike.csv has 40 pairs and 1 different scores: a correlation needs 3 pairs and 2 different scores"),
    (["encoder", "--train", "odd.csv"], "odd.csv: row 1 has the score 'high': give a number, or leave the row out"),
    (["encoder", "--train", "hole.csv"], "hole.csv: row 1 has no text_b: fill it in, or leave the row out"),
    (["encoder", "--train", "pairs.csv", "--dims", "64,8"],
     "dims [64, 8]: give different whole numbers from 1 to 32, the model's width"),
    (["encoder", "--train", "pairs.csv", "--dims", "0"],
     "dims is 0: give whole numbers of at least 1, such as 32,64,128"),
    (["encoder", "--train", "pairs.csv", "--dims", "8,8"], "dims [8, 8]: give different whole numbers"),
    (["encoder", "--train", "pairs.csv", "--objective", "cka"],
     "the task sentence-similarity has no objective 'cka': choose standard or aligned"),
    (["encoder", "--train", "pairs.csv", "--preset", "layerskip"],
     "the task sentence-similarity has no preset: leave --preset out"),
    (["encoder", "--train", "pairs.csv", "--layer-dropout", "0.1"],
     "the task sentence-similarity has no --layer-dropout: leave --layer-dropout out"),
    (["encoder", "--train", "pairs.csv", "--layers", "1,9"],
     "exits [1, 9]: give increasing layers from 1 to 3, at least one"),
    (["encoder", "--train", "pairs.csv", "--baseline-depths", "3"],
     "--baseline-depths 3: this model has 3 layers, give some of 1..2"),
    (["encoder", "--train", "pairs.csv", "--max-length", "999"], "max length 999 is beyond the model's 64 positions"),
    (["vit", "--train", "pairs.csv"], "vit is not a sentence encoder: "),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_wrong_input_is_one_line_and_leaves_nothing(
    cli, folder: Path, monkeypatch, words: list[str], message: str
):
    monkeypatch.chdir(folder)
    printed = cli("train", *words, "--out", "out", *TASK)
    assert printed.status == 2
    last = printed.err.strip().splitlines()[-1]
    assert message in last, last
    assert not (folder / "out").exists()


def test_a_loss_that_is_not_finite_stops_with_its_step_and_layer(folder: Path, tmp_path: Path):
    with pytest.raises(
        layerscope.LayerscopeError,
        match=r"the loss of step 2 is NaN or infinite, layer 1 is the first",
    ):
        layerscope.train(
            folder / "encoder",
            folder / "pairs.csv",
            out=tmp_path / "out",
            task="sentence-similarity",
            max_steps=3,
            learning_rate=1e30,
            progress=False,
        )


def test_few_exits_with_weights_of_their_own_in_mixed_precision(folder: Path, tmp_path: Path):
    frame = pd.read_csv(folder / "pairs.csv").set_axis(["sentence1", "sentence2", "label"], axis=1)
    how = dict(
        layers=[1, 3],
        weights=[1, 2],
        dims=[4],
        label_column="label",
        dtype="bf16",
        max_steps=1,
        progress=False,
    )
    out = layerscope.train(
        folder / "encoder", frame, out=tmp_path / "out", task="sentence-similarity", **how
    )
    assert (
        layerscope.open_run(out / "history").metric("pair_spearman", variant="dims=4").notna().all()
    )


def test_dims_are_for_sentence_embeddings_alone(cli, folder: Path, monkeypatch):
    monkeypatch.chdir(folder)
    printed = cli("train", "bert", "--train", "texts.csv", "--dims", "8", "--out", "out")
    assert printed.status == 2
    assert (
        "dims are those of sentence embeddings, and classification makes none: leave --dims out"
        in printed.err
    )
