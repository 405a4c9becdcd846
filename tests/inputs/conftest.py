"""What the tests of inputs share."""

import pytest
from typed import refused

from layerscope.inputs import open_corpus


@pytest.fixture
def refusal():
    """Return the line with which data are refused."""

    def refuse(data, **options):
        with refused() as caught:
            open_corpus(data, **options)
        return str(caught.value)

    return refuse
