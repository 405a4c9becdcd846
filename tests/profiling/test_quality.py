"""Quality measures of a run against the public functions on its states: spectra, dimension, norms, prefixes."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from hooked import by_sample, profile, walk

from layerscope import LayerscopeError, metrics
from layerscope.runs import Run
from layerscope.runs.registry import SETS

POOLED = ("rankme", "anisotropy", "intrinsic_dimension", "alpha_req", "nesum")
NORMS = {
    "norm_mean": "mean",
    "norm_median": "median",
    "norm_max": "maximum",
    "sink_share": "sink_share",
}
TEXTS = tiny.texts(40, seed=4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    names = ",".join((*POOLED, *NORMS, "prompt_entropy"))
    out = tmp_path_factory.mktemp("quality") / "run"
    return profile(
        tiny.gpt2(), TEXTS, out, metrics=names, prefixes=[16, 2, 8], alpha=[1.0, 2.0], batch_size=7
    )


def test_pooled_ones_are_the_public_functions(run: Run) -> None:
    for site, layers in (("raw", range(4)), ("normed", [3])):
        for layer in layers:
            states = run.pooled(layer, site)
            for name in POOLED:
                value = run.metric(name, site=site)[layer]
                assert value == pytest.approx(getattr(metrics, name)(states), rel=1e-6), (
                    name,
                    site,
                    layer,
                )
    told = {"alpha_req": "ranks=10-32", "rankme": "eps=1e-07", "intrinsic_dimension": "discard=0.1"}
    for name, variant in told.items():
        assert set(run.table().query(f"metric == '{name}'")["variant"]) == {variant}


def test_norms_and_prefixes_are_the_public_functions(run: Run) -> None:
    model, samples, table = tiny.gpt2(), run.samples(), run.table()
    walks = [walk(model, text)[0].double() for text in TEXTS]
    for layer in (0, 2):
        states = [z[layer] for z in walks]
        for name, part in NORMS.items():
            want = [float(getattr(metrics.norms(z), part)) for z in states]
            np.testing.assert_allclose(by_sample(run, name, layer), want, rtol=1e-5)
        for alpha, k in ((1.0, 2), (1.0, 16), (2.0, 8)):
            here = f"variant == 'alpha={alpha:g},prefix={k}' and layer == {layer} and site == 'raw'"
            want = np.array(
                [float(metrics.prompt_entropy(z, alpha=alpha, prefixes=[k])[0]) for z in states]
            )
            np.testing.assert_allclose(
                samples.query(here).sort_values("sample")["value"], want, atol=1e-5
            )
            row, known = table.query(here).iloc[0], want[~np.isnan(want)]
            assert row["value"] == pytest.approx(known.mean(), abs=1e-5)
            assert (row["n"], row["n_skipped"]) == (len(known), 40 - len(known))


def test_whole_samples_come_before_prefixes_and_these_by_length(run: Run) -> None:
    table = run.table()
    shown = [
        v
        for v in table[table["metric"] == "prompt_entropy"]["variant"].unique()
        if v.startswith("alpha=1")
    ]
    assert shown == ["alpha=1", "alpha=1,prefix=2", "alpha=1,prefix=8", "alpha=1,prefix=16"]
    np.testing.assert_array_equal(
        run.metric("prompt_entropy"), run.metric("prompt_entropy", variant="alpha=1")
    )


def test_a_prefix_longer_than_the_width_uses_features(tmp_path: Path) -> None:
    texts = [" ".join(["w1", "w2", "w3"] * 16 + [f"w{i}"] * 4) for i in range(5, 9)]
    long = profile(
        tiny.gpt2(),
        texts,
        tmp_path / "run",
        metrics="prompt_entropy",
        prefixes=[40],
        exclude_sinks=True,
    )
    states = [walk(tiny.gpt2(), text)[0][1].double() for text in texts]
    found = long.samples().query("variant == 'alpha=1,prefix=40' and layer == 1 and site == 'raw'")[
        "value"
    ]
    want = [float(metrics.prompt_entropy(z[:40])) for z in states]
    np.testing.assert_allclose(sorted(found), sorted(want), atol=1e-5)


def test_none_of_them_is_measured_unless_asked() -> None:
    assert not {*POOLED, *NORMS} & set(SETS["default"]) and {*POOLED, *NORMS} <= set(SETS["all"])


def test_layers_without_variance_and_few_samples(tmp_path: Path) -> None:
    same = [f"w1 {text}" for text in TEXTS[:20]]
    run = profile(tiny.gpt2(), same, tmp_path / "a", metrics=",".join(POOLED), pooling="first")
    for name in POOLED[1:]:
        assert math.isnan(run.metric(name)[0]), name
    with pytest.raises(
        LayerscopeError,
        match="alpha_req is not measured: it needs 12 samples or more of 11 features",
    ):
        profile(tiny.gpt2(), TEXTS[:11], tmp_path / "b", metrics="alpha_req")
    few = profile(tiny.gpt2(), TEXTS[:12], tmp_path / "c", metrics="alpha_req")
    assert set(few.table()["variant"]) == {"ranks=10-11"}


def test_prefixes_are_part_of_what_a_run_is(tmp_path: Path) -> None:
    how: dict[str, Any] = {"metrics": "prompt_entropy"}
    profile(tiny.gpt2(), TEXTS[:12], tmp_path / "run", prefixes=[4], **how)
    for same in (4, np.array([4]), (np.int64(4), 4)):
        profile(tiny.gpt2(), TEXTS[:12], tmp_path / "run", prefixes=same, **how)
    with pytest.raises(LayerscopeError, match=r"holds another run \(prefixes: 4 there, 4,8 here\)"):
        profile(tiny.gpt2(), TEXTS[:12], tmp_path / "run", prefixes=[4, 8], **how)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"prefixes": [0]}, "prefixes is 0: give whole numbers of at least 1, such as 8,16,32"),
        ({"prefixes": ["x"]}, "prefixes is 'x': give whole numbers of at least 1, such as 8,16,32"),
        (
            {"prefixes": [8], "metrics": "curvature"},
            "prefixes apply only to prompt_entropy: add it to metrics, or leave prefixes out",
        ),
    ],
)
def test_wrong_prefixes(options: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(LayerscopeError) as error:
        profile(torch.nn.Linear(1, 1), TEXTS[:2], tmp_path / "run", **options)
    assert str(error.value) == line
