"""What a verb writes over: an earlier result of its own, and nothing else."""

import pandas as pd
import pytest
import tiny

import layerscope


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        layerscope.profile(
            tiny.bert(seed),
            tiny.texts(12),
            processor=tiny.tokenizer(special=True),
            out=place / f"run{seed}",
            metrics="curvature",
        )
    return [place / "run0", place / "run1"]


@pytest.mark.parametrize(
    "names",
    [("report.html",), ("lens.json.bak", "grid.csv"), ("model/model.safetensors",)],
)
def test_a_folder_of_others_is_left_alone(cli, bert, runs, tmp_path, names):
    mine = [tmp_path / "mine" / name for name in names]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("keep")
    for arguments, what in (
        (("compare", *runs), "comparison"),
        (("evaluate", bert, "--tasks", "linear-probe:digits"), "evaluation"),
        (("lens", bert, "--prompt", "w1 w2"), "reading of the lens"),
        (("exits", bert, "--data", "digits"), "report of exits"),
    ):
        line = cli(*arguments, "--out", tmp_path / "mine").line
        assert (
            line
            == f"--out {tmp_path}/mine exists and holds no {what}: name a new folder"
        )
    assert [path.read_text() for path in mine] == ["keep"] * len(mine)


def test_a_file_of_others_is_left_alone_and_an_earlier_one_replaced(
    cli, runs, tmp_path
):
    for name in ("p.html", "t.csv"):
        (tmp_path / name).write_text("run,value\nmine,1\n")
    page, table = tmp_path / "p.html", tmp_path / "t.csv"
    what = "exists and is not a {} of layerscope's: name a new file"
    assert (
        cli("report", *runs, "--out", page).line
        == f"--out '{page}' {what.format('page')}"
    )
    assert (
        cli("compare", *runs, "--csv", table).line
        == f"--csv '{table}' {what.format('table')}"
    )
    for path in (page, table):
        assert path.read_text() == "run,value\nmine,1\n"
        path.unlink()
    for _ in range(2):
        assert cli("report", *runs, "--out", page).status == 0
        assert (
            cli("compare", *runs, "--csv", table, "--out", tmp_path / "both").status
            == 0
        )
    assert len(pd.read_csv(table)) and page.stat().st_size > 400_000


def test_a_reader_that_leaves_costs_no_file(unread, bert, runs, tmp_path):
    assert unread("lens", bert, "--prompt", "w1 w2", "--out", tmp_path / "a") == 0
    assert (tmp_path / "a/lens.json").is_file()
    assert unread("compare", *runs, "--out", tmp_path / "d") == 0
    for name in ("a", "d"):
        assert (tmp_path / name / "report.html").is_file()
