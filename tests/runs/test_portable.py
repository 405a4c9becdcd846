"""What runs where Python has none of POSIX's own modules, as on Windows, and where a holder of a folder was killed."""

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from commands import Forks

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside
from layerscope.core.folder_lock import locked

ABSENT = """
import psutil, sys  # which on Linux is made of them itself
sys.modules.update(dict.fromkeys(("fcntl", "resource", "pwd", "grp"), None))
import layerscope.training.verb  # too slow to run here
from layerscope.cli import main
from layerscope.early_exit import timing
timing.SECONDS = timing.RACE = 0.1
for line in sys.argv[1:]:
    sys.argv = ["layerscope", *line.split("|")]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (line, end.code)
"""
HOLDER = """
import sys, time
from pathlib import Path
from layerscope.core.folder_lock import locked
with locked(Path(sys.argv[1])):
    (Path(sys.argv[1]).parent / "held").touch()
    time.sleep(60)
"""


def test_every_verb_that_writes_runs_without_posix_modules(tmp_path: Path) -> None:
    model = tiny.saved(tiny.classifier(), tmp_path / "model", special=True)
    rows = [f"{text},{i % 3}" for i, text in enumerate(tiny.texts(32))]
    data = tmp_path / "data.csv"
    data.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    lines = [
        f"profile|{model}|--data|{data}|--metrics|curvature,prompt_entropy|--out|{tmp_path / 'run'}",
        f"evaluate|{model}|--data|classification:{data}|--out|{tmp_path / 'scores'}",
        f"truncate|{model}|--layer|2|--out|{tmp_path / 'small'}",
        f"exits|{model}|--data|{data}|--max-disagreement|0.5|--out|{tmp_path / 'exits'}",
    ]
    ended = subprocess.run(
        [sys.executable, "-c", ABSENT, *lines], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    for name in ("run/run.json", "scores", "small/config.json", "exits"):
        assert (tmp_path / name).exists(), name


def test_a_killed_holder_does_not_block_the_next_run(
    forks: Forks, tmp_path: Path
) -> None:
    holder = forks.start(tmp_path / "run", script=HOLDER)
    holder.until(lambda: (tmp_path / "held").exists())
    with (
        pytest.raises(LayerscopeError, match="another process is writing to"),
        locked(tmp_path / "run"),
    ):
        pass
    holder.kill()
    assert holder.wait().status == -signal.SIGKILL
    with locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "run" / ".lock").exists()


def test_files_have_the_mode_that_the_umask_gives(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    aside(
        tmp_path / "shard.safetensors",
        lambda part: save_file({"x": torch.zeros(2)}, part),
    )
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(
        (tmp_path / "shard.safetensors").stat().st_mode
    ) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
