"""How near the predictions of each layer are to the model's own, read plainly and through translators, as shown."""

import pandas as pd

from layerscope.show.document import Column, Table

TITLE = "How near each layer is to the model's own predictions"
LEAD = (
    "The divergence (Kullback-Leibler, in nats) of each layer's predictions from the model's own, which the last layer "
    "gives. Tuned: a layer's states go through its translator first (Belrose et al. 2023, Eliciting Latent Predictions "
    "from Transformers with the Tuned Lens)."
)


def verdict(divergence: pd.DataFrame) -> str:
    """Return in a sentence what translators change."""
    nearer = int((divergence["kl_tuned"] < divergence["kl_plain"]).sum())
    mean = divergence.mean()
    return (
        f"Translated, {nearer} of the {len(divergence)} layers before the last come nearer to the model's own "
        f"predictions: KL {mean['kl_tuned']:.2f} nats on average, plain {mean['kl_plain']:.2f}"
    )


def table(divergence: pd.DataFrame) -> Table:
    """Return a row for each layer before the last."""
    columns = [
        Column("layer", field="layer"),
        Column("KL plain", field="kl_plain", form="{:.3f}".format),
        Column("KL tuned", field="kl_tuned", form="{:.3f}".format),
    ]
    title = f"Divergence by layer (of {divergence['n'].max():,} predictions)"
    return Table.of(divergence, columns, title, name="tuned-lens")
