"""Values of each sample that are drawn: cosines of neighbouring layers, norms against blocks, entropy of prefixes."""

import numpy as np
import pytest
import tiny
from hooked import profile

import layerscope
from layerscope.runs.by_sample import boxes
from layerscope.show.plots import Boxes, Chart, Plot

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


def plots(run: layerscope.Run) -> dict[str, Plot]:
    return {
        plot.name: plot
        for section in run.document().sections
        for plot in section.parts
        if isinstance(plot, Plot)
    }


def test_neighbouring_layers_are_compared_sample_by_sample(run: layerscope.Run) -> None:
    samples = run.samples()
    (pooling,) = samples.loc[samples["metric"] == "cosine_to_next", "pooling"].unique()
    states = [
        run.pooled(layer, pooling=pooling).astype(np.float64) for layer in range(run.depth + 1)
    ]
    centred = [layer - layer.mean(0) for layer in states]
    for layer in range(run.depth):
        here, after = centred[layer], centred[layer + 1]
        cosine = (
            (here * after).sum(1) / np.linalg.norm(here, axis=1) / np.linalg.norm(after, axis=1)
        )
        rows = samples[
            (samples["metric"] == "cosine_to_next") & (samples["layer"] == layer)
        ].sort_values("sample")
        np.testing.assert_allclose(rows["value"], cosine, rtol=1e-5, atol=1e-6)
    assert samples.loc[samples["metric"] == "cosine_to_next", "layer"].max() == run.depth - 1


def test_every_negative_sample_is_counted_and_drawn_first(run: layerscope.Run) -> None:
    table = run.folder.read_table("samples.path")
    rare = (table["layer"] == 1) & (table["metric"] == "cosine_to_next")
    table.loc[rare, "value"] = np.where(
        np.arange(rare.sum()) == 7, -0.01, np.linspace(0.2, 0.9, rare.sum())
    )
    run.folder.write_table("samples.path", table)
    drawn = plots(run)["samples-cosine_to_next"]
    assert isinstance(drawn, Boxes) and drawn.boxes[1].negative == 1
    assert (
        drawn.boxes[1].outliers[0][1] == -0.01
        and list(drawn.boxes)
        == boxes(run, "samples.path")["cosine_to_next", "centered", "position"]
    )
    assert drawn.note == f"1 of {len(TEXTS)} samples are below 0 at layer 1, the most"


def test_entropy_along_the_sequence_has_the_spread_of_the_samples(run: layerscope.Run) -> None:
    chart = plots(run)["along-prompt_entropy"]
    assert isinstance(chart, Chart) and chart.spread == "standard deviation"
    assert [line.name for line in chart.series] == [f"layer {layer}" for layer in range(4)]
    samples = run.samples().query("metric == 'prompt_entropy' and site == 'raw'")
    for layer, line in enumerate(chart.series):
        assert line.x == (2.0, 4.0, 8.0)
        for x, y, error in zip(line.x, line.y, line.errors, strict=True):
            own = samples.query(f"layer == {layer} and variant == 'alpha=1,prefix={x:.0f}'")[
                "value"
            ].dropna()
            assert (y, error) == pytest.approx((own.mean(), own.std()), rel=1e-6)
