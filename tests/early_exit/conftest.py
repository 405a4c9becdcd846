import pytest
from classifiers import CASES

from layerscope.early_exit import ExitModel


@pytest.fixture(scope="module")
def bert():
    model, processor = CASES["bert"]()
    return ExitModel(model, processor=processor)
