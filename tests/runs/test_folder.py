"""What a run folder refuses, finds damaged, and goes on with."""

import hashlib
import json
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from typed import refused

import layerscope
from layerscope.runs.folder import RunFolder, need_room, packed, unpacked

ROWS = tiny.rows(40)
OPTIONS = {"views": 0, "batch_size": 2}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
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


def shard_file(run, shard, suffix="safetensors"):
    return run.path / "shards" / f"{shard:05d}.{suffix}"


def refusal(run, what, old, new):
    return (
        f"run folder {str(run.path)!r} holds another run ({what}: {old} there, {new} here): "
        "choose another folder with `out`, or delete it"
    )


@pytest.mark.parametrize(
    "changed, what, old, new",
    [
        ({"seed": 1}, "seed", "0", "1"),
        ({"batch_size": 4}, "batch_size", "2", "4"),
        ({"samples": 39}, "samples", None, None),
        ({"samples": "all"}, "samples", "1000", "None"),
        ({"pooling": "first"}, "pooling", "auto", "first"),
        ({"metrics": "cka"}, "metrics", None, None),
        ({"alpha": [1, 2]}, "alpha", "1.0", "1.0,2.0"),
        ({"store_dtype": "float16"}, "store_dtype", "float32", "float16"),
        ({"exclude_sinks": True}, "exclude_sinks", "False", "True"),
    ],
)
def test_other_options_are_refused_by_name(run, changed, what, old, new):
    with refused() as error:
        again(run, **changed)
    if old is None:
        assert f"holds another run ({what}: " in str(error.value)
    else:
        assert str(error.value) == refusal(run, what, old, new)
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
    texts = tiny.texts(12)
    options = {"out": tmp_path / "run", "metrics": "curvature"}
    layerscope.profile(
        tiny.bert(), texts, processor=tiny.tokenizer(special=True), **options
    )
    with refused(r"holds another run \(tokens: "):
        layerscope.profile(
            tiny.bert(), texts, processor=tiny.tokenizer(special=False), **options
        )
    with refused(r"holds another run \(max_length: None there, 5 here\)"):
        layerscope.profile(
            tiny.bert(),
            texts,
            processor=tiny.tokenizer(special=True),
            max_length=5,
            **options,
        )
    layerscope.profile(
        tiny.bert(), texts, processor=tiny.tokenizer(special=True), **options
    )


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


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MB, where the machine lets one be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)],
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_run_that_does_not_fit_computes_nothing(small_disk):
    model = tiny.Plain(width=512)
    with refused(
        r"the states take 4.1 MB and .* has 1.0 MB free: take fewer `samples`"
    ):
        layerscope.profile(model, tiny.rows(500), out=small_disk / "run", **OPTIONS)
    assert not RunFolder.exists(small_disk / "run")
    assert max(model.sizes) <= 8  # the probe's batches, none of the pass


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


def overwrite(file):
    """Overwrite 12 bytes in the middle of the tensors of a file with the largest float, as a bad disk might."""
    data = bytearray(file.read_bytes())
    start = len(data) // 2 // 4 * 4
    data[start : start + 12] = bytes.fromhex("ffff7f7f") * 3
    file.write_bytes(data)


def test_no_reader_takes_a_damaged_shard_and_the_same_command_mends_it(run):
    before, events = run.pooled(3), len(run.folder.events("shard"))
    overwrite(shard_file(run, 0))
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
    overwrite(shard_file(run, 0))
    with refused(r"shard 0 of .* is damaged"):
        layerscope.open_run(run.path).pooled(3)


def test_need_room_refuses_before_the_start(tmp_path):
    need_room(tmp_path / "not" / "there" / "yet", 1)
    with refused() as error:
        need_room(tmp_path / "run", 10**18)
    assert str(error.value).startswith(
        f"the states take 1,000,000,000.0 GB and {str(tmp_path / 'run')!r} has "
    )
    assert str(error.value).endswith(
        "take fewer `samples`, `store_dtype='float16'`, or another `out`"
    )
