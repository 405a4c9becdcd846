"""Sounds of a model whose states padding changes: a training refuses padded batches, exits read each alone."""

import learning
import pytest

import layerscope
from layerscope.early_exit import ExitModel
from layerscope.early_exit.validation import read_validation

HOW = {"max_steps": 1, "device": "cpu", "progress": False}


def test_padding_that_changes_states_is_refused(tmp_path):
    files = (
        learning.speech(tmp_path / "speech"),
        learning.sounds(tmp_path / "sounds", 6),
    )
    line = "padding changes this model's states: give batches of one length, as with `batch_size=1`"
    with pytest.raises(layerscope.LayerscopeError, match=line):
        layerscope.train(*files, out=tmp_path / "padded", batch_size=4, **HOW)
    out = layerscope.train(*files, out=tmp_path / "out", batch_size=1, **HOW)
    read = read_validation(ExitModel(out), tmp_path / "sounds")
    assert not read.together
    note = "padding changes this model's states: samples of different lengths are run one at a time"
    assert note in read.notes
