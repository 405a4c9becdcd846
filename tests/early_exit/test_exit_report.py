"""What `save` writes, `open_exit_report` gives back, or says in one line what is wrong with it."""

import json
from dataclasses import fields

import pandas as pd
import pytest
from exit_reports import HOSTILE, made, never

from layerscope import open_exit_report
from layerscope.early_exit.exit_report import TABLES, ExitReport

FACTS = [
    field.name for field in fields(ExitReport) if field.name not in (*TABLES, "folder")
]
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
        pd.testing.assert_frame_equal(
            getattr(again, name), getattr(report, name), check_exact=True
        )
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
    assert (
        shown["depths"][0]["measured"] is None and shown["depths"][1]["measured"] == 3.0
    )
    assert (
        shown["exits"] == []
        and shown["pays"] is False
        and shown["notes"] == ["drawn with seed 0"]
    )
    unknown = made(labelled=False).as_dict()
    assert unknown["accuracy"] is None and unknown["depths"][0]["accuracy"] is None
