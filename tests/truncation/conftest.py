import pytest
import tiny
from models import zoo
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer


@pytest.fixture(scope="session")
def embedder(tmp_path_factory):
    """A sentence encoder of six layers and 32 dimensions, its vectors of unit length."""
    folder = tmp_path_factory.mktemp("encoder")
    model = zoo.seeded("BertModel", 6)
    body = Transformer(str(tiny.saved(model, folder / "plain", special=True)))
    modules = [body, Pooling(32, pooling_mode="mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "embedder"))
    return folder / "embedder"
