"""Traps of measuring, each sprung here in a whole run; those of single metrics lie beside their metric."""

import math

import numpy as np
import pytest
import tiny
import torch
from hooked import by_sample, profile, sinking, walk
from tokenizers import normalizers
from torch import Tensor, nn

import layerscope
from layerscope import metrics
from layerscope.profiling import view_blocks
from layerscope.runs.curves import curves
from layerscope.runs.findings import findings

L = 3
MANY = tiny.texts(24, seed=2)


def test_trap_04_a_massive_token_does_not_rule_the_default_entropy_and_can_be_left_out(
    tmp_path,
):
    texts = [text for text in tiny.texts(12) if len(text.split()) > 5]
    model = sinking(tiny.gpt2())
    states = [walk(model, text)[0][2].double() for text in texts]
    assert max(float(metrics.matrix_entropy(z, rows="raw")) for z in states) < 0.01
    how = {"metrics": "prompt_entropy,sink_share"}
    unit = [float(metrics.matrix_entropy(z)) for z in states]
    kept = profile(model, texts, tmp_path / "a", **how)
    np.testing.assert_allclose(by_sample(kept, "prompt_entropy", 2), unit, atol=1e-4)
    left = profile(model, texts, tmp_path / "b", exclude_sinks=True, **how)
    others = [z[1:] for z in states]
    want = [float(metrics.matrix_entropy(z)) for z in others]
    np.testing.assert_allclose(by_sample(left, "prompt_entropy", 2), want, atol=1e-4)
    np.testing.assert_allclose(
        left.pooled(2), torch.stack([z.mean(0) for z in others]), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(
        by_sample(left, "sink_share", 2), [1 / len(z) for z in states], rtol=1e-6
    )
    assert list(left.metric("sinks")) == [0, 1, 1, 1]


@pytest.mark.parametrize("make", [tiny.bert, tiny.gpt2], ids=["post-norm", "pre-norm"])
def test_trap_08_layer_l_is_the_block_and_final_what_the_head_reads(make, tmp_path):
    model, texts = make(), [text for text in MANY if len(text.split()) > 3][:6]
    run = profile(
        model,
        texts,
        tmp_path / "run",
        metrics="dataset_entropy,perplexity,layer_accuracy",
        pooling="mean",
        lens_tokens=None,
    )
    seen = [walk(model, text) for text in texts]
    for site, states in (
        ("raw", [s[0][-1] for s in seen]),
        ("final", [s[1] for s in seen]),
    ):
        np.testing.assert_allclose(
            run.pooled(L, site),
            torch.stack([z.mean(0) for z in states]),
            rtol=1e-4,
            atol=1e-5,
        )
    normed = make is tiny.gpt2
    assert (np.abs(run.pooled(L) - run.pooled(L, "final")).max() > 0.1) == normed
    if normed:
        ids = [
            torch.tensor(tiny.tokenizer(special=False)(text)["input_ids"])
            for text in texts
        ]
        read = [(s[2][:-1], i[1:]) for s, i in zip(seen, ids, strict=True)]
        losses = [
            nn.functional.cross_entropy(logits, target, reduction="none")
            for logits, target in read
        ]
        hits = [(logits.argmax(-1) == target).float() for logits, target in read]
        assert run.metric("perplexity")[L] == pytest.approx(
            math.exp(torch.cat(losses).mean()), rel=1e-5
        )
        assert run.metric("layer_accuracy")[L] == pytest.approx(
            float(torch.cat(hits).mean())
        )


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
    names = "prompt_entropy,curvature"
    run = profile(
        model,
        texts,
        tmp_path / "run",
        processor=processor,
        metrics=names,
        pooling="last,mean",
        batch_size=4,
    )
    states = [walk(model, text)[0] for text in texts]
    for layer in range(L + 1):
        here = [z[layer] for z in states]
        pooled = {"last": [z[-1] for z in here], "mean": [z.mean(0) for z in here]}
        for name, want in pooled.items():
            found = run.pooled(layer, pooling=name)
            np.testing.assert_allclose(found, torch.stack(want), atol=1e-4)
        for name in names.split(","):
            want = [float(getattr(metrics, name)(z.double())) for z in here]
            found = by_sample(run, name, layer)
            np.testing.assert_allclose(found, want, atol=1e-4, err_msg=name)


def test_trap_11_short_and_empty_samples_are_counted_and_in_no_average(tmp_path):
    texts = ["w1", "w2 w3", "w4 w5 w6 w7", "\x07", "w8 w9 w10"]
    tokenizer = tiny.tokenizer(special=False)
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("\x07", "")
    names = "prompt_entropy,curvature,norm_mean,sink_share,dataset_entropy"
    run = profile(
        tiny.gpt2(),
        texts,
        tmp_path / "run",
        processor=tokenizer,
        metrics=names,
    )
    table = run.table()
    assert table["value"].notna().all() and set(table["n"] + table["n_skipped"]) == {5}
    counted = table.groupby(["metric", "variant"], dropna=False)["n"].agg(set)
    assert counted["curvature"].iloc[0] == {2} and counted["norm_mean"].iloc[0] == {4}
    assert counted["prompt_entropy"].to_dict() == {"alpha=1": {4}}
    assert by_sample(run, "prompt_entropy", 1)[0] == pytest.approx(0, abs=1e-6)
    defined = by_sample(run, "curvature", 2)
    assert np.isnan(defined).sum() == 2
    assert run.metric("curvature")[2] == pytest.approx(np.nanmean(defined), rel=1e-6)


def test_trap_12_what_a_pass_in_half_precision_measures_is_accumulated_in_float32(
    tmp_path,
):
    texts = [text for text in MANY if len(text.split()) > 8][:3]
    model = tiny.gpt2().half()
    large = torch.full((32,), 15_000.0, dtype=model.dtype)
    model.transformer.h[1].register_forward_hook(
        lambda _, __, out: (
            out + large if isinstance(out, Tensor) else (out[0] + large, *out[1:])
        )
    )
    names = "prompt_entropy,norm_max"
    run = profile(
        model,
        texts,
        tmp_path / "run",
        dtype="float16",
        metrics=names,
        pooling="mean",
        batch_size=1,
    )
    for layer in (1, 2):
        here = [walk(model, text)[0][layer].double() for text in texts]
        np.testing.assert_allclose(
            run.pooled(layer),
            torch.stack([z.mean(0) for z in here]),
            rtol=1e-6,
            atol=1e-6,
        )
        want = [float(metrics.prompt_entropy(z)) for z in here]
        np.testing.assert_allclose(
            by_sample(run, "prompt_entropy", layer), want, atol=2e-5
        )
        want = [float(metrics.norms(z).maximum) for z in here]
        np.testing.assert_allclose(by_sample(run, "norm_max", layer), want, rtol=1e-6)
    assert run.metric("norm_max")[2] > 80_000


def test_trap_13_blocks_have_one_size_whatever_the_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(view_blocks, "SMALL_BLOCK", 10)
    how = {"metrics": "infonce,dime", "views": 1, "pooling": "mean"}
    runs = [
        profile(tiny.bert(), MANY, tmp_path / str(size), batch_size=size, **how)
        for size in (3, 24)
    ]
    for run in runs:
        table = run.table()
        assert {variant.split(",")[0] for variant in table["variant"]} == {"N=10"}
        assert set(table["n"]) == {20} and set(table["n_skipped"]) == {4}
    for name in ("infonce", "dime"):
        np.testing.assert_allclose(
            runs[0].metric(name), runs[1].metric(name), atol=1e-4
        )
    order = np.random.default_rng([0, 2]).permutation(len(MANY))
    states = runs[0].folder
    rows = (
        states.plan.reset_index()
        .pivot(index="sample", columns="view", values="index")
        .to_numpy()
    )
    column = (runs[0].columns[2],)
    pair = [runs[0].states("mean", column, rows[:, view])[:][:, 0] for view in (0, 1)]
    blocks = [order[:10], order[10:20]]
    want = np.mean([float(metrics.infonce(pair[0][b], pair[1][b])) for b in blocks])
    assert runs[0].metric("infonce")[2] == pytest.approx(want, rel=1e-6)


def test_the_error_of_one_block_is_what_other_samples_change():
    rng = np.random.default_rng(0)
    drawn = torch.from_numpy(
        rng.standard_normal((100, 40, 1, 8))
        + 0.6 * rng.standard_normal((100, 40, 2, 8))
    )
    left_out = [*view_blocks._jackknifed(np.arange(40))]
    for metric in (metrics.infonce, metrics.dime):
        spread = np.std([float(metric(block[:, 0], block[:, 1])) for block in drawn])
        parts = [
            [float(metric(block[some, 0], block[some, 1])) for some in left_out]
            for block in drawn[:20]
        ]
        errors = [view_blocks._jackknife(values) for values in parts]
        assert np.mean(errors) == pytest.approx(spread, rel=0.3)


def test_trap_15_layer_0_is_shown_and_never_the_one_that_stands_out(tmp_path):
    torch.manual_seed(0)
    data, labels = tiny.rows(60), [i % 2 for i in range(60)]
    # what the first block reads tells the labels, the blocks forget it
    data[:, 3] += torch.tensor(labels) * 3.0
    model = tiny.Plain()
    with torch.no_grad():
        model.blocks[0].register_forward_hook(
            lambda _, __, out: out * 0 + torch.randn_like(out)
        )
    run = profile(
        model,
        (data, labels),
        tmp_path / "run",
        metrics="effective_rank,linear_probe,dataset_entropy",
        processor=None,
        blocks="blocks",
        norm="none",
    )
    shown = {curve.metric: curve for curve in curves(run)}
    probe = shown["linear_probe"]
    assert (
        probe.layers == (0, 1, 2, 3)
        and probe.values.argmax() == 0
        and probe.stands_out in (1, 2, 3)
    )
    for curve in shown.values():
        assert 0 in curve.layers and curve.stands_out != 0
    best = next(finding for finding in findings(run) if finding.name == "best_layer")
    assert best.numbers["layer"] != 0


def test_a_sample_and_its_exact_copy_are_never_on_both_sides_of_a_fold(tmp_path):
    torch.manual_seed(0)
    data, labels = tiny.rows(60), np.random.default_rng(0).integers(0, 2, 60).tolist()
    asked = {"metrics": "linear_probe,knn_probe", "blocks": "blocks", "norm": "none"}
    model = tiny.Plain(depth=1)
    once = profile(model, (data, labels), tmp_path / "once", **asked)
    twice = profile(
        model, (torch.cat([data, data]), labels * 2), tmp_path / "twice", **asked
    )
    # of labels drawn at random: what copies add is leaked
    for name in ("linear_probe", "knn_probe"):
        assert twice.metric(name).tolist() == once.metric(name).tolist()
    assert (
        "60 of 120 samples are exact copies of others: probes leave them out"
        in twice.info["notes"]
    )
    rows = twice.table().query("metric == 'linear_probe'")
    assert set(rows["n"]) == set(rows["n_skipped"]) == {60}
    chosen = layerscope.select(twice, cost=False)
    assert chosen.basis == "60 samples, 2 classes"
