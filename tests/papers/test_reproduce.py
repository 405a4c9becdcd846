"""The command `reproduce`: what it prints and writes, what it refuses, and that a killed one goes on."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny
from transformers import GPT2Config, GPT2LMHeadModel

import layerscope_papers
from layerscope_papers import catalogue, images, vision
from layerscope_papers.assets import Assets
from layerscope_papers.catalogue import UNRUN
from layerscope_papers.layers import curves, prompts, theorems
from layerscope_papers.recipe import WRITTEN
from layerscope_papers.tracing import exits, parameters

NOT_RUN = next(iter(UNRUN))
LACKS = UNRUN[NOT_RUN]["needs"]


def test_a_table_of_a_paper(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    printed = cli("reproduce", "t-TAB1", "--out", tmp_path)
    assert printed.status == 0, printed.err
    lines = printed.out.splitlines()
    assert (
        lines[0] == "T-tab1: 2 of 3 claims held, 1 did not hold."
        and max(map(len, lines[:-1])) <= 80
    )
    folder = tmp_path / "T-tab1-small"
    result = json.loads((folder / "result.json").read_text())
    assert (
        result["verdict"] == "did not hold"
        and result["fixed"] == catalogue.recipes()["T-tab1"].digest
    )
    assert [(c["name"], c["verdict"]) for c in result["claims"]] == [
        ("totals", "held"),
        ("savings", "held"),
        ("columns", "did not hold"),
    ]
    assert {"low", "high", "threshold", "direction", "over", "n"} <= set(
        result["claims"][0]
    )
    numbers = pd.read_csv(folder / "numbers.csv")
    deit = numbers.set_index("quantity").loc["DeiT-S, a classifier per layer"]
    assert (
        deit["printed"] == 26.27
        and abs(deit["ours"] - 26.27) < 0.01
        and deit["comparable"] == "yes"
    )
    assert {path.suffix for path in folder.iterdir()} == {
        ".json",
        ".csv",
        ".png",
        ".pdf",
        ".svg",
    }
    assert "T-tab1 · 2 of 3 claims held" in (tmp_path / "small.html").read_text()


def test_several_recipes_begin_with_the_total_and_say_each_claim_with_its_unit(
    cli, tmp_path, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    words = "reproduce", "T-tab1", "L-appE", "--scale", "published", "--out", tmp_path
    printed = cli(*words)
    assert printed.status == 0 and not printed.err, "the total comes before any recipe"
    lines = printed.out.splitlines()
    assert (
        lines[0] == "3 of 4 claims held, 1 did not hold."
        and max(map(len, lines[:-1])) <= 80
    )
    text = " ".join(printed.out.split())
    sentence = "L-appE dime, held: On Pythia-410M, the layer that DiME chooses without labels beats the last layer."
    assert (
        f"{sentence} Measured: 2.16 (gain in score over the last layer, percentage points, mean"
        in text
    )
    assert "0.311 … 4.01" not in text and "0.311 … 4.01" in cli(*words, "--long").out


def test_every_claim_that_is_written_has_a_judge():
    assert [*catalogue.recipes()] == [
        name for name, entry in WRITTEN.items() if "claims" in entry
    ]
    assert all(("claims" in entry) != ("needs" in entry) for entry in WRITTEN.values())
    assert all("over" in claim or "over" in WRITTEN[name] for name, claim in _written())


@pytest.mark.parametrize(
    "name, words",
    [
        ("L-fig4", f"after step {curves.LATE:,}"),
        ("L-fig6", f"with {prompts.SHARES[-1]:.0%} of tokens"),
        ("L-thm1", f"over {theorems.TRIALS} random matrices"),
        ("L-thm3", f"{theorems.SYMBOLS[0]} … {theorems.SYMBOLS[-1]} symbols"),
        ("T-fig7", "at the set threshold"),
        ("T-fig7", f"at most {100 * exits.LOSS:.0f} points"),
    ],
)
def test_claims_name_the_numbers_that_judges_use(name, words):
    assert any(
        words in claim["statistic"] for recipe, claim in _written() if recipe == name
    )
    assert all(
        claim["below"] == parameters.DIGIT
        for recipe, claim in _written()
        if recipe == "T-tab1"
    )


def _written():
    return [
        (name, claim)
        for name, entry in WRITTEN.items()
        for claim in entry.get("claims", {}).values()
    ]


def test_the_released_values_decide_offline(tmp_path):
    board = layerscope_papers.reproduce(
        ["L-fig1", "L-appE"], scale="published", out=tmp_path
    )
    found = {v.claim.name: v for v in board["L-fig1"].verdicts}
    assert found["Pythia-410m"].word == found["Pythia-160m"].word == "held"
    assert found["Pythia-410m"].interval.value == pytest.approx(5.1, abs=0.05)
    assert found["Pythia-160m"].interval.value == pytest.approx(3.5, abs=0.05)
    assert found["mamba-370m"].interval.value == pytest.approx(16.5, abs=0.05)
    assert found["LLM2Vec-8B"].interval.value == pytest.approx(1.46, abs=0.05)
    assert json.loads(json.dumps(board.as_dict()))["recipes"][0]["recipe"] == "L-fig1"
    assert repr(board) == "Board(scale='published': 7 of 7 claims held)"
    assert (
        repr(board["L-fig1"])
        == "Reproduction('L-fig1', scale='published': 6 of 6 claims held)"
    )
    (bars,) = board["L-appE"].evidence.plots
    assert {"infonce", "dime", "curvature"} < set(bars.rows)


@pytest.mark.parametrize(
    "words, line",
    [
        (["T-fig99"], "recipe 'T-fig99' does not exist, did you mean T-fig"),
        (["L-fig99"], "recipe 'L-fig99' does not exist, did you mean L-fig"),
        (
            [NOT_RUN.lower()],
            f"{NOT_RUN} is not run: it needs {LACKS}",
        ),
        (
            ["T-fig5", "--scale", "published"],
            "released: give --scale small or --scale paper",
        ),
        (["T-fig5", "--scale", "huge"], "'huge' does not exist"),
        (["T-tab1", "--all"], "name recipes or give --all, not both"),
        (["T-tab1", "--list"], "--list shows every recipe and runs none"),
        ([], "no recipe is named: layerscope reproduce --list shows them"),
        (["T-tab1", "--data-dir", "missing"], "--data-dir 'missing' is not a folder"),
        (
            ["T-tab1", "--jobs", "0"],
            "jobs is 0: give a whole number of at least 1, or auto",
        ),
    ],
)
def test_wrong_input(cli, tmp_path, monkeypatch, words, line):
    monkeypatch.chdir(tmp_path)
    printed = cli("reproduce", *words)
    assert printed.status == 2 and line in printed.line
    assert not list(tmp_path.iterdir())


def test_the_list(cli):
    printed = cli("reproduce", "--list", "--json")
    listed = json.loads(printed.out)
    assert set(listed["recipes"]) == set(catalogue.recipes())
    assert not set(listed["recipes"]) & set(listed["not_run"])
    assert (
        listed["recipes"]["L-fig1"]["scales"] == ["published"]
        and "small" in listed["recipes"]["L-fig1"]["lacks"]
    )
    assert NOT_RUN in listed["not_run"]


def test_a_claim_about_training_from_nothing_and_again(tmp_path, monkeypatch):
    shape = {"depth": 2, "width": 16, "heads": 2, "shifted": False}
    small = replace(vision.SMALL, epochs=0.5, seeds=3, **shape)
    recipe = replace(catalogue.recipes()["T-fig16"], scales={"small": small})
    monkeypatch.setattr(catalogue, "recipes", lambda: {"T-fig16": recipe})
    made = []
    write = Assets.get

    def stopped(assets, asset):
        made.append(asset)
        if len(made) == 3:
            raise KeyboardInterrupt
        return write(assets, asset)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Assets, "get", stopped)
        layerscope_papers.reproduce("T-fig16", out=tmp_path, jobs=1)
    whole = {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "assets").glob("*/asset.json")
    }
    assert len(whole) == 2
    assert pickle.loads(pickle.dumps(made)) == made, "for processes that make them"
    board = layerscope_papers.reproduce("T-fig16", out=tmp_path, jobs=1)
    assert all(path.stat().st_mtime_ns == time for path, time in whole.items())
    (verdict,) = board["T-fig16"].verdicts
    assert (
        verdict.interval.n == 3
        and verdict.interval.low < verdict.interval.value < verdict.interval.high
    )


def test_claims_that_changed_after_their_run_are_told(cli, tmp_path, monkeypatch):
    words = "reproduce", "T-tab1", "--out", tmp_path
    recipe = catalogue.recipes()["T-tab1"]
    line = "T-tab1: its claims or settings have changed since the result in"
    assert line not in cli(*words).err
    assert line not in cli(*words).err
    first, *others = recipe.claims
    eased = replace(recipe, claims=(replace(first, threshold=0.9), *others))
    monkeypatch.setattr(catalogue, "recipes", lambda: {"T-tab1": eased})
    assert line in cli(*words).err
    assert line not in cli(*words).err
    (tmp_path / "T-tab1-small" / "result.json").write_text("{")
    assert line not in cli(*words).err


def test_claims_are_judged_on_a_model_and_texts_of_a_user(cli, tmp_path):
    longer = GPT2Config(**tiny.gpt2().config.to_diff_dict() | {"n_positions": 128})
    model = tiny.saved(GPT2LMHeadModel(longer), tmp_path / "mine")
    data = tmp_path / "mine.txt"
    data.write_text("\n".join(text for text in tiny.texts(120) if " " in text))
    yours = ("--model", model, "--data", data, "--out", tmp_path / "board")
    printed = cli("reproduce", "L-rows", "--jobs", 1, *yours)
    assert printed.status == 0, printed.err
    result = json.loads(
        (tmp_path / "board" / "L-rows-yours" / "result.json").read_text()
    )
    assert {claim["over"] for claim in result["claims"]} == {"texts"}
    assert min(claim["n"] for claim in result["claims"]) > 10
    assert f"{model}on{data}" in "".join(printed.out.split()), (
        "a long path may be folded"
    )


@pytest.mark.parametrize(
    "words, message",
    [
        (("T-fig1", "--model", "x", "--data", "y"), "T-fig1 makes its own models: "),
        (("L-rows", "--model", "x"), "--model and --data go together"),
        (
            ("L-rows", "--model", "x", "--data", "y", "--scale", "paper"),
            "--scale is that of ",
        ),
        (("L-rows", "--model", "x", "--data", "no.txt"), "'no.txt' does not exist"),
    ],
)
def test_what_a_user_names_is_refused_in_one_line(cli, words, message, tmp_path):
    printed = cli("reproduce", *words, "--out", tmp_path)
    assert printed.status == 2 and message in printed.err and not printed.out


def test_images_are_learnt_from_at_nine_places():
    training, _ = images.images("digits", None)
    moved = images.shifted(training.take(range(2)))
    pixels = [np.asarray(image) for image in moved.samples]
    whole = np.asarray(training.samples[1])
    assert len(moved) == 18 and moved.labels[9:] == (training.labels[1],) * 9
    assert (pixels[9 + 4] == whole).all()
    assert (pixels[9][:-1, :-1] == whole[1:, 1:]).all() and not pixels[9][-1].any()
