"""Every benchmark runs, in small; those that compare two ways to the same numbers fail where these differ."""

import runpy
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import chromium
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1] / "benchmarks"
SMALL = {
    "aligned_loss": "--exits 2 --tokens 16 --width 8 --classes 50 --repeats 1",
    "all_layers": "--samples 20 --texts 8 --no-judging --data {shared}/data",
    "causal_depth": "minilm --data texts.csv --samples 20",
    "early_exit": "--batches 1 --repeats 1 --width 48",
    "extraction": "--texts 40 --repeats 1 --no-workers",
    "memory": "--child texts.csv",
    "one_pass": "--data texts.csv --samples 8 --repeats 1",
    "page": "--runs 1 --depth 3 --tabs 1",
    "processes": "--child --samples 20 --verb profile --folder . --data {shared}/data",
    "profile_overhead": "--child --case minilm --repeats 1 --texts 8",
    "scale": "--child 'profile --keep-states none' free texts.csv",
    "self_speculation": "--batch 1 --tokens 12 --repeats 1 --layers 8 --width 48",
    "sentence_losses": "--steps 1 --batch 2 --dev 8 --seeds 1 --data {shared}/data",
    "shrink": "--blocks 4 --minutes 0.001 --texts 12 --rows 20 --seeds 0 --tasks stsbenchmark --data {shared}/data",
    "shrink_lm": "--minutes 0.001 --steps 1 --seeds 0 --stories 16 --data . --models {shared}/models",
    "similarity": "--layers 3 --samples 60 --width 8 --naive 2 --threads 1",
    "start": "--repeats 1",
    "stated_gain": "--rows 60 --samples 60 --halves 2 --sets sst2 --data {shared}/data",
    "training_step": "--repeats 1 --only vit --rows 1",
    "truncated": "--case minilm --repeats 1",
    "view_metrics": "--samples 40 --width 16 --threads 1",
}
NEEDS_A_MODEL = {"exit_guarantee"}
"""Takes a classifier that was trained before; its parts are tested with the guarantee."""


def test_none_is_left_out():
    assert {path.stem for path in ROOT.glob("*.py")} == SMALL.keys() | NEEDS_A_MODEL


@pytest.mark.parametrize("name", SMALL)
def test_runs_in_small(name, request, tmp_path, monkeypatch, capsys):
    line = SMALL[name]
    if "{shared}" in line:
        line = line.format(shared=request.getfixturevalue("shared"))
    if name == "page":
        chromium.find()
    texts = [f"text number {i},{i % 2}\n" for i in range(20)]
    (tmp_path / "texts.csv").write_text("".join(["text,label\n", *texts]))
    (tmp_path / "tiny_shakespeare").mkdir()
    (tmp_path / "tiny_shakespeare" / "input.txt").write_text("".join(100 * texts))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *shlex.split(line)])
    threads = torch.get_num_threads()
    run = partial(runpy.run_path, str(ROOT / f"{name}.py"), run_name="__main__")
    try:
        # Playwright takes a thread of its own where a test holds a browser open
        ThreadPoolExecutor(1).submit(run).result() if name == "page" else run()
    except SystemExit as ended:
        assert ended.code in (None, 0, 1), (
            "a bar that is missed in small says nothing, anything else does"
        )
    finally:
        torch.set_num_threads(threads)
    assert capsys.readouterr().out.strip()
