"""What a page has of a training beside its last step: scores by step.

A training is a run that has its rows for each evaluation, by step. The last step is shown as any run
is; before it stand the loss of the whole model, how deep it has to be, and the first score there is
as a map of layers by steps, which shows at what depth a training changes.
"""

from collections.abc import Iterator

from layerscope.core import capital
from layerscope.runs.registry import about, meaning_of
from layerscope.runs.run import Run
from layerscope.show import Axis, Chart, HeatMap, Section, number

SCORES = ("perplexity", "pair_spearman", "pair_accuracy", "layer_accuracy")
"""What is drawn as a map of layers by steps: the first that a training measured."""
COURSES = {
    "cross_entropy": "Loss of the last layer",
    "effective_depth": "Effective depth",
}
"""What is drawn by step: at the last layer, and of the whole."""
LEAD = "What the whole model has at each evaluation; what follows by layer is that of the last step."


def training_sections(run: Run) -> Iterator[Section]:
    """Yield the course of a training; nothing of other runs."""
    if run.steps:
        yield Section(
            "training", "Training", LEAD, (*_courses(run), *_scores_by_step(run))
        )


def _courses(run: Run) -> Iterator[Chart]:
    """Yield lines by step."""
    table = run.table()
    table = table[table["layer"] == run.depth].sort_values("step")
    is_aside = table["variant"].fillna("").str.contains("first|train")
    for name, title in COURSES.items():
        rows = table[(table["metric"] == name) & ~is_aside]
        if len(rows):
            yield Chart.of(
                rows,
                ("step", Axis("step", whole=True)),
                ("value", Axis("")),
                error="stderr",
                title=f"{title} by step",
                summary=f"{number(rows['value'].iloc[-1])} at the last step",
                about=meaning_of(name, table),
                unit=about(name).unit or "layers",
                name=f"training-{name}",
                sheet="training",
                overlaid=True,
            )


def _scores_by_step(run: Run) -> Iterator[HeatMap]:
    """Yield the score of each layer at each step."""
    table = run.table()
    table = table[table["variant"].isna()]
    names = table["metric"].unique()
    measured = [name for name in SCORES if name in names]
    for name in measured[:1]:
        rows = table[table["metric"] == name]
        record = about(name)
        # "Accuracy" of "layer accuracy", as the layers are named beside it
        title = capital(record.title.removeprefix("layer "))
        values = rows.pivot_table(index="layer", columns="step", values="value")
        yield HeatMap.of(
            values * record.scale,
            title=f"{title} by step",
            summary=f"A heat map of layers by steps. {record.meaning}",
            about=meaning_of(name, table),
            unit=record.unit,
            name=f"training-{name}-by-layer",
            low=None,
            high=None,
            across="step",
            down="layer",
            log=record.log,
            reversed=record.log,
            upward=True,
        )
