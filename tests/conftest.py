import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of reference values and models that lies beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("LAYERSCOPE_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"no reference folder at {folder}: set LAYERSCOPE_SHARED")
    return folder
