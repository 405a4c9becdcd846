"""`select` takes a mix of layers where it is clearly better than the best single layer, and nothing else."""

import numpy as np
import pandas as pd
import pytest

import layerscope
from layerscope.core.options import checked
from layerscope.selection.selection import open_selection
from layerscope.truncation.options import TruncateOptions
from layerscope.truncation.pipeline import resolve_selection
from layerscope.truncation.verb import truncate


def evaluation(gains, tasks=1):
    """Four layers on tasks, and mixes of these gains and errors; a learned mix has other weights on each task."""
    rows = []
    for number in range(tasks):
        same = {
            "model": "m",
            "revision": "",
            "site": "raw",
            "pooling": "mean",
            "task": f"t{number}",
            "stderr": 0.01,
        }
        for layer, score in enumerate((0.5, 0.6, 0.72, 0.7)):
            rows.append(same | {"kind": "layer", "layer": layer, "score": score})
        rows.append(
            same
            | {
                "kind": "baseline",
                "layer": None,
                "site": None,
                "pooling": None,
                "score": 0.69,
            }
        )
        for mix, (gain, error) in gains.items():
            weights = {"last 2": "2,3", "unwritten": ""}.get(
                mix, f"1=0.{4 + number},2=0.{6 - number}"
            )
            rows.append(
                same
                | {
                    "kind": "mix",
                    "layer": None,
                    "mix": mix,
                    "score": 0.72 + gain,
                    "gain": gain,
                    "gain_error": error,
                }
                | {"weights": weights}
            )
    return layerscope.Evaluation(pd.DataFrame(rows).astype({"layer": "Int64"}))


def select(scores, **options):
    return layerscope.select(scores, cost=False, **options)


def test_a_clear_gain_chooses_the_mix_and_the_command_that_writes_it(tmp_path):
    found = select(
        evaluation(
            {
                "last 2": (-0.01, 0.01),
                "scalar mix": (0.06, 0.01),
                "unwritten": (0.09, 0.01),
            }
        )
    )
    assert (found.mix, found.layer, found.weights, found.as_shipped) == (
        "scalar mix",
        2,
        "1=0.4,2=0.6",
        False,
    )
    assert found.chosen.score == pytest.approx(0.78)
    assert found.gain == pytest.approx(0.78 - 0.69)
    assert found.gain_error == pytest.approx(np.hypot(0.01, 0.01))
    shown = found.document()
    assert shown.commands == (
        "layerscope truncate m --mix 1=0.4,2=0.6 --format sentence-transformers --pooling mean "
        "--out m-layer2",
    )
    assert found.what == "mix of layers 'scalar mix' up to layer 2 of 3"
    assert open_selection(found.save(tmp_path / "choice")).chosen == found.chosen
    call = {"given": found, "out": tmp_path / "out"}
    options, _ = resolve_selection(checked(truncate, call, TruncateOptions))
    assert options.mix == {"1": 0.4, "2": 0.6}
    assert options.layer is None


@pytest.mark.parametrize(
    "gains",
    [
        {"scalar mix": (0.06, 0.04)},
        {"unwritten": (0.09, 0.01)},
        {"scalar mix": (-0.06, 0.01)},
        {},
    ],
)
def test_no_clear_gain_that_can_be_written_leaves_a_layer(gains):
    found = select(evaluation(gains))
    assert (found.mix, found.layer) == ("", select(evaluation({})).layer)
    assert ("no mix of layers" in found.why) == bool(gains)


def test_several_tasks_take_a_mix_of_the_same_weights():
    found = select(
        evaluation({"scalar mix": (0.08, 0.01), "last 2": (0.05, 0.01)}, tasks=2)
    )
    assert (found.mix, found.layer) == ("last 2", 3)
    assert select(evaluation({"scalar mix": (0.08, 0.01)}, tasks=2)).mix == ""
    assert (
        select(evaluation({"scalar mix": (0.08, 0.01)}, tasks=2), tasks=["t0"]).mix
        == "scalar mix"
    )


def test_a_rule_or_a_loss_that_is_named_chooses_a_layer():
    scores = evaluation({"scalar mix": (0.06, 0.01)})
    assert select(scores, rule="best").mix == ""
    assert select(scores, max_loss=5.0).mix == ""
