"""One model through the verbs, each answer compared with what plain hooks and transformers alone say of the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from campaign.feeding import feed, fitting, run, samples
from tiny import tokenizer
from torch import Tensor, nn

import layerscope
from layerscope.models.modality import modality_of

CLOSE = 2e-4
METRICS = "effective_rank,curvature,prompt_entropy"


class Examination:
    """A model, and what is known of it before layerscope sees it."""

    def __init__(self, model: Any, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.processor = tokenizer(special=True)
        self.modality = modality_of(model)
        self.found: list[Any] = []

    def inspect(self) -> str | None:
        self.found = layerscope.inspect(self.model, processor=self.processor)
        for part in self.found:
            sample = samples(part.modality, self.model, 1)[0]
            states(self.model, part.blocks, feed(self.model, part.modality, sample))
            assert_complete(
                self.model, part.blocks, feed(self.model, part.modality, sample)
            )
        return None

    def profile(self) -> str | None:
        for number, part in enumerate(self._parts()):
            given = samples(part.modality, self.model, 4)
            result = layerscope.profile(
                self.model,
                given,
                **self._named(part),
                metrics=METRICS,
                pooling="mean",
                out=self.folder / f"run-{number}",
                progress=False,
                views=0,
            )
            for row, sample in enumerate(given):
                own = states(
                    self.model, part.blocks, feed(self.model, part.modality, sample)
                )
                for layer, state in enumerate(own):
                    mine = torch.from_numpy(result.pooled(layer, "raw", "mean")[row])
                    mean = pooled(part, sample, state)
                    close(mine, mean, f"profile, sample {row}, layer {layer}")
        return None

    def lens(self) -> str | None:
        part = self._parts()[0]
        given = samples(part.modality, self.model)
        self.reading = layerscope.lens(
            self.model,
            data=given,
            **self._named(part),
            samples=len(given),
            top=3,
            progress=False,
        )
        for name, sample in zip(self.reading.samples, given, strict=False):
            logits = own_logits(self.model, feed(self.model, part.modality, sample))
            assert_reads(
                self.reading, name, self.reading.depth, logits, "lens at the last layer"
            )
        return None

    def truncate(self) -> str | None:
        part = self._parts()[0]
        layer = max(1, part.depth - 1)
        out = layerscope.truncate(
            self.model,
            layer,
            self.folder / "cut",
            **self._named(part),
            progress=False,
        )
        kind, architecture = type(self.model), _architecture(out)
        if architecture != kind.__name__:
            return f"ok (as {architecture})"
        cut = kind.from_pretrained(out).eval()
        for name, sample in enumerate(samples(part.modality, self.model, 3)):
            given = feed(self.model, part.modality, sample)
            whole = states(self.model, part.blocks, given)
            shorter = states(cut, part.blocks[:layer], given)
            for k, (one, two) in enumerate(zip(whole, shorter, strict=False)):
                close(two, one, f"truncated, layer {k}")
            reading = getattr(self, "reading", None)
            if reading is not None and layer < part.depth:
                assert_reads(
                    reading,
                    reading.samples[name],
                    layer,
                    own_logits(cut, given),
                    f"lens at layer {layer}",
                )
        return None

    def _named(self, part: Any) -> dict[str, Any]:
        """Return the options that name a part and what it reads with."""
        named = part.part if len(self.found) > 1 else None
        return {"processor": self.processor, "part": named}

    def _parts(self) -> list[Any]:
        """What was found; nothing where the model was refused, so that a verb must refuse it as well."""
        if self.found:
            return self.found[:2]
        return [SimpleNamespace(part=None, depth=2, modality=self.modality, blocks=())]


def close(one: Tensor, two: Tensor, what: str) -> None:
    assert one.shape == two.shape, (
        f"{what}: shape {tuple(one.shape)} for {tuple(two.shape)}"
    )
    if not bool(torch.isfinite(two).all()) and not bool(torch.isfinite(one).all()):
        return
    away = float(
        (one.float() - two.float()).norm() / two.float().norm().clamp_min(1e-6)
    )
    assert away <= CLOSE, f"{what}: {away:.1e} away"


def same(one: Tensor, two: Tensor) -> bool:
    """Return whether two states are equal, also where a model of random weights gives NaN."""
    return one.shape == two.shape and torch.allclose(
        one, two, rtol=0, atol=0, equal_nan=True
    )


def own_logits(model: Any, given: dict[str, Tensor]) -> Tensor:
    output = run(model, given)
    logits = getattr(output, "logits", None)
    assert isinstance(logits, Tensor), "a lens for a model without logits"
    return logits.float()


def assert_reads(
    reading: Any, sample: str, layer: int, logits: Tensor, what: str
) -> None:
    """Assert that a reading's grid has the likeliest classes of these logits, with their probabilities."""
    rows = reading.grid.query("sample == @sample and layer == @layer and not generated")
    own = logits.reshape(-1, logits.shape[-1]).softmax(-1)
    for row in rows.itertuples():
        position = row.position if len(own) > 1 else 0
        wanted = float(own[int(position), row.id])
        assert abs(wanted - row.probability) <= 1e-4, (
            f"{what}: {row.probability:.5f} for {wanted:.5f}"
        )
        if row.rank == 1:
            assert wanted >= float(own[int(position)].max()) - 1e-4, (
                f"{what}: not the likeliest"
            )


def first(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value if value.is_floating_point() and value.ndim > 1 else None
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return next((t for t in map(first, value) if t is not None), None)
    return None


Seen = list[tuple[str, Tensor, Tensor]]


def watched(
    model: nn.Module, paths: Iterator[str] | list[str], given: dict[str, Tensor]
) -> Seen:
    """Return path, state read and state given of every call of these modules."""
    seen: Seen = []

    def hook(path: str) -> Any:
        def keep(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            before, after = first((*args, *kwargs.values())), first(output)
            if before is not None and after is not None:
                seen.append((path, before.detach().clone(), after.detach().clone()))

        return keep

    entry = tower(model, list(paths), given)
    handles = [
        model.get_submodule(p).register_forward_hook(hook(p), with_kwargs=True)
        for p in dict.fromkeys(paths)
    ]
    try:
        run(entry, given)
    finally:
        for handle in handles:
            handle.remove()
    return seen


@torch.no_grad()
def tower(model: nn.Module, paths: list[str], given: dict[str, Tensor]) -> nn.Module:
    """Return the model, or where it does not run on one modality alone the part above the blocks that does."""
    parts = paths[0].split(".") if paths else []
    above = [
        model,
        *[model.get_submodule(".".join(parts[:end])) for end in range(1, len(parts))],
    ]
    for part in above:
        if part is model or hasattr(part, "main_input_name"):
            with suppress(Exception):
                part(**fitting(part, given))
                return part
    return model


def states(
    model: nn.Module, blocks: tuple[str, ...], given: dict[str, Tensor]
) -> list[Tensor]:
    """Return the states 0 … L at blocks, and assert that each reads what the one before it gave."""
    if not blocks:
        return []
    seen = watched(model, list(blocks), given)[: len(blocks)]
    assert [path for path, _, _ in seen] == list(blocks), (
        f"blocks run as {[p for p, _, _ in seen]}, not {blocks}"
    )
    pairs = list(zip(seen, seen[1:], strict=False))
    chained = all(same(gave, read) for (_, _, gave), (_, read, _) in pairs)
    if not chained and all(
        same(before + gave, read) for (_, before, gave), (_, read, _) in pairs
    ):
        # the model adds by itself
        return [
            *[read for _, read, _ in seen],
            seen[-1][1] + seen[-1][2],
        ]
    for (_, _, gave), (path, read, _) in pairs:
        assert same(gave, read), f"{path} does not read what the block before it gives"
    return [seen[0][1], *[gave for _, _, gave in seen]]


def assert_complete(
    model: nn.Module, blocks: tuple[str, ...], given: dict[str, Tensor]
) -> None:
    """Assert that no sibling of the blocks that runs on such states is left out."""
    homes = {path.rpartition(".")[0] for path in blocks}
    beside = [
        f"{home}.{name}".lstrip(".")
        for home in homes
        for name, _ in model.get_submodule(home).named_children()
    ]
    listed = [path for path in beside if path.rpartition(".")[2].isdigit()]
    calls = watched(model, listed, given)
    shapes = {read.shape for path, read, _ in calls if path in blocks}
    seen = {
        path
        for path, read, gave in calls
        if read.shape == gave.shape and read.shape in shapes
    }
    assert seen <= set(blocks), (
        f"{sorted(seen - set(blocks))} run beside the blocks and are left out"
    )


def pooled(part: Any, sample: Any, state: Tensor) -> Tensor:
    """Return the mean of a sample's own tokens, with what the tokenizer puts around them."""
    if state.ndim == 3 and part.modality == "text":
        state = state[:, : len(sample.split()) + 2]
    return state.reshape(-1, state.shape[-1]).mean(0)


def _architecture(folder: Path) -> str:
    config = json.loads((folder / "config.json").read_text())
    return str(config["architectures"][0])
