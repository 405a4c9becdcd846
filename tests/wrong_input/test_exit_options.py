"""Every option of `exits` that is out of range or misspelt, with its whole message, told before anything is loaded."""

import pytest
from typed import cli

from layerscope import LayerscopeError, exits

__all__ = ["cli"]

SHARE = {"--max-disagreement": "0.01", "--min-accuracy": "0.9", "--confidence": "0.95"}
WHOLE = {
    "--batch-size": "1 or more",
    "--samples": "2 or more",
    "--max-length": "1 or more",
    "--seed": "0 to 4294967295",
}
LAYERS = "give layers such as 3,6"
OPTIONS = [
    *((o, v, f"{o} {v!r} is not a whole number: give {hint}") for o, hint in WHOLE.items()
      for v in ("many", "1.5", "")),
    *((o, "-1", f"{o} -1 is not valid: give {hint}") for o, hint in WHOLE.items()),
    ("--samples", "1", "--samples 1 is not valid: give 2 or more"),
    ("--seed", "4294967296", "--seed 4294967296 is not valid: give 0 to 4294967295"),
    *((o, v, f"{o} {v!r} is not a number: give a share between 0 and 1, such as {e}") for o, e in SHARE.items()
      for v in ("few", "1%", "")),
    *((o, v, f"{o} {v} is not valid: give a share between 0 and 1, such as {e}") for o, e in SHARE.items()
      for v in ("0", "1", "-0.5", "95", "nan", "inf")),
    ("--min-speedup", "fast", "--min-speedup 'fast' is not a number: give more than 0, such as 1.05"),
    ("--min-speedup", "0", "--min-speedup 0 is not valid: give more than 0, such as 1.05"),
    ("--min-speedup", "inf", "--min-speedup inf is not valid: give more than 0, such as 1.05"),
    ("--min-speedup", "nan", "--min-speedup nan is not valid: give more than 0, such as 1.05"),
    ("--criterion", "margn", "criterion 'margn' does not exist, did you mean margin? (choose confidence, margin, "
     "entropy, patience)"),
    ("--criterion", "", "criterion '' does not exist: choose confidence, margin, entropy, patience"),
    ("--exits", "3,six", f"--exits 'six' is not a whole number: {LAYERS} or 3-6"),
    ("--exits", "1.5", f"--exits '1.5' is not a whole number: {LAYERS} or 3-6"),
    ("--exits", "0", "--exits 0 is not valid: a sample leaves at layer 1 or later"),
    ("--exits", "-2,3", "--exits -2 is not valid: a sample leaves at layer 1 or later"),
    ("--exits", ",", "--exits ',' names none: give names with commas, or leave it out for all"),
    ("--exit", "3", "option --exit does not exist, did you mean --exits? (layerscope exits --help lists them)"),
]  # fmt: skip


@pytest.mark.parametrize(("option", "value", "line"), OPTIONS, ids=[f"{o} {v}" for o, v, _ in OPTIONS])
def test_a_wrong_option_is_told_in_one_line(option, value, line, cli):
    done = cli("exits", "no-such-model", "--data", "no-such-file.csv", f"{option}={value}")
    assert (done.status, done.line, done.out) == (2, line, "")


def test_two_bounds_and_no_data_are_told(cli, tmp_path):
    given = ("exits", "no-such-model", "--data", "no-such-file.csv")
    both = cli(*given, "--max-disagreement", "0.01", "--min-accuracy", "0.9")
    assert both.line == "--max-disagreement and --min-accuracy are two bounds: give one of them"
    assert cli("exits", "minilm").line == "exits needs --data FILE: samples that the model was not trained on"
    assert cli("exits").line == "layerscope exits needs a model, such as layerscope exits minilm"
    (tmp_path / "file").write_text("")
    for option in ("--out", "--figures"):
        done = cli(*given, option, tmp_path / "file")
        assert done.line == f"{option} '{tmp_path}/file' cannot be made ({tmp_path}/file is a file): name a folder"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"exits": []}, "--exits names none: give layers such as 3,6, or leave it out"),
        ({"exits": [True]}, f"--exits True is not a whole number: {LAYERS}"),
        ({"batch_size": None}, "--batch-size None is not a whole number: give 1 or more"),
        ({"confidence": None}, "--confidence None is not a number: give a share between 0 and 1, such as 0.95"),
        ({"criterion": 3}, "criterion 3 does not exist: choose confidence, margin, entropy, patience"),
    ],
)
def test_the_function_tells_the_same(given, line):
    with pytest.raises(LayerscopeError) as told:
        exits("no-such-model", "no-such-file.csv", **given)
    assert str(told.value) == line
