from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core import count, jsonable, spans
from layerscope.core.hub import on_this_machine
from layerscope.inputs.state_folder import StatesFolder, broken_in, total_of
from layerscope.show import Document, Facts
from layerscope.show.numbers import amount


@dataclass(frozen=True)
class Extraction:
    """States in a folder, whole or a shard of them: what was kept, of which model and data.

    >>> found = layerscope.extract("minilm", "reviews.csv", 6, out="states", progress=False)
    >>> found.is_whole, found.samples, found.info["layers"]
    (True, 24, [6])
    """

    path: Path
    info: dict[str, Any]
    """What `states.json` holds."""
    chunks: tuple[dict[str, Any], ...]
    """What is known of each finished chunk."""

    def __repr__(self) -> str:
        of = f"{self._layers} of {self.info['model']['name']}"
        state = ""
        if not self.is_whole:
            state = f", {count(len(self.chunks), 'chunk')} so far"
        return f"Extraction('{self.path}': {of}, {count(self.samples, 'sample')} of {self.info['data']['name']}{state})"

    @property
    def is_whole(self) -> bool:
        """Whether every chunk is there, and the folder is marked as whole."""
        return "whole" in self.info

    @property
    def samples(self) -> int:
        """Number of samples whose states are there."""
        return self._sum("samples")

    def _sum(self, name: str) -> int:
        """Return the sum of a number over all chunks."""
        return total_of(self.chunks, name)

    @property
    def broken(self) -> list[Any]:
        """Name and first layer of each sample with a NaN or an infinity."""
        return broken_in(self.chunks)

    @property
    def _layers(self) -> str:
        """Which layers there are, in words."""
        return spans(self.info["layers"], "layer")

    def as_dict(self) -> dict[str, Any]:
        """Return what is known as plain values."""
        facts: dict[str, Any] = {
            "path": str(self.path),
            "whole": self.is_whole,
            "chunks": len(self.chunks),
        }
        for name in ("samples", "rows", "tokens", "bytes", "cut"):
            facts[name] = self._sum(name)
        facts["broken"] = self.broken
        for name in ("model", "data", "layers", "site", "poolings", "store_dtype"):
            facts[name] = self.info[name]
        return dict(jsonable(facts))

    def document(self) -> Document:
        """Return the result as it is shown."""
        info = self.info
        broken = len(self.broken)
        how = ", ".join(info["poolings"]) or "every token"
        answer = f"{count(self.samples, 'sample')} at {self._layers}: {amount(self._sum('bytes'))} in {self.path}"
        width = info["model"]["width"]
        entries = [
            (
                "states",
                f"{how} · {info['site']} · {info['store_dtype']} · {width} numbers",
            ),
            ("files", f"{count(len(self.chunks), 'chunk')} · {info['file_format']}"),
        ]
        lost = self._sum("rows") - self.samples
        if lost:
            entries.append(
                ("left out", f"{count(lost, 'row')} without text, label or token")
            )
        cut = self._sum("cut")
        if cut:
            entries.append(("cut", f"{count(cut, 'sample')} at the maximal length"))
        if broken:
            entries.append(("NaN or infinity", count(broken, "sample")))
        reasons: tuple[str, ...] = ()
        commands: tuple[str, ...] = (info["command"],)
        if not self.is_whole:
            commands = ()
            reasons = (
                "Other shards may be missing: the command without --shard checks every file, computes what is "
                "missing, and marks the folder.",
            )
        return Document(
            answer,
            (info["model"]["name"], info["data"]["name"]),
            reasons=reasons,
            commands=commands,
            parts=(Facts(tuple(entries)),),
            kind="states",
        )


def open_extraction(folder: str | Path) -> Extraction:
    """Return the states that `extract` wrote into a folder, finished or not.

    Raises `LayerscopeError` where it holds none.

    >>> _ = layerscope.extract("minilm", "reviews.csv", 6, out="states", progress=False)
    >>> layerscope.open_extraction("states")
    Extraction('states': layer 6 of all-MiniLM-L6-v2, 24 samples of reviews)
    """
    states = StatesFolder(on_this_machine(folder))
    chunks = map(states.store.facts, states.store.finished())
    return Extraction(states.path, states.manifest, tuple(filter(None, chunks)))
