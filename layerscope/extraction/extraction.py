from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.core.errors import count, spans
from layerscope.core.hub import on_this_machine
from layerscope.core.saved import jsonable
from layerscope.extraction.folder import StatesFolder
from layerscope.runs.folder import amount
from layerscope.show.document import Document, Facts


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
        state = "" if self.is_whole else f", {count(len(self.chunks), 'chunk')} so far"
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
        return sum(chunk[name] for chunk in self.chunks)

    @property
    def _layers(self) -> str:
        return spans(self.info["layers"], "layer")

    def as_dict(self) -> dict[str, Any]:
        """Return what is known as plain values."""
        sums = {name: self._sum(name) for name in ("samples", "rows", "tokens", "bytes", "cut")}
        broken = [entry for chunk in self.chunks for entry in chunk["broken"]]
        known = {
            name: self.info[name]
            for name in ("model", "data", "layers", "site", "poolings", "store_dtype")
        }
        found = {
            "path": str(self.path),
            "whole": self.is_whole,
            "chunks": len(self.chunks),
            **sums,
            "broken": broken,
        }
        return dict(jsonable(found | known))

    def document(self) -> Document:
        """Return the result as it is shown."""
        info, lost = self.info, self._sum("rows") - self._sum("samples")
        how = ", ".join(info["poolings"]) or "every token"
        answer = f"{count(self.samples, 'sample')} at {self._layers}: {amount(self._sum('bytes'))} in {self.path}"
        entries = [
            (
                "states",
                f"{how} · {info['site']} · {info['store_dtype']} · {info['model']['width']} numbers",
            ),
            (
                "files",
                f"{count(len(self.chunks), 'chunk')} of {info['chunk_rows']:,} rows · {info['file_format']}",
            ),
            ("tokens", f"{self._sum('tokens'):,}" if self._sum("tokens") else ""),
            ("left out", f"{count(lost, 'row')} without text, label or token" if lost else ""),
            (
                "cut",
                f"{count(self._sum('cut'), 'sample')} at the maximal length"
                if self._sum("cut")
                else "",
            ),
            (
                "NaN or infinity",
                f"{count(self._sum_broken(), 'sample')}" if self._sum_broken() else "",
            ),
        ]
        merge = () if self.is_whole else (f"layerscope merge {self.path}",)
        reasons = (
            ()
            if self.is_whole
            else ("Other shards may be missing: merge checks that, and marks the folder.",)
        )
        return Document(
            answer,
            (info["model"]["name"], info["data"]["name"]),
            reasons=reasons,
            commands=merge,
            parts=(Facts(tuple(entry for entry in entries if entry[1])),),
            kind="states",
        )

    def _sum_broken(self) -> int:
        return sum(len(chunk["broken"]) for chunk in self.chunks)


def of_folder(folder: StatesFolder) -> Extraction:
    """Return what a folder of states holds so far."""
    chunks = (folder.facts(number) for number in folder.finished())
    return Extraction(folder.path, folder.manifest, tuple(facts for facts in chunks if facts))


def open_extraction(folder: str | Path) -> Extraction:
    """Return the states that `extract` wrote into a folder, finished or not.

    Raises `LayerscopeError` where it holds none.

    >>> _ = layerscope.extract("minilm", "reviews.csv", 6, out="states", progress=False)
    >>> layerscope.open_extraction("states")
    Extraction('states': layer 6 of all-MiniLM-L6-v2, 24 samples of reviews)
    """
    return of_folder(StatesFolder(on_this_machine(folder)))
