"""What differs from sample to sample: box plots by layer, and entropy along the sequence with its spread."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from layerscope.runs.curves import KINDS, TABLE_ALONE, Curve, value_text
from layerscope.runs.registry import (
    about,
    capital,
    file_name,
    is_scalar,
    meaning_of,
    named,
    parse_key,
    scale,
)
from layerscope.show.boxes import WHISKERS, box
from layerscope.show.plain import pooling_name
from layerscope.show.plots import Axis, Box, Boxes, Chart, HeatMap, Series

if TYPE_CHECKING:
    from layerscope.runs.run import Run

BINS = 30
"""Bars of a histogram."""
ALONE = "Each sample by itself"


def box_plots(run: "Run", table: str) -> Iterator[Boxes]:
    """Yield box plots by layer of each sample's values in a table, for each metric, variant and pooling."""
    low, high = WHISKERS
    for (metric, variant, pooling), drawn in boxes(run, table).items():
        to_last = metric == "cosine_to_last"
        title = f"{named('cosine_similarity' if to_last else metric, variant)}{' to the last layer' if to_last else ''}"
        most = max(drawn, key=lambda box: box.negative)
        below = (
            f"{most.negative:,} of {most.n:,} samples are below 0 at layer {most.name}, the most"
        )
        yield Boxes(
            title=f"Each sample's {title}",
            summary=f"Boxes by layer: quartiles, whiskers from {low} to {high} %, dots for samples beyond.",
            note=below if most.negative else "",
            about=meaning_of("cosine_similarity" if to_last else metric, run.at()),
            group=ALONE,
            choice=pooling_name(pooling),
            name=f"samples-{file_name(metric, variant)}"
            if not to_last
            else file_name(metric, variant),
            x="layer",
            y=" ".join(
                filter(None, (title.removesuffix(" to the last layer"), about(metric).unit))
            ),
            boxes=tuple(drawn),
            each="sample",
            legend=("median of the samples", "quarter to three quarters", f"{low} % to {high} %"),
        )


def boxes(run: "Run", table: str) -> dict[tuple[str, str | None, str], list[Box]]:
    """Return each sample's values in a table as a box for each layer but the last after its norm.

    Keys are metric, variant and pooling; there is none without the table.
    """
    if not run.folder.has_table(table):
        return {}
    names = run.folder.plan.drop_duplicates("sample").set_index("sample")["name"]
    values = run.folder.read_table(table)
    last = (
        (values["metric"] == "cosine_to_last")
        & (values["layer"] == run.depth)
        & (values["site"] == run.final)
    )
    kept = values[values["value"].notna() & ~last & ~values["metric"].isin(TABLE_ALONE)]
    found: dict[tuple[str, str | None, str], list[Box]] = {}
    for (metric, variant, pooling, layer), rows in kept.groupby(
        ["metric", "variant", "pooling", "layer"], dropna=False
    ):
        key = (str(metric), variant if isinstance(variant, str) else None, str(pooling))
        own = box(
            str(int(layer)), rows["value"].to_numpy() * scale(metric), names.loc[rows["sample"]]
        )
        found.setdefault(key, []).append(own)
    return found


def quality(run: "Run", known: Sequence[Curve]) -> Iterator[Boxes | Chart | HeatMap]:
    """Yield what stands below the curves of quality."""
    yield from along(run, known)
    yield from histograms(run)
    yield from box_plots(run, "samples.path")


def histograms(run: "Run") -> Iterator[HeatMap]:
    """Yield the distribution of the samples' prompt entropies at each layer: two bands are two kinds of samples."""
    found: dict[str, list[Tensor]] = {}
    for shard in run.folder.shards if not run.is_history else ():
        with run.folder.shard(shard) as file:
            for key in filter(is_scalar, file.keys()):
                metric, variant, site = parse_key(key)
                if metric == "prompt_entropy" and site == "raw" and "prefix=" not in str(variant):
                    found.setdefault(str(variant), []).append(file.get_tensor(key))
    table = run.at()
    for variant, parts in found.items():
        layers = [own[np.isfinite(own)] for own in torch.cat(parts, 1).double().numpy()]
        edges = np.histogram_bin_edges(np.concatenate(layers), BINS)
        shares = np.stack(
            [100 * np.histogram(own, edges)[0] / max(1, len(own)) for own in layers], 1
        )
        title, unit = named("prompt_entropy", variant), about("prompt_entropy").unit
        yield HeatMap(
            title=f"Each sample's {title}",
            variant=variant.replace(",", ", "),
            summary=f"A histogram for each layer of {len(layers[0]):,} samples: two bands are two kinds of samples.",
            about=meaning_of("prompt_entropy", table),
            unit="% of the samples",
            group=ALONE,
            name=f"histogram-{file_name('prompt_entropy', variant)}",
            rows=tuple(f"{middle:.2f}" for middle in (edges[1:] + edges[:-1]) / 2),
            columns=tuple(map(str, run.layers)),
            values=tuple(tuple(line) for line in shares.tolist()),
            high=None,
            across="layer",
            down=f"{title} ({unit})",
            upward=True,
            depth=run.depth,
        )


def along(run: "Run", known: Sequence[Curve]) -> Iterator[Chart]:
    """Yield what is measured of each sample's first tokens by their number, at five layers, and its spread."""
    found: dict[tuple[str, str], dict[int, Curve]] = {}
    for curve in known:
        variant, _, prefix = (curve.variant or "").partition(",prefix=")
        if prefix:
            found.setdefault((curve.metric, variant), {})[int(prefix)] = curve
    for (metric, variant), curves in found.items():
        lines, first = [], next(iter(curves.values()))
        for i, layer in enumerate(
            dict.fromkeys(
                run.layers[round(quarter * (len(run.layers) - 1) / 4)] for quarter in range(5)
            )
        ):
            values, errors = zip(*(curve.at(layer) for curve in curves.values()), strict=True)
            counts = [curve.n for curve in curves.values()]
            spread = tuple(error * math.sqrt(n) for error, n in zip(errors, counts, strict=True))
            x = tuple(map(float, curves))
            lines.append(Series(f"layer {layer}", x, values, errors=spread, tone=i))
        yield Chart(
            title=f"{capital(first.title)} along the sequence",
            variant=variant,
            summary=f"{lines[-1].name}: from {value_text(first, values[0])} to {value_text(first, values[-1])}",
            note="Bands: ± one standard deviation over the samples",
            about=meaning_of(metric, run.at()),
            unit=first.unit,
            group=KINDS.get(about(metric).needs, ""),
            name=f"along-{metric}-{variant}" if len(found) > 1 else f"along-{metric}",
            x=Axis("first tokens of a sample", whole=True),
            y=Axis(f"{first.title} ({first.unit})"),
            series=tuple(lines),
            spread="standard deviation",
        )
