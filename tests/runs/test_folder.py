"""What a run folder refuses, finds damaged, and goes on with."""

import hashlib
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from typed import refused

import layerscope
from layerscope.runs.folder import packed, unpacked

ROWS = tiny.rows(40)
OPTIONS = {"views": 0, "batch_size": 2}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    # the folder above is not there yet either
    out = tmp_path_factory.mktemp("finished") / "new" / "run"
    return layerscope.profile(tiny.Plain(), ROWS, out=out, **OPTIONS).path


@pytest.fixture
def run(finished, tmp_path):
    """A finished run of one's own, to be damaged."""
    shutil.copytree(finished, tmp_path / "run")
    return layerscope.open_run(tmp_path / "run")


def again(run, model=None, data=ROWS, **changed):
    return layerscope.profile(
        model or tiny.Plain(), data, out=run.path, **OPTIONS | changed
    )


@pytest.mark.parametrize(
    "changed, difference",
    [
        ({"seed": 1}, "seed: 0 there, 1 here"),
        ({"batch_size": 4}, "batch_size: 2 there, 4 here"),
        ({"samples": 39}, "samples: "),
        ({"samples": "all"}, "samples: 1000 there, None here"),
        ({"pooling": "first"}, "pooling: auto there, first here"),
        ({"metrics": "cka"}, "metrics: "),
        ({"alpha": [1, 2]}, "alpha: 1.0 there, 1.0,2.0 here"),
        ({"store_dtype": "float16"}, "store_dtype: float32 there, float16 here"),
        ({"exclude_sinks": True}, "exclude_sinks: False there, True here"),
    ],
)
def test_other_options_are_refused_by_name(run, changed, difference):
    with refused(rf"holds another run \({difference}"):
        again(run, **changed)
    pd.testing.assert_frame_equal(again(run).table(), run.table())


def test_another_model_data_or_dtype_is_refused(run):
    changed = tiny.Plain()
    with torch.no_grad():
        changed.blocks[2].linear.weight.mul_(1.01)
    for model, data, what in (
        (changed, ROWS, "model weights"),
        (tiny.Plain().double(), ROWS, "model weights"),
        (None, ROWS.flip(0), "data contents"),
        (None, ROWS[:39], "samples"),
    ):
        with refused(rf"holds another run \({what}: "):
            again(run, model, data)


def test_another_tokenizer_is_refused(tmp_path):
    def profile(special=True, **options):
        processor = tiny.tokenizer(special=special)
        options |= {"out": tmp_path / "run", "metrics": "curvature"}
        layerscope.profile(tiny.bert(), tiny.texts(12), processor=processor, **options)

    profile()
    with refused(r"holds another run \(tokens: "):
        profile(special=False)
    with refused(r"holds another run \(max_length: None there, 5 here\)"):
        profile(max_length=5)
    profile()


def test_folders_that_are_no_runs(tmp_path):
    with refused("does not exist"):
        layerscope.open_run(tmp_path / "none")
    with refused("is not a run folder: it has no run.json"):
        layerscope.open_run(tmp_path)


def test_shards_without_a_manifest_are_not_taken_for_those_of_a_new_run(run, tmp_path):
    (run.path / "run.json").unlink()
    other = again(run, data=ROWS.flip(0))
    fresh = layerscope.profile(
        tiny.Plain(), ROWS.flip(0), out=tmp_path / "fresh", **OPTIONS
    )
    pd.testing.assert_frame_equal(other.table(), fresh.table(), check_exact=True)
    assert (other.pooled(3) == fresh.pooled(3)).all()


def test_float16_keeps_massive_activations(tmp_path):
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(4, 50, 256, generator=generator)
    states[:, :, 3] += 1e5
    states[1] *= 1e-6
    states[2, 7] = 0.0
    states[3] *= 1e12
    save_file(packed("raw.mean", states, torch.float16), tmp_path / "s.safetensors")
    with safe_open(tmp_path / "s.safetensors", framework="pt") as file:
        keys = set(file.keys())
        back = torch.stack(
            [unpacked(file, "raw.mean", layer, keys) for layer in range(4)]
        )
    assert torch.isfinite(back).all()
    error = (back - states).norm(dim=-1) / states.norm(dim=-1).clamp_min(1e-30)
    assert error.max() < 1e-3
    assert (back[2, 7] == 0).all()


def overwrite(run):
    """Overwrite 12 bytes in the middle of the first shard's tensors with the largest float, as a bad disk might."""
    file = run.path / "shards" / "00000.safetensors"
    data = bytearray(file.read_bytes())
    start = len(data) // 2 // 4 * 4
    data[start : start + 12] = bytes.fromhex("ffff7f7f") * 3
    file.write_bytes(data)


def test_no_reader_takes_a_damaged_shard_and_the_same_command_mends_it(run):
    before, events = run.pooled(3), len(run.folder.events("shard"))
    overwrite(run)
    for read in (
        lambda run: run.pooled(3),
        layerscope.Run.samples,
        lambda run: run.folder.broken(),
    ):
        for reader in (
            run,
            layerscope.open_run(run.path),
        ):  # one that has read the shard before, and a new one
            with refused(
                r"shard 0 of .* is damaged \(.*00000.safetensors has changed since"
            ):
                read(reader)
    mended = again(run)
    assert np.array_equal(mended.pooled(3), before)
    assert len(mended.folder.events("shard")) == events + 1  # and no other shard


def test_a_run_without_checksums_opens_as_before(run):
    before = run.pooled(3)
    for file in (run.path / "shards").glob("*.json"):
        file.write_text("{}")
    assert np.array_equal(layerscope.open_run(run.path).pooled(3), before)


def test_a_run_of_an_earlier_version_is_checked_by_its_sha256(run):
    for file in (run.path / "shards").glob("*.safetensors"):
        whole = hashlib.sha256(file.read_bytes()).hexdigest()
        file.with_suffix(".json").write_text(json.dumps({"sha256": whole}))
    before = run.pooled(3)
    assert np.array_equal(layerscope.open_run(run.path).pooled(3), before)
    overwrite(run)
    with refused(r"shard 0 of .* is damaged"):
        layerscope.open_run(run.path).pooled(3)
