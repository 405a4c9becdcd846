"""Assets are made once, in the order in which they rest on each other, here or in processes."""

import json
import os
import tarfile
from dataclasses import dataclass, replace

import pytest
import tiny
from PIL import Image
from safetensors.torch import load_file
from typed import refused

from layerscope.comparison import open_comparison
from layerscope.core.progress import Reporter
from layerscope_papers import vision
from layerscope_papers.assets import Asset, Assets, Cost, check_disk
from layerscope_papers.images import images
from layerscope_papers.language import SMALL, Pretrained, Read, Speaker, texts
from layerscope_papers.tracing import glue, settling, towers
from layerscope_papers.verb import _estimate


@dataclass(frozen=True)
class Number(Asset):
    """A number in a file; it counts in another file how often it was made."""

    number: int

    def __str__(self):
        return f"number {self.number}"

    def make(self, out, assets):
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

    def make(self, out, assets):
        assert all(map(assets.has, self.of))
        out.mkdir(parents=True)
        numbers = [int((assets.get(n) / "number").read_text()) for n in self.of]
        (out / "number").write_text(str(sum(numbers)))


class Dying(Number):
    """What takes its process with it."""

    def make(self, out, assets):
        os._exit(9)


@pytest.mark.parametrize("jobs", [1, 2])
def test_assets_are_made_once_and_in_order(tmp_path, jobs):
    assets, numbers = Assets(tmp_path, None), (Number(3), Number(4))
    assert assets.missing([Sum(numbers), numbers[0]]) == [*numbers, Sum(numbers)]
    for _ in range(2):
        assets.make([Sum(numbers), *numbers], Reporter(), "sums", jobs)
    assert (assets.get(Sum(numbers)) / "number").read_text() == "7"
    for number in numbers:
        assert (assets.get(number) / "made").read_text() == "x"


def test_an_asset_without_its_mark_is_made_again(tmp_path):
    assets = Assets(tmp_path, None)
    path = assets.get(Number(3))
    assert json.loads((path / "asset.json").read_text())["asset"] == "number 3"
    (path / "asset.json").unlink()
    assert assets.missing([Number(3)]) == [Number(3)]
    assert (assets.get(Number(3)) / "made").read_text() == "xx"


def test_other_settings_are_another_asset():
    one, two = Number(3), Number(4)
    assets = one, two, Sum((one,)), Sum((two,))
    assert len({asset.digest for asset in assets}) == 4


def test_a_process_that_dies_is_one_line(tmp_path):
    line = "a worker process died, perhaps out of memory: run again with `jobs=1`"
    dying = [Dying(1), Dying(2)]
    with refused(line):
        Assets(tmp_path, None).make(dying, Reporter(), "dying", 2)


def test_a_disk_without_room(tmp_path):
    line = "MB free, and this needs about 1,000,000,000 MB: choose another folder"
    with refused(line):
        check_disk(tmp_path / "new", 1e9)


def test_towers_trained_here_are_compared_at_every_layer_but_the_first(tmp_path):
    shape = replace(towers.Shape(vision.SMALL, ("0",)), depth=2, width=16, steps=2)
    folder = Assets(tmp_path, shape).get(towers.Towers(shape, "0"))
    squares = towers._squares(open_comparison(folder / "comparison"))
    assert len(squares) == 3
    for square in squares:
        assert square.shape == (2, 2) and square.notna().all(axis=None)


def test_what_a_training_takes_is_told_by_its_settings():
    small, paper = (
        vision.Trained(setup, "standard", 0).cost
        for setup in (vision.SMALL, vision.PAPER)
    )
    assert 0.7 < small.minutes < 1 and small.gigabytes < 1.1, "as measured on one core"
    assert paper.minutes > 20 * small.minutes and paper.gigabytes > small.gigabytes
    pretrained, reader = Pretrained(SMALL).cost, Read(settling.PAPER).cost
    assert 4 < pretrained.minutes < 10 and reader.gigabytes == pytest.approx(1 + 12.8)
    said = _estimate([Cost(90, 2), Cost(300, 3)], 2)
    assert said == "models and runs to make: 2, about 3 hours and 6 GB of memory"
    assert "about 1 minute and" in _estimate([Cost(0.1)], 1)


def test_an_estimate_changes_no_name_of_what_is_kept():
    named = replace(SMALL, parameters=1e9)
    assert Speaker(named).digest == Speaker(SMALL).digest


def test_no_model_reads_texts_of_the_modules_that_are_held_out():
    learnt, held = (
        {name.partition(".")[0] for name in corpus.names} for corpus in texts(SMALL)
    )
    assert held and not learnt & held
    assert 0.05 < len(held) / len(learnt | held) < 0.2


def test_a_part_of_a_users_texts_is_held_out_where_a_model_is_trained(tmp_path):
    data = tmp_path / "mine.txt"
    data.write_text("\n".join(f"text {number}" for number in range(200)))
    mine = replace(SMALL, data=str(data), hub="m", yours=True)
    learnt, held = (set(corpus.samples) for corpus in texts(mine))
    assert len(learnt | held) == 200 and not learnt & held
    assert 0.05 < len(held) / 200 < 0.2
    whole, read = (set(corpus.samples) for corpus in texts(replace(mine, steps=0)))
    assert whole == read == learnt | held


def test_language_models_start_from_the_one_that_is_pretrained(tmp_path):
    data = tmp_path / "texts.csv"
    rows = [f"{text},{number % 16}" for number, text in enumerate(tiny.texts(160))]
    data.write_text("\n".join(["text,label", *rows]))
    shape = {"depth": 1, "width": 16, "heads": 2, "context": 16, "vocabulary": 300}
    steps = {"pretraining": 4, "steps": 1, "batch_size": 2, "learning_rate": 1e-9}
    setup = replace(SMALL, data=str(data), **shape, **steps)
    assets = Assets(tmp_path / "assets", setup)
    speaker = Speaker(setup, "aligned", seed=1)
    assert assets.missing([speaker]) == [Pretrained(setup), speaker]
    start, end = (
        load_file(assets.get(asset) / "model.safetensors")
        for asset in (Pretrained(setup), speaker)
    )
    for name, weight in start.items():
        assert end[name].sub(weight).abs().max() < 1e-6, "one step of almost no size"


IMAGES = """
imagenet/train/cat/0 imagenet/train/dog/1 imagenet/train/cat/2
imagenet/val/cat/0 imagenet/val/dog/1
other/all/cat/1
"""


def test_training_and_test_images_lie_in_folders_or_in_an_archive_of_them(tmp_path):
    for name in IMAGES.split():
        path = tmp_path / f"{name}.PNG"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    (tmp_path / "cifar10").mkdir()
    packed = tmp_path / "cifar10" / "images.tar.xz"
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(tmp_path / "imagenet", "images")
    for name in ("imagenet", "cifar10"):
        training, test = images(name, tmp_path)
        assert (len(training), len(test)) == (3, 2)
        assert sorted(test.labels) == ["cat", "dog"]
        assert test.samples[0].size == (8, 8)
    with refused("no images in folders train and test"):
        images("other", tmp_path)
    packed.write_bytes(packed.read_bytes()[:200])
    with refused("images.tar.xz' cannot be read"):
        images("cifar10", tmp_path)


def test_pairs_of_texts_are_read_as_one(tmp_path):
    folder = tmp_path / "rte"
    folder.mkdir()
    lines = "\n".join(f"one {i},two {i},{i % 2}" for i in range(9))
    (folder / "train.csv").write_text(f"text_a,text_b,label\n{lines}\n")
    whole, part, again = (glue.texts(folder / "train.csv", n) for n in (100, 4, 4))
    third = list(whole.samples).index("one 3 [SEP] two 3")
    assert whole.labels[third] == 1 and whole.names[third] == "3"
    assert len(whole) == 9 and len(part) == 4 and set(part.samples) < set(whole.samples)
    assert part.samples == again.samples
