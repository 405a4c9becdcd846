"""What is to be truncated: a model or the model of a run, opened, and what is known of it beside its weights."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.core.hub import CARD
from layerscope.models import (
    LayeredModel,
    Loaded,
    LoadOptions,
    Override,
    find_layers,
    load,
)
from layerscope.models.checks import EMBEDDED, embedded, hub_files
from layerscope.models.encode import modalities_of
from layerscope.models.inspection import made_up_samples
from layerscope.models.of_run import check_unchanged, model_of
from layerscope.models.weights import (
    HEADS,
    ExitHeads,
    exit_heads,
    is_offloaded,
    is_quantised,
)
from layerscope.probes.mixes import Weights
from layerscope.runs import Run, open_run
from layerscope.runs.history import DEPTHS, depths
from layerscope.runs.opening import run_of

EMBEDDED_HUB = "sentence-transformers/all-MiniLM-L6-v2"
TERMS = ("LICENSE*", "LICENCE*", "NOTICE*", "COPYING*")
"""Files that go with every copy of the weights."""
KEPT = (
    "license",
    "license_name",
    "license_link",
    "language",
    "tags",
    "datasets",
    "pipeline_tag",
    "base_model",
)
"""What a card says of the model that holds at every depth; its results do not."""
HISTORY = "history"
QUANTISED = "{} is quantised: truncate the model it was made from and quantise that"
Whence = tuple[str | None, Path | None]
"""A model's name on the hub, and the folder of its files."""
Scores = tuple[Mapping[int, tuple[float, float]], dict[str, Any]]
"""The score of every layer with its standard error; and its name (`scored`), its `data` and how many `samples`."""


@dataclass(frozen=True)
class Source:
    """A model whose layers are found, its made-up samples, the run it came with, its name on the `hub` and its folder.

    `pooling` is the one that was asked for, `scored` the one of the scores; `heads` are those of
    layers that have one of their own, `trained` what `train` measured of every layer.
    """

    model: LayeredModel
    samples: Sequence[Any]
    run: Run | None = None
    hub: str | None = None
    beside: Path | None = None
    pooling: str | None = None
    scored: str | None = None
    heads: ExitHeads | None = None
    trained: Scores = ({}, {})
    mix: Weights | None = None
    """The weights of the layers that the truncated model is to mix; None where it ends at one."""
    dim: int | None = None
    """How many of the first dimensions its vectors keep; None is all."""
    tokens: int | None = None
    """Mean length of the data that its layers were judged on, in tokens; None where it is unknown."""

    @property
    def module(self) -> Any:
        """The transformers model itself."""
        return self.model.module

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return next((p.dtype for p in self.module.parameters()), torch.float32)

    @property
    def pooled_by(self) -> str:
        """The pooling that goes with a plain model: the one asked for, that of the scores, the run's, or its own."""
        of_run = None if self.run is None else str(self.run.info["pooling"][0])
        return self.pooling or self.scored or of_run or self.model.pooling[0]

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.loaded.name

    @property
    def unit(self) -> str:
        """What one sample is called."""
        return {"audio": "sound"}.get(
            self.model.encoder.modality, self.model.encoder.modality
        )

    def scores(self, format: str) -> Scores:
        """Return the scores of layers as they are written: of states by a run, of the trained head by a training."""
        if self.mix is not None or self.dim is not None:
            return {}, {}
        if self.run is None:
            return ({}, {}) if format == "sentence-transformers" else self.trained
        table = self.run.table()
        final = (table["metric"] == "linear_probe") & (table["site"] == self.run.final)
        rows = table[final & (table["pooling"] == self.pooled_by)]
        return _scores("linear probe", self.run, rows.drop_duplicates("layer"))


def open_source(
    model_or_run: Any, processor: Any, override: Override, options: LoadOptions
) -> Source:
    """Open a model, or that of a run as it was profiled, in its own dtype, or the one of the options.

    Raises `LayerscopeError` for what cannot be loaded, and for models that transformers alone could
    not load again.
    """
    run = run_of(model_or_run)
    if run is not None:
        model_or_run, override, options = model_of(run, override, options)
    named = isinstance(model_or_run, (str, Path))
    loaded = load(model_or_run, replace(options, as_stored=True), processor)
    _check_module(loaded)
    weight = next(loaded.module.parameters(), None)
    dtype = (
        options.dtype if weight is None else str(weight.dtype).removeprefix("torch.")
    )
    # the weights of an object are the caller's, which truncation shares
    if not named and options.dtype not in ("auto", dtype):
        raise LayerscopeError(
            f"{loaded.name} is loaded in {dtype}: convert it (.to(torch.{options.dtype})), or give its name"
        )
    model, samples = _found(loaded, override)
    if run is not None:
        check_unchanged(run, model, as_stored=options.dtype == "auto")
    path = (
        str(model_or_run)
        if named
        else str(getattr(loaded.module.config, "_name_or_path", ""))
    )
    hub, beside = whereabouts(path, loaded.revision)
    source = Source(
        model,
        samples,
        run,
        hub,
        beside,
        tokens=None if run is None else mean_length(run),
    )
    if beside is None or not named:  # the weights of an object may be others by now
        return source
    heads = exit_heads(beside, loaded.module)
    return replace(source, heads=heads, trained=_trained(beside, model.stack.depth))


def _found(loaded: Loaded, override: Override) -> tuple[LayeredModel, Sequence[Any]]:
    """Find the layers by samples that the part reads: of two towers one reads texts, the other images or sounds."""
    errors: list[LayerscopeError] = []
    for modality in modalities_of(loaded.module):
        try:
            read, samples = made_up_samples(loaded, modality)
            return find_layers(loaded, read, samples, override), samples
        except LayerscopeError as error:
            errors.append(error)
    raise errors[0]


def _check_module(loaded: Loaded) -> None:
    from transformers import PretrainedConfig

    module, name = loaded.module, loaded.name
    home, kind = type(module).__module__, type(module).__name__
    adapted = any(
        type(child).__module__.startswith("peft.") for child in module.modules()
    )
    plain = not isinstance(getattr(module, "config", None), PretrainedConfig)
    foreign = not home.startswith("transformers.")
    refusals = {
        f"{kind} is a plain torch module: no config says its depth, so no standard checkpoint can "
        "hold it; give a transformers model or a SentenceTransformer": plain,
        f"some weights of {name} are offloaded: load it whole, without a device map": is_offloaded(
            module
        ),
        QUANTISED.format(name): is_quantised(module),
        f"{name} has an adapter in its layers: merge it (merge_and_unload), save that and "
        "truncate it": adapted,
        f"{kind} is not one of transformers' own classes ({home}), and a truncated model must "
        "load without other code": foreign,
    }
    for refusal, applies in refusals.items():
        if applies:
            raise LayerscopeError(refusal)


def _trained(folder: Path, depth: int) -> Scores:
    """Return what `train` measured of a model of this depth in its folder, nothing where it did not make it."""
    if not (folder / HISTORY / DEPTHS).is_file():
        return {}, {}
    run = open_run(folder / HISTORY)
    table = depths(run)
    rows = pd.DataFrame() if table is None else table[table["depth"] == depth]
    if rows.empty:
        return {}, {}
    return _scores(str(rows["metric"].iloc[0]).removeprefix("layer_"), run, rows)


def _scores(name: str, run: Run, rows: pd.DataFrame) -> Scores:
    pairs, data = zip(rows["value"], rows["stderr"], strict=True), run.info["data"]
    by_layer = dict(zip(rows["layer"].astype(int), pairs, strict=True))
    return by_layer, {"scored": name, "data": data["name"], "samples": data["samples"]}


def mean_length(run: Run) -> int | None:
    """Return the mean number of tokens of a run's texts, None for what has no tokens."""
    plan = run.folder.plan
    lengths = plan.loc[plan["view"] == 0, "length"]
    if run.info["data"]["modality"] != "text" or not len(lengths):
        return None
    return max(1, round(float(lengths.mean())))


def whereabouts(model: str, revision: str | None) -> Whence:
    """Return a model's name on the hub and the folder of its files (of the hub's: card, terms, heads), None without."""
    if model == EMBEDDED:
        return EMBEDDED_HUB, Path(embedded(model))
    folder = Path(model).expanduser()
    if not model or folder.exists():
        return None, folder if model and folder.is_dir() else None
    files = hub_files(model, revision, ("config.json", CARD, HEADS, *TERMS))
    return (None, None) if files is None else (model, files)


def copy_terms(beside: Path | None, folder: Path) -> None:
    """Copy the licence and the notices that lie beside a model."""
    if beside is None:
        return
    for path in chain.from_iterable(map(beside.glob, TERMS)):
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
