"""Real runs of tiny models on the same samples, some of which break in one of the models."""

import pytest
import tiny
import torch

import layerscope

ROWS = tiny.rows(60)
METRICS = "dataset_entropy,effective_rank,infonce,dime,cosine_similarity,cka"


def plain(out, data=ROWS, *, depth=3, width=16, seed=0, breaks=None, metrics=METRICS):
    """Profile a stack of blocks over rows; another seed is another model."""
    model = tiny.Plain(depth=depth, width=width, breaks=breaks)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(seed * 0.1 * torch.randn_like(parameter))
    return layerscope.profile(model, data, out=out, metrics=metrics)


@pytest.fixture(scope="session")
def make():
    return plain


@pytest.fixture(scope="session")
def three(tmp_path_factory):
    """Return three runs of one architecture, `step20` less changed than `step100`."""
    place = tmp_path_factory.mktemp("series")
    return [
        plain(place / f"step{step}", seed=seed)
        for step, seed in ((3, 0), (20, 1), (100, 3))
    ]


@pytest.fixture(scope="session")
def deep(tmp_path_factory):
    """Return a run of a deeper, wider model on the same rows."""
    return plain(tmp_path_factory.mktemp("deep") / "deep", depth=6, width=24)


@pytest.fixture(scope="session")
def spoken(tmp_path_factory):
    """Return two language models of one tokenizer on the same texts, as folders of their runs."""
    place, found = tmp_path_factory.mktemp("spoken"), []
    for name, model in (("gpt2", tiny.gpt2()), ("llama", tiny.llama())):
        folder = tiny.saved(model, place / name, special=False)
        out = place / f"run-{name}"
        layerscope.profile(
            str(folder),
            tiny.texts(40),
            out=out,
            views=0,
            pooling="mean,last",
        )
        found.append(out)
    return found
