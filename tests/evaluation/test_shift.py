"""Every layer's linear probe judged on data of another distribution, beside the cross-validated one."""

import pandas as pd
import pytest
import tiny
from evaluation.references import states_of
from typed import refused

import layerscope
from layerscope.evaluation import probing
from layerscope.probes.linear import shifted_probe
from layerscope.scores.probe_results import unpacked

SOURCE, TARGET = "topics (linear probe)", "topics → later (linear probe)"


@pytest.fixture
def later(texts, table):
    """Other texts of the same labels, after five that are in the source too."""
    others = dict.fromkeys(f"w7 {text}" for text in tiny.texts(90)[40:])
    labels = ["ab"[int(text.split()[1][1:]) % 2] for text in others]
    first = pd.read_csv(texts).head(5)
    return table(
        "later", text=[*first["text"], *others], label=[*first["label"], *labels]
    )


def test_one_row_for_the_source_and_one_for_the_target(
    llama, texts, later, tmp_path, monkeypatch
):
    def evaluate(folder, **options):
        task = f"linear-probe:{texts}"
        return layerscope.evaluate(
            llama, task, tmp_path / folder, pooling="mean", **options
        )

    plain = evaluate("plain")
    found = evaluate("out", shift=later)
    source, target = (
        found.scores[found.scores["task"] == task] for task in (SOURCE, TARGET)
    )
    pd.testing.assert_frame_equal(source.reset_index(drop=True), plain.scores)
    assert list(found.scores["task"].unique()) == [SOURCE, TARGET]
    assert set(target["shifted_from"]) == {SOURCE}
    here, there = pd.read_csv(texts), pd.read_csv(later)[5:]
    states, shifted = (states_of(llama, rows["text"]) for rows in (here, there))
    labels, others = (rows["label"].to_numpy() for rows in (here, there))
    for row in target.to_dict(orient="records"):
        layer = 3 if row["kind"] == "baseline" else row["layer"]
        _, wanted = shifted_probe(states[layer], labels, shifted[layer], others)
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
    again = evaluate("plain", shift=later)
    pd.testing.assert_frame_equal(again.scores, found.scores)
    assert len(fits) == 4
    evaluate("plain", shift=later)
    assert len(fits) == 4
    there[1:].to_csv(later, index=False)
    with refused("holds scores of topics → later .linear probe. on other data"):
        evaluate("plain", shift=later)


def test_what_is_no_shift_is_one_line(refusal, texts, later, table, tmp_path):
    linear = f"linear-probe:{texts}"

    def line(shift, *others):
        tasks = [word for task in (linear, *others) for word in ("--data", task)]
        return refusal(
            "evaluate", "minilm", *tasks, "--shift", shift, "--out", tmp_path / "out"
        )

    new = table("new", text=[f"w{i} w3" for i in range(40)], label=list("abbcd") * 8)
    assert line(new) == (
        "new has labels that topics lacks (c, d): leave these samples out, or add some to topics"
    )
    assert line(table("bare", text=list("klmn"))) == (
        "bare has no labels to probe: give a column label, or a sub-folder for each class"
    )
    assert (
        line(texts)
        == "every sample of topics is in topics too: give other data as --shift"
    )
    assert line(str(tmp_path / "late.csv")).startswith(
        f"data '{tmp_path / 'late.csv'}' does not exist, did you mean"
    )
    assert line(later, f"knn-probe:{texts}") == (
        "--shift applies only to a linear-probe, not to topics (kNN probe): evaluate that by itself"
    )
    assert line(later, f"classification:{texts}").startswith(
        "--shift applies only to a linear-probe, not to topics:"
    )
