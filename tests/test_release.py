"""What is released holds all that it needs: the source its tests and documents, the wheel every file of the package."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOR_THE_FORGE = (".ci/", ".github/", ".gitignore", ".git-blame-ignore-revs")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    # without what an earlier build left, whose list of files setuptools would take over
    bare = folder / "source"
    made = {
        ".git",
        ".venv",
        "build",
        "runs",
        *(path.name for path in ROOT.glob("*.egg-info")),
    }
    shutil.copytree(
        ROOT,
        bare,
        ignore=lambda at, names: (
            made & set(names) if Path(at) == ROOT else {"__pycache__"}
        ),
    )
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(bare),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.mark.skipif(
    (ROOT / "PKG-INFO").exists(),
    reason="these tests run from a source distribution, without git",
)
def test_the_source_holds_every_file_that_git_tracks(built: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tracked = {
        name
        for name in listed.stdout.splitlines()
        if not name.startswith(FOR_THE_FORGE)
    }
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        there = {name.partition("/")[2] for name in source.getnames()}
    assert len(tracked) > 500 and tracked <= there, sorted(tracked - there)


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(
    built: Path,
) -> None:
    packages = (ROOT / "layerscope", ROOT / "layerscope_papers")
    files = {
        path.relative_to(ROOT).as_posix()
        for root in packages
        for path in root.rglob("*")
        if path.is_file()
    }
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        there = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert there == {name for name in files if "__pycache__" not in name}
