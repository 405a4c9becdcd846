"""Every layer's linear probe judged on data of another distribution, beside the cross-validated one."""

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from typed import refused

import layerscope
from layerscope.evaluation import probing
from layerscope.probes.linear import shifted_probe
from layerscope.scores.probe_results import unpacked

SOURCE, TARGET = "topics (linear probe)", "topics → later (linear probe)"


@pytest.fixture
def later(texts, tmp_path):
    """Other texts of the same labels, after five that are in the source too."""
    found = [f"w7 {text}" for text in tiny.texts(90)[40:]]
    labels = ["ab"[int(text.split()[1][1:]) % 2] for text in found]
    frame = pd.DataFrame({"text": found, "label": labels})
    pd.concat([pd.read_csv(texts).head(5), frame.drop_duplicates("text")]).to_csv(
        tmp_path / "later.csv", index=False
    )
    return str(tmp_path / "later.csv")


@torch.no_grad()
def states_of(model, file, rows=slice(None)):
    """Mean-pooled states [layers, N, D] of a model after its final norm, each text alone, and the labels."""
    frame = pd.read_csv(file)[rows]
    module, tokenizer = (
        hf.AutoModel.from_pretrained(model).eval(),
        hf.AutoTokenizer.from_pretrained(model),
    )
    given = [
        tokenizer(text, return_tensors="pt", add_special_tokens=False)
        for text in frame["text"]
    ]
    states = [
        module(input_ids=one["input_ids"], output_hidden_states=True).hidden_states
        for one in given
    ]
    found = [
        [module.norm(layer)[0].mean(0) for layer in one[:-1]] + [one[-1][0].mean(0)]
        for one in states
    ]
    return np.array([[layer.numpy() for layer in one] for one in found]).swapaxes(
        0, 1
    ), frame["label"].to_numpy()


def test_one_row_for_the_source_and_one_for_the_target(
    llama, texts, later, tmp_path, monkeypatch
):
    options = {"pooling": "mean"}
    plain = layerscope.evaluate(
        llama, f"linear-probe:{texts}", tmp_path / "plain", **options
    )
    found = layerscope.evaluate(
        llama, f"linear-probe:{texts}", tmp_path / "out", shift=later, **options
    )
    source, target = (
        found.scores[found.scores["task"] == task] for task in (SOURCE, TARGET)
    )
    pd.testing.assert_frame_equal(source.reset_index(drop=True), plain.scores)
    assert list(found.scores["task"].unique()) == [SOURCE, TARGET]
    assert set(target["shifted_from"]) == {SOURCE}
    (states, labels), (there, others) = (
        states_of(llama, texts),
        states_of(llama, later, slice(5, None)),
    )
    for row in target.to_dict(orient="records"):
        layer = 3 if row["kind"] == "baseline" else row["layer"]
        _, wanted = shifted_probe(states[layer], labels, there[layer], others)
        assert row["n"] == len(others), "what is in the source too is left out"
        assert row["score"] == pytest.approx(wanted.mean, abs=0.03)
        assert unpacked(row["right"], row["n"]).mean() == pytest.approx(row["score"])
    assert not (tmp_path / "out" / "states").exists()
    # a folder of the plain scores goes on with those under a shift, and then has all there is
    fits = []
    monkeypatch.setattr(
        probing,
        "shifted_probe",
        lambda *a, **k: fits.append(a) or shifted_probe(*a, **k),
    )
    again = layerscope.evaluate(
        llama, f"linear-probe:{texts}", tmp_path / "plain", shift=later, **options
    )
    pd.testing.assert_frame_equal(again.scores, found.scores)
    assert len(fits) == 4
    layerscope.evaluate(
        llama, f"linear-probe:{texts}", tmp_path / "plain", shift=later, **options
    )
    assert len(fits) == 4
    with refused("holds scores of topics → later .linear probe. on other data"):
        layerscope.evaluate(
            llama,
            f"linear-probe:{texts}",
            tmp_path / "plain",
            shift=texts_like(later),
            **options,
        )


def texts_like(later):
    """The same file with a text less."""
    pd.read_csv(later).iloc[:-1].to_csv(later, index=False)
    return later


def test_what_is_no_shift_is_one_line(cli, texts, later, tmp_path):
    def line(shift, *tasks):
        given = [
            word
            for task in tasks or (f"linear-probe:{texts}",)
            for word in ("--data", task)
        ]
        done = cli(
            "evaluate", "minilm", *given, "--shift", shift, "--out", tmp_path / "out"
        )
        assert done.status == 2 and not (tmp_path / "out").exists()
        return done.line

    def written(name, **columns):
        pd.DataFrame(columns).to_csv(tmp_path / name, index=False)
        return str(tmp_path / name)

    assert line(
        written(
            "new.csv", text=[f"w{i} w3" for i in range(40)], label=list("abbcd") * 8
        )
    ) == (
        "new has labels that topics lacks (c, d): leave these samples out, or add some to topics"
    )
    assert line(written("bare.csv", text=list("klmn"))) == (
        "bare has no labels to probe: give a column label, or a sub-folder for each class"
    )
    assert (
        line(texts)
        == "every sample of topics is in topics too: give other data as --shift"
    )
    assert line(str(tmp_path / "late.csv")).startswith(
        f"data '{tmp_path / 'late.csv'}' does not exist, did you mean"
    )
    both = f"linear-probe:{texts}", f"knn-probe:{texts}"
    assert line(later, *both) == (
        "--shift applies only to a linear-probe, not to topics (kNN probe): evaluate that by itself"
    )
    assert line(later, f"classification:{texts}").startswith(
        "--shift applies only to a linear-probe, not to topics:"
    )
