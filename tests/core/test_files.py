"""Files and folders that are written beside and renamed, what killed processes left of them, and checksums."""

import stat

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typed import refused

from layerscope.core.files import aside, page_sums
from layerscope.core.folders import HELD, folder_aside, own_folder, writing


@pytest.mark.parametrize("at", [0, 4095, 4096, 2 * 4096 + 100, -1])
def test_page_sums_notice_a_changed_byte_and_a_moved_page_and_a_cut(tmp_path, at):
    pages = [np.full(4096, page, np.uint8).tobytes() for page in (1, 2, 3)]
    data = bytearray(b"".join(pages)[: 3 * 4096 - 50])
    file = tmp_path / "a.bin"
    file.write_bytes(data)
    before = page_sums(file)
    changed = bytearray(data)
    changed[at] ^= 1
    for other in (changed, pages[1] + pages[0] + data[2 * 4096 :], data[:-1], b""):
        file.write_bytes(other)
        assert page_sums(file) != before
    file.write_bytes(data)
    assert page_sums(file) == before


def test_files_have_the_mode_that_the_umask_gives(tmp_path):
    aside(
        tmp_path / "shard.safetensors",
        lambda part: save_file({"x": torch.zeros(2)}, part),
    )
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(
        (tmp_path / "shard.safetensors").stat().st_mode
    ) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


WRITE = """
import sys, time
from pathlib import Path
from layerscope.core.folders import folder_aside
with folder_aside(Path(sys.argv[1])) as aside:
    (aside / "model").mkdir()
    (aside / "model" / "weights").write_text("half")
    time.sleep(60)
"""


def test_what_a_killed_process_left_is_taken_away_and_what_another_writes_is_not(
    forks, tmp_path
):
    place = tmp_path / "cut"
    writer = forks.start(place, script=WRITE)
    writer.until(lambda: any(tmp_path.glob(".cut.*/model/weights")))
    (left,) = tmp_path.iterdir()
    other = tmp_path / ".cut.mine.part"
    other.mkdir()
    with folder_aside(place) as aside:
        (aside / "weights").write_text("whole")
        assert left.is_dir(), "its process still writes"
    writer.kill()
    writer.wait()
    assert (
        left.is_dir()
        and (place / "weights").read_text() == "whole"
        and not (place / HELD).exists()
    )
    with pytest.raises(KeyboardInterrupt), folder_aside(place):
        assert not left.exists()
        raise KeyboardInterrupt
    assert sorted(tmp_path.iterdir()) == [other, place]


def test_what_a_killed_process_left_is_written_again(tmp_path):
    place = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), writing(place):
        (place / "grid.csv").write_text("half")
        raise KeyboardInterrupt
    with writing(own_folder(place, "reading", "mark.json")):
        (place / "mark.json").write_text("{}")
    assert sorted(path.name for path in place.iterdir()) == ["grid.csv", "mark.json"]
    (place / "mark.json").unlink()
    with refused("exists and holds no reading: name a new folder"):
        own_folder(place, "reading", "mark.json")
