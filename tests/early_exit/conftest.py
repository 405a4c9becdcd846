import pytest
from classifiers import exits_of


@pytest.fixture(scope="module")
def bert():
    return exits_of("bert")
