"""Options of `exits` that do not go together, refused in one line before anything is loaded."""


def test_two_bounds_and_no_data_are_refused(cli):
    given = ("exits", "no-such-model", "--data", "no-such-file.csv")
    both = cli(*given, "--max-disagreement", "0.01", "--min-accuracy", "0.9")
    assert (
        both.line
        == "--max-disagreement and --min-accuracy are two goals: give one of them"
    )
    stated = cli(*given, "--threshold", "0.9", "--min-accuracy", "0.9")
    assert (
        stated.line
        == "--min-accuracy calibrates the threshold and --threshold fixes it: give one of the two"
    )
    assert (
        cli("exits", "minilm").line
        == "layerscope exits needs --data: layerscope exits --help shows an example"
    )
    assert (
        cli("exits").line
        == "layerscope exits needs MODEL: layerscope exits --help shows an example"
    )
    beyond = cli(*given, "--threshold", "1.5")
    assert (
        beyond.line
        == "--threshold is 1.5: give a number from 0 to 1, or infinity for never"
    )
