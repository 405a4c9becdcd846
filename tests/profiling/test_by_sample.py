"""Values of each sample: cosines of neighbouring layers."""

import numpy as np
import pytest
import tiny
from hooked import profile

import layerscope

TEXTS = tiny.texts(40, seed=4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> layerscope.Run:
    out = tmp_path_factory.mktemp("by-sample") / "run"
    return profile(
        tiny.gpt2(),
        TEXTS,
        out,
        metrics="prompt_entropy,cosine_to_next",
        prefixes=[2, 4, 8],
        pooling="mean",
    )


def test_neighbouring_layers_are_compared_sample_by_sample(run: layerscope.Run) -> None:
    samples = run.samples()
    (pooling,) = samples.loc[samples["metric"] == "cosine_to_next", "pooling"].unique()
    states = [
        run.pooled(layer, pooling=pooling).astype(np.float64)
        for layer in range(run.depth + 1)
    ]
    centred = [layer - layer.mean(0) for layer in states]
    for layer in range(run.depth):
        here, after = centred[layer], centred[layer + 1]
        cosine = (
            (here * after).sum(1)
            / np.linalg.norm(here, axis=1)
            / np.linalg.norm(after, axis=1)
        )
        rows = samples[
            (samples["metric"] == "cosine_to_next") & (samples["layer"] == layer)
        ].sort_values("sample")
        np.testing.assert_allclose(rows["value"], cosine, rtol=1e-5, atol=1e-6)
    assert (
        samples.loc[samples["metric"] == "cosine_to_next", "layer"].max()
        == run.depth - 1
    )
