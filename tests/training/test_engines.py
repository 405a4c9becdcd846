"""Engines around the trainer: two processes by torchrun, mixed precision, adapters, checkpointed activations."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import engines
import pytest
import torch
from tiny import one_thread

__all__ = ["one_thread"]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two real processes find, each with half a batch, where DDP is told that no weight goes unused."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
               engines.__file__, str(folder), json.dumps({"ddp_find_unused_parameters": False})]  # fmt: skip
    paths = [str(Path(__file__).parents[1]), *sys.path]
    subprocess.run(command, check=True, timeout=300, capture_output=True,
                   env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"})  # fmt: skip
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("name", engines.RUNS)
def test_two_processes_train_as_one_with_twice_the_batch(two_processes: dict[str, Any], tmp_path: Path, name: str):
    losses, model = engines.train(name, tmp_path, engines.BATCH)
    assert two_processes["losses"][name] == pytest.approx(losses, rel=TOLERANCE) and len(losses) == engines.STEPS
    weights = model.state_dict()
    for key, found in two_processes["weights"][name].items():
        torch.testing.assert_close(torch.tensor(found), weights[key], rtol=0, atol=TOLERANCE, msg=key)
