"""The figures of scores: average by depth, and every layer on every task."""

from pathlib import Path

from frames import M, N, scored

from layerscope.reports.figures import draw
from layerscope.scores import Evaluation


def test_scores_alone_have_their_files(tmp_path: Path) -> None:
    evaluation = Evaluation(scored({"a": [*M, 0.5, 0.6], "b": [*N, None, 0.1]}, "deep"))
    names = {path.name for path in draw(evaluation, tmp_path)}
    wanted = (
        f"{name}{width}.{kind}"
        for name in ("scores", "scores_by_task")
        for width in ("", "-column")
        for kind in ("png", "pdf", "svg")
    )
    assert names == set(wanted) == {path.name for path in tmp_path.iterdir()}
