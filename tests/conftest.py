import gc
import os
import signal
from pathlib import Path

import commands  # first, as it sets the environment
import pytest
import tiny
from chromium import content_of, language
from small_runs import bare, by_layer, labelled, pairs, rows, written
from tiny import no_gradients, one_thread
from typed import cli, refusal, unread

__all__ = [
    "bare",
    "by_layer",
    "cli",
    "content_of",
    "labelled",
    "language",
    "no_gradients",
    "one_thread",
    "pairs",
    "refusal",
    "rows",
    "unread",
    "written",
]

FORKS = pytest.StashKey[commands.Forks]()

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # a job started in the background hears no Ctrl-C, nor would the processes that tests start and
    # interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)

# tests and imported modules are no garbage, and looking through them takes a quarter of collecting the tests
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    if session.items:
        session.config.stash[FORKS] = commands.Forks()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Examples are in the package: a test file is not searched for them, nor a helper beside it imported for that."""
    return [found for found in (yield) if type(found) is pytest.Module]


@pytest.fixture(autouse=True, scope="session")
def timed_once():
    commands.time_once()


@pytest.fixture(autouse=True, scope="module")
def unsearched():
    """What an earlier file has imported is no garbage, either."""
    gc.freeze()


@pytest.fixture(scope="session")
def shared():
    """Return the folder of reference values and models that lies beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("LAYERSCOPE_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"no reference folder at {folder}: set LAYERSCOPE_SHARED")
    return folder


@pytest.fixture(scope="session")
def published(shared):
    """Return what the authors of Layer by Layer published for two models."""
    folder = shared / "data" / "published_layerwise"
    if not folder.is_dir():
        pytest.skip(f"no published scores at {folder}")
    return folder


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """Return the folder of a tiny BERT, which nobody changes."""
    return tiny.saved(tiny.bert(), tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    """Return the folder of a tiny Llama, which nobody changes."""
    return tiny.saved(tiny.llama(), tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all tests of a session: no second one starts beside it."""
    from chromium import started

    with started() as found:
        yield found


@pytest.fixture(scope="session")
def forks(pytestconfig, tmp_path_factory):
    """One warm process for all tests of a session, of which every command that needs a process is a fork."""
    found = pytestconfig.stash[FORKS]
    found.folder = tmp_path_factory.mktemp("commands")
    yield found
    found.close()
