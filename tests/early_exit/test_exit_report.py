"""What `save` writes, `open_exit_report` gives back, or says in one line what is wrong with it."""

import json
import math
import re
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from exit_reports import HOSTILE, made, never

import layerscope
from layerscope import LayerscopeError, open_exit_report
from layerscope.early_exit.exit_report import TABLES, ExitReport

FACTS = [field.name for field in fields(ExitReport) if field.name not in (*TABLES, "folder")]
KINDS_OF_REPORT = {
    "labelled": made,
    "unlabelled": lambda: made(labelled=False),
    "never": never,
    "hostile": lambda: made(model=HOSTILE, data="\x1b[31mred\u202e"),
}


@pytest.mark.parametrize("make", KINDS_OF_REPORT.values(), ids=KINDS_OF_REPORT)
def test_a_saved_report_is_the_same_again(make, tmp_path):
    report = make()
    folder = report.save(tmp_path / "a" / "b")
    assert sorted(path.name for path in folder.iterdir()) == [
        "curve.csv",
        "depths.csv",
        "exits.json",
        "layers.csv",
    ]
    again = open_exit_report(folder)
    for name in FACTS:
        assert getattr(again, name) == getattr(report, name), name
        assert isinstance(getattr(report, name), type(getattr(again, name))), name
    for name, columns in TABLES.items():
        pd.testing.assert_frame_equal(getattr(again, name), getattr(report, name), check_exact=True)
        assert dict(getattr(again, name).dtypes.astype(str)) == columns
    assert again.folder == folder and report.folder is None
    assert json.dumps(again.as_dict(), allow_nan=False) == json.dumps(
        report.as_dict(), allow_nan=False
    )


def test_json_says_null_for_never_and_for_what_is_not_known():
    shown = json.loads(json.dumps(never().as_dict(), allow_nan=False))
    assert (
        shown["threshold"] is None
        and shown["curve"][-1]["threshold"] is None
        and shown["curve"][0]["threshold"] == 0.6
    )
    assert shown["depths"][0]["measured"] is None and shown["depths"][1]["measured"] == 3.0
    assert (
        shown["exits"] == [] and shown["pays"] is False and shown["notes"] == ["drawn with seed 0"]
    )
    unknown = made(labelled=False).as_dict()
    assert unknown["accuracy"] is None and unknown["depths"][0]["accuracy"] is None


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path):
    report = made(
        measured=np.float32(1.5),
        samples=np.int64(400),
        pays=np.bool_(True),
        calibration={"n": np.int64(3)},
    )
    again = open_exit_report(report.save(tmp_path))
    assert (again.measured, again.samples, again.pays, again.calibration) == (
        1.5,
        400,
        True,
        {"n": 3},
    )


def test_a_report_that_is_there_is_replaced_and_what_lies_beside_stays(tmp_path):
    made().save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"mine")
    never().save(tmp_path)
    assert math.isinf(open_exit_report(tmp_path).threshold)
    assert (tmp_path / "model.safetensors").read_bytes() == b"mine"


def test_the_package_has_it():
    assert layerscope.ExitReport is ExitReport
    assert {"ExitReport", "exits", "open_exit_report"} <= set(layerscope.__all__)


def edited(name, change):
    def edit(folder):
        path = folder / name
        path.write_text(change(path.read_text("utf-8")), "utf-8")

    return edit


def fact(name, value):
    return edited("exits.json", lambda text: json.dumps(json.loads(text) | {name: value}))


AGAIN = "run layerscope exits again"
DAMAGED = f"{{f}}/exits.json is damaged, or no report of exits: {AGAIN}"
WROTE = "has changed since it was written"
WRITTEN = "{f}/exits.json was written by"
DAMAGES = {
    "no manifest": (
        lambda f: (f / "exits.json").unlink(),
        "{f} holds no report of exits (exits.json): give the folder of one",
    ),
    "half a manifest": (edited("exits.json", lambda t: t[: len(t) // 2]), DAMAGED),
    "no object": (edited("exits.json", lambda t: "[1]"), DAMAGED),
    "another kind": (fact("kind", "comparison"), DAMAGED),
    "the format before": (fact("format", 2), f"{WRITTEN} an older version of layerscope: {AGAIN}"),
    "a later format": (
        fact("format", 99),
        f"{WRITTEN} a newer version of layerscope: upgrade it, or {AGAIN}",
    ),
    "a text for a number": (fact("depth", "<b>6"), f"{{f}}/exits.json {WROTE}: {AGAIN}"),
    "a yes for a number": (fact("samples", True), f"{{f}}/exits.json {WROTE}: {AGAIN}"),
    "no table": (lambda f: (f / "layers.csv").unlink(), f"{{f}}/layers.csv is missing: {AGAIN}"),
    "a changed table": (
        edited("curve.csv", lambda t: t.replace("0.8", "0.7", 1)),
        f"{{f}}/curve.csv {WROTE}: {AGAIN}",
    ),
    "half a table": (edited("depths.csv", lambda t: t[:60]), f"{{f}}/depths.csv {WROTE}: {AGAIN}"),
}


@pytest.mark.parametrize(("damage", "line"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_folder_is_refused_in_one_line(damage, line, tmp_path):
    damage(made().save(tmp_path))
    with pytest.raises(LayerscopeError) as refused:
        open_exit_report(tmp_path)
    assert str(refused.value) == re.sub(r"^\{f\}(\S*)", rf"'{tmp_path}\1'", line)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        LayerscopeError,
        match=r"file/exits' cannot be made \(Not a directory\): name another folder",
    ):
        made().save(tmp_path / "file" / "exits")
    with pytest.raises(LayerscopeError, match=r"file' holds no report of exits \(exits.json\)"):
        open_exit_report(tmp_path / "file")
