"""The command `reproduce`: what it prints and writes, what it refuses, and that a killed one goes on."""

import json
import pickle
from dataclasses import replace

import pandas as pd
import pytest
import tiny
from papers.worlds import spoken

import layerscope_papers
from layerscope.core.files import read_json
from layerscope_papers import catalogue, vision
from layerscope_papers.assets import Assets
from layerscope_papers.catalogue import UNRUN
from layerscope_papers.layers import curves, prompts, theorems
from layerscope_papers.recipe import WRITTEN
from layerscope_papers.tracing import exits, generated, parameters

NOT_RUN = next(iter(UNRUN))
LACKS = UNRUN[NOT_RUN]["needs"]


def test_a_table_of_a_paper(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    printed = cli("reproduce", "t-TAB1", "--out", tmp_path)
    assert printed.status == 0, printed.err
    lines = printed.out.splitlines()
    assert lines[0] == "T-tab1: 2 of 3 claims held, 1 did not hold."
    assert max(map(len, lines[:-1])) <= 80
    folder = tmp_path / "T-tab1-small"
    result = read_json(folder / "result.json")
    assert result["verdict"] == "did not hold"
    assert result["fixed"] == catalogue.recipes()["T-tab1"].digest
    claims = pd.DataFrame(result["claims"]).set_index("name")
    assert claims["verdict"].to_dict() == {
        "totals": "held",
        "savings": "held",
        "columns": "did not hold",
    }
    assert {"low", "high", "threshold", "direction", "over", "n"} <= {*claims}
    numbers = pd.read_csv(folder / "numbers.csv", index_col="quantity")
    deit = numbers.loc["DeiT-S, a classifier per layer"]
    assert deit["printed"] == 26.27 and abs(deit["ours"] - 26.27) < 0.01
    assert deit["comparable"] == "yes"
    suffixes = {path.suffix for path in folder.iterdir()}
    assert suffixes == {".json", ".csv", ".png", ".pdf", ".svg"}
    assert "T-tab1 · 2 of 3 claims held" in (tmp_path / "small.html").read_text()


def test_several_recipes_begin_with_the_total_and_say_each_claim_with_its_unit(
    cli, tmp_path, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    words = "reproduce", "T-tab1", "L-appE", "--scale", "published", "--out", tmp_path
    printed = cli(*words)
    assert printed.status == 0 and not printed.err, "the total comes before any recipe"
    lines = printed.out.splitlines()
    assert lines[0] == "3 of 4 claims held, 1 did not hold."
    assert max(map(len, lines[:-1])) <= 80
    text = " ".join(printed.out.split())
    for part in (
        "L-appE dime, held: On Pythia-410M, the layer that DiME chooses without labels beats the last layer. ",
        ". Measured: 2.16 (gain in score over the last layer, percentage points, mean",
    ):
        assert part in text
    assert "0.311 … 4.01" not in text and "0.311 … 4.01" in cli(*words, "--long").out


def test_every_claim_that_is_written_has_a_judge():
    judged = [name for name, entry in WRITTEN.items() if "claims" in entry]
    assert [*catalogue.recipes()] == judged
    for entry in WRITTEN.values():
        claims = entry.get("claims", {}).values()
        assert bool(claims) != ("needs" in entry)
        assert all("over" in entry | claim for claim in claims)


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
    claims = WRITTEN[name]["claims"].values()
    assert any(words in claim["statistic"] for claim in claims)


def test_the_printed_table_is_judged_by_its_last_digit():
    claims = WRITTEN["T-tab1"]["claims"].values()
    assert {claim["below"] for claim in claims} == {parameters.DIGIT}


def test_the_released_values_decide_offline(tmp_path):
    names = ["L-fig1", "L-appE"]
    board = layerscope_papers.reproduce(names, scale="published", out=tmp_path)
    found = {v.claim.name: v.interval.value for v in board["L-fig1"].verdicts}
    for name, gain in (
        ("Pythia-410m", 5.1),
        ("Pythia-160m", 3.5),
        ("mamba-370m", 16.5),
        ("LLM2Vec-8B", 1.46),
    ):
        assert found[name] == pytest.approx(gain, abs=0.05)
    assert json.loads(json.dumps(board.as_dict()))["recipes"][0]["recipe"] == "L-fig1"
    assert repr(board) == "Board(scale='published': 7 of 7 claims held)"
    line = "Reproduction('L-fig1', scale='published': 6 of 6 claims held)"
    assert repr(board["L-fig1"]) == line
    (bars,) = board["L-appE"].evidence.plots
    assert {"infonce", "dime", "curvature"} < set(bars.rows)


REFUSED = {
    "T-fig99": "recipe 'T-fig99' does not exist, did you mean T-fig",
    "L-fig99": "recipe 'L-fig99' does not exist, did you mean L-fig",
    NOT_RUN.lower(): f"{NOT_RUN} is not run: it needs {LACKS}",
    "T-fig5 --scale published": "released: give --scale small or --scale paper",
    "T-tab1 --all": "name recipes or give --all, not both",
    "T-tab1 --list": "--list shows every recipe and runs none",
    "": "no recipe is named: layerscope reproduce --list shows them",
    "T-tab1 --data-dir missing": "--data-dir 'missing' is not a folder",
    "T-fig1 --model x --data y": "T-fig1 makes its own models: ",
    "L-rows --model x": "--model and --data go together",
    "L-rows --model x --data y --scale paper": "--scale is that of ",
    "L-rows --model minilm --data no.txt": "'no.txt' does not exist",
}


@pytest.mark.parametrize("words, line", REFUSED.items(), ids=REFUSED)
def test_wrong_input(refusal, tmp_path, monkeypatch, words, line):
    monkeypatch.chdir(tmp_path)
    assert line in refusal("reproduce", *words.split())


def test_the_list(cli):
    listed = json.loads(cli("reproduce", "--list", "--json").out)
    recipes, not_run = listed["recipes"], listed["not_run"]
    assert set(recipes) == set(catalogue.recipes()) and set(not_run) == set(UNRUN)
    assert not set(recipes) & set(not_run)
    first = recipes["L-fig1"]
    assert first["scales"] == ["published"] and "small" in first["lacks"]


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
    marks = [*tmp_path.glob("assets/*/asset.json")]
    times = [mark.stat().st_mtime_ns for mark in marks]
    assert len(marks) == 2
    assert pickle.loads(pickle.dumps(made)) == made, "for processes that make them"
    board = layerscope_papers.reproduce("T-fig16", out=tmp_path, jobs=1)
    assert times == [mark.stat().st_mtime_ns for mark in marks]
    (verdict,) = board["T-fig16"].verdicts
    interval = verdict.interval
    assert interval.n == 3 and interval.low < interval.value < interval.high


def test_claims_that_changed_after_their_run_are_told(cli, tmp_path, monkeypatch):
    words = "reproduce", "T-tab1", "--out", tmp_path
    recipe = catalogue.recipes()["T-tab1"]
    line = "T-tab1: its claims or settings have changed since the result in"

    def is_told():
        return line in cli(*words).err

    assert not is_told() and not is_told()
    first, *others = recipe.claims
    eased = replace(recipe, claims=(replace(first, threshold=0.9), *others))
    monkeypatch.setattr(catalogue, "recipes", lambda: {"T-tab1": eased})
    assert is_told() and not is_told()
    for result in ("{", "{}"):  # cut, or without what it was judged by
        (tmp_path / "T-tab1-small" / "result.json").write_text(result)
        ended = cli(*words)
        assert ended.status == 0 and line not in ended.err


def test_claims_are_judged_on_a_model_and_texts_of_a_user(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(generated.FURTHER, "steps", 2)
    model = spoken(tmp_path / "mine", 0)
    data = tmp_path / "mine.txt"
    data.write_text("\n".join(text for text in tiny.texts(120) if " " in text))
    yours = ("--model", model, "--data", data, "--out", tmp_path / "board")
    printed = cli("reproduce", "L-rows", "T-fig6-text", "--jobs", 1, *yours)
    assert printed.status == 0, printed.err
    claims = read_json(tmp_path / "board" / "L-rows-yours" / "result.json")["claims"]
    assert {claim["over"] for claim in claims} == {"texts"}
    folder = tmp_path / "board" / "T-fig6-text-yours"
    (trained_further,) = read_json(folder / "result.json")["claims"]
    assert (trained_further["over"], trained_further["n"]) == ("seeds", 3)
    assert min(claim["n"] for claim in claims) > 10
    assert f"{model}on{data}" in "".join(printed.out.split()), (
        "a long path may be folded"
    )
    # another text in the file, then another model in the folder
    before = read_json(tmp_path / "board" / "L-rows-yours" / "result.json")["claims"]
    data.write_text("w1 w2 w3\n" + data.read_text())
    for change in (lambda: None, lambda: spoken(tmp_path / "mine", 1)):
        change()
        assert cli("reproduce", "L-rows", *yours).status == 0
        result = read_json(tmp_path / "board" / "L-rows-yours" / "result.json")
        assert result["claims"] != before
        before = result["claims"]
