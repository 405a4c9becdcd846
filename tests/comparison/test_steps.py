"""Does a deeper model spread the same steps over more blocks? Planted models, and sums of the test's own in float64."""

import numpy as np
import pytest
import tiny
import torch
from metrics import references
from torch import nn

import layerscope

ROWS = tiny.rows(80)
DEPTH, WIDTH = 4, 12


class Step(nn.Module):
    """Add a share of a random function to the stream."""

    def __init__(self, seed, share=0.5):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        weight = 2 * torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5
        self.weight = nn.Parameter(weight)
        self.share = share

    def forward(self, x):
        return x + self.share * torch.sin(x @ self.weight)


class Stack(nn.Module):
    def __init__(self, steps, stem=0):
        super().__init__()
        torch.manual_seed(stem)
        self.stem = nn.Linear(6, WIDTH)
        self.blocks = nn.ModuleList(steps)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x


SEEDS = range(1, DEPTH + 1)
SHALLOW = [Step(seed) for seed in SEEDS]
IDLE = [Step(9, share=0.0) for _ in SEEDS]
DEEP = {
    "idle blocks": [Step(s, share) for s in SEEDS for share in (0.5, 0.0)],
    "half steps": [Step(s, share=0.25) for s in SEEDS for _ in range(2)],
    "idle at the end": [*SHALLOW, *IDLE],
    "more at the end": [*SHALLOW, *(Step(20 + s) for s in SEEDS)],
}


def run_of(steps, out, stem=0):
    return layerscope.profile(
        Stack(steps, stem), ROWS, out=out, metrics="effective_rank", progress=False
    )


@pytest.fixture(scope="module")
def shallow(tmp_path_factory):
    return run_of(SHALLOW, tmp_path_factory.mktemp("shallow") / "shallow")


def compared(*runs):
    return layerscope.compare(runs, similarity="linear_map", progress=False)


def verdicts(one, other):
    """What is said of two runs, in either order."""
    said = set()
    for comparison in (compared(one, other), compared(other, one)):
        (line,) = comparison.document().reasons
        begin, _ = line.split(" the steps of Stack (shallow) over more blocks: ")
        said.add(begin.removeprefix("By linear maps "))
    return said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("idle blocks", "spreads"),
        ("half steps", "spreads"),
        ("idle at the end", "does not spread"),
        ("more at the end", "does not spread"),
    ],
)
def test_the_same_steps_over_more_blocks_are_found(name, said, shallow, tmp_path):
    deep = run_of(DEEP[name], tmp_path / "deep")
    assert verdicts(shallow, deep) == {f"Stack (deep) {said}"}


@pytest.mark.parametrize("seed", range(3))
def test_an_unrelated_model_spreads_nothing(seed, shallow, tmp_path):
    steps = [Step(100 * seed + s) for s in range(50, 50 + 2 * DEPTH)]
    deep = run_of(steps, tmp_path / "deep", stem=seed + 1)
    assert "Stack (deep) spreads" not in verdicts(shallow, deep)


def test_rows_are_sums_of_the_tests_own(shallow, tmp_path):
    deep = run_of(DEEP["half steps"], tmp_path / "deep")
    square = compared(shallow, deep).similarity()
    assert square.loc[2, 3] == pytest.approx(
        references.linear_map(shallow.pooled(2), deep.pooled(3)).mean(), abs=1e-6
    )
    table = compared(deep, shallow).table("steps").set_index("variant")
    choices = {
        "the same number": (1, 2, 3, 4),
        **{f"layer {layer} alone": (layer,) * 4 for layer in range(1, 9)},
    }
    assert list(table.index) == list(choices)

    def explained(layers):
        values = [
            references.linear_map(deep.pooled(a), shallow.pooled(b))
            for b, a in enumerate(layers, 1)
        ]
        return np.mean(values, 0)

    share = explained((2, 4, 6, 8))
    for name in ("the same number", "layer 3 alone"):
        other = explained(choices[name])
        row = table.loc[name]
        error = np.std(share - other, ddof=1) / np.sqrt(len(ROWS))
        numbers = [row["value_a"], row["value_b"], row["value"], row["stderr"]]
        expected = [other.mean(), share.mean(), (share - other).mean(), error]
        np.testing.assert_allclose(numbers, expected, atol=1e-6)
        assert (row["n"], row["n_skipped"], row["paired"]) == (len(ROWS), 0, True)


def test_what_it_is_read_from_is_in_the_sentence(shallow, tmp_path):
    deep = run_of(DEEP["idle at the end"], tmp_path / "deep")
    comparison = compared(shallow, deep)
    (line,) = comparison.document().reasons
    assert "R² 1.00" not in line and "the same number or the last with 1.00 (−" in line
    again = layerscope.open_comparison(comparison.save(tmp_path / "saved"))
    assert again.document() == comparison.document()


def test_models_of_one_depth_and_other_similarities_have_no_steps(shallow, tmp_path):
    other = run_of([Step(s + 7) for s in SEEDS], tmp_path / "other")
    deep = run_of(DEEP["half steps"], tmp_path / "deep")
    for runs, similarity in (
        ((shallow, other), "linear_map"),
        ((shallow, deep), "cka"),
    ):
        comparison = layerscope.compare(runs, similarity=similarity, progress=False)
        assert "steps" not in set(comparison.frame["kind"])
        assert not comparison.document().reasons


def stored(states, layers, out):
    np.save(f"{out}.npy", states)
    texts = out.parent / "texts.csv"
    texts.write_text("\n".join(["text", *(f"text {i}" for i in range(30))]))
    options = {"data": texts, "pooling": "mean"}
    return layerscope.profile(
        states=f"{out}.npy", layers=layers, out=out, progress=False, **options
    )


def test_a_run_that_lacks_layers_has_no_steps(tmp_path):
    states = np.random.default_rng(0).normal(size=(30, 9, 4)).cumsum(1)
    few = stored(states[:, ::2], range(5), tmp_path / "few")
    whole = stored(states, range(9), tmp_path / "whole")
    lacking = stored(states[:, ::2], range(0, 9, 2), tmp_path / "lacking")
    assert "steps" not in set(compared(few, lacking).frame["kind"])
    assert "steps" in set(compared(few, whole).frame["kind"])
