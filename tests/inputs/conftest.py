"""What the tests of inputs share."""

import pytest

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import open_corpus


@pytest.fixture
def refusal():
    """Return the line with which data are refused."""

    def refuse(data, **options):
        with pytest.raises(LayerscopeError) as caught:
            open_corpus(data, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return refuse
