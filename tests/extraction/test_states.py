"""What is written is what transformers itself gives, whichever way it is written."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import tiny
import torch
from safetensors import safe_open

import layerscope

TEXTS = tiny.texts(32)


def stored(folder, key="states"):
    """Return names and states of all chunks, joined."""
    names, states, offsets, ids = [], [], [0], []
    for path in sorted((folder / "chunks").glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            names += json.loads(file.metadata()["samples"])["id"]
            states.append(file.get_tensor(key))
            if "offsets" in set(file.keys()):
                offsets += (file.get_tensor("offsets")[1:] + offsets[-1]).tolist()
                ids += file.get_tensor("token_ids").tolist()
    return names, torch.cat(states, 1), offsets, ids


def alone(model, tokenizer, text, layer, norm=None):
    """Return the ids and the states [T, D] of one text at one layer, by transformers alone."""
    given = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        hidden = model(**given, output_hidden_states=True).hidden_states
        # what transformers calls the last one is normed already
        last = layer == len(hidden) - 1
        return given["input_ids"][0], hidden[layer][
            0
        ] if last or norm is None else norm(hidden[layer])[0]


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize("tokens", [False, True])
def test_states_are_those_of_transformers(kind, tokens, tmp_path):
    model, tokenizer = (getattr(tiny, kind)(), tiny.tokenizer(special=kind == "bert"))
    texts, norm = TEXTS, model.transformer.ln_f if kind == "gpt2" else None
    found = layerscope.extract(
        model,
        texts,
        [1, 2, -1],
        processor=tokenizer,
        tokens=tokens,
        out=tmp_path / "s",
        chunk_rows=16,
    )
    depth = found.info["model"]["depth"]
    assert (
        found.info["layers"] == [1, 2, depth]
        and found.is_whole
        and found.samples == len(texts)
    )
    names, states, offsets, ids = stored(tmp_path / "s")
    assert names == [str(i) for i in range(len(texts))]
    for i, text in enumerate(texts):
        for row, layer in enumerate([1, 2, depth]):
            own_ids, own = alone(model, tokenizer, text, layer, norm)
            if tokens:
                span = slice(offsets[i], offsets[i + 1])
                assert ids[span] == own_ids.tolist()
                torch.testing.assert_close(states[row, span], own, rtol=1e-5, atol=1e-5)
            else:
                torch.testing.assert_close(
                    states[row, i], own.mean(0), rtol=1e-5, atol=1e-5
                )


def test_parquet_is_read_without_layerscope(tmp_path):
    frame = pd.DataFrame({"text": TEXTS, "label": ["ab"[i % 2] for i in range(32)]})
    frame.to_csv(tmp_path / "reviews.csv", index=False)
    model = tiny.saved(tiny.bert(), tmp_path / "tiny-bert")
    data, how = tmp_path / "reviews.csv", {"chunk_rows": 20}
    layerscope.extract(
        str(model),
        data,
        "0,3",
        out=tmp_path / "p",
        format="parquet",
        pooling="mean,cls",
        **how,
    )
    layerscope.extract(
        str(model), data, "0,3", out=tmp_path / "s", pooling="mean,cls", **how
    )
    table = pd.read_parquet(tmp_path / "p" / "chunks")
    assert list(table["id"]) == [str(i) for i in range(32)] and list(
        table["label"]
    ) == list(frame["label"])
    schema = pq.read_schema(tmp_path / "p" / "chunks" / "000000.parquet")
    assert (
        str(schema.field("layer_3.cls").type) == "fixed_size_list<element: float>[32]"
    )
    for pooling in ("mean", "cls"):
        states = stored(tmp_path / "s", f"states.{pooling}")[1]
        for row, layer in enumerate((0, 3)):
            assert np.array_equal(
                np.stack(table[f"layer_{layer}.{pooling}"]), states[row].numpy()
            )
    layerscope.extract(
        str(model), data, 2, out=tmp_path / "t", format="parquet", tokens=True, **how
    )
    layerscope.extract(str(model), data, 2, out=tmp_path / "u", tokens=True, **how)
    tokens, (_, states, offsets, ids) = (
        pd.read_parquet(tmp_path / "t" / "chunks"),
        stored(tmp_path / "u"),
    )
    assert [number for row in tokens["token_ids"] for number in row] == ids
    assert np.array_equal(
        np.stack(tokens["layer_2"][30]), states[0, offsets[30] : offsets[31]].numpy()
    )


def test_half_precision(tmp_path):
    how = {"processor": tiny.tokenizer(special=True)}
    layerscope.extract(tiny.bert(), TEXTS, 3, out=tmp_path / "whole", **how)
    layerscope.extract(
        tiny.bert(), TEXTS, 3, out=tmp_path / "half", store_dtype="bfloat16", **how
    )
    whole, half = stored(tmp_path / "whole")[1], stored(tmp_path / "half")[1]
    assert half.dtype == torch.bfloat16 and torch.equal(half, whole.to(half.dtype))


def test_nan_is_named_and_counted(tmp_path, capfd):
    rows = tiny.rows(40)
    rows[[7, 31], 0] = 1.0
    found = layerscope.extract(
        tiny.Plain(breaks=2), rows, [1, 2, 3], out=tmp_path / "s", chunk_rows=16
    )
    said = " ".join(capfd.readouterr().err.split())
    assert (
        "2 of 40 samples of Plain hold NaN or infinity (first: layer 2, sample 7): they are kept as they are"
        in said
    )
    assert [chunk["broken"] for chunk in found.chunks] == [[["7", 2]], [["31", 2]], []]
    states = stored(tmp_path / "s")[1]
    assert (
        torch.isnan(states[1:, [7, 31]]).any(-1).all()
        and torch.isfinite(states[0]).all()
    )
    facts = str(found.document().parts[0])
    assert "2 samples" in facts and "mean · " in facts
    wide = layerscope.extract(
        tiny.Plain(),
        rows * 1e6,
        1,
        out=tmp_path / "f",
        store_dtype="float16",
    )
    assert len(wide.as_dict()["broken"]) == 40
