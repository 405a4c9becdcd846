import pytest
from classifiers import CASES
from tiny import one_thread
from typed import cli

from layerscope.early_exit import ExitModel

__all__ = ["cli", "one_thread"]


@pytest.fixture(scope="module")
def bert() -> ExitModel:
    model, processor = CASES["bert"]()
    return ExitModel(model, processor=processor)
