"""`shrink`: a smaller model within a budget, judged on samples that had no part in anything."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from models import zoo
from sentence_transformers import SentenceTransformer
from shrinking.samples import QUIET, TEXTS, graded, labelled, pairs, task_on

import layerscope
from layerscope import LayerscopeError
from layerscope.healing.outputs import outputs_of
from layerscope.inputs import open_corpus
from layerscope.models import LoadOptions, Override
from layerscope.models.encode import TextEncoder
from layerscope.scores.shifts import mean_of
from layerscope.shrinking import open_shrunk, pipeline, trials
from layerscope.shrinking.tasks import HELD, LEARN, VALIDATION, split
from layerscope.truncation.source import open_source

one_thread = tiny.one_thread


DATA = {"labels": labelled, "numbers": graded, "pairs": pairs, "texts": lambda: TEXTS}
MEASURES = {
    "labels": "linear probe",
    "numbers": "R²",
    "pairs": "Spearman",
    "texts": "agreement",
}


@pytest.mark.parametrize("kind", DATA)
def test_an_encoder(kind, encoder, tmp_path):
    shrunk = layerscope.shrink(
        encoder, DATA[kind](), out=tmp_path / "out", max_loss=60, **QUIET
    )
    assert shrunk.met and 0 < len(shrunk.kept) < shrunk.depth == 3
    assert shrunk.samples <= 0.25 * 300 and shrunk.error > 0
    assert MEASURES[kind] in shrunk.measure
    assert open_shrunk(tmp_path / "out").as_dict() == shrunk.as_dict()
    small = SentenceTransformer(str(tmp_path / "out" / "model"), device="cpu")
    assert len(small[0].auto_model.encoder.layer) == len(shrunk.kept)
    if kind == "numbers":
        assert shrunk.full_score < 100
    # what was measured by layer is an evaluation, in shares
    scores = layerscope.open_evaluation(tmp_path / "out" / "evaluation")
    assert scores.scores["layer"].max() == 3 and scores.origins
    judged = (task_on(DATA[kind](), encoder).part == VALIDATION).sum()
    assert (scores.scores["n"] == judged).all()
    if kind == "texts":
        assert scores.table().loc[3].item() == pytest.approx(1)
        _offers_are_priced_as_measured(shrunk, task_on(TEXTS, encoder))
    if kind == "texts":  # the loss and the recall again, by sentence-transformers alone
        full = SentenceTransformer(str(encoder), device="cpu")
        task = task_on(DATA[kind](), encoder)
        held, others = task.texts(HELD), task.texts(LEARN) + task.texts(VALIDATION)
        old, new = full.encode(held), small.encode(held)
        assert shrunk.loss == pytest.approx(
            100 - 100 * (old * new).sum(1).mean(), abs=1e-3
        )
        index = full.encode(others).T
        nearest = [np.argsort(-(rows @ index))[:, :10] for rows in (old, new)]
        hits = [np.isin(*pair).mean() for pair in zip(*nearest, strict=True)]
        assert shrunk.recall == pytest.approx(np.mean(hits), abs=0.02)


def _offers_are_priced_as_measured(shrunk, task):
    """By what the full model gives without the blocks that are not kept, or without the last ones."""
    full = task.values(task.full, VALIDATION)
    for offer in shrunk.offers:
        loss, error = mean_of(full - task.with_only(offer.kept, VALIDATION))
        first = range(1, len(offer.kept) + 1)
        first_ones, _ = mean_of(full - task.with_only(first, VALIDATION))
        if not np.isnan(offer.cut_loss):
            assert offer.cut_loss == pytest.approx(loss) and loss <= first_ones + 1e-9
            assert offer.healed or offer.error == pytest.approx(error)


def test_blocks_are_kept_that_know_thetask_on(tmp_path):
    module = tiny.bert().base_model
    with torch.no_grad():  # the last block drowns what the others know
        module.encoder.layer[2].output.dense.weight *= 30
        module.encoder.layer[2].output.dense.bias += 30 * torch.randn(32)
    folder = tiny.saved(module, tmp_path / "plain")
    served = tiny.sentence_encoder(folder)
    served.save_pretrained(tmp_path / "full")
    served[0].auto_model.encoder.layer = served[0].auto_model.encoder.layer[:2]
    vectors = served.encode(TEXTS)
    labels = np.where(vectors[:, 0] > np.median(vectors[:, 0]), "yes", "no")
    data = {"texts": TEXTS, "labels": pd.DataFrame({"text": TEXTS, "label": labels})}
    full_megabytes = sum(weight.nbytes for weight in module.parameters()) / 1e6

    def shrunk(name):
        bound = QUIET | {"max_loss": 100, "max_mb": 0.99 * full_megabytes}
        out = tmp_path / name
        return layerscope.shrink(tmp_path / "full", data[name], out=out, **bound)

    by_texts = shrunk("texts")
    assert 3 in by_texts.kept and by_texts.healed
    # the full model has nothing to teach here
    with patch.object(trials, "_healed", None):
        by_labels = shrunk("labels")
    assert by_labels.kept == (1, 2) and not by_labels.healed


def vision():
    images = {"image_size": 8, "patch_size": 4, "num_channels": 1, "num_labels": 10}
    return zoo.seeded("ViTForImageClassification", **images)


@pytest.mark.parametrize(
    ("make", "auto", "data", "measure"),
    [
        (tiny.gpt2, hf.AutoModelForCausalLM, TEXTS, "loss of the next token"),
        (tiny.classifier, hf.AutoModelForSequenceClassification, TEXTS, "agreement"),
        (vision, hf.AutoModelForImageClassification, "digits", "accuracy"),
    ],
)
def test_models_with_a_head(make, auto, data, measure, tmp_path):
    folder = tiny.saved(make(), tmp_path / "full")
    options = QUIET | {"speed": 0.01, "max_loss": 1000}
    if data == "digits":
        data = open_corpus(data).take(range(150))
        options["heal"] = None
        for file in folder.glob("tokenizer*"):
            file.unlink()
    shrunk = layerscope.shrink(folder, data, out=tmp_path / "out", **options)
    assert shrunk.met and len(shrunk.kept) == 2 and measure in shrunk.measure
    small = auto.from_pretrained(tmp_path / "out" / "model")
    assert small.config.num_hidden_layers == 2
    assert shrunk.load.startswith(auto.__name__)
    cut = open_source(tmp_path / "out" / "model", None, Override(), LoadOptions()).model
    batch = cut.encoder.batch(list(open_corpus(data).samples[:3]))
    with torch.no_grad():
        logits = small(**batch.named).logits
        judged = outputs_of(cut, batch, "mean")
    torch.testing.assert_close(judged.given, logits, atol=1e-6, rtol=0)


@pytest.mark.parametrize("heal", [None, tiny.texts(60, seed=9)])
def test_running_text_is_learned_from_beside_other_texts(heal, tmp_path, monkeypatch):
    folder = tiny.saved(tiny.gpt2(), tmp_path / "full")
    data = tmp_path / "running.txt"
    data.write_text("\n".join(tiny.texts(600, longest=60)))
    cut = trials.cut_offer
    # of random blocks one loses nothing, and what loses nothing is not healed
    monkeypatch.setattr(
        trials, "cut_offer", lambda job, offer: replace(cut(job, offer), cut_loss=9.0)
    )
    options = {"minutes": 0.02, "speed": 0.01, "max_loss": 0, "heal": heal}
    shrunk = layerscope.shrink(
        folder, data, out=tmp_path / "out", progress=False, **options
    )
    assert any(offer.healed for offer in shrunk.offers)


def test_nothing_that_is_held_out_is_learned_from(encoder, tmp_path):
    """A version that learned from what judges, or judged by what it learned from, fails here."""
    learned: list[object] = []
    judged: list[object] = []
    write, judge = trials.write_healed, pipeline.mean_of
    task = task_on(TEXTS, encoder)
    held, validation = set(task.texts(HELD)), set(task.texts(VALIDATION))

    def spy(*arguments):
        lessons = arguments[4].lessons
        learned.extend(lessons.learn)
        assert set(lessons.validation) == validation
        return write(*arguments)

    def spied(lost):
        judged.append(len(lost))
        return judge(lost)

    with (
        patch.object(trials, "write_healed", spy),
        patch.object(trials, "mean_of", spied),
        patch.object(pipeline, "mean_of", spied),
    ):
        # the file that is learned from holds the held-out texts, too
        shrunk = layerscope.shrink(
            encoder,
            TEXTS,
            out=tmp_path / "out",
            max_loss=90,
            **QUIET | {"heal": TEXTS},
        )
    assert learned and not {*learned} & (held | validation)
    assert judged[-1] == shrunk.samples == (task.part == HELD).sum()
    assert shrunk.cut_loss > shrunk.loss > 0


def test_of_few_texts_built_in_ones_of_like_length_are_learned_from_too(encoder):
    source = open_source(encoder, None, Override(), LoadOptions())
    task = task_on(TEXTS, encoder)
    job = SimpleNamespace(
        source=source, task=task, heal=None, options=SimpleNamespace(seed=0)
    )
    own = task.texts(LEARN)
    lessons = trials._lessons(job)
    others = lessons.learn[len(own) :]
    assert lessons.learn[: len(own)] == own and len(others) == trials.ENOUGH
    longest = sorted(map(len, own))[int(0.9 * len(own))]
    assert max(map(len, others)) <= longest < max(map(len, own))
    with patch.object(trials, "ENOUGH", 10):
        assert len(trials._lessons(job).learn) == 2 * len(own)
    with patch.object(trials, "FEW", len(own)):
        assert trials._lessons(job).learn == own


def test_a_large_budget_leaves_one_block_and_samples_can_be_fewer(encoder, tmp_path):
    options = QUIET | {"minutes": 0, "max_loss": 100}
    shrunk = layerscope.shrink(
        encoder, labelled(), out=tmp_path / "out", samples=120, **options
    )
    assert len(shrunk.kept) == 1 and shrunk.samples == 30
    # nothing that the budget allows is tried with more blocks than that takes
    assert not shrunk.healed and shrunk.cut_loss == shrunk.loss
    assert len(shrunk.offers) == 2


def test_the_whole_is_not_judged_again_for_each_depth(encoder, tmp_path):
    embedded: list[int] = []
    batch = TextEncoder.batch

    def counted(self, samples):
        embedded.append(len(samples))
        return batch(self, samples)

    task = task_on(labelled(), encoder)
    with patch.object(TextEncoder, "batch", counted):
        readers = task.by_layer()
        values = [task.judged(reader, VALIDATION) for reader in readers]
    parts = (task.part == LEARN).sum() + (task.part == VALIDATION).sum()
    assert sum(embedded) == parts and len(values) == 3
    assert {*values[2]} == {0, 100}
    np.testing.assert_array_equal(values[2], task.values(task.full, VALIDATION))
    np.testing.assert_array_equal(values[0], task.with_only([1], VALIDATION))


def test_parts_share_no_sample():
    part = split(1000, seed=3)
    assert [int((part == one).sum()) for one in (LEARN, VALIDATION, HELD)] == [
        550,
        200,
        250,
    ]


def test_the_command_says_no_with_offers(cli, encoder, tmp_path):
    labelled().to_csv(tmp_path / "data.csv", index=False)
    call = "shrink", encoder, "--data", tmp_path / "data.csv", "--minutes", "0"
    printed = cli(*call, "--speed", "50", "--out", tmp_path / "no")
    assert printed.status == 1 and "nothing is within the budget" in printed.out
    assert "× as fast" in printed.out and not (tmp_path / "no" / "model").exists()
    printed = cli(*call, "--max-loss", "60", "--out", tmp_path / "yes")
    assert printed.status == 0, printed.err
    for words in ("of 3 blocks", "held out", "as fast", "SentenceTransformer("):
        assert words in printed.out


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (TEXTS[1:10], "9 distinct samples, and shrink needs 100"),
        (["w1", "w1"], "1 distinct sample, and shrink needs 100"),
        (labelled()[:99], "and shrink needs 100"),
        (labelled().assign(label="one"), "at least two classes"),
        (
            labelled().assign(label=[f"id{i}" for i in range(300)]),
            "at least two|different",
        ),
        (pairs().assign(score=1.0), "numbers that differ"),
        (pairs()[:20], "shrink needs 100"),
        ("digits", "holds image samples, and full reads text"),
    ],
)
def test_data_that_are_too_little(data, words, encoder, tmp_path):
    with pytest.raises(LayerscopeError, match=words):
        layerscope.shrink(encoder, data, out=tmp_path / "out", **QUIET)
    with pytest.raises(LayerscopeError, match="digits holds image samples"):
        options = QUIET | {"heal": "digits"}
        layerscope.shrink(encoder, TEXTS, out=tmp_path / "out", **options)
    assert not (tmp_path / "out" / "shrunk.json").exists()


def test_weights_that_are_no_numbers(tmp_path):
    module = tiny.bert().base_model
    torch.nn.init.constant_(module.encoder.layer[1].output.dense.bias, torch.nan)
    folder = tiny.saved(module, tmp_path / "full", special=True)
    with pytest.raises(LayerscopeError, match="full gives values that are not finite"):
        layerscope.shrink(folder, TEXTS, out=tmp_path / "out", **QUIET)


def test_texts_in_another_language(cli, encoder, tmp_path):
    words = [f"слово{i} слово" for i in range(100)]
    (tmp_path / "data.txt").write_text("\n".join(words), "utf-8")
    call = "shrink", encoder, "--data", tmp_path / "data.txt", "--minutes", "0"
    assert "of the tokens" in cli(*call, "--out", tmp_path / "out").err


def test_a_model_of_one_block_and_a_folder_with_something_in_it(encoder, tmp_path):
    one = layerscope.truncate(encoder, 1, tmp_path / "one", progress=False)
    with pytest.raises(LayerscopeError, match="one block"):
        layerscope.shrink(one, TEXTS, out=tmp_path / "out", **QUIET)
    with pytest.raises(LayerscopeError, match="holds no shrunk model"):
        layerscope.shrink(encoder, TEXTS, out=tmp_path / "one", **QUIET)
