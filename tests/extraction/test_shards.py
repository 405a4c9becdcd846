"""Workers that know nothing of each other, killed or started twice, leave the bytes that one process leaves."""

import json
import os

import pandas as pd
import pytest
import tiny
from typed import refused

import layerscope

ROWS = 8


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "reviews.jsonl"
    texts = [*tiny.texts(75), "", *tiny.texts(20, seed=1)]
    pd.DataFrame({"text": texts}).to_json(path, orient="records", lines=True)
    return path


def extract(bert, data, out, **options):
    options = {"layers": [1, 3], "chunk_rows": ROWS} | options
    return layerscope.extract(str(bert), data, out=out, **options)


def contents(folder):
    files = sorted(path for path in folder.rglob("[!.]*") if path.is_file())
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    facts = json.loads(found.pop("states.json"))
    return found, {
        name: value
        for name, value in facts.items()
        if name not in ("command", "checksum")
    }


@pytest.fixture(scope="module")
def whole(bert, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "states"
    found = extract(bert, data, out)
    assert (
        found.samples == 95
        and found.as_dict()["rows"] == 96
        and len(found.chunks) == 12
    )
    return contents(out)


def test_shards_are_one_process(bert, data, whole, tmp_path):
    for shard in ("2/3", "0/3", "1/3"):
        found = extract(bert, data, tmp_path / "states", shard=shard)
        assert found.is_whole == (shard == "1/3"), "the last one marks the folder"
        assert ("chunks so far)" in repr(found)) != found.is_whole
    assert contents(tmp_path / "states") == whole
    assert extract(bert, data, tmp_path / "states").samples == 95  # all is there
    assert contents(tmp_path / "states") == whole


def test_killed_and_started_twice(bert, data, whole, forks, tmp_path):
    command = f"extract {bert} --data {data} --layers 1,3 --chunk-rows {ROWS} --out {tmp_path}/states".split()
    done = tmp_path / "states" / "done"
    forks.killed(*command, when=lambda: any(done.glob("*.json")))
    two = [forks.start(*command, "--shard", "0/1") for _ in range(2)]  # of one shard
    assert [running.wait().status for running in two] == [0, 0]
    assert contents(tmp_path / "states") == whole


def test_gaps_and_damage_are_computed_again(bert, data, whole, tmp_path, cli):
    out = tmp_path / "states"
    extract(bert, data, out, shard="1/3")
    # as a kill leaves
    left, fresh = out / "chunks" / ".000002.part", out / "done" / ".000003.part"
    left.touch()
    fresh.touch()
    os.utime(left, (0, 0))
    assert extract(bert, data, out).is_whole and contents(out) == whole
    assert not left.exists() and fresh.exists(), "another process may be writing it"

    chunk = out / "chunks" / "000004.safetensors"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"\1")
    with refused(f"chunk 4 of '{out}' is damaged"):
        layerscope.profile(states=out, out=tmp_path / "run")
    extract(bert, data, out)
    assert contents(out) == whole

    with refused("holds no states .states.json.: give the folder"):
        layerscope.open_extraction(tmp_path)
    gone = "command merge is gone: the last shard of extract marks the folder"
    assert cli("merge", out).line.startswith(gone)


@pytest.mark.parametrize(
    "given, line",
    [
        (("--layers", "9"), "layer 9 does not exist: this model has layers 0..3"),
        (
            ("--shard", "5/4"),
            "--shard is '5/4': give I/N with I from 0 to N - 1, such as 0/4",
        ),
        (
            ("--format", "parquet", "--store-dtype", "bfloat16"),
            "Parquet has no bfloat16: take --store-dtype float16",
        ),
        (
            ("--tokens", "--pooling", "cls"),
            "--tokens keeps the state of every token, and --pooling makes one of them",
        ),
    ],
)
def test_wrong_options(bert, data, tmp_path, cli, given, line):
    layers = () if "--layers" in given else ("--layers", "1")
    printed = cli(
        "extract", bert, "--data", data, *layers, *given, "--out", tmp_path / "states"
    )
    assert printed.status == 2 and printed.line.startswith(line)
    assert not (tmp_path / "states").exists()


def test_a_worker_of_other_options_is_refused(bert, data, tmp_path, cli):
    out = tmp_path / "states"
    extract(bert, data, out, shard="0/2")
    typed = f"extract {bert} --data {data} --layers 1,3 --chunk-rows {ROWS} --out {out}".split()
    mend = "name another folder with --out"
    for more, differs in (
        (("--prompt", "w1"), "data tokens"),
        (("--store-dtype", "float16"), "--store-dtype: float32 there, float16 here"),
    ):
        line = cli(*typed, *more).line
        assert line.startswith(
            f"'{out}' holds other states ({differs}"
        ) and line.endswith(mend)


def test_data_that_break_in_the_middle_keep_what_is_finished(bert, tmp_path, cli):
    rows = "".join(json.dumps({"text": f"w{i}"}) + "\n" for i in range(1030))
    (tmp_path / "cut.jsonl").write_text(rows + '{"text": "w')
    typed = (
        f"extract {bert} --data {tmp_path}/cut.jsonl --layers 1 --chunk-rows 200 --out"
    ).split()
    assert "line 1031 is not JSON" in cli(*typed, tmp_path / "a").line
    # the rows of the fifth are still being computed when the line after it is read
    assert len(layerscope.open_extraction(tmp_path / "a").chunks) == 4
    assert not layerscope.open_extraction(tmp_path / "a").is_whole
