"""A finished run, opened from its folder.

Everything is read when it is first asked for: the manifest at once, tables as one long frame, and of
the states only what is looked at, layer by layer. Nothing here needs the model.
"""

import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.core import LayerscopeError, near, own_folder
from layerscope.core.hub import page_folder
from layerscope.core.saved import typed
from layerscope.runs.folder import COLUMNS, RunFolder
from layerscope.runs.lookup import chosen, need, square
from layerscope.runs.registry import is_scalar, parse_key
from layerscope.runs.states import (
    OWN,
    PROJECTED,
    Column,
    StoredStates,
    gather,
    sublayers_in,
)
from layerscope.show import write_page
from layerscope.show.pushed import Saved


class Run(Saved):
    """What `profile` returns and `open_run` opens: every metric at every layer, and the pooled states.

    >>> run = layerscope.open_run("runs/minilm")
    >>> run.depth
    6
    >>> run.metric("effective_rank").round(1).tolist()
    [7.6, 8.6, 8.5, 9.5, 10.6, 10.8, 13.7]
    >>> run.pooled(3).shape
    (24, 384)
    """

    DOCUMENT = "layerscope.runs.document"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.folder = RunFolder(self.path)
        self.info = self.folder.manifest

    def __repr__(self) -> str:
        model = self.info["model"]
        data = self.info["data"]
        return f"Run({str(self.path)!r}: {model['name']}, {self.depth} layers, {data['name']})"

    @property
    def depth(self) -> int:
        """L, the number of block executions."""
        return int(self.info["model"]["depth"])

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that were measured: 0..L, of a history 1..L; of states that were read those that are there."""
        first = 0 if self.info["model"]["sites"][0] == "raw" else 1
        return tuple(self.info["model"].get("layers") or range(first, self.depth + 1))

    @property
    def final(self) -> str:
        """The site that is, at layer L, the model's last layer."""
        return str(self.info["model"]["sites"][-1])

    @property
    def columns(self) -> tuple[Column, ...]:
        """Layers 0..L raw, and the final one where a norm follows them; of a history 1..L at its one site."""
        first = self.info["model"]["sites"][0]
        columns = [Column(first, layer) for layer in self.layers]
        if self.final != first:
            columns.append(Column(self.final, self.depth))
        return tuple(columns)

    @property
    def sublayers(self) -> tuple[Column, ...]:
        """What is inside the blocks, site by site.

        It is empty where the run was made without sub-layers.
        """
        return tuple(
            Column(site, layer)
            for site, layers in sublayers_in(self.info).items()
            for layer in layers
        )

    @property
    def projected(self) -> tuple[Column, ...]:
        """Layers 0..L in the space that two towers share; empty where the model has none."""
        if not self.info["model"].get("projected"):
            return ()
        return tuple(Column(PROJECTED, layer) for layer in range(self.depth + 1))

    def layers_at(self, site: str) -> tuple[int, ...]:
        """Return the layers at which a metric of tokens is measured: all raw ones, the last after the norm."""
        if site == "normed":
            return self.layers[-1:]
        return tuple(sublayers_in(self.info).get(site, self.layers))

    @property
    def has_model(self) -> bool:
        """Whether a model was run; not where states were read that another engine wrote."""
        return "states_from" not in self.info["model"]

    @property
    def names_model(self) -> bool:
        """Whether the run names a model that can be opened again; not where that was an object in memory."""
        model = self.info["model"]
        return self.has_model and model["source"] not in (
            model["class"],
            "SentenceTransformer",
            "CrossEncoder",
        )

    def model_source(self) -> str:
        """Return where the run's model is.

        Raises `LayerscopeError` for a model that was in memory, and for the history of a training.
        """
        if self.is_history:
            self.need_states()
        run = f"run {str(self.path)!r}"
        if not self.has_model:
            states = self.info["model"]["states_from"]
            raise LayerscopeError(
                f"{run} was made from states of {states!r}, without a model: give the model itself"
            )
        source = str(self.info["model"]["source"])
        if not self.names_model:
            raise LayerscopeError(
                f"{run} was made from a model in memory ({source}): give the model itself"
            )
        return source

    @property
    def is_history(self) -> bool:
        """Whether this is the history of a training, which has only its rows."""
        return not self.info["pooling"]

    def need_states(self) -> None:
        """Raise `LayerscopeError` where a run has no states."""
        if self.is_history:
            raise LayerscopeError(
                f"{str(self.path)!r} is the history of a training and holds no states: profile the trained model, and "
                "give that run"
            )
        if self.info["options"].get("keep_states") == "none":
            raise LayerscopeError(
                f"{str(self.path)!r} was made without keeping states: profile again with `keep_states='sample:1000'`, "
                "and give that run"
            )

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of a training that were measured, in order; none of a run of `profile`."""
        steps = self._long["step"].dropna().unique()
        return tuple(map(int, np.sort(steps)))

    def table(self) -> pd.DataFrame:
        """Return the long frame of every metric: see `COLUMNS` for its columns.

        Times are no part of it.
        """
        return self._long.copy()

    @cached_property
    def _long(self) -> pd.DataFrame:
        """The long frame, read once."""
        frames = [
            typed(self.folder.read_table(name), COLUMNS)
            for name in self.folder.tables()
            if not name.startswith("samples.")
        ]
        if not frames:
            raise LayerscopeError(
                f"run {str(self.path)!r} has no table yet: run the same command to resume"
            )
        return pd.concat(frames, ignore_index=True)

    def at(self, step: int | None = None) -> pd.DataFrame:
        """Return the long frame at one step of a training, by default the last; of a run without steps, all of it."""
        steps = self.steps
        if step is None:
            if not steps:
                return self.table()
            step = steps[-1]
        need("step", step, steps)
        return self._long[self._long["step"] == step]

    def metric(
        self,
        name: str,
        *,
        site: str | None = None,
        pooling: str | None = None,
        variant: str | None = None,
        step: int | None = None,
    ) -> pd.Series | pd.DataFrame:
        """Return one metric: a Series by layer, or for pairs of layers a square frame, of a history one column of it.

        `site`, `pooling` and `variant` choose among several; the first of the table is the default
        (`raw` where the metric is there at `raw`). `step` is one of a training, by default the
        last. An unknown name is an error that lists the metrics of the run.
        """
        table = self.at(step)
        rows = table[table["metric"] == name]
        if rows.empty:
            names = list(table["metric"].unique())
            raise LayerscopeError(
                f"metric {name!r} is not in this run{near(name, names)}: it has {', '.join(names)}"
            )
        if site == PROJECTED and self.projected:
            pooling = pooling or OWN
        rows = chosen(chosen(rows, "variant", variant), "pooling", pooling)
        if rows["layer_b"].notna().any():
            return square(rows, site, self.layers, self.columns[0].site)
        rows = chosen(rows, "site", site, "raw")
        layers = pd.Index(rows["layer"].astype(int), name="layer")
        return pd.Series(rows["value"].to_numpy(), index=layers, name=name)

    def pooled(
        self, layer: int, site: str = "raw", pooling: str | None = None
    ) -> NDArray[np.float32]:
        """Return the pooled states [N, D] of one layer in the order of the samples, float32.

        At the site "projected" they are [N, P], the model's own vectors, whatever the pooling. A
        sample that gave NaN or infinity keeps its row as it is; one without a token has none.
        """
        if not -self.depth - 1 <= layer <= self.depth:
            raise LayerscopeError(
                f"layer {layer} does not exist: this model has layers 0..{self.depth}"
            )
        self.need_states()
        layer %= self.depth + 1
        if site == "final":
            site = self.final
            layer = self.depth
        sites = self.info["model"]["sites"]
        inside = sublayers_in(self.info)
        poolings = self.info["pooling"]
        need("layer", layer, self.layers)
        if site == PROJECTED and self.projected:
            poolings = [OWN]
        else:
            need("site", site, [*sites, *inside])
        if site in inside and layer not in inside[site]:
            raise LayerscopeError(
                f"layer {layer} has no {site}: layers {', '.join(map(str, inside[site]))} have it"
            )
        pooling = pooling or poolings[0]
        if site in sites:
            poolings = [*poolings, *self.info["pair_pooling"]]
        need("pooling", pooling, poolings)
        order = self.folder.originals["sample"].sort_values().index
        states = gather(self.folder, pooling, [Column(site, layer)], order)
        return states[:, 0].numpy()

    def as_dict(self) -> dict[str, Any]:
        """Return answer, model, data, depth, pooling, path, rows, what stands out, for JSON.

        No number is null.
        """
        return dict(self._shown_by().as_dict(self))

    def report(self, path: str | Path | None = None) -> Path:
        """Write the run as one HTML page that opens offline, by default `report.html` in its folder."""
        from layerscope.show import render

        target = path or page_folder(self.path) / "report.html"
        return write_page(target, lambda: render([self.document()]))

    def save(self, path: str | Path) -> Path:
        """Copy the run's folder to another, new or empty, and return that."""
        return Path(shutil.copytree(self.path, own_folder(path), dirs_exist_ok=True))

    def _pushed(self, room: Path) -> tuple[Path, list[str]]:
        # states are large: no copy is made of them
        return self.path, self.folder.files()

    def states(
        self, pooling: str, columns: tuple[Column, ...], rows: NDArray[Any]
    ) -> StoredStates:
        """Return rows of the plan as a lazy array [N, layers, D], of the projected site [N, layers, P]."""
        about = self.info["model"]
        if columns[0].site == PROJECTED:
            about = about["projected"]
        return StoredStates(self.folder, pooling, columns, rows, int(about["width"]))

    def samples(self) -> pd.DataFrame:
        """Return the per-sample values.

        Columns: sample, name, label (where known), length, metric, variant, layer, site, value.
        """
        alone = self.folder.originals.filter(["sample", "name", "label", "length"])
        frames = []
        for key in filter(is_scalar, self.folder.sample_keys()):
            metric, variant, site = parse_key(key)
            values = self.folder.sample_values(key)
            layers = self.layers_at(site)
            frame = alone.loc[alone.index.repeat(len(layers))]
            frame = frame.assign(
                metric=metric,
                variant=variant,
                layer=np.tile(layers, len(alone)),
                site=site,
                value=values.T.reshape(-1).numpy(),
            )
            frames.append(frame)
        for name in self.folder.tables():
            if name.startswith("samples."):
                table = self.folder.read_table(name)
                frames.append(alone.merge(table, on="sample"))
        if not frames:
            return alone
        return pd.concat(frames, ignore_index=True)
