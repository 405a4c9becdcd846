"""Every option of `exits` that is out of range or misspelt, with its whole message, told before anything is loaded."""

import pytest
from typed import cli

from layerscope import LayerscopeError, exits

__all__ = ["cli"]

SHARE = {"--max-disagreement": "0.01", "--min-accuracy": "0.9", "--confidence": "0.95"}
WHOLE = {
    "--batch-size": "a whole number of at least 1",
    "--samples": "a whole number of at least 2",
    "--max-length": "a whole number of at least 1",
    "--seed": "a whole number from 0 to 4294967295",
}
LAYERS = "give whole numbers of at least 1, such as 3,6 or 3-6"


def own(option):
    return option.removeprefix("--").replace("-", "_")


OPTIONS = [
    *((o, v, f"{own(o)} is {v!r}: give {hint}") for o, hint in WHOLE.items() for v in ("many", "1.5", "")),
    *((o, "-1", f"{own(o)} is -1: give {hint}") for o, hint in WHOLE.items()),
    ("--samples", "1", "samples is 1: give a whole number of at least 2"),
    ("--seed", "4294967296", "seed is 4294967296: give a whole number from 0 to 4294967295"),
    *((o, v, f"{own(o)} is {v!r}: give a number between 0 and 1, such as {e}") for o, e in SHARE.items()
      for v in ("few", "1%", "")),
    *((o, v, f"{own(o)} is {v}: give a number between 0 and 1, such as {e}") for o, e in SHARE.items()
      for v in ("0", "1", "-0.5", "95", "nan", "inf")),
    ("--min-speedup", "fast", "min_speedup is 'fast': give a number above 0, such as 1.05"),
    ("--min-speedup", "0", "min_speedup is 0: give a number above 0, such as 1.05"),
    ("--min-speedup", "inf", "min_speedup is inf: give a number above 0, such as 1.05"),
    ("--min-speedup", "nan", "min_speedup is nan: give a number above 0, such as 1.05"),
    ("--criterion", "margn", "criterion 'margn' does not exist, did you mean margin? (choose confidence, margin, "
     "entropy, patience)"),
    ("--criterion", "", "criterion '' does not exist: choose confidence, margin, entropy, patience"),
    ("--exits", "3,six", f"exits is 'six': {LAYERS}"),
    ("--exits", "1.5", f"exits is '1.5': {LAYERS}"),
    ("--exits", "0", f"exits is 0: {LAYERS}"),
    ("--exits", "-2,3", f"exits is -2: {LAYERS}"),
    ("--exits", ",", f"exits is '': {LAYERS}"),
    ("--exit", "3", "option --exit does not exist, did you mean --exits? (layerscope exits --help lists them)"),
]  # fmt: skip


@pytest.mark.parametrize(("option", "value", "line"), OPTIONS, ids=[f"{o} {v}" for o, v, _ in OPTIONS])
def test_a_wrong_option_is_told_in_one_line(option, value, line, cli):
    done = cli("exits", "no-such-model", "--data", "no-such-file.csv", f"{option}={value}")
    assert (done.status, done.line, done.out) == (2, line, "")


def test_two_bounds_and_no_data_are_told(cli, tmp_path):
    given = ("exits", "no-such-model", "--data", "no-such-file.csv")
    both = cli(*given, "--max-disagreement", "0.01", "--min-accuracy", "0.9")
    assert both.line == "max_disagreement and min_accuracy are two goals: give one of them"
    assert cli("exits", "minilm").line == "layerscope exits needs --data: layerscope exits --help shows an example"
    assert cli("exits").line == "layerscope exits needs a model, such as layerscope exits minilm"
    (tmp_path / "file").write_text("")
    for option in ("--out", "--figures"):
        done = cli(*given, option, tmp_path / "file")
        assert done.line == f"{own(option)} '{tmp_path}/file' cannot be made ({tmp_path}/file is a file): name a folder"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"exits": []}, f"exits is empty: {LAYERS}"),
        ({"exits": [True]}, f"exits is True: {LAYERS}"),
        ({"batch_size": None}, "batch_size is None: give a whole number of at least 1"),
        ({"confidence": None}, "confidence is None: give a number between 0 and 1, such as 0.95"),
        ({"criterion": 3}, "criterion 3 does not exist: choose confidence, margin, entropy, patience"),
    ],
)
def test_the_function_tells_the_same(given, line):
    with pytest.raises(LayerscopeError) as told:
        exits("no-such-model", "no-such-file.csv", **given)
    assert str(told.value) == line
