"""The Hugging Face hub: folders pushed to it, those that `hf://user/name` names fetched, and its errors as one line."""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from layerscope.core.checked_json import without_folders
from layerscope.core.errors import LayerscopeError, first_line

HERE = "path/to/this/folder"
"""What stands in a model's card until the model has a name on the hub."""
CARD = "README.md"
# a Path has one slash where the text had two
NAME = re.compile(r"hf:/{1,2}(?:datasets/)?([^/@]+/[^/@]+)(?:@(.+))?")
MODELS = ("config.json", "modules.json", "adapter_config.json", "model.onnx")
ASIDE = ("checkpoints", "history")
"""Folders that `train` keeps beside a model."""
LOGIN = "log in (hf auth login, or HF_TOKEN)"
FAULTS = {
    401: f"is refused without a valid token: {LOGIN}",
    403: f"is not accessible with this token: {LOGIN} with one that may read it",
    404: f"does not exist: check the name and, if it is private, {LOGIN}",
    429: "hit the hub's rate limit (429): wait a few minutes, then try again",
}
"""What a status of the hub means, and the mend."""
_PATIENCE = 5.0  # seconds until the hub counts as out of reach


def on_this_machine(path: str | Path) -> Path:
    """Return a path, `~` spelt out; of `hf://user/name` or `hf://user/name@revision` the folder it is fetched to.

    Without a network that is what was fetched before. Raises `LayerscopeError` where the hub does
    not give it.
    """
    if not str(path).startswith("hf:/"):
        return Path(path).expanduser()
    if (match := NAME.fullmatch(str(path))) is None:
        raise LayerscopeError(
            f"{str(path)!r} is not the name of a result: write hf://user/name, or hf://user/name@revision"
        )
    from huggingface_hub import snapshot_download

    name, revision = match.groups()
    go_offline_without_hub()
    with _one_line(f"data set hf://{'@'.join(filter(None, match.groups()))}"):
        return Path(snapshot_download(name, repo_type="dataset", revision=revision))


def page_folder(result: Path) -> Path:
    """Return where the page of a saved result goes: into its folder; of one fetched from the hub, into this one."""
    if result.parent.name == "snapshots":
        return Path()
    return result


def push_to_hub(
    folder: str | Path, name: str, *, private: bool = True, token: str | None = None
) -> str:
    """Push the folder of a model that `truncate`, `train` or `exits` wrote, and return its name on the hub.

    Its card then loads it by that name, `user/name`; a model that is there is updated. Every file
    of the folder goes along but hidden ones and a training's history and checkpoints;
    where layerscope wrote the path of a file of this machine, its name alone. A new model is
    private unless `private=False`; `token` may write, by default that of `hf auth login`. Raises
    `LayerscopeError` for a folder without a model, for links, and where the hub refuses or cannot
    be reached. A result has a `push_to_hub` of its own.

    >>> layerscope.push_to_hub("runs/minilm", "user/name")
    Traceback (most recent call last):
        ...
    layerscope.core.errors.LayerscopeError: 'runs/minilm' holds no model: give its folder; a result has ...
    """
    path = Path(folder).expanduser()
    if not any((path / file).is_file() for file in MODELS):
        raise LayerscopeError(
            f"{str(path)!r} holds no model: give its folder; a result has its own push_to_hub"
        )
    text = None
    card = path / CARD
    if card.is_file():
        text = card.read_text(encoding="utf-8")
    return push(path, files_in(path), text, name, "model", private, token)


def files_in(folder: Path) -> list[str]:
    """Return the files in a folder, but hidden ones and what lies beside a model."""
    files = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        hidden = re.search(r"(^|/)\.", name)
        if path.is_file() and not hidden and name.partition("/")[0] not in ASIDE:
            files.append(name)
    return files


def push(
    folder: Path,
    files: Sequence[str],
    card: str | None,
    name: str,
    kind: str,
    private: bool,
    token: str | None,
) -> str:
    """Commit files of a folder, and a card, to a repository, made where it is missing; return its full name.

    Results replace an earlier one of their kind there; a repository of anything else is refused,
    and so are links, which may lead anywhere.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    for file in files:
        _refuse_links(folder, file)
    with _one_line(f"{kind.replace('dataset', 'data set')} {name!r}"):
        api = HfApi(
            token=token,
            library_name="layerscope",
            library_version=version("layerscope"),
        )
        name = api.create_repo(
            name, repo_type=kind, private=private, exist_ok=True
        ).repo_id
        there = set[str]()
        if kind == "dataset":
            held = api.list_repo_files(name, repo_type=kind)
            there = {*held} - {".gitattributes", CARD}
        if there and not any(file in there for file in files if file.endswith(".json")):
            raise LayerscopeError(
                f"data set {name!r} holds something else ({min(there)}): choose a new name"
            )
        operations: list[Any] = []
        for file in sorted({*files} - {CARD}):
            operations += [CommitOperationAdd(file, _content(folder / file))]
        operations += map(CommitOperationDelete, sorted(there - set(files)))
        if card is not None:
            operations.append(
                CommitOperationAdd(CARD, card.replace(HERE, name).encode())
            )
        api.create_commit(
            name, operations, commit_message="Written by layerscope", repo_type=kind
        )
    return name


def _refuse_links(folder: Path, file: str) -> None:
    """Raise where a file of a folder, or a folder within it on the way there, is a link."""
    path = folder / file
    while path != folder:
        if path.is_symlink():
            raise LayerscopeError(
                f"{str(path)!r} is a link, and links are not pushed: put a copy of what it leads to in its place"
            )
        path = path.parent


def _content(file: Path) -> Path | bytes:
    """Return what is pushed of a file: itself, or of JSON its text without the folders of this machine."""
    if file.suffix != ".json":
        return file
    return without_folders(file.read_text(encoding="utf-8")).encode()


@contextmanager
def _one_line(what: str) -> Iterator[None]:
    """Within, what the hub's client raises becomes one line on `what`, with the mend."""
    try:
        yield
    except (LayerscopeError, MemoryError):
        raise
    # of httpx, of the hub's client and its storage, and of the disk
    except Exception as error:
        raise LayerscopeError(f"{what} {_fault(error)}") from error


def _fault(error: Exception) -> str:
    """Return what went wrong between here and the hub, and how to go on; what is saved here is whole in any case."""
    names = set[str]()
    status = None
    cause: Any = error
    while cause is not None:
        names.add(type(cause).__name__)
        if hasattr(cause, "response"):
            status = status or cause.response.status_code
        cause = cause.__cause__ or cause.__context__
    if "RevisionNotFoundError" in names:
        return "has no such revision: give a branch, a tag or a commit of it"
    if status in FAULTS:
        return FAULTS[status]
    if status is not None and status >= 500:
        return f"cannot be reached because of an error at the hub ({status}): try again later"
    if status is None and names & {"OfflineModeIsEnabled", "LocalEntryNotFoundError"}:
        return "is not cached, and the hub cannot be reached: check the network (and HF_HUB_OFFLINE)"
    line = first_line(error)
    if names & {"HFValidationError", "HfHubHTTPError", "BadRequestError"}:
        return f"is refused ({line}): name it user/name"
    return f"was cut off from the hub ({line}): check the network and the disk, then try again"


@cache
def go_offline_without_hub() -> None:
    """Spare the user a minute of retries for each file of a model where the hub does not answer."""
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE or not hub_answers()


def hub_answers() -> bool:
    """Return whether the hub answers at all, within a few seconds, name look-up included."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    answers: list[Any] = []

    def ask() -> None:
        with suppress(Exception):  # of the client, of httpx, of the system
            answers.append(get_session().head(constants.ENDPOINT, timeout=_PATIENCE))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_PATIENCE + 1)
    return bool(answers)
