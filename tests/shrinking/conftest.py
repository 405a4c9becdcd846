import pytest
import tiny
from sentence_transformers import models
from typed import cli

from layerscope.truncation import costs

__all__ = ["cli"]


@pytest.fixture(autouse=True)
def _timed_once(monkeypatch):
    monkeypatch.setattr(costs, "FEWEST", 1)
    monkeypatch.setattr(costs, "SECONDS", 0.0)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    plain = tiny.saved(tiny.bert().base_model, folder / "plain")
    full = tiny.sentence_encoder(plain, models.Normalize())
    full.save_pretrained(str(folder / "full"))
    return folder / "full"
