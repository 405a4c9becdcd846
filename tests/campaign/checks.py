"""One model through the verbs, each answer compared with what plain hooks and transformers alone say of the model."""

import json
from contextlib import suppress
from types import SimpleNamespace

import torch
from campaign.feeding import feed, fitting, run, samples
from tiny import tokenizer
from torch import Tensor

import layerscope
from layerscope.models.modality import modality_of

CLOSE = 2e-4
METRICS = "effective_rank,curvature,prompt_entropy"


class Examination:
    """A model, and what is known of it before layerscope sees it."""

    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        self.processor = tokenizer(special=True)
        self.modality = modality_of(model)
        self.found = []

    def inspect(self):
        self.found = layerscope.inspect(self.model, processor=self.processor)
        for part in self.found:
            sample = samples(part.modality, self.model, 1)[0]
            states(self.model, part.blocks, feed(self.model, part.modality, sample))
            assert_complete(
                self.model, part.blocks, feed(self.model, part.modality, sample)
            )

    def profile(self):
        for number, part in enumerate(self._parts()):
            given = samples(part.modality, self.model, 4)
            result = layerscope.profile(
                self.model,
                given,
                **self._named(part),
                metrics=METRICS,
                pooling="mean",
                out=self.folder / f"run-{number}",
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

    def lens(self):
        part = self._parts()[0]
        given = samples(part.modality, self.model)
        self.reading = layerscope.lens(
            self.model,
            data=given,
            **self._named(part),
            samples=len(given),
            top=3,
        )
        for name, sample in zip(self.reading.samples, given, strict=False):
            logits = own_logits(self.model, feed(self.model, part.modality, sample))
            assert_reads(
                self.reading, name, self.reading.depth, logits, "lens at the last layer"
            )

    def truncate(self):
        part = self._parts()[0]
        layer = max(1, part.depth - 1)
        out = layerscope.truncate(
            self.model,
            layer,
            self.folder / "cut",
            **self._named(part),
        )
        config = json.loads((out / "config.json").read_text())
        kind = type(self.model)
        if config["architectures"] != [kind.__name__]:
            return f"ok (as {config['architectures'][0]})"
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

    def _named(self, part):
        """Return the options that name a part and what it reads with."""
        named = part.part if len(self.found) > 1 else None
        return {"processor": self.processor, "part": named}

    def _parts(self):
        """What was found; nothing where the model was refused, so that a verb must refuse it as well."""
        if self.found:
            return self.found[:2]
        return [SimpleNamespace(part=None, depth=2, modality=self.modality, blocks=())]


def close(one, two, what):
    assert one.shape == two.shape, (
        f"{what}: shape {tuple(one.shape)} for {tuple(two.shape)}"
    )
    if not bool(torch.isfinite(two).all()) and not bool(torch.isfinite(one).all()):
        return
    away = float(
        (one.float() - two.float()).norm() / two.float().norm().clamp_min(1e-6)
    )
    assert away <= CLOSE, f"{what}: {away:.1e} away"


def same(one, two):
    """Return whether two states are equal, also where a model of random weights gives NaN."""
    return torch.equal(one.nan_to_num(), two.nan_to_num())


def own_logits(model, given):
    output = run(model, given)
    logits = getattr(output, "logits", None)
    assert isinstance(logits, Tensor), "a lens for a model without logits"
    return logits.float()


def assert_reads(reading, sample, layer, logits, what):
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


def first(value):
    if isinstance(value, Tensor):
        return value if value.is_floating_point() and value.ndim > 1 else None
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return next((t for t in map(first, value) if t is not None), None)
    return None


def watched(model, paths, given):
    """Return path, state read and state given of every call of these modules."""
    seen = []

    def hook(path):
        def keep(_, args, kwargs, output):
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
def tower(model, paths, given):
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


def states(model, blocks, given):
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


def assert_complete(model, blocks, given):
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


def pooled(part, sample, state):
    """Return the mean of a sample's own tokens, with what the tokenizer puts around them."""
    if state.ndim == 3 and part.modality == "text":
        state = state[:, : len(sample.split()) + 2]
    return state.reshape(-1, state.shape[-1]).mean(0)
