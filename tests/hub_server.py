"""A small Hugging Face hub over loopback: repositories, commits, large files and downloads, as its own client asks."""

import base64
import hashlib
import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from huggingface_hub import constants
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from layerscope.core.hub import go_offline_without_hub

LARGE = (".parquet", ".safetensors", ".onnx")
"""What the hub's own .gitattributes keeps as large files."""
OWNER, READER = "hf_owner", "hf_reader"
"""A token that may write for `user`, and one that may only read."""
USER = "user"


class Hub:
    """Repositories by (kind, name), each a list of commits: files by path. `fault` may answer a request instead."""

    def __init__(self):
        self.repos = {}
        self.private = set()
        self.large = {}
        self.fault = lambda request: None
        self.seen = []
        self.agents = set()
        repo = "/api/<kind>s/<owner>/<name>"
        batch, resolve = "<name>.git/info/lfs/objects/batch", "resolve/<revision>"
        urls = {
            "/": "home",
            "/api/repos/create": "create",
            "/api/validate-yaml": "validate",
            repo: "info",
            f"{repo}/revision/<revision>": "info",
            f"{repo}/tree/<revision>": "tree",
            f"{repo}/tree/<revision>/<path:folder>": "tree",
            f"{repo}/preupload/<revision>": "preupload",
            f"{repo}/commit/<revision>": "commit",
            f"/<owner>/{batch}": "batch",
            f"/datasets/<owner>/{batch}": "batch",
            "/large/<oid>": "upload",
            f"/<owner>/<name>/{resolve}/<path:path>": "resolve",
            f"/<kind>s/<owner>/<name>/{resolve}/<path:path>": "resolve",
        }
        self.urls = Map([Rule(url, endpoint=name) for url, name in urls.items()])

    def files(self, name, kind="dataset"):
        """Return the files of the last commit."""
        return self.repos[kind, name][-1]

    def __call__(self, environ, start):
        """Answer one request."""
        request = Request(environ)
        self.seen.append(f"{request.method} {request.path}")
        self.agents.add(request.headers.get("User-Agent", ""))
        try:
            endpoint, values = self.urls.bind_to_environ(environ).match()
            if "owner" in values:
                values["name"] = f"{values.pop('owner')}/{values['name']}"
            answer = self.fault(request) or getattr(self, endpoint)(request, **values)
        except HTTPException as error:
            answer = error
        return answer(environ, start)

    def home(self, request):
        return Response("a hub")

    def create(self, request):
        self._owners_alone(request)
        asked = request.get_json()
        owner, kind = asked.get("organization") or USER, asked.get("type") or "model"
        if owner != USER:
            raise _error(
                403, "You don't have the rights to create a repo under this namespace"
            )
        key = kind, f"{owner}/{asked['name']}"
        url = request.host_url + key[1]
        if kind == "dataset":
            url = f"{request.host_url}datasets/{key[1]}"
        if key in self.repos:
            return _json({"url": url, "error": "exists"}, 409)
        self.repos[key] = [{".gitattributes": b""}]
        if asked.get("visibility") == "private" or asked.get("private"):
            self.private.add(key)
        return _json({"url": url})

    def validate(self, request):
        return _json({"errors": [], "warnings": []})

    def info(self, request, kind, name, revision="main"):
        number, files = self._commit(request, kind, name, revision)
        siblings = [{"rfilename": path} for path in files]
        return _json(
            {
                "id": name,
                "sha": _sha(number),
                "siblings": siblings,
                "private": False,
            }
        )

    def tree(
        self,
        request,
        kind,
        name,
        revision,
        folder="",
    ):
        _, files = self._commit(request, kind, name, revision)
        if folder:  # these repositories have none
            raise _error(404, "no such folder", "EntryNotFound")
        entries = []
        for path, data in files.items():
            oid = hashlib.sha1(data).hexdigest()
            entry = {"type": "file", "path": path, "size": len(data), "oid": oid}
            if path.endswith(LARGE):
                large = {"size": len(data), "oid": _digest(data), "pointerSize": 130}
                entry["lfs"] = large
            entries.append(entry)
        return _json(entries)

    def preupload(self, request, kind, name, revision):
        self._owners_alone(request)
        files = request.get_json()["files"]
        modes = {True: "lfs", False: "regular"}
        return _json(
            {
                "files": [
                    {
                        "path": file["path"],
                        "uploadMode": modes[file["path"].endswith(LARGE)],
                        "shouldIgnore": False,
                    }
                    for file in files
                ]
            }
        )

    def batch(self, request, name):
        return _json(
            {
                "transfer": "basic",
                "objects": [
                    {
                        **each,
                        "actions": {
                            "upload": {"href": f"{request.host_url}large/{each['oid']}"}
                        },
                    }
                    for each in request.get_json(force=True)["objects"]
                ],
            }
        )

    def upload(self, request, oid):
        data = request.get_data()
        assert _digest(data) == oid
        self.large[oid] = data
        return Response("")

    def commit(self, request, kind, name, revision):
        self._owners_alone(request)
        commits = self.repos[kind, name]
        files = dict(commits[-1])
        for line in request.get_data().splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.large[value["oid"]]
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
        commits.append(files)
        return _json(
            {
                "commitUrl": f"{request.host_url}{name}",
                "commitOid": _sha(len(commits) - 1),
            }
        )

    def resolve(
        self,
        request,
        name,
        revision,
        path,
        kind="model",
    ):
        number, files = self._commit(request, kind, name, revision)
        if path not in files:
            raise _error(404, "no such file", "EntryNotFound")
        headers = {"X-Repo-Commit": _sha(number), "ETag": f'"{_digest(files[path])}"'}
        return Response(
            files[path], headers=headers, mimetype="application/octet-stream"
        )

    def _commit(self, request, kind, name, revision):
        key, known = (kind, name), _token(request) in (OWNER, READER)
        if key not in self.repos or (key in self.private and not known):
            raise _error(404 if known else 401, "Repository not found", "RepoNotFound")
        commits = self.repos[key]
        shas = {_sha(number): number for number in range(len(commits))} | {
            "main": len(commits) - 1
        }
        if revision not in shas:
            raise _error(404, "Invalid rev id", "RevisionNotFound")
        return shas[revision], commits[shas[revision]]

    def _owners_alone(self, request):
        token = _token(request)
        if token == READER:
            raise _error(403, "no right to write")
        if token != OWNER:
            raise _error(401, "Invalid username or password.")


class _Quiet(WSGIRequestHandler):
    def log(self, *args):
        """Say nothing."""


@contextmanager
def serving():
    """Within, a hub answers at an address of this machine."""
    hub = Hub()
    server = make_server("127.0.0.1", 0, hub, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield hub, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Return a hub that the client in this process takes for the only one; `hub.url` is where it is."""
    with serving() as (found, url):
        for name, value in {
            "HF_ENDPOINT": url,
            "HF_TOKEN": OWNER,
            "HF_HUB_OFFLINE": "0",
        }.items():
            monkeypatch.setenv(name, value)
        template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        for name, value in {
            "ENDPOINT": url,
            "HUGGINGFACE_CO_URL_TEMPLATE": template,
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_CACHE": str(tmp_path / "cache"),
        }.items():
            monkeypatch.setattr(constants, name, value)
        # the client waits between its tries
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        go_offline_without_hub.cache_clear()
        found.url = url
        yield found
        go_offline_without_hub.cache_clear()


def cut(request):
    """Cut the connection without an answer."""
    request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return Response("")


def _token(request):
    return request.headers.get("Authorization", "").removeprefix("Bearer ")


def _json(value, status=200):
    return Response(json.dumps(value), status, mimetype="application/json")


def _error(status, message, code=""):
    """Return what is raised where a request is refused."""
    headers = {"X-Error-Message": message, "X-Error-Code": code}
    return HTTPException(
        response=Response(json.dumps({"error": message}), status, headers)
    )


def _sha(number):
    return f"{number:040x}"


def _digest(data):
    return hashlib.sha256(data).hexdigest()
