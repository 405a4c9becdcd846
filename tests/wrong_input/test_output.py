"""Terminals that cannot show everything, a full standard output, and readers who leave."""

import contextlib
import io
import os
import shutil
import sys

import pandas as pd
import pytest

import layerscope
from layerscope.cli import main


def type_onto(monkeypatch, words, **streams):
    """Type a command whose standard streams are others, and return its status."""
    with monkeypatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        patch.setattr(sys, "argv", ["layerscope", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
    for stream in filter(None, streams.values()):
        with contextlib.suppress(BrokenPipeError):
            stream.flush()
    return int(end.value.code or 0)


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_terminal_that_cannot_show_everything(
    command, reviews, tmp_path, monkeypatch, encoding
):
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    data = shutil.copy(reviews, tmp_path / "日本語 – 😀.csv")
    words = [*command[:3], data, *command[4:], "--out", tmp_path / "ラン"]
    status = type_onto(monkeypatch, words, stdout=out, stderr=err)
    printed, told = (stream.buffer.getvalue().decode(encoding) for stream in (out, err))
    assert status == 0, told
    assert "curvature" in printed and "3 layers of 32" in told
    assert ("?" in printed) == (encoding != "utf-8")


def test_output_that_is_full(capfd, command, run, monkeypatch):
    with open("/dev/full", "w") as full:
        assert type_onto(monkeypatch, [*command, "--out", run], stdout=full) == 2
    told = f"standard output cannot be written (No space left on device): the run is complete in {str(run)!r}"
    assert capfd.readouterr().err.splitlines()[-1] == f"layerscope: {told}"


@pytest.mark.parametrize(
    "left, how",
    [(["stdout"], "gone"), (["stderr"], "gone"), (["stdout", "stderr"], "closed")],
)
def test_a_reader_who_leaves(command, finished, tmp_path, monkeypatch, left, how):
    """Readers of a pipe that go away, and streams that were closed from the start: the run is finished all the same."""
    streams = dict.fromkeys(left)
    for name in left if how == "gone" else []:
        read, write = os.pipe()
        os.close(read)
        streams[name] = os.fdopen(write, "w")
    assert type_onto(monkeypatch, [*command, "--out", tmp_path / "run"], **streams) == 0
    for stream in filter(None, streams.values()):
        with contextlib.suppress(BrokenPipeError):
            stream.close()
    whole = layerscope.open_run(finished).table()
    pd.testing.assert_frame_equal(
        layerscope.open_run(tmp_path / "run").table(), whole, check_exact=True
    )
