"""How near the predictions of each layer are to the model's own, read plainly and through translators, as shown."""

import pandas as pd

from layerscope.show.document import Cell, Column, Section, Table, row
from layerscope.show.numbers import chance, error
from layerscope.show.plots import Axis, Chart, Series, Tone

LEAD = (
    "The divergence (Kullback-Leibler, in nats) of each layer's predictions from the model's own, which the last layer "
    "gives, and how often their most probable tokens agree. Tuned: a layer's states go through its translator first "
    "(Belrose et al. 2023, Eliciting Latent Predictions from Transformers with the Tuned Lens)."
)
LEGEND = "change: tuned minus plain; ±: one standard error, of samples drawn anew. agree: on the likeliest token."
TITLES = ("layer", "KL plain", "KL tuned", "change", "agree plain", "agree tuned")


def verdict(divergence: pd.DataFrame) -> str:
    """Return in a sentence what translators change."""
    nearer = int((divergence["kl_tuned"] < divergence["kl_plain"]).sum())
    mean = divergence.mean()
    return (
        f"Translated, {nearer} of the {len(divergence)} layers before the last come nearer to the model's own "
        f"predictions: KL {mean['kl_tuned']:.2f} nats on average, plain {mean['kl_plain']:.2f}; agreement "
        f"{chance(mean['agreement_tuned'])}, plain {chance(mean['agreement_plain'])}"
    )


def table(divergence: pd.DataFrame) -> Table:
    """Return a row for each layer before the last."""
    rows = tuple(
        row(
            Cell(str(layer), value=layer),
            *(Cell(f"{value:.3f}", value=value) for value in (plain, tuned)),
            Cell(f"{tuned - plain:+.3f}", error(stderr), value=tuned - plain),
            *(Cell(chance(value), value=value) for value in agreement),
        )
        for layer, plain, tuned, *agreement, stderr, _ in divergence.itertuples(index=False)
    )
    title = f"Divergence and agreement by layer (of {divergence['n'].max():,} predictions)"
    return Table(title, tuple(map(Column, TITLES)), rows, (LEGEND,), name="tuned-lens")


def section(divergence: pd.DataFrame, depth: int) -> Section:
    """Return the divergences by both lenses as curves, and the table."""
    tones: dict[str, Tone] = {"plain": "rival", "tuned": "own"}
    layers, note = tuple(divergence["layer"].astype(float)), f"N: {divergence['n'].max():,}"
    lines = (
        Series(lens, layers, tuple(divergence[f"kl_{lens}"]), tone=tone, note=note)
        for lens, tone in tones.items()
    )
    chart = Chart(
        title="Divergence from the model's own predictions",
        name="lens_divergence",
        summary=verdict(divergence),
        unit="nats",
        x=Axis("layer", whole=True, depth=depth),
        y=Axis("KL (nats)", log=bool(divergence["kl_tuned"].min() > 0)),
        series=tuple(lines),
    )
    return Section(
        "tuned",
        "How near each layer is to the model's own predictions",
        LEAD,
        (chart, table(divergence)),
    )
