import pytest
import tiny
from text_runs import LABELS, TEXTS, profile


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A language model with everything at once."""
    out = tmp_path_factory.mktemp("run") / "lm"
    options = {
        "pooling": "mean,last",
        "alpha": [1.0, 2.0],
        "lens_tokens": None,
        "views": 2,
    }
    return profile(tiny.llama(), out, (TEXTS, LABELS), **options)
