"""Two towers of one model over pairs: layers within each, across them, and the gap between them, against numpy."""

import itertools

import numpy as np
import pytest
from metrics import references
from models.zoo import clip
from profiling.test_projected import profiled
from sklearn.preprocessing import normalize
from typed import refused

import layerscope


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    """Return the runs of both towers of a tiny CLIP: texts and images are pairs by their number."""
    model, folder = clip(), tmp_path_factory.mktemp("towers")
    return [
        profiled(
            model, modality, folder / modality, metrics=["dataset_entropy"], views=0
        )
        for modality in ("image", "text")
    ]


def gap(a, b):
    means = [normalize(x.astype(np.float64)).mean(0) for x in (a, b)]
    return float(np.linalg.norm(means[0] - means[1]))


@pytest.mark.parametrize("site", ["projected", None])
def test_within_and_across_are_those_of_every_two_layers(towers, site):
    found = layerscope.compare(
        towers, paired=True, site=site, cosine="centered,uncentered"
    )
    assert found.forms[:2] == (
        ("cosine_similarity", "centered"),
        ("cosine_similarity", "uncentered"),
    )
    # images are alike at layer 0
    states = [
        [run.pooled(layer, site or "raw") for layer in range(4)] for run in towers
    ]
    for a, b in ((0, 0), (1, 1), (0, 1)):
        centered, uncentered = (
            found.similarity(a, b, "cosine_similarity", variant)
            for variant in ("centered", "uncentered")
        )
        gaps = found.similarity(a, b, "modality_gap")
        for i, j in itertools.product(range(1, 4), repeat=2):
            x, y = states[a][i], states[b][j]
            values = [square.loc[i, j] for square in (centered, uncentered, gaps)]
            cosines = [
                references.cosine_similarity(x, y, center).mean()
                for center in (True, False)
            ]
            assert values == pytest.approx([*cosines, gap(x, y)], abs=1e-9)


def test_towers_of_other_numbers_of_samples_are_refused(towers, make, tmp_path):
    other = make(tmp_path / "other")
    with refused(
        "compares two runs with the same number of samples, and these have 20 and 60"
    ):
        layerscope.compare([towers[0], other], paired=True)
    with refused("do not match"):
        layerscope.compare(towers)
    drawn = [
        profiled(
            clip(),
            kind,
            tmp_path / kind,
            metrics=["dataset_entropy"],
            views=0,
            samples=10,
            seed=seed,
        )
        for seed, kind in enumerate(("image", "text"))
    ]
    with refused(
        "the 10 samples of these runs may have been drawn separately from more"
    ):
        layerscope.compare(drawn, paired=True)
    found = layerscope.compare(towers, paired=True, site="projected")
    with refused("'cosine_similarity biased' is not in this comparison"):
        found.similarity(metric="cosine_similarity", variant="biased")
