"""Every benchmark runs, in small; those that compare two ways to the same numbers fail where these differ."""

import os
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1] / "benchmarks"
SMALL = {
    "aligned_loss": "--exits 2 --tokens 16 --width 8 --classes 50 --repeats 1",
    "all_layers": "--samples 20 --texts 8 --no-judging",
    "causal_depth": "minilm --samples 24",
    "early_exit": "--batches 1 --repeats 1 --width 48",
    "extraction": "--texts 40 --repeats 1 --no-workers",
    "memory": "--child texts.csv",
    "one_pass": "--samples 8 --repeats 1",
    "page": "--runs 1 --depth 3 --tabs 1",
    "processes": "--child --samples 20 --verb profile --folder .",
    "profile_overhead": "--child --case minilm --repeats 1 --texts 8",
    "scale": "--child 'profile --keep-states none' free texts.csv",
    "self_speculation": "--batch 1 --tokens 12 --repeats 1 --layers 8 --width 48",
    "sentence_losses": "--steps 1 --batch 2 --dev 8 --seeds 1",
    "shrink": "--blocks 4 --minutes 0.01 --texts 12 --rows 20 --seeds 0 --tasks stsbenchmark",
    "shrink_lm": "--minutes 0.01 --steps 1 --seeds 0 --stories 16",
    "similarity": "--layers 3 --samples 60 --width 8 --naive 2 --threads 1",
    "start": "--repeats 1",
    "stated_gain": "--rows 120 --samples 120 --halves 2 --sets sst2",
    "training_step": "--repeats 1 --only vit --rows 1",
    "truncated": "--case minilm --repeats 1",
    "view_metrics": "--samples 40 --width 16 --threads 1",
}
DATA = dict.fromkeys(
    (
        "all_layers",
        "processes",
        "sentence_losses",
        "shrink",
        "shrink_lm",
        "stated_gain",
    ),
    "--data",
)
NEEDS_A_MODEL = {"exit_guarantee"}
"""Takes a classifier that was trained before; its parts are tested with the guarantee."""


def test_none_is_left_out():
    assert {path.stem for path in ROOT.glob("*.py")} == SMALL.keys() | NEEDS_A_MODEL


@pytest.mark.parametrize("name", SMALL)
def test_runs_in_small(name, request, tmp_path, monkeypatch, capsys):
    words = shlex.split(SMALL[name])
    if name in DATA:
        shared = request.getfixturevalue("shared")
        words += [DATA[name], str(shared / "data")]
        if name == "shrink_lm":
            words += ["--models", str(shared / "models")]
    if name == "page" and not (
        os.environ.get("LAYERSCOPE_CHROMIUM") or shutil.which("chromium")
    ):
        pytest.skip("no Chromium on the path")
    (tmp_path / "texts.csv").write_text(
        "text,label\n" + "".join(f"text number {i},{i % 2}\n" for i in range(20))
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    # Playwright takes a process of its own where a test holds a browser open
    if name == "page":
        subprocess.run([sys.executable, ROOT / "page.py", *words], check=True)
        return
    threads = torch.get_num_threads()
    try:
        runpy.run_path(str(ROOT / f"{name}.py"), run_name="__main__")
    except SystemExit as ended:
        assert ended.code in (None, 0, 1), (
            "a bar that is missed in small says nothing, anything else does"
        )
    finally:
        torch.set_num_threads(threads)
    assert capsys.readouterr().out.strip()
