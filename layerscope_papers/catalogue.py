"""All recipes: those in the modules of `tracing` and `layers`."""

from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from layerscope.core import LayerscopeError, choices
from layerscope.show import Column, Document, Shown, Table, row
from layerscope_papers.language import yours
from layerscope_papers.options import YOURS, Scale
from layerscope_papers.recipe import WRITTEN, Recipe

PAPERS = ("tracing", "layers")
UNRUN = {name: about for name, about in WRITTEN.items() if "claims" not in about}
"""By name: the claim as `title`, and what a recipe for it `needs`."""


@cache
def recipes() -> dict[str, Recipe]:
    """Return all recipes by name, in the order of the papers.

    >>> "T-tab1" in recipes()
    True
    """
    by_name: dict[str, Recipe] = {}
    for paper in PAPERS:
        package = import_module(f"layerscope_papers.{paper}")
        for module in iter_modules(package.__path__):
            held = vars(import_module(f"{package.__name__}.{module.name}")).values()
            by_name |= {
                recipe.name: recipe for recipe in held if isinstance(recipe, Recipe)
            }
    return {name: by_name[name] for name in WRITTEN if name in by_name}


def chosen(names: tuple[str, ...], scale: Scale, data: Path | None) -> list[Recipe]:
    """Return recipes by name, or all that run at a scale with a folder of data sets.

    Raises `LayerscopeError` for any other name.
    """
    if not names:
        missing = dict(lacking(scale, data))
        return [recipe for name, recipe in recipes().items() if name not in missing]
    named = _named(names)
    for recipe in named:
        if scale not in recipe.scales:
            others = " or ".join(f"`scale={name!r}`" for name in recipe.scales)
            raise LayerscopeError(
                f"{recipe.name} does not run at scale {scale!r}, which lacks {_lacks(recipe, scale, data)}: "
                f"give {others}"
            )
        if lacks := _lacks(recipe, scale, data):
            raise LayerscopeError(f"{recipe.name} lacks {lacks}")
    return named


def on_yours(names: tuple[str, ...], model: str, data: str) -> list[Recipe]:
    """Return recipes by name, or all that can, with the settings for a model and data that a user names."""
    able = [recipe for recipe in recipes().values() if recipe.yours is not None]
    asked = _named(names) if names else able
    for recipe in asked:
        if recipe.yours is None:
            raise LayerscopeError(
                f"{recipe.name} makes its own models: {', '.join(other.name for other in able)} take one of yours"
            )
    setup = yours(model, data)
    return [
        replace(recipe, scales={YOURS: replace(setup, **recipe.yours or {})})
        for recipe in asked
    ]


def _named(names: tuple[str, ...]) -> list[Recipe]:
    by_name = recipes()
    written = {name.lower(): name for name in WRITTEN}
    named = {}
    for given in names:
        name = written.get(given.lower(), given)
        if name in UNRUN:
            raise LayerscopeError(f"{name} is not run: it needs {UNRUN[name]['needs']}")
        if name not in by_name:
            alike = [
                other for other in by_name if other[:2].lower() == name[:2].lower()
            ]
            raise LayerscopeError(
                f"recipe {given!r} does not exist{choices(given, alike or list(by_name), 'there are')}"
            )
        named[name] = by_name[name]
    return list(named.values())


def lacking(scale: Scale, data: Path | None) -> tuple[tuple[str, str], ...]:
    """Return the recipes that do not run at a scale with a folder of data sets, and what they lack."""
    missing = (
        (name, _lacks(recipe, scale, data)) for name, recipe in recipes().items()
    )
    return tuple(filter(itemgetter(1), missing))


def _lacks(recipe: Recipe, scale: Scale, data: Path | None) -> str:
    if scale not in recipe.scales:
        return recipe.lacks.get(scale, "its data")
    wanted = recipe.local(recipe.scales[scale])
    missing = [name for name in wanted if data is None or not (data / name).is_dir()]
    return f"the data sets {', '.join(missing)} in `data_dir`" if missing else ""


@dataclass(frozen=True, eq=False)
class Listing(Shown):
    """The recipes there are, and the scales they run at."""

    def document(self) -> Document:
        """Return a table of recipes."""
        claim = Column("claim", "left", wraps=True)
        heads = Column("recipe", "left"), claim, Column("scales", "left")
        rows = []
        for name, recipe in recipes().items():
            rows.append(row(name, recipe.title, ", ".join(recipe.scales)))
        missing = Column("not run", "left"), claim, Column("needs", "left", wraps=True)
        others = [row(name, *about.values()) for name, about in UNRUN.items()]
        return Document(
            f"{len(rows)} recipes",
            parts=(
                Table("", heads, tuple(rows)),
                Table("", missing, tuple(others)),
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the recipes by name."""
        run: dict[str, Any] = {
            name: {
                "title": recipe.title,
                "paper": recipe.paper,
                "scales": list(recipe.scales),
                "lacks": recipe.lacks,
            }
            for name, recipe in recipes().items()
        }
        return {"recipes": run, "not_run": UNRUN}
