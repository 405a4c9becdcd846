"""How near the predictions of each layer are to the model's own, read plainly and through translators, as shown."""

from typing import Any

import pandas as pd

from layerscope.show.document import Cell, Column, Section, Table
from layerscope.show.numbers import chance, error
from layerscope.show.plots import Axis, Chart, Series

LEAD = (
    "The divergence (Kullback-Leibler, in nats) of each layer's predictions from the model's own, which the last layer "
    "gives, and how often their most probable tokens agree. Tuned: a layer's states go through its translator first "
    "(Belrose et al. 2023, Eliciting Latent Predictions from Transformers with the Tuned Lens)."
)
LEGEND = "change: tuned minus plain; ±: one standard error, of samples drawn anew. agree: on the likeliest token."


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
    columns = [
        Column("layer", field="layer"),
        Column("KL plain", field="kl_plain", form="{:.3f}".format),
        Column("KL tuned", field="kl_tuned", form="{:.3f}".format),
        Column("change", cell=_change),
        Column("agree plain", field="agreement_plain", form=chance),
        Column("agree tuned", field="agreement_tuned", form=chance),
    ]
    title = (
        f"Divergence and agreement by layer (of {divergence['n'].max():,} predictions)"
    )
    return Table.of(divergence, columns, title, legend=(LEGEND,), name="tuned-lens")


def _change(row: Any) -> Cell:
    difference = row["kl_tuned"] - row["kl_plain"]
    return Cell(f"{difference:+.3f}", error(row["stderr"]), difference)


def section(divergence: pd.DataFrame, depth: int) -> Section:
    """Return the divergences by both lenses as curves, and the table."""
    note = f"N: {divergence['n'].max():,}"
    plain = Series.of(divergence, "layer", "kl_plain", "plain", tone="rival", note=note)
    tuned = Series.of(divergence, "layer", "kl_tuned", "tuned", note=note)
    chart = Chart(
        title="Divergence from the model's own predictions",
        name="lens_divergence",
        summary=verdict(divergence),
        unit="nats",
        x=Axis("layer", whole=True, depth=depth),
        y=Axis("KL (nats)", log=bool(divergence["kl_tuned"].min() > 0)),
        series=(plain, tuned),
    )
    title = "How near each layer is to the model's own predictions"
    return Section("tuned", title, LEAD, (chart, table(divergence)))
