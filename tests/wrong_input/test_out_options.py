"""Folders to write to that cannot be, and those that hold something else."""

import pytest

LONG = "w" * 300
PLACES = {
    "taken": "{} {!r} cannot be made ({} is a file): name a folder",
    "taken/below": "{} {!r} cannot be made ({} is a file): name a folder",
    LONG: "{} {!r} cannot be made (File name too long): name a folder",
}


@pytest.mark.parametrize("name", PLACES, ids=["a file", "in a file", "too long"])
def test_a_place_that_cannot_be(refusal, bert, reviews, tmp_path, name):
    taken, place = tmp_path / "taken", tmp_path / name
    taken.write_text("")
    line = refusal("profile", bert, "--data", reviews, "--out", place)
    assert line == PLACES[name].format("out", str(place), taken)


def test_a_folder_of_other_files_is_left_alone(refusal, bert, reviews, tmp_path):
    mine = tmp_path / "mine"
    (mine / "tables").mkdir(parents=True)
    (mine / "tables" / "sales.parquet").write_text("x")
    (mine / "thesis.tex").write_text("x")
    line = refusal("profile", bert, "--data", reviews, "--out", mine)
    assert (
        line
        == f"folder {str(mine)!r} holds other files (thesis.tex) and no run: choose a new folder with --out"
    )
    assert (mine / "tables" / "sales.parquet").read_text() == "x"
