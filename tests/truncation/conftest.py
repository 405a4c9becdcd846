import pytest
import tiny
from models import zoo
from sentence_transformers.models import Normalize


@pytest.fixture(scope="session")
def embedder(tmp_path_factory):
    """A sentence encoder of six layers and 32 dimensions, its vectors of unit length."""
    folder = tmp_path_factory.mktemp("encoder")
    model = zoo.seeded("BertModel", 6)
    plain = tiny.saved(model, folder / "plain")
    tiny.sentence_encoder(plain, Normalize()).save(str(folder / "embedder"))
    return folder / "embedder"
