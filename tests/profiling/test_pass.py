"""The pass: memory that runs out, states that are not finite, and batches that must not matter."""

import math

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from typed import refused

import layerscope

ROWS = tiny.rows(40)


def profile(model, data, out, **options):
    return layerscope.profile(model, data, out=out, **{"views": 0} | options)


def told(capfd):
    return " ".join(capfd.readouterr().err.split())


def assert_close(one, two):
    pd.testing.assert_frame_equal(one, two, check_exact=False, rtol=1e-5, atol=1e-5)


def test_out_of_memory_halves_the_batch(tmp_path, capfd):
    model = tiny.Plain(fits=5)
    run = profile(model, ROWS, tmp_path / "a", batch_size=20, progress=True)
    assert "out of memory: batch 0 of 20 samples is computed in halves" in told(capfd)
    assert max(model.sizes) <= 5
    halved = [event["rows"] for event in run.folder.events("halved")]
    assert halved == [20, 10, 10] * 2
    assert [event["forwards"] for event in run.folder.events("shard")] == [8]
    small = profile(tiny.Plain(), ROWS, tmp_path / "b", batch_size=5)
    assert_close(run.table(), small.table())
    for layer in range(4):
        np.testing.assert_allclose(run.pooled(layer), small.pooled(layer), atol=1e-5)


def bounded(model, tokens):
    """Return a GPT-2 on a device with room for this many tokens a batch."""

    def refuse(_, args):
        if args[0].numel() > tokens:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")

    model.transformer.wte.register_forward_pre_hook(refuse)
    return model


def test_halves_keep_the_lens_rows_and_views_in_place(tmp_path):
    texts, processor = tiny.texts(24), tiny.tokenizer(special=False)
    options = {"processor": processor, "batch_size": 6, "views": 1, "lens_tokens": None}
    whole = profile(tiny.gpt2(), texts, tmp_path / "a", **options)
    halved = profile(bounded(tiny.gpt2(), 128), texts, tmp_path / "b", **options)
    assert halved.folder.events("halved") and not whole.folder.events("halved")
    assert_close(halved.table(), whole.table())


@pytest.mark.parametrize(
    "options, value",
    [
        ({}, math.inf),
        ({"exclude_sinks": True}, math.nan),
        ({"pooling": "last", "alpha": 2.0}, math.nan),
    ],
)
def test_a_text_model_with_one_broken_sample(tmp_path, options, value):
    """The word w89 breaks the second block, at its own position alone."""
    texts = [text.replace("w89", "w88") for text in tiny.texts(30)]
    texts[11] = "w1 w2 w89 w3 w4"
    model = tiny.gpt2()

    def breaks(_, __, out):
        ids = model.seen
        hidden = out[0] if isinstance(out, tuple) else out
        hidden = torch.where(
            (ids == 3 + 90)[..., None] & (torch.arange(hidden.shape[-1]) == 5),
            value,
            hidden,
        )
        return (hidden, *out[1:]) if isinstance(out, tuple) else hidden

    model.transformer.wte.register_forward_pre_hook(
        lambda _, args: setattr(model, "seen", args[0])
    )
    model.transformer.h[1].register_forward_hook(breaks)
    options = options | {
        "processor": tiny.tokenizer(special=False),
        "lens_tokens": None,
    }
    run = profile(model, texts, tmp_path / "a", views=1, **options)
    table = run.table()
    assert table["value"].notna().all()
    assert np.isfinite(table["value"]).all()
    clean = profile(
        tiny.gpt2(), texts[:11] + texts[12:], tmp_path / "b", views=0, **options
    ).table()
    kept = table[~table["metric"].isin(["infonce", "infonce_bound", "lidar", "dime"])]
    kept, clean = kept.reset_index(drop=True), clean.reset_index(drop=True)
    values = ["metric", "variant", "layer", "site", "layer_b", "pooling", "value", "n"]
    assert_close(kept[values], clean[values])
    viewed = table[table["metric"].isin(["infonce", "lidar", "dime"])]
    assert (
        set(viewed["n"] + viewed["n_skipped"]) == {30}
        and (viewed["n_skipped"] >= 1).all()
    )
    assert set(table[table["metric"] == "prompt_entropy"]["n_skipped"]) == {1}


def test_a_hopeless_model_is_reported_early(tmp_path):
    data = tiny.rows(2000)
    data[:, 0] = 1.0
    model = tiny.Plain(breaks=1)
    with refused("layer 1 of Plain gives NaN"):
        profile(
            model,
            data,
            tmp_path / "run",
            samples="all",
            batch_size=32,
            blocks="blocks",
            norm="none",
        )
    assert sum(model.sizes) < 200


def values_by_sample(run):
    frame = run.samples()
    frame = frame[frame["metric"].isin(["prompt_entropy", "curvature"])]
    return frame.set_index(["metric", "layer", "site", "sample"])["value"].sort_index()


@pytest.mark.parametrize("make, special", [(tiny.bert, True), (tiny.gpt2, False)])
def test_batch_size_order_and_padding_side_do_not_matter(make, special, tmp_path):
    texts = tiny.texts(10, longest=60)
    texts += [" ".join(reversed(text.split())) for text in texts]  # of equal length
    order = np.random.default_rng(0).permutation(len(texts))
    metrics = "prompt_entropy,curvature,cosine_similarity"
    pools = ["mean", "last", "first", *(["position"] if make is not tiny.bert else [])]

    def values(name, data, side, batch):
        processor = tiny.tokenizer(special=special, side=side)
        options = {
            "metrics": metrics,
            "pooling": "mean,last,first",
            "batch_size": batch,
            "processor": processor,
        }
        run = profile(make(), data, tmp_path / name, **options)
        site = "raw" if make is tiny.bert else "normed"
        pooled = [run.pooled(layer, site, name) for layer in range(4) for name in pools]
        return values_by_sample(run), np.stack(pooled, 1)

    first, states = values("one", texts, "right", 1)
    for name, side, batch in (
        ("three", "right", 3),
        ("all", "right", 32),
        ("left", "left", 32),
    ):
        other, others = values(name, texts, side, batch)
        pd.testing.assert_series_equal(first, other, atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(states, others, atol=2e-5, rtol=1e-5)
    shuffled, others = values("shuffled", [texts[i] for i in order], "right", 5)
    back = shuffled.rename(index=dict(enumerate(order)), level="sample").sort_index()
    pd.testing.assert_series_equal(first, back, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(states[order], others, atol=2e-5, rtol=1e-5)


def test_a_single_sample_has_a_table(tmp_path):
    run = profile(
        tiny.gpt2(),
        ["w1 w2 w3 w4"],
        tmp_path / "run",
        processor=tiny.tokenizer(special=False),
        views=2,
    )
    table = run.table()
    centred = table["metric"] == "cosine_similarity"  # one sample is its own mean
    assert set(table.loc[centred, "n"]) == {0} and set(
        table.loc[centred, "n_skipped"]
    ) == {1}
    assert set(table.loc[~centred, "n"]) <= {1, 3}
    assert run.metric("prompt_entropy").notna().all()
