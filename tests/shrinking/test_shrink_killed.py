"""A shrinking that is killed goes on, and ends as one that was not."""

from unittest.mock import patch

import pytest
import tiny
from shrinking.samples import TEXTS, labelled

import layerscope
from layerscope import LayerscopeError
from layerscope.shrinking import open_shrunk, pipeline

one_thread = tiny.one_thread


def test_a_killed_call_goes_on_and_ends_as_one_that_was_not(encoder, tmp_path):
    options = {"max_loss": 60, "progress": False, "minutes": 0}
    whole = layerscope.shrink(encoder, labelled(), out=tmp_path / "whole", **options)
    phase, names = pipeline.Job.phase, []

    def killed(job, name, make):
        found = phase(job, name, make)
        if name not in names:
            names.append(name)
            raise KeyboardInterrupt
        return found

    out = tmp_path / "killed"
    with patch.object(pipeline.Job, "phase", killed):
        for _ in range(20):
            try:
                shrunk = layerscope.shrink(encoder, labelled(), out=out, **options)
                break
            except KeyboardInterrupt:
                continue
    assert {"blocks", "costs"} < {*names} and len(names) >= 4
    assert (shrunk.kept, shrunk.loss, shrunk.error) == (
        whole.kept,
        whole.loss,
        whole.error,
    )
    (out / "work").mkdir()  # as a kill after the last phase leaves it
    layerscope.shrink(encoder, labelled(), out=out, **options)
    assert not (out / "work").exists()
    again = layerscope.shrink(encoder, labelled(), out=out, **options)
    assert again.as_dict() == shrunk.as_dict()
    with pytest.raises(LayerscopeError, match="max_loss 60"):
        layerscope.shrink(encoder, labelled(), out=out, **{**options, "max_loss": 50})
    with pytest.raises(LayerscopeError, match="holds another call"):
        other_labels = labelled().assign(label=["yes", "no"] * 150)
        layerscope.shrink(encoder, other_labels, out=out, **options)
    with pytest.raises(LayerscopeError, match="heal None there"):
        layerscope.shrink(encoder, labelled(), out=out, heal=tiny.texts(9), **options)


def test_a_process_that_is_killed_in_healing_goes_on(forks, encoder, tmp_path):
    (tmp_path / "data.txt").write_text("\n".join(TEXTS))
    out = tmp_path / "out"
    call = ["shrink", encoder, "--data", tmp_path / "data.txt", "--out", out]
    call += ["--max-loss", 90, "--speed", "0.01", "--minutes", "0.02"]
    state = out / "work" / "blocks-2" / "healing.pt"
    forks.killed(*call, when=state.is_file)
    assert not (out / "shrunk.json").exists()
    ended = forks.run(*call)
    assert ended.status == 0, ended.err
    assert "healing resumes after step" in ended.err and "held out" in ended.out
    assert open_shrunk(out).met and not (out / "work").exists()
