"""The script that compares what is computed before and after a restructuring notices a change, and no rounding."""

import sys

import golden

from layerscope.metrics import effective_rank


def test_a_metric_that_is_a_thousandth_larger_is_noticed_at_every_layer(monkeypatch):
    before = golden.entries(["sounds"])
    assert golden.differing(before, golden.entries(["sounds"])) == []
    module = sys.modules[effective_rank.__module__]
    right = module.entropy_of_spectrum
    monkeypatch.setattr(
        module, "entropy_of_spectrum", lambda spectrum: right(spectrum) + 0.001
    )
    lines = golden.differing(before, golden.entries(["sounds"]))
    assert lines and all(
        "effective_rank" in line or "stands_out" in line for line in lines
    )
    assert len(lines) == sum(
        "sounds rows effective_rank" in key and key.endswith(" value") for key in before
    )


def test_an_entry_that_is_gone_or_new_is_named_and_rounding_is_not():
    before = {"run rankme 1 value": 2.0, "run layer": 3, "run word": "a"}
    assert (
        golden.differing(
            before, {"run rankme 1 value": 2.0001, "run layer": 3, "run word": "a"}
        )
        == []
    )
    assert golden.differing(
        before, {"run rankme 1 value": None, "run layer": 3, "new": "b"}
    ) == [
        "new: nothing → b",
        "run rankme 1 value: 2.0 → None",
        "run word: a → nothing",
    ]
