"""Every option of `exits` out of its range or misspelt: one whole line, before anything is loaded."""

import math

import pytest
from typed import flagged

from layerscope import LayerscopeError, exits

LAYERS = "give whole numbers of at least 1, such as 3,6 or 3-6"
SEEDS = "give a whole number from 0 to 4294967295"
WRONG = [
    ("--batch-size", "many", "batch_size is 'many': give a whole number of at least 1"),
    ("--samples", "1", "samples is 1: give a whole number of at least 2"),
    ("--max-length", "1.5", "max_length is '1.5': give a whole number of at least 1"),
    ("--seed", "4294967296", f"seed is 4294967296: {SEEDS}"),
    ("--max-disagreement", "1%", "max_disagreement is '1%': give a number between 0 and 1, such as 0.01"),
    ("--min-accuracy", "1", "min_accuracy is 1: give a number between 0 and 1, such as 0.9"),
    ("--confidence", "95", "confidence is 95: give a number between 0 and 1, such as 0.95"),
    ("--min-speedup", "0", "min_speedup is 0: give a number above 0, such as 1.05"),
    ("--criterion", "margn", "criterion 'margn' does not exist, did you mean margin? (choose confidence, margin, "
     "entropy, patience)"),
    ("--criterion", "", "criterion '' does not exist: choose confidence, margin, entropy, patience"),
    ("--samples", "", "samples is '': give a whole number of at least 2"),
    ("--confidence", "", "confidence is '': give a number between 0 and 1, such as 0.95"),
    ("--exits", ",", f"exits is '': {LAYERS}"),
    ("--exits", "1.5", f"exits is '1.5': {LAYERS}"),
    ("--exits", "3,six", f"exits is 'six': {LAYERS}"),
    ("--threshold", "sure", "threshold is 'sure': give a number of at least 0, such as 0.9"),
    ("--threshold", "1.5", "threshold of confidence is 1.5: give a number from 0 to 1, or infinity for never"),
    ("--exit", "3", "option --exit does not exist, did you mean --exits? (layerscope exits --help lists them)"),
]  # fmt: skip


@pytest.mark.parametrize(("option", "value", "line"), WRONG, ids=[f"{o} {v}" for o, v, _ in WRONG])
def test_a_wrong_option_is_refused_in_one_line(option, value, line, cli):
    done = cli("exits", "no-such-model", "--data", "no-such-file.csv", f"{option}={value}")
    assert (done.status, done.line, done.out) == (2, flagged(line, option), "")


def test_two_bounds_and_no_data_are_refused(cli, tmp_path):
    given = ("exits", "no-such-model", "--data", "no-such-file.csv")
    both = cli(*given, "--max-disagreement", "0.01", "--min-accuracy", "0.9")
    assert both.line == "--max-disagreement and --min-accuracy are two goals: give one of them"
    stated = cli(*given, "--threshold", "0.9", "--min-accuracy", "0.9")
    assert (
        stated.line
        == "--min-accuracy calibrates the threshold and --threshold fixes it: give one of the two"
    )
    assert (
        cli("exits", "minilm").line
        == "layerscope exits needs --data: layerscope exits --help shows an example"
    )
    assert cli("exits").line == "layerscope exits needs a model, such as layerscope exits minilm"
    (tmp_path / "file").write_text("")
    for option in ("out", "figures"):
        done = cli(*given, f"--{option}", tmp_path / "file")
        assert (
            done.line
            == f"{option} '{tmp_path}/file' cannot be made ({tmp_path}/file is a file): name a folder"
        )


@pytest.mark.parametrize(
    ("given", "line"),
    [
        *(
            (
                {name: value},
                f"{name} is {value:g}: give a number between 0 and 1, such as {example}",
            )
            for name, example in (
                ("max_disagreement", 0.01),
                ("min_accuracy", 0.9),
                ("confidence", 0.95),
            )
            for value in (0, 1, -0.5, math.nan, math.inf)
        ),
        *(
            (
                {"min_speedup": value},
                f"min_speedup is {value:g}: give a number above 0, such as 1.05",
            )
            for value in (0, math.inf, math.nan)
        ),
        *(
            ({name: -1}, f"{name} is -1: give a whole number of at least {least}")
            for name, least in (("batch_size", 1), ("samples", 2), ("max_length", 1))
        ),
        ({"seed": -1}, f"seed is -1: {SEEDS}"),
        ({"exits": []}, f"exits is empty: {LAYERS}"),
        ({"exits": [0]}, f"exits is 0: {LAYERS}"),
        ({"exits": [-2, 3]}, f"exits is -2: {LAYERS}"),
        ({"exits": [True]}, f"exits is True: {LAYERS}"),
        ({"max_new_tokens": None}, "max_new_tokens is None: give a whole number of at least 1"),
        ({"confidence": None}, "confidence is None: give a number between 0 and 1, such as 0.95"),
        (
            {"criterion": 3},
            "criterion 3 does not exist: choose confidence, margin, entropy, patience",
        ),
    ],
)
def test_the_function_refuses_the_same(given, line):
    with pytest.raises(LayerscopeError) as refused:
        exits("no-such-model", "no-such-file.csv", **given)
    assert str(refused.value) == line
