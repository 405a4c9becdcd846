"""All recipes: those in the modules of `tracing`, `layers` and `questions`."""

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from layerscope.core.errors import LayerscopeError, choices
from layerscope.papers.recipe import Recipe, Scale
from layerscope.show.document import Column, Document, Table, row
from layerscope.show.notebook import Shown

PAPERS = ("tracing", "layers", "questions")
UNRUN: dict[str, tuple[str, str]] = {
    "T-fig8": (
        "Aligned BERT is more accurate than BERT at every layer (figures 8 and 21)",
        "training on six GLUE tasks, which takes a GPU (train has the settings as the preset tracing-glue)",
    ),
    "L-fig5": ("Reasoning models keep prompt entropy higher along the sequence", "Qwen2.5 and Qwen2.5-Math"),
    "L-fig7": ("Figure 7 of the paper", "what the figure claims, as a statistic with a threshold"),
    "L-fig9": ("Figure 9 of the paper", "what the figure claims, as a statistic with a threshold"),
    "L-fig10": ("Figure 10 of the paper", "what the figure claims, as a statistic with a threshold"),
    "L-fig13": ("Fine-tuning for embeddings improves invariance", "Llama-3-8B and LLM2Vec"),
    "L-fig14": ("Only autoregressive image models have the valley", "AIM, and attention probes on ImageNet"),
    "L-thm2": (
        "Dataset entropy grows with prompt entropy",
        "a bound for finite sizes; the paper gives only asymptotic growth",
    ),
    "Q-speech": ("Do speech models have better middle layers?", "trained speech models: Wav2Vec2, HuBERT, Whisper"),
    "Q-diversity": (
        "Does the diversity of a corpus move the best layer?",
        "models trained on corpora of different diversity",
    ),
    "Q-autoregressive": (
        "Why does similarity to the last layer not rise with depth in some models?",
        "trained models in which it does not",
    ),
}
"""By name: the claim, and what a recipe for it would need."""


@cache
def recipes() -> dict[str, Recipe]:
    """Return all recipes by name, in the order of the papers.

    >>> "T-tab1" in recipes()
    True
    """
    found: dict[str, Recipe] = {}
    for paper in PAPERS:
        package = import_module(f"layerscope.papers.{paper}")
        for module in iter_modules(package.__path__):
            held = vars(import_module(f"{package.__name__}.{module.name}")).values()
            found |= {recipe.name: recipe for recipe in held if isinstance(recipe, Recipe)}
    return dict(sorted(found.items(), key=lambda entry: _order(entry[0])))


def chosen(names: tuple[str, ...], scale: Scale) -> list[Recipe]:
    """Return recipes by name, or all that run at a scale; raises `LayerscopeError` for any other name."""
    known = recipes()
    lower = {name.lower(): name for name in known}
    if not names:
        return [recipe for recipe in known.values() if scale in recipe.scales]
    found = []
    for name in dict.fromkeys(names):
        if (unrun := {other.lower(): other for other in UNRUN}.get(name.lower())) is not None:
            raise LayerscopeError(f"{unrun} is not run: it needs {UNRUN[unrun][1]}")
        if name.lower() not in lower:
            mine = [other for other in known if other[0].lower() == name[:1].lower()] if name[1:2] == "-" else []
            raise LayerscopeError(f"recipe {name!r} does not exist{choices(name, mine or list(known), 'there are')}")
        recipe = known[lower[name.lower()]]
        if scale not in recipe.scales:
            raise LayerscopeError(
                f"{recipe.name} does not run at scale {scale!r}, which lacks {recipe.lacks.get(scale, 'its data')}: "
                f"give {' or '.join(f'`scale={name!r}`' for name in recipe.scales)}"
            )
        found.append(recipe)
    return found


def lacking(scale: Scale) -> tuple[tuple[str, str], ...]:
    """Return the recipes that do not run at a scale, with what it lacks."""
    return tuple(
        (name, recipe.lacks.get(scale, "its data")) for name, recipe in recipes().items() if scale not in recipe.scales
    )


@dataclass(frozen=True, eq=False)
class Listing(Shown):
    """The recipes there are, and the scales they run at."""

    def document(self) -> Document:
        """Return a table of recipes."""
        heads = (Column("recipe", "left"), Column("claim", "left", wraps=True), Column("scales", "left"))
        rows = tuple(row(name, found.title, ", ".join(found.scales)) for name, found in recipes().items())
        missing = Column("not run", "left"), *(Column(name, "left", wraps=True) for name in ("claim", "needs"))
        others = tuple(row(name, *about) for name, about in UNRUN.items())
        return Document(f"{len(rows)} recipes", parts=(Table("", heads, rows), Table("", missing, others)))

    def as_dict(self) -> dict[str, Any]:
        """Return the recipes by name."""
        run: dict[str, Any] = {
            name: {"title": found.title, "paper": found.paper, "scales": list(found.scales), "lacks": found.lacks}
            for name, found in recipes().items()
        }
        return {"recipes": run, "not_run": {name: {"title": what, "needs": why} for name, (what, why) in UNRUN.items()}}


def _order(name: str) -> tuple[str | int, ...]:
    """Return the key that sorts T before L, and fig2 before fig12."""
    paper, _, rest = name.partition("-")
    word, number = re.match(r"(\D*)(\d*)", rest).groups()  # type: ignore[union-attr]  # it fits every text
    return "TLQ".index(paper), word, int(number or 0)
