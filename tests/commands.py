"""Commands and scripts in forks of one warm process: 10 ms instead of 3 s each, killed and limited as one likes."""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

import layerscope

EARLY = ("--max-disagreement", 0.2, "--batch-size", 8)
TRAINED = ("--max-steps", 6, "--batch-size", 8, "--eval-every", 3)
"""Options of `exits` and `train` that sixty texts are enough for."""
SLOW = 90
"""Seconds after which a command over a handful of samples hangs."""
BEAT, MISSED = 0.2, 25
"""Heartbeats of processes that share a command."""
ROOMY = 6 * 2**30
"""Bytes a command may take beyond those of the warm process."""
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # as the command line sets it, before torch is loaded
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    # the tree these tests stand in
    "PYTHONPATH": str(Path(__file__).parents[1]),
    # torch looks up the names of addresses; a name server that leaves a question unanswered costs a second, not five
    "RES_OPTIONS": "timeout:1 attempts:1",
}
"""What the environment of tests and commands holds, set when this file is imported."""
WARM = (
    "pyarrow.parquet scipy.stats sklearn.linear_model sklearn.neighbors sklearn.cluster PIL.Image safetensors.torch "
    "jinja2 vl_convert soundfile accelerate mteb peft transformers.trainer sentence_transformers "
    "transformers.models.bert.modeling_bert transformers.models.gpt2.modeling_gpt2 "
    "transformers.models.llama.modeling_llama transformers.models.vit.modeling_vit "
    "transformers.models.wav2vec2.modeling_wav2vec2 rich._emoji_codes"
)
"""What commands need beside layerscope's own modules."""

os.environ.update(SETTINGS)


@dataclass(frozen=True)
class Ended:
    """How a command ended: its status (negative: the signal), and what it printed."""

    status: int
    out: str
    err: str

    @property
    def line(self):
        """The line that says what was wrong."""
        return next(
            (line for line in self.err.splitlines() if line.startswith("layerscope: ")),
            "",
        )

    def complaint(self):
        """What is wrong with this end, if anything: it must be 0, or 2 with one line and no traceback."""
        said = [
            line for line in self.err.splitlines() if line.startswith("layerscope: ")
        ]
        if "Traceback" in self.err + self.out:
            return "a traceback"
        if self.status == 0:
            return "an error line with status 0" if said else None
        if self.status != 2:
            return f"status {self.status}"
        if len(said) != 1:
            return f"{len(said)} error lines"
        return (
            None
            if self.err.splitlines()[-1] == said[0]
            else "the error line is not the last"
        )


class Running:
    """A command under way in a process (and session) of its own."""

    def __init__(self, forks, pid, folder):
        self.forks, self.pid, self.folder = forks, pid, folder

    @property
    def ended(self):
        """Whether it has ended, before anyone has waited for it."""
        return psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE

    def until(self, reached, each=0.001):
        """Look again and again whether it has come so far; it may not have ended before."""
        look = time.monotonic()
        while not reached():
            if time.monotonic() > look:
                assert not self.ended or reached(), self.wait()
                look = time.monotonic() + 0.1
            time.sleep(each)

    def kill(self, sign=signal.SIGKILL, *, group=False):
        with suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.pid, sign)

    def wait(self, seconds=SLOW):
        """Wait for its end; a command that hangs is killed, and its status is that of SIGALRM."""
        late = threading.Event()

        def stop():
            late.set()
            self.kill(group=True)

        timer = threading.Timer(seconds, stop)
        timer.start()
        status = self.forks.ask({"wait": self.pid})
        timer.cancel()
        # not there yet for one that is killed at once
        files = (self.folder / name for name in ("out", "err"))
        out, err = (
            file.read_text("utf-8", "replace") if file.is_file() else ""
            for file in files
        )
        return Ended(-signal.SIGALRM if late.is_set() else status, out, err)


class Forks:
    """The warm process: a fork of that of the tests, from before the first one runs."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _serve(theirs.makefile("rw"))
        theirs.close()
        self.lines = ours.makefile("rw")
        self.folder, self.count = None, 0

    def ask(self, request):
        self.lines.write(json.dumps(request) + "\n")
        self.lines.flush()
        return json.loads(self.lines.readline())

    def start(self, *words, cwd=None, **limits):
        """Start a command; limits: `memory` (bytes), `env`.

        `script`: Python code that runs instead of the command line, with the words as its
        arguments."""
        self.count += 1
        folder = self.folder / f"command-{self.count}"
        folder.mkdir()
        limits = {"memory": ROOMY} | limits
        request = {
            "words": [str(w) for w in words],
            "cwd": str(cwd or self.folder),
            "folder": str(folder),
            **limits,
        }
        return Running(self, self.ask(request), folder)

    def killed(self, *words, when, delay=0, **limits):
        """Start a command, and kill it once it has come so far, or `delay` seconds later, when it may have ended."""
        running = self.start(*words, **limits)
        running.until(when, 0.0005)
        time.sleep(delay)
        running.kill()
        assert running.wait().status == -signal.SIGKILL or delay

    def run(
        self,
        *words,
        cwd=None,
        seconds=SLOW,
        **limits,
    ):
        return self.start(*words, cwd=cwd, **limits).wait(seconds)

    def together(self, *words, **limits):
        """Start two processes as a launcher would, each of which knows its rank."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            shared = {
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(free.getsockname()[1]),
            }
        return [
            self.start(
                *words, env=shared | {"RANK": rank, "LOCAL_RANK": rank}, **limits
            )
            for rank in "01"
        ]

    def close(self):
        self.lines.close()
        os.waitpid(self.pid, 0)


def time_once():
    """How fast tiny models are is not looked at: each is timed once, and not for seconds."""
    from layerscope.early_exit import timing
    from layerscope.truncation import costs

    timing.FEWEST = timing.MOST = costs.FEWEST = costs.MOST = 1
    timing.RACE = 0.2


def _child(request):
    import resource

    os.setsid()
    folder = Path(request["folder"])
    for name, to in (("out", 1), ("err", 2)):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), to)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(request["cwd"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + request["memory"]
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    os.environ.update(request.get("env", {}))
    sys.argv = ["layerscope", *request["words"]]
    atexit._clear()  # what the warm process would do at its end
    status = 1
    try:
        _run(request.get("script"))
        status = 0
    except SystemExit as end:
        status = end.code or 0
    finally:
        if status == 1 and sys.exc_info()[0] not in (None, SystemExit):
            sys.excepthook(*sys.exc_info())
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _run(script):
    if script is not None:
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
        return
    from layerscope.cli import start

    start()


def _serve(requests):
    """Import what commands need at the first request, then fork one command for each."""
    import torch

    from layerscope.core import message_store

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    torch.set_num_threads(1)
    message_store.BEAT, message_store.MISSED = BEAT, MISSED
    time_once()
    for line in requests:
        _warm()
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                _child(request)
        requests.write(json.dumps(answer) + "\n")
        requests.flush()
    os._exit(0)


@cache
def _warm():
    modules = pkgutil.walk_packages(layerscope.__path__, "layerscope.")
    own = [module.name for module in modules if "__" not in module.name]
    for name in [*WARM.split(), *own]:
        importlib.import_module(name)
    gc.freeze()
