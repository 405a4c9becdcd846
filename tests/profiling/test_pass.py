"""The pass: memory that runs out, states that are not finite, and batches that must not matter."""

import math

import numpy as np
import pandas as pd
import pytest
import tiny
from recorded import after_block
from text_runs import profile
from typed import refused

ROWS, TEXTS = tiny.rows(40), tiny.texts(30)


def assert_close(one, two):
    pd.testing.assert_frame_equal(one, two, check_exact=False, rtol=1e-5, atol=1e-5)


def test_out_of_memory_halves_the_batch(tmp_path, capfd):
    model = tiny.Plain(fits=5)
    run = profile(model, tmp_path / "a", ROWS, batch_size=20, progress=True)
    told = " ".join(capfd.readouterr().err.split())
    assert "out of memory: batch 0 of 20 samples is computed in halves" in told
    assert max(model.sizes) <= 5
    halved = [event["rows"] for event in run.folder.events("halved")]
    assert halved == [20, 10, 10] * 2
    assert [event["forwards"] for event in run.folder.events("shard")] == [8]
    small = profile(tiny.Plain(), tmp_path / "b", ROWS, batch_size=5)
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
    options = {"batch_size": 6, "views": 1, "lens_tokens": None}
    whole = profile(tiny.gpt2(), tmp_path / "a", TEXTS, **options)
    halved = profile(bounded(tiny.gpt2(), 128), tmp_path / "b", TEXTS, **options)
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
    others = [text.replace("w89", "w88") for text in TEXTS]
    texts = [*others[:11], "w1 w2 w89 w3 w4", *others[11:]]
    model, seen = tiny.gpt2(), []

    def breaks(hidden):
        hidden[seen[-1] == 3 + 90, 5] = value
        return hidden

    model.transformer.wte.register_forward_pre_hook(lambda _, args: seen.extend(args))
    after_block(model, 1, breaks)
    options = options | {"lens_tokens": None}
    table = profile(model, tmp_path / "a", texts, views=1, **options).table()
    assert np.isfinite(table["value"]).all()
    of_views = table["metric"].isin(["infonce", "infonce_bound", "lidar", "dime"])
    clean = profile(tiny.gpt2(), tmp_path / "b", others, **options).table()
    columns = ["metric", "variant", "layer", "site", "layer_b", "pooling", "value", "n"]
    kept = table.loc[~of_views, columns].reset_index(drop=True)
    assert_close(kept, clean[columns])
    viewed = table[of_views & (table["metric"] != "infonce_bound")]
    assert set(viewed["n"] + viewed["n_skipped"]) == {len(texts)}
    assert (viewed["n_skipped"] >= 1).all()
    assert set(table[table["metric"] == "prompt_entropy"]["n_skipped"]) == {1}


def test_a_hopeless_model_is_reported_early(tmp_path):
    data = tiny.rows(2000)
    data[:, 0] = 1.0
    model = tiny.Plain(breaks=1)
    how = {"samples": "all", "batch_size": 32}
    with refused("layer 1 of Plain gives NaN"):
        profile(model, tmp_path / "run", data, **how)
    assert sum(model.sizes) < 200


def values_by_sample(run):
    frame = run.samples()
    frame = frame[frame["metric"].isin(["prompt_entropy", "curvature"])]
    return frame.set_index(["metric", "layer", "site", "sample"])["value"].sort_index()


@pytest.mark.parametrize("make", [tiny.bert, tiny.gpt2])
def test_batch_size_order_and_padding_side_do_not_matter(make, tmp_path):
    is_bert = make is tiny.bert
    texts = tiny.texts(10, longest=60)
    texts += [" ".join(reversed(text.split())) for text in texts]  # of equal length
    pools = ["mean", "last", "first"] + ["position"] * (not is_bert)
    site = "raw" if is_bert else "normed"
    how = {
        "metrics": "prompt_entropy,curvature,cosine_similarity",
        "pooling": "mean,last,first",
    }

    def measured(name, data, side, batch):
        processor = tiny.tokenizer(special=is_bert, side=side)
        options = {"processor": processor, "batch_size": batch} | how
        run = profile(make(), tmp_path / name, data, **options)
        pooled = [run.pooled(layer, site, pool) for layer in range(4) for pool in pools]
        return values_by_sample(run), np.stack(pooled, 1)

    first, states = measured("one", texts, "right", 1)
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled, others = measured("shuffled", [texts[i] for i in order], "right", 5)
    back = shuffled.rename(index=dict(enumerate(order)), level="sample").sort_index()
    compared = [(back, others[np.argsort(order)])]
    for side, batch in (("right", 3), ("right", 32), ("left", 32)):
        compared.append(measured(f"{side} {batch}", texts, side, batch))
    for values, pooled in compared:
        pd.testing.assert_series_equal(first, values, atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(states, pooled, atol=2e-5, rtol=1e-5)


def test_a_single_sample_has_a_table(tmp_path):
    run = profile(tiny.gpt2(), tmp_path / "run", ["w1 w2 w3 w4"], views=2)
    table = run.table()
    is_centred = table["metric"] == "cosine_similarity"  # one sample is its own mean
    centred, others = table[is_centred], table[~is_centred]
    assert set(centred["n"]) == {0} and set(centred["n_skipped"]) == {1}
    assert set(others["n"]) <= {1, 3}
    assert run.metric("prompt_entropy").notna().all()
