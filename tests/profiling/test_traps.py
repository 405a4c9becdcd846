"""Traps of measuring, each sprung here in a whole run; those of single metrics lie beside their metric."""

import math

import numpy as np
import pytest
import tiny
import torch
from numpy.testing import assert_allclose
from recorded import after_block, by_sample, means, values, walk
from text_runs import profile
from tokenizers import normalizers
from torch import nn

import layerscope
from layerscope import metrics
from layerscope.profiling import view_blocks
from layerscope.runs.curves import curves
from layerscope.runs.findings import findings

L = 3
MANY = tiny.texts(24, seed=2)


def raw_entropy(states):
    return metrics.matrix_entropy(states, rows="raw")


def massive(hidden):
    hidden[:, 0, 3] += 1e5
    return hidden


def test_trap_04_a_massive_token_does_not_rule_the_default_entropy_and_can_be_left_out(
    tmp_path,
):
    texts = [text for text in tiny.texts(12) if len(text.split()) > 5]
    model = after_block(tiny.gpt2(), 0, massive)
    states = [walk(model, text)[0][2].double() for text in texts]
    assert max(values(raw_entropy, states)) < 0.01
    how = {"metrics": "prompt_entropy,sink_share"}
    kept = profile(model, tmp_path / "a", texts, **how)
    left = profile(model, tmp_path / "b", texts, exclude_sinks=True, **how)
    others = [z[1:] for z in states]
    for run, counted in ((kept, states), (left, others)):
        want = values(metrics.matrix_entropy, counted)
        assert_allclose(by_sample(run, "prompt_entropy", 2), want, atol=1e-4)
    assert_allclose(left.pooled(2), means(others), rtol=1e-4, atol=1e-4)
    assert_allclose(
        by_sample(left, "sink_share", 2), [1 / len(z) for z in states], rtol=1e-6
    )
    assert list(left.metric("sinks")) == [0, 1, 1, 1]


@pytest.mark.parametrize("make", [tiny.bert, tiny.gpt2], ids=["post-norm", "pre-norm"])
def test_trap_08_layer_l_is_the_block_and_final_what_the_head_reads(make, tmp_path):
    model, texts = make(), [text for text in MANY if len(text.split()) > 3][:6]
    names = "dataset_entropy,perplexity,layer_accuracy"
    run = profile(model, tmp_path / "run", texts, metrics=names, lens_tokens=None)
    states, last, logits = zip(*(walk(model, text) for text in texts), strict=True)
    for site, here in (("raw", [z[L] for z in states]), ("final", last)):
        found = run.pooled(L, site)
        assert_allclose(found, means(here), rtol=1e-4, atol=1e-5)
    normed = make is tiny.gpt2
    assert (np.abs(run.pooled(L) - run.pooled(L, "final")).max() > 0.1) == normed
    if normed:
        tokenizer = tiny.tokenizer(special=False)
        ids = [tokenizer(text)["input_ids"][1:] for text in texts]
        target = torch.tensor(sum(ids, []))
        read = torch.cat([one[:-1] for one in logits])
        loss = nn.functional.cross_entropy(read, target)
        assert run.metric("perplexity")[L] == pytest.approx(math.exp(loss), rel=1e-5)
        right = (read.argmax(-1) == target).double().mean()
        assert run.metric("layer_accuracy")[L] == pytest.approx(float(right))


@pytest.mark.parametrize("side", ["left", "right"])
def test_trap_10_padding_is_what_the_mask_says_and_not_a_token(side, tmp_path):
    """The pad token ends sentences too: as a real token inside and at the end of texts it counts."""
    texts = [
        "w1 w2 [SEP] w3 w4 [SEP]",
        "w5 w6 w7 w8 w9 w10 w11 w12 [SEP]",
        "w13 w14 w15",
        "[SEP] w16 [SEP]",
    ]
    model, processor = tiny.gpt2(), tiny.tokenizer(special=False, side=side)
    processor.pad_token = processor.eos_token
    assert processor(texts[0])["input_ids"].count(processor.pad_token_id) == 2
    names = ("prompt_entropy", "curvature")
    how = {"processor": processor, "metrics": names, "pooling": "last,mean"}
    run = profile(model, tmp_path / "run", texts, batch_size=4, **how)
    states = [walk(model, text)[0] for text in texts]
    for layer in range(L + 1):
        here = [z[layer] for z in states]
        last = torch.stack([z[-1] for z in here])
        for pooling, want in (("last", last), ("mean", means(here))):
            found = run.pooled(layer, pooling=pooling)
            assert_allclose(found, want, atol=1e-4)
        for name in names:
            want = values(getattr(metrics, name), [z.double() for z in here])
            found = by_sample(run, name, layer)
            assert_allclose(found, want, atol=1e-4, err_msg=name)


def test_trap_11_short_and_empty_samples_are_counted_and_in_no_average(tmp_path):
    texts = ["w1", "w2 w3", "w4 w5 w6 w7", "\x07", "w8 w9 w10"]
    tokenizer = tiny.tokenizer(special=False)
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("\x07", "")
    names = "prompt_entropy,curvature,norm_mean,sink_share,dataset_entropy"
    how = {"processor": tokenizer, "metrics": names}
    run = profile(tiny.gpt2(), tmp_path / "run", texts, **how)
    table = run.table()
    assert table["value"].notna().all() and set(table["n"] + table["n_skipped"]) == {5}
    counted = table.groupby("metric")["n"].agg(set)
    assert counted["curvature"] == {2}
    assert counted["norm_mean"] == counted["prompt_entropy"] == {4}
    assert by_sample(run, "prompt_entropy", 1)[0] == pytest.approx(0, abs=1e-6)
    defined = by_sample(run, "curvature", 2)
    assert np.isnan(defined).sum() == 2
    assert run.metric("curvature")[2] == pytest.approx(np.nanmean(defined), rel=1e-6)


def test_trap_12_what_a_pass_in_half_precision_measures_is_accumulated_in_float32(
    tmp_path,
):
    texts = [text for text in MANY if len(text.split()) > 8][:3]
    model = after_block(tiny.gpt2().half(), 1, lambda hidden: hidden + 15_000)
    how = {"dtype": "float16", "metrics": "prompt_entropy,norm_max", "batch_size": 1}
    run = profile(model, tmp_path / "run", texts, **how)
    for layer in (1, 2):
        here = [walk(model, text)[0][layer].double() for text in texts]
        found = run.pooled(layer)
        assert_allclose(found, means(here), rtol=1e-6, atol=1e-6)
        found = by_sample(run, "prompt_entropy", layer)
        want = values(metrics.prompt_entropy, here)
        assert_allclose(found, want, atol=2e-5)
        largest = [metrics.norms(z).maximum.item() for z in here]
        assert_allclose(by_sample(run, "norm_max", layer), largest, 1e-6)
    assert run.metric("norm_max")[2] > 80_000


def test_trap_13_blocks_have_one_size_whatever_the_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(view_blocks, "SMALL_BLOCK", 10)
    names = ("infonce", "dime")
    how = {"metrics": names, "views": 1, "pooling": "mean"}
    one, two = (
        profile(tiny.bert(), tmp_path / str(size), MANY, batch_size=size, **how)
        for size in (3, 24)
    )
    for table in (one.table(), two.table()):
        assert {variant.split(",")[0] for variant in table["variant"]} == {"N=10"}
        assert set(table["n"]) == {20} and set(table["n_skipped"]) == {4}
    for name in names:
        assert_allclose(one.metric(name), two.metric(name), atol=1e-4)
    order = np.random.default_rng([0, 2]).permutation(len(MANY))
    plan = one.folder.plan.reset_index()
    rows = plan.pivot(index="sample", columns="view", values="index").to_numpy()
    views = one.states("mean", (one.columns[2],), rows.T.ravel())[:].reshape(2, 24, -1)
    blocks = [views[:, order[:10]], views[:, order[10:20]]]
    want = np.mean([float(metrics.infonce(*block)) for block in blocks])
    assert one.metric("infonce")[2] == pytest.approx(want, rel=1e-6)


def test_the_error_of_one_block_is_what_other_samples_change():
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((100, 40, 1, 8))
    drawn = torch.from_numpy(samples + 0.6 * rng.standard_normal((100, 40, 2, 8)))
    left_out = [*view_blocks._jackknifed(np.arange(40))]
    for metric in (metrics.infonce, metrics.dime):
        spread = np.std([float(metric(block[:, 0], block[:, 1])) for block in drawn])
        parts = [
            [float(metric(block[some, 0], block[some, 1])) for some in left_out]
            for block in drawn[:20]
        ]
        errors = [view_blocks._jackknife(each) for each in parts]
        assert np.mean(errors) == pytest.approx(spread, rel=0.3)


def test_trap_15_layer_0_is_shown_and_never_the_one_that_stands_out(tmp_path):
    torch.manual_seed(0)
    data, labels = tiny.rows(60), torch.arange(60) % 2
    # what the first block reads tells the labels, the blocks forget it
    data[:, 3] += labels * 3.0
    model = tiny.Plain()
    model.blocks[0].register_forward_hook(lambda _, __, out: torch.randn_like(out))
    how = {"metrics": "linear_probe", "processor": None}
    run = profile(model, tmp_path / "run", (data, labels.tolist()), **how)
    measured = curves(run)
    probe = measured[0]
    assert probe.layers == (0, 1, 2, 3) and probe.values.argmax() == 0
    assert probe.stands_out in (1, 2, 3)
    sentences = findings(run, measured)
    best = next(finding for finding in sentences if finding.name == "best_layer")
    assert best.numbers["layer"] != 0


def test_a_sample_and_its_exact_copy_are_never_on_both_sides_of_a_fold(tmp_path):
    data, labels = tiny.rows(60), np.random.default_rng(0).integers(0, 2, 60).tolist()
    names = ("linear_probe", "knn_probe")
    how = {"metrics": names, "processor": None}
    model = tiny.Plain()
    once = profile(model, tmp_path / "once", (data, labels), **how)
    copies = torch.cat([data, data]), labels * 2
    twice = profile(model, tmp_path / "twice", copies, **how)
    # of labels drawn at random: what copies add is leaked
    for name in names:
        assert twice.metric(name).tolist() == once.metric(name).tolist()
    note = "60 of 120 samples are exact copies of others: probes leave them out"
    assert note in twice.info["notes"]
    rows = twice.table().query("metric == 'linear_probe'")
    assert set(rows["n"]) == set(rows["n_skipped"]) == {60}
    chosen = layerscope.select(twice, cost=False)
    assert chosen.basis == "60 samples, 2 classes"
