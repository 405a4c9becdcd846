"""A run with sub-layers, from the command line to tables, states and the page."""

from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from models.test_capture import layered, states

import layerscope
from layerscope import LayerscopeError, metrics
from layerscope.core.files import read_json, write_json
from layerscope.runs.curves import curves, inside

SITES = ["attn", "attn_residual", "mlp"]
OPTIONS = {"pooling": "mean", "batch_size": 5, "view_samples": 12, "views": 1}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tiny.llama(), tmp_path_factory.mktemp("model"), special=False)


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> layerscope.Run:
    out = tmp_path_factory.mktemp("run") / "run"
    return layerscope.profile(
        str(model), tiny.texts(20), out=out, sublayers=True, progress=False, **OPTIONS
    )


def test_states_and_token_metrics_are_those_of_a_text_alone(
    made: layerscope.Run, model: Path
) -> None:
    assert made.info["model"]["sublayers"] == {site: [1, 2, 3] for site in SITES}
    assert made.final == "normed" and len(made.columns) == 5
    values = made.samples()
    scope = layered(
        str(model), samples=tiny.texts(20), processor=tiny.tokenizer(special=False), sublayers=True
    )
    for sample in (3, 11):
        alone = states(scope, [tiny.texts(20)[sample]])  # no batch-mates, no padding
        own = values[(values["sample"] == sample) & (values["metric"] == "prompt_entropy")]
        for (site, layer), tokens in alone.items():
            np.testing.assert_allclose(
                made.pooled(layer, site=site)[sample], tokens[0].mean(0), rtol=1e-4, atol=1e-5
            )
            there = own[(own["site"] == site) & (own["layer"] == layer)]["value"]
            if site != "normed" or layer == 3:
                expected = float(metrics.prompt_entropy(tokens)[0])
                np.testing.assert_allclose(there, [expected], rtol=1e-4, atol=1e-4)


def test_every_metric_of_one_layer_is_there_at_every_site(made: layerscope.Run) -> None:
    table = made.table()
    for name in (
        "prompt_entropy",
        "curvature",
        "dataset_entropy",
        "effective_rank",
        "infonce",
        "lidar",
        "dime",
    ):
        for site in SITES:
            rows = table[(table["metric"] == name) & (table["site"] == site)]
            assert list(rows["layer"]) == [1, 2, 3] and rows["value"].notna().all(), (name, site)
        assert list(made.metric(name).index) == [0, 1, 2, 3]
    entropy = made.metric("dataset_entropy", site="attn")
    pooled = torch.tensor(made.pooled(2, site="attn")).double()
    assert entropy[2] == pytest.approx(float(metrics.matrix_entropy(pooled)), rel=1e-5)
    pairs = table[table["layer_b"].notna()]
    assert set(pairs["site"]) == {"raw", "normed"}
    assert {c.site for c in curves(made)} == {"raw", "normed"}
    assert {c.site for c in inside(made)} == {*SITES, "raw"}
    with pytest.raises(LayerscopeError, match="^layer 0 has no attn: layers 1, 2, 3 have it$"):
        made.pooled(0, site="attn")


def test_the_command_prints_them_and_the_folder_is_another_run(
    model: Path, tmp_path: Path, cli
) -> None:
    data = tmp_path / "data.txt"
    data.write_text("\n".join(tiny.texts(20)))
    typed = [
        "profile",
        model,
        "--data",
        data,
        "--out",
        tmp_path / "run",
        "--samples",
        8,
        "--metrics",
        "prompt_entropy",
    ]
    printed = cli(*typed, "--sublayers")
    assert printed.status == 0
    assert "Inside the blocks" in printed.out and "attn residual" in " ".join(printed.out.split())
    assert cli(*typed).line.startswith(
        f"run folder '{tmp_path / 'run'}' holds another run (sublayers: True there, False"
    )
    again = cli(*typed, "--sublayers", "--json")
    assert again.status == 0 and '"attn_residual"' in again.out
    page = layerscope.report(
        layerscope.open_run(tmp_path / "run"), tmp_path / "page.html"
    ).read_text()
    assert "Inside the blocks" in page and "attn_residual" in page


def test_a_run_of_before_sub_layers_is_gone_on_with(model: Path, tmp_path: Path) -> None:
    ask = {"out": tmp_path / "run", "metrics": "curvature", "progress": False}
    layerscope.profile(str(model), tiny.texts(8), **ask)
    path = tmp_path / "run" / "run.json"
    manifest = read_json(path)
    del manifest["options"]["sublayers"], manifest["model"]["sublayers"]
    write_json(path, manifest)
    run = layerscope.profile(str(model), tiny.texts(8), **ask)
    assert run.sublayers == () and inside(run) == [] and run.pooled(1).shape[0] == 8


class Breaking(torch.nn.Module):
    """A block whose branch gives NaN for marked samples, which its addition then hides."""

    def __init__(self, breaks: bool) -> None:
        super().__init__()
        self.norm, self.linear, self.breaks = (
            torch.nn.LayerNorm(6),
            torch.nn.Linear(6, 6),
            Marked(breaks),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.breaks(self.linear(self.norm(x))).nan_to_num()


class Marked(torch.nn.Module):
    def __init__(self, breaks: bool) -> None:
        super().__init__()
        self.breaks, self.mark = breaks, None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(self.mark, torch.nan, x) if self.breaks and self.mark is not None else x


class Hiding(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = torch.nn.ModuleList(Breaking(i == 1) for i in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.blocks[1].breaks.mark = (x > 50).flatten(1).any(1)[:, None, None]
        x = x.clamp(-3, 3)
        for block in self.blocks:
            x = block(x)
        return x


def test_a_sample_broken_inside_a_block_alone_is_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = torch.randn(20, 7, 6, generator=torch.Generator().manual_seed(0))
    rows[5, 0, 0] = 100.0
    ask = {"metrics": "effective_rank", "progress": True}
    run = layerscope.profile(Hiding(), rows, out=tmp_path / "inside", sublayers=True, **ask)
    assert "(first: layer 2, sample 5)" in " ".join(capfd.readouterr().err.split())
    assert set(run.table()["n"]) == {19} and set(run.table()["n_skipped"]) == {1}
    outside = layerscope.profile(Hiding(), rows, out=tmp_path / "outside", **ask)
    assert set(outside.table()["n"]) == {20}
