"""Numbered files that are there whole or not at all."""

import json
from pathlib import Path

import pytest
import torch
from typed import refused

from layerscope.core.state_store import SHA256, StateStore

TENSORS = {"states": torch.arange(12.0).view(3, 4)}


@pytest.fixture(params=[{}, {"marks": "done", "digits": 6, "checksum": SHA256}])
def store(request, tmp_path):
    return StateStore(tmp_path, "chunks", "chunk", **request.param)


def test_what_is_written_is_finished_and_read_with_what_is_known_of_it(store):
    assert store.finished() == [] and store.facts(7) is None
    for number in (7, 2):
        store.write(number, TENSORS, samples=3)
    assert store.finished() == [2, 7]
    assert store.facts(7)["samples"] == 3
    with store.open(7) as file:
        assert torch.equal(file.get_tensor("states"), TENSORS["states"])
    store.drop(7)
    assert store.finished() == [2] and not store.path(7).exists()


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def changed(path):
    path.write_bytes(path.read_bytes()[:-1] + b"\1")


@pytest.mark.parametrize("damage", [cut, changed, Path.unlink])
def test_a_file_that_is_not_what_was_written_is_refused_and_dropped(store, damage):
    for number in (1, 2):
        store.write(number, TENSORS)
    damage(store.path(1))
    line = "chunk 1 of .* (is damaged|cannot be read)"
    with refused(line), store.open(1):
        pass
    assert store.is_finished(1) is (damage is changed), "a size is cheap to look at"
    gone = damage is Path.unlink
    assert store.drop_damaged() == ([] if gone else [1]), (
        "nothing is said of what somebody deleted"
    )
    assert store.there() == [2] and store.finished() == [2]


def test_a_file_is_nothing_before_its_mark(store):
    """A process that is killed between the two leaves a file that is written again."""
    store.write(1, TENSORS)
    store.mark(1).unlink()
    assert store.finished() == []
    with store.open(1) as file:  # as of a run that somebody sent without marks
        assert file.keys() == ["states"]
    store.mark(1).write_text(json.dumps({"bytes": 1}))
    assert store.finished() == [] and store.drop_damaged() == [1]
