"""Small real runs: a residual MLP with a final norm and a head, profiled on labelled rows."""

import math
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from layerscope.core.files import read_json, write_json
from layerscope.profiling import profile
from layerscope.runs import COLUMNS, RunFolder, open_run

DEPTH, WIDTH, CLASSES = 3, 16, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, states):
        return states + torch.tanh(self.inner(self.norm(states)))


def residual_mlp(depth=DEPTH, head=True):
    torch.manual_seed(0)
    blocks = [Block() for _ in range(depth)]
    end = [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)] if head else []
    return nn.Sequential(nn.Linear(8, WIDTH), nn.Sequential(*blocks), *end)


@pytest.fixture(scope="session")
def rows():
    """Return 60 rows of three noisy classes, and their labels."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % CLASSES
    centres = rng.normal(size=(CLASSES, 8))
    return (centres[labels] + 0.8 * rng.normal(size=(60, 8))).astype(np.float32), labels


@pytest.fixture(scope="session")
def labelled(rows, tmp_path_factory):
    """Return a run with labels, a lens and a final norm."""
    return profile(
        residual_mlp(),
        rows,
        out=tmp_path_factory.mktemp("labelled") / "run",
    )


@pytest.fixture(scope="session")
def bare(rows, tmp_path_factory):
    """Return a run of one metric: one block, no labels, no head, no norm."""
    out = tmp_path_factory.mktemp("bare") / "run"
    model = residual_mlp(1, head=False)
    return profile(
        model,
        rows[0],
        out=out,
        metrics="effective_rank",
        blocks="1",
        views=0,
    )


@pytest.fixture
def written(labelled, tmp_path):
    """Return a function that writes a run folder of given rows, in the frame `profile` writes."""

    def write(
        rows,
        depth=4,
        sites=("raw",),
        pooling=("mean",),
        drawn_from=None,
        language_model=False,
        **names,
    ):
        info = read_json(labelled.path / "run.json")
        info["model"] |= {
            "depth": depth,
            "sites": list(sites),
            "language_model": language_model,
        }
        for what, name in names.items():
            info[what]["name"] = name
        info["data"]["drawn_from"] = drawn_from
        info["pooling"] = list(pooling)
        path = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        shutil.copytree(labelled.path, path)
        write_json(path / "run.json", info)
        for table in (path / "tables").iterdir():
            table.unlink()
        frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
        RunFolder(path).write_table("tokens", frame)
        return open_run(path)

    return write


def rows_by_layer(
    metric,
    values,
    errors=None,
    site="raw",
    pooling=None,
    variant=None,
    n=50,
):
    """Return the long frame's rows of one metric at each layer."""
    return [
        {
            "metric": metric,
            "variant": variant,
            "part": "model",
            "layer": i,
            "site": site,
            "pooling": pooling,
            "value": value,
            "stderr": math.nan if errors is None else errors[i],
            "n": n,
            "n_skipped": 0,
        }
        for i, value in enumerate(values)
    ]


def rows_of_pairs(metric, square, pooling="mean"):
    """Return the long frame's rows of a metric between every two layers, all `raw`."""
    return [
        {
            "metric": metric,
            "variant": "centered",
            "part": "model",
            "layer": i,
            "site": "raw",
            "layer_b": j,
            "site_b": "raw",
            "pooling": pooling,
            "value": value,
            "n": 50,
            "n_skipped": 0,
            "stderr": 0.01 if j == len(square) - 1 else math.nan,
        }
        for i, line in enumerate(square)
        for j, value in enumerate(line)
    ]


@pytest.fixture(scope="session")
def by_layer():
    return rows_by_layer


@pytest.fixture(scope="session")
def pairs():
    return rows_of_pairs
