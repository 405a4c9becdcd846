"""Layers judged in worker processes: the same scores, nothing embedded twice, nobody left behind."""

import json
import os
import pickle
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path

import pandas as pd
import psutil
import pytest
import tiny
from commands import Forks
from joblib.externals import loky
from joblib.externals.loky.backend.reduction import dumps
from tiny import one_thread

import layerscope
from layerscope.evaluation import judging, task_from_file
from layerscope.evaluation.stored_texts import TextStates

__all__ = ["one_thread"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, and a clustering and an STS of 60 texts."""
    tiny.saved(tiny.bert(), tmp_path / "tiny-bert", special=True)
    rows = pd.DataFrame({"text": tiny.texts(60), "label": list("abc") * 20})
    rows.to_csv(tmp_path / "groups.csv", index=False)
    _pairs(tmp_path / "pairs.csv", 1)
    _pairs(tmp_path / "others.csv", 2)
    _pairs(tmp_path / "more.csv", 3)
    return tmp_path


class OtherTextsByLayer:
    """Mixed into a task, lets every layer be asked for texts of its own, as a reranking of its own results would."""

    def evaluate(self, model: object, *given: object, **options: object) -> object:
        text = f"w1 w{getattr(model, 'layer', 0)}"
        model.encode(
            [{"text": [text]}], task_metadata=self.metadata, hf_split="test", hf_subset="default"
        )
        return super().evaluate(model, *given, **options)


class KilledInAWorker:
    """Mixed into a task, ends every process but its own, as a lack of memory would."""

    own: int

    def evaluate(self, *given: object, **options: object) -> object:
        if os.getpid() != self.own:
            os._exit(9)
        return super().evaluate(*given, **options)


def test_workers_give_what_one_process_gives(folder: Path, monkeypatch: pytest.MonkeyPatch):
    tasks = [f"sts:{folder / 'pairs.csv'}", f"clustering:{folder / 'groups.csv'}"]
    alone = layerscope.evaluate(str(folder / "tiny-bert"), tasks, jobs=1, progress=False)
    embedded, batch, judged = [], TextStates._batch, []

    def counting(self: TextStates, texts: list[str], longest: int) -> object:
        embedded.extend(texts)
        return batch(self, texts, longest)

    def seen(self: judging.Workers, task: object, encoders: list) -> object:
        for encoder, result in elsewhere(self, task, encoders):
            judged.append((encoder.layer, result is None))
            yield encoder, result

    elsewhere = judging.Workers.judged
    monkeypatch.setattr(TextStates, "_batch", counting)
    monkeypatch.setattr(judging.Workers, "judged", seen)
    monkeypatch.setattr(judging, "WORTH", 0)
    others = task_from_file("sts", folder / "others.csv")
    own = type("Layered", (OtherTextsByLayer, type(others)), {})()
    own.dataset, own.data_loaded = others.dataset, True
    deadly = task_from_file("sts", folder / "more.csv")
    last = type("Deadly", (KilledInAWorker, type(deadly)), {"own": os.getpid()})()
    last.dataset, last.data_loaded = deadly.dataset, True
    found = layerscope.evaluate(
        str(folder / "tiny-bert"), [*tasks, own, last], jobs=2, progress=False
    )
    assert found.table()[["pairs", "groups"]].equals(alone.table()[["pairs", "groups"]])
    # all layers but the baseline, twice in workers; the layers with texts of their own come back,
    # and those of the dead
    back = [*[(i, i < 3) for i in range(4)], *[(layer, True) for layer in range(4)]]
    assert sorted(judged) == sorted([*[(layer, False) for layer in range(4)] * 2, *back])
    assert found.failed == {} and found.missing == 0 and len(embedded) == len(set(embedded))
    assert not [
        child for child in psutil.Process().children() if "popen_loky" in " ".join(child.cmdline())
    ]


def _pairs(path: Path, seed: int) -> None:
    texts = [f"w{seed} {text}" for text in tiny.texts(80, seed=seed)]
    rows = {
        "text_a": texts[:40],
        "text_b": texts[40:],
        "score": random.Random(0).choices(range(6), k=40),
    }
    pd.DataFrame(rows).to_csv(path, index=False)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_stopped_no_worker_is_left_and_what_is_done_is_whole(
    forks: Forks, folder: Path, stop: signal.Signals
):
    task = ("--data", f"clustering:{folder / 'groups.csv'}")
    running = forks.start(
        "evaluate", folder / "tiny-bert", *task, "--out", folder / "out", "--jobs", 2, worth=0
    )
    started = _workers(running.pid, until=lambda found: len(found) == 2)
    while not running.ended:  # Ctrl-C that comes while processes are started is pressed again
        running.kill(stop, group=stop == signal.SIGINT)
        time.sleep(1)
    ended = running.wait()
    _, left = psutil.wait_procs(started, timeout=90)
    assert len(started) == 2 and not left
    assert (
        ended.status == (130 if stop == signal.SIGINT else -stop) and "Traceback" not in ended.err
    )
    # of one layer, as the workers were still importing; of more on a machine that is slow to stop
    # them
    done = list((folder / "out").rglob("groups.json"))
    assert done and {json.loads(path.read_text())["task_name"] for path in done} == {"groups"}


def _workers(parent: int, until: Callable[[list[psutil.Process]], bool]) -> list[psutil.Process]:
    end, found = time.monotonic() + 120, []
    while time.monotonic() < end and psutil.pid_exists(parent) and not until(found):
        time.sleep(0.1)
        found = [
            child
            for child in psutil.Process(parent).children()
            if "popen_loky" in " ".join(child.cmdline())
        ]
    return found


class NoProcesses(Executor):
    """Stands in for a pool: all that goes to a worker is pickled, and worked off at once."""

    def __init__(self, *_: object, **options: object) -> None:
        pass

    def submit(self, call: Callable, *given: object) -> Future:
        future: Future = Future()
        try:
            future.set_result(call(*pickle.loads(dumps(given))))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **options: object) -> None:
        pass


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cls_pooled_encoder_keeps_its_sts_tasks(
    folder: Path, jobs: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    monkeypatch.setattr(judging, "WORTH", 0)
    monkeypatch.setattr(loky, "ProcessPoolExecutor", NoProcesses)
    body = Transformer(str(folder / "tiny-bert"))
    served = SentenceTransformer(modules=[body, Pooling(32, pooling_mode="cls")], device="cpu")
    tasks = [f"sts:{folder / 'pairs.csv'}", f"clustering:{folder / 'groups.csv'}"]
    found = layerscope.evaluate(served, tasks, jobs=jobs)
    assert found.failed == {} and "layer 0 has no score" in capsys.readouterr().err
    table = found.table()
    assert (
        table["pairs"].isna().tolist() == [True, False, False, False]
        and table["groups"].notna().all()
    )
    (grid,) = found.grids()
    assert grid.left_out == (0,) and set(grid.complete) == {"pairs", "groups"}
    assert found.baseline()["pairs"].notna().all()
