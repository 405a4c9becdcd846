"""The records that the registry finds in the files of metrics and probes."""

import ast
from pathlib import Path

import pytest

from layerscope import metrics, probes
from layerscope.metrics.metric import How
from layerscope.runs.registry import (
    COUNTS,
    KNOWN,
    METRICS,
    TRAINED,
    measured,
)


def test_every_record_says_how_it_is_read():
    for metric in KNOWN.values():
        assert (
            metric.title
            and metric.reading
            and metric.meaning
            and metric.direction
            and metric.source
        ), metric.name
        assert metric.reading == metric.reading.strip() and metric.meaning.endswith(
            "."
        ), metric.name
    assert set(METRICS) | set(TRAINED) | set(COUNTS) == set(KNOWN)


def test_every_metric_is_computed_in_one_of_the_known_ways():
    by_kind = [
        metric.name for kind in How.__subclasses__() for metric, _ in measured(kind)
    ]
    assert sorted(by_kind) == sorted(KNOWN)
    assert all(
        name in (*KNOWN, "exclude_sinks")
        for metric in COUNTS.values()
        for name in metric.beside
    )


@pytest.mark.parametrize("room", [metrics, probes])
def test_what_type_checkers_read_is_what_there_is(room):
    stub = ast.parse(Path(room.__file__).with_suffix(".pyi").read_text())
    named = [
        alias.asname
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(named) == sorted(set(named)) and set(named) <= set(room.__all__)
    for name in named:
        assert callable(getattr(room, name)), name


@pytest.mark.parametrize("name", ["anisotropy", "nesum", "cka", "infonce"])
def test_a_metric_is_a_function_and_not_its_file(name):
    assert getattr(metrics, name).__module__ == f"layerscope.metrics.{name}"
