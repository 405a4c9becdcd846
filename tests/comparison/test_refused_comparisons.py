"""What cannot be compared is one line with the mend, never a number."""

import tiny
from typed import refused

import layerscope
from layerscope.core.files import read_json, write_json


def refusal(*runs, **options):
    with refused() as told:
        layerscope.compare(list(runs), **options)
    return str(told.value)


def test_too_few_the_same_and_what_is_no_run(three, tmp_path):
    assert (
        refusal(three[0]) == "compare needs two runs or more: give the folder of each"
    )
    with refused("two runs or more"):
        layerscope.compare(str(three[0].path))
    assert "is given twice: compare needs runs that differ" in refusal(
        three[0], three[0].path
    )
    assert "did you mean step100?" in refusal(
        three[0], three[0].path.with_name("step10")
    )


def test_other_samples(make, three, tmp_path):
    fewer = make(tmp_path / "fewer", tiny.rows(50))
    assert "do not match (60 of " in refusal(three[0], fewer)
    other = make(tmp_path / "other", tiny.rows(60, seed=9))
    assert "profile both with the same data, samples, seed and labels" in refusal(
        three[0], other
    )


def test_names_that_do_not_exist(three, deep, spoken):
    assert "similarity 'ckaa' does not exist, did you mean cka?" in refusal(
        *three[:2], similarity="ckaa"
    )
    told = refusal(three[0], deep, similarity="cosine_similarity")
    assert (
        told
        == "cosine_similarity needs states of one width, and these are 16 and 24 wide: take cka"
    )
    assert "metric 'curvature' is not in all of these runs" in refusal(
        *three[:2], metrics="curvature"
    )
    assert "pooling 'cls' is not in run" in refusal(*spoken, pooling="cls")
    assert "site 'normed' is not in run" in refusal(*three[:2], site="normed")


def test_a_history_holds_no_states(three, tmp_path):
    import shutil

    shutil.copytree(three[0].path, tmp_path / "history")
    path = tmp_path / "history" / "run.json"
    write_json(path, read_json(path) | {"pooling": []})
    assert "is the history of a training and holds no states" in refusal(
        three[0], tmp_path / "history"
    )


def test_canonical_correlations_of_few_samples(make, three, tmp_path):
    wide = make(tmp_path / "wide", width=40, metrics="effective_rank")
    told = refusal(three[0], wide, similarity="svcca")
    assert told.startswith(
        "svcca is not defined for 60 samples: at this width it needs 81; profile more"
    )
