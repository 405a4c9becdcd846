"""What the tests of inputs share."""

from collections.abc import Callable

import pytest

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import open_corpus


@pytest.fixture
def refusal() -> Callable[..., str]:
    """Return the line with which data are refused."""

    def refuse(data: object, **options: object) -> str:
        with pytest.raises(LayerscopeError) as caught:
            open_corpus(data, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return refuse
