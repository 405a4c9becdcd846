"""Texts of every odd kind: the profile goes on with defined results, and what has no token is counted and named."""

import json
import shutil

import numpy as np
import pytest
import tiny
from tokenizers import Tokenizer, normalizers

import layerscope

PLAIN = tiny.texts(12)
ODD = {
    "one token": "w1",
    "two tokens": "w1 w2",
    "100,000 characters": "w1 w2 " * 16_667,
    "one word of 100,000": "a" * 100_000,
    "emoji": "😀👨‍👩‍👧 🏳️‍🌈",
    "right to left": "שלום עולם مرحبا بالعالم",
    "NUL bytes": "w1\0w2\0\0",
    "only NUL": "\0\0",
    "control": "\x07\x1b[31mw1\x1b[0m",
    "nothing to see": "\u200b\ufeff",
    "accents": "e" + "\u0301" * 1000,
    "lines": "w1\nw2\r\nw3\u2028w4",
    "markup": "[red]w1[/red] [/] [bold",
    "unknown": "nothing that this tokenizer knows",
}
BLANK = {
    "empty": "",
    "spaces": "   ",
    "tabs and lines": " \t\n\r ",
    "wide spaces": "\u00a0\u3000",
}


def write(path, texts):
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    return path


def strict(text):
    return json.loads(
        text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")
    )


@pytest.mark.parametrize("model", ["bert", "gpt2"])
def test_every_odd_text_at_once(cli, request, tmp_path, model):
    path = write(tmp_path / "odd.jsonl", [*PLAIN, *BLANK.values(), *ODD.values()])
    folder = request.getfixturevalue(model)
    words = ("profile", folder, "--data", path, "--out", tmp_path / "run")
    printed = cli(*words, "--json", "--lens-tokens", "all")
    assert printed.status == 0, printed.err
    lines = printed.err.splitlines()
    assert "4 rows without a text left out: 12, 13, 14, 15" in lines
    assert "1 of 26 texts are cut at 64 tokens" in lines
    for row in strict(printed.out)["rows"]:
        assert row["value"] is not None or row["metric"] == "zero_steps", row
    run = layerscope.open_run(tmp_path / "run")
    samples = run.samples()
    undefined = samples[samples["value"].isna()]
    assert set(undefined["metric"]) <= {"curvature"}, "two tokens turn nowhere"
    assert (undefined["length"] < 3).all()
    curved = run.table().set_index("metric").loc["curvature"]
    assert set(curved["n_skipped"]) == {undefined["sample"].nunique()}
    assert set(curved["n"] + curved["n_skipped"]) == {26}
    # an odd text changes nothing for the others of its batch, and its own states are finite
    options = {"metrics": "curvature", "views": 0}
    plain = layerscope.profile(str(folder), PLAIN, out=tmp_path / "plain", **options)
    odd = run.pooled(3)
    assert np.isfinite(odd).all() and len(odd) == 26
    np.testing.assert_allclose(odd[:12], plain.pooled(3), atol=1e-5)


@pytest.fixture
def deaf(gpt2, tmp_path):
    """A model whose tokenizer drops NUL and bell: texts of them alone have no token."""
    folder = tmp_path / "deaf"
    shutil.copytree(gpt2, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    silent = [normalizers.Replace(character, "") for character in "\0\x07"]
    tokenizer.normalizer = normalizers.Sequence(silent)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_texts_without_a_token_are_left_out_counted_and_named(told, deaf, tmp_path):
    path = write(tmp_path / "odd.jsonl", [*PLAIN[:6], "\0\0", "\x07", *PLAIN[6:]])
    lines = told(deaf, path, "--metrics", "dataset_entropy")
    assert (
        "2 of 14 samples have no token: they are left out and counted (6, 7)" in lines
    )
    table = layerscope.open_run(tmp_path / "run").table()
    assert (set(table["n"]), set(table["n_skipped"])) == ({12}, {2})


def test_texts_that_all_have_no_token(unprofiled, deaf, tmp_path):
    path = write(tmp_path / "deaf.jsonl", ["\0", "\x07\0"])
    line = "no sample of deaf has a token left: check the data"
    assert unprofiled(deaf, path) == line


@pytest.mark.parametrize("name", ["empty", "wide spaces"])
def test_texts_that_are_all_blank(unprofiled, bert, tmp_path, name):
    path = write(tmp_path / "blank.jsonl", [BLANK[name]] * 3)
    line = f"{path}: column 'text' holds no text: every row is empty"
    assert unprofiled(bert, path) == line
