"""Assets are made once, in the order in which they rest on each other, here or in processes."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from layerscope import LayerscopeError
from layerscope.comparison import open_comparison
from layerscope.core.progress import Reporter
from layerscope_papers import vision
from layerscope_papers.assets import Asset, Assets, check_disk
from layerscope_papers.tracing import towers


@dataclass(frozen=True)
class Number(Asset):
    """A number in a file; it counts in another file how often it was made."""

    number: int

    def __str__(self):
        return f"number {self.number}"

    def make(self, out: Path, assets: Assets) -> None:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "made").open("a") as file:
            file.write("x")
        (out / "number").write_text(str(self.number))


@dataclass(frozen=True)
class Sum(Asset):
    """The sum of other numbers, which are made before."""

    of: tuple[Number, ...]

    @property
    def rests_on(self):
        return self.of

    def __str__(self):
        return "sum"

    def make(self, out: Path, assets: Assets) -> None:
        assert all(map(assets.has, self.of))
        out.mkdir(parents=True)
        (out / "number").write_text(
            str(sum(int((assets.get(n) / "number").read_text()) for n in self.of))
        )


@dataclass(frozen=True)
class Dying(Asset):
    """What takes its process with it."""

    name: str

    def __str__(self):
        return self.name

    def make(self, out: Path, assets: Assets) -> None:
        os._exit(9)


@pytest.mark.parametrize("jobs", [1, 2])
def test_assets_are_made_once_and_in_order(tmp_path, jobs):
    assets, numbers = Assets(tmp_path, None), (Number(3), Number(4))
    assert assets.missing([Sum(numbers), numbers[0]]) == [*numbers, Sum(numbers)]
    for _ in range(2):
        assets.make([Sum(numbers), *numbers], Reporter(), "sums", jobs)
    assert (assets.get(Sum(numbers)) / "number").read_text() == "7"
    assert [(assets.get(number) / "made").read_text() for number in numbers] == [
        "x",
        "x",
    ]


def test_an_asset_without_its_mark_is_made_again(tmp_path):
    assets = Assets(tmp_path, None)
    path = assets.get(Number(3))
    assert json.loads((path / "asset.json").read_text())["asset"] == "number 3"
    (path / "asset.json").unlink()
    assert assets.missing([Number(3)]) == [Number(3)]
    assert (assets.get(Number(3)) / "made").read_text() == "xx"


def test_other_settings_are_another_asset():
    assert (
        len(
            {
                Number(3).digest,
                Number(4).digest,
                Sum((Number(3),)).digest,
                Sum((Number(4),)).digest,
            }
        )
        == 4
    )


def test_a_process_that_dies_is_one_line(tmp_path):
    with pytest.raises(
        LayerscopeError,
        match=r"a worker process died, perhaps out of memory: run again with `jobs=1`",
    ):
        Assets(tmp_path, None).make(
            [Dying("one"), Dying("two")], Reporter(), "dying", 2
        )


def test_a_disk_without_room(tmp_path):
    with pytest.raises(
        LayerscopeError,
        match=r"MB free, and this needs about 1,000,000,000 MB: choose another folder",
    ):
        check_disk(tmp_path / "new", 1e9)


def test_towers_trained_here_are_compared_at_every_layer_but_the_first(tmp_path):
    shape = replace(towers.Shape(vision.SMALL, ("0",)), depth=2, width=16, steps=2)
    found = open_comparison(
        Assets(tmp_path, shape).get(towers.Towers(shape, "0")) / "comparison"
    )
    for form in towers.FORMS:
        assert all(
            square.shape == (2, 2) and square.notna().all(axis=None)
            for square in towers._squares(found, form)
        )
