"""A real kill of the real command: what was embedded and judged is there for the next one."""

import signal
from contextlib import suppress

import pandas as pd
from safetensors import safe_open

import layerscope
from layerscope.inputs.samples import key_of

PAIRS = 200


def results(folder, name):
    return {
        path: path.stat().st_mtime_ns
        for path in folder.glob(f"out/results/**/{name}.json")
    }


def parts(folder):
    return {
        path: path.stat().st_ino
        for path in folder.glob("out/states/**/[0-9]*.safetensors")
    }


def keys(paths):
    found = []
    for path in paths:
        with safe_open(path, framework="np") as file:
            found += [row.tobytes() for row in file.get_tensor("keys")]
    return found


def test_killed_in_the_second_task_it_goes_on_without_embedding_twice(
    forks, counted, llama, tmp_path
):

    tasks = [f"sts:{tmp_path / name}.csv" for name in ("few", "many")]
    texts = [f"w{i % 90} w{i // 90} w{i % 7}" for i in range(2 * PAIRS)]
    rows = pd.DataFrame(
        {
            "text_a": texts[::2],
            "text_b": texts[1::2],
            "score": [i % 6 for i in range(PAIRS)],
        }
    )
    rows.assign(text_a="w3 " + rows["text_a"], text_b="w4 " + rows["text_b"])[
        :20
    ].to_csv(tmp_path / "few.csv", index=False)
    rows.to_csv(tmp_path / "many.csv", index=False)

    def far_enough():
        # the states of the first task go while we look
        with suppress(FileNotFoundError):
            return (
                len(results(tmp_path, "few")) == 5 and len(keys(parts(tmp_path))) > 50
            )
        return False

    words = [word for task in tasks for word in ("--data", task)]
    running = forks.start("evaluate", llama, *words, "--out", tmp_path / "out")
    running.until(far_enough, 0.01)
    running.kill()
    assert running.wait().status == -signal.SIGKILL
    first, judged, there = (
        results(tmp_path, "few"),
        results(tmp_path, "many"),
        parts(tmp_path),
    )
    embedded = keys(there)
    assert 0 < len(embedded) <= len(set(texts)) and len(judged) < 5

    layerscope.evaluate(llama, tasks, tmp_path / "out")
    assert results(tmp_path, "few") == first
    # each once, over both processes
    assert sorted([*embedded, *map(key_of, counted)]) == sorted(
        {key_of(text) for text in texts}
    )
    assert judged.items() <= results(tmp_path, "many").items()

    whole = layerscope.evaluate(llama, tasks)
    resumed = layerscope.open_evaluation(tmp_path / "out")
    assert resumed.table().equals(whole.table()) and resumed.baseline().equals(
        whole.baseline()
    )
