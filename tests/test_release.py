"""The wheel holds every file of the package and nothing else."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("layerscope", "layerscope_papers")
BESIDE = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(tmp_path):
    # without what an earlier build left, whose list of files setuptools would take over
    for name in BESIDE:
        shutil.copy(ROOT / name, tmp_path)
    left_out = shutil.ignore_patterns("__pycache__")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=left_out)
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    with zipfile.ZipFile(next(tmp_path.glob("dist/*.whl"))) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == files - {*BESIDE}
