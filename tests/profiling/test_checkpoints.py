"""Checkpoints of one model, profiled by one command: a run each, and one page of metric by layer and step."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny

import layerscope
from layerscope import LayerscopeError
from layerscope.profiling import profile_checkpoints

STEPS = ("step5", "step20", "step100")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of three checkpoints and the texts they are profiled on."""
    found = tmp_path_factory.mktemp("training")
    for seed, name in enumerate(STEPS):
        tiny.saved(tiny.bert(seed), found / "model" / name, special=True)
    pd.DataFrame({"text": tiny.texts(30)}).to_csv(found / "data.csv", index=False)
    return found


def test_a_command_profiles_each_checkpoint_and_writes_one_page_of_all(
    cli, folder: Path, tmp_path: Path
) -> None:
    out, data = tmp_path / "runs", folder / "data.csv"
    how = (
        "--data",
        data,
        "--metrics",
        "prompt_entropy,cka",
        "--views",
        0,
        "--figures",
        tmp_path / "figures",
    )
    printed = cli(
        "profile", folder / "model", "--revisions", "step100,step5,step20", *how, "--out", out
    )
    assert printed.status == 0, printed.err
    assert printed.out.splitlines()[-1] == f"page: {out}/comparison/report.html"
    model, options = (
        str(folder / "model" / "step20"),
        {"metrics": "prompt_entropy", "views": 0, "progress": False},
    )
    alone = layerscope.profile(model, data, out=tmp_path / "alone", **options)
    entropy = alone.metric("prompt_entropy")
    np.testing.assert_array_equal(
        layerscope.open_run(out / "step20").metric("prompt_entropy"), entropy
    )
    found = layerscope.open_comparison(out / "comparison")
    assert [member.step for member in found.runs] == [5, 20, 100] and found.series
    rows = found.table().query(
        "kind == 'value' and metric == 'prompt_entropy' and run == 'step20' and site == 'raw'"
    )
    np.testing.assert_allclose(rows.sort_values("layer")["value"], entropy)
    assert (tmp_path / "figures" / "checkpoints.png").is_file()
    again = cli(
        "profile", folder / "model", "--revisions", "step100,step5,step20", *how, "--out", out
    )
    assert again.status == 0 and "shards are done" in again.err


@pytest.mark.parametrize(
    ("revisions", "more", "line"),
    [
        ("step5", {}, "revisions is 'step5': name two checkpoints or more, each once"),
        ("step5,step5", {}, "revisions is 'step5,step5': name two checkpoints or more, each once"),
        ("step5,step21", {}, "checkpoint 'step21' is not in '{model}', did you mean step20?"),
        (
            "step5,step20",
            {"revision": "main"},
            "`revision` names one checkpoint and `revisions` several",
        ),
    ],
)
def test_wrong_checkpoints_are_refused_before_the_first(
    folder: Path, tmp_path: Path, revisions: str, more: dict[str, str], line: str
) -> None:
    with pytest.raises(LayerscopeError) as error:
        profile_checkpoints(
            folder / "model", revisions, data=folder / "data.csv", out=tmp_path / "runs", **more
        )
    assert (
        str(error.value).startswith(line.format(model=folder / "model"))
        and not (tmp_path / "runs").exists()
    )
