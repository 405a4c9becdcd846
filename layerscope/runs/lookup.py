"""One metric out of a run's long frame: by name, variant, pooling and site, with one line where there is none."""

from collections.abc import Collection, Sequence

import pandas as pd

from layerscope.core import LayerscopeError


def need(
    what: str, name: object, available: Collection[object], where: str = "in this run"
) -> None:
    """Raise `LayerscopeError` where a run, or a metric of it, has no layer, site, pooling or step of a name."""
    if name not in available:
        has = ", ".join(map(str, available)) or "none"
        raise LayerscopeError(f"{what} {name!r} is not {where}: it has {has}")


def chosen(
    rows: pd.DataFrame, column: str, wanted: str | None, default: str | None = None
) -> pd.DataFrame:
    """Return the rows of one variant, pooling or site: the one wanted, else the default or the first there is."""
    values = list(rows[column].dropna().unique())
    if wanted is None:
        if not values:
            return rows
        wanted = values[0]
        if default in values:
            wanted = default
    need(column, wanted, values, f"there for {rows['metric'].iloc[0]}")
    return rows[rows[column] == wanted]


def square(
    rows: pd.DataFrame, site: str | None, layers: Sequence[int], first: str
) -> pd.DataFrame:
    """Return a metric of every two layers, the one after the final norm called `final`.

    `first` is the site of the others.
    """
    if site is not None:
        rows = chosen(chosen(rows, "site", site), "site_b", site)
    for name in ("layer", "layer_b"):
        sites = rows[name.replace("layer", "site")]
        names = rows[name].astype(object).where(sites == first, "final")
        rows = rows.assign(**{name: names})
    square = rows.pivot(index="layer", columns="layer_b", values="value")
    order = pd.Index([*layers, "final"], dtype=object)
    square = square.reindex(
        index=order.intersection(square.index, sort=False),
        columns=order.intersection(square.columns, sort=False),
    )
    return square.rename_axis(index="a", columns="b")
