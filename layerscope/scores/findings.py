"""From the scores of one model to sentences about what stands out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from layerscope.scores.scored import FEW, Scored, Unit, named_layers


def score_findings(entry: Scored, unit: Unit) -> list[str]:
    """Return what stands out in the scores of one model, in sentences computed from its numbers."""
    average, best = entry.average, entry.best
    if best is None:
        return ["No layer has scores on enough tasks for an average."]
    tasks = entry.grid.complete.shape[1]
    on = f"on the average of {tasks:,} tasks" if tasks > 1 else f"on {entry.grid.complete.columns[0]}"
    last = entry.grid.depth
    if last not in average:
        found = [
            f"Layer {best} scores highest {on}: {unit.text(average[best])}, of {len(average)} layers; the last one "
            f"({last}) has no scores to compare it with."
        ]
    elif average[best] == average[last]:
        found = [f"No layer scores higher than the last, layer {last}, {on}: {unit.text(average[last])}."]
    else:
        gain = unit.difference(average[best] - average[last])
        found = [
            f"Layer {best} scores highest {on}: {unit.text(average[best])}, {gain} against the last layer ({last}). "
            "It was chosen on the same scores: on other tasks expect less."
        ]
    if average.get(0, -math.inf) > average[best]:
        found.append(f"Layer 0, the embedding output, has {unit.text(average[0])} and is no candidate.")
    if math.isfinite(entry.shipped):
        apart = average[best] - entry.shipped
        same = unit.text(average[best]) == unit.text(entry.shipped)
        against = f"layer {best} scores the same" if same else f"layer {best} {unit.difference(apart)} against that"
        found.append(f"The model as shipped: {unit.text(entry.shipped)}; {against}.")
    if tasks > 1 and last in average:
        other = sum(entry.best_on(str(task)) != last for task in entry.grid.complete)
        found.append(
            f"On {other:,} of {tasks:,} tasks another layer than the last is best; with each task at its own best "
            f"layer the average is {unit.text(entry.grid.oracle)}."
        )
    if entry.grid.left_out:
        layers = f"layer{'s' * (len(entry.grid.left_out) > 1)} {', '.join(map(str, entry.grid.left_out))}"
        found.append(f"Left out of averages, with scores on too few tasks: {layers}.")
    return found


def best_layer(entry: Scored, unit: Unit, site: str = "") -> str:
    """Return in one line which layer of a model, at which of several sites, scores best, and by how much."""
    average, best = entry.average, entry.best
    if best is None:
        return f"{entry.name}: no layer has scores on enough tasks for an average"
    tasks, last = [str(task) for task in entry.grid.complete], entry.grid.depth
    own = sorted({layer for task in tasks if (layer := entry.best_on(task)) is not None})
    on = f"on the average of {len(tasks):,} tasks" if len(tasks) > 1 else f"on {tasks[0]}"
    each = " and on each of them" if tasks[1:] and own == [best] else ""
    by_task = "" if own == [best] else f"; best by task: {named_layers(own)}"
    scores = unit.text(average[best], entry.error(best))
    shipped = math.isfinite(entry.shipped)
    rival = entry.shipped if shipped else average.get(last, math.nan)
    name = "the model as shipped" if shipped else "the last layer"
    against = ""
    if math.isfinite(rival) and (shipped or best != last):
        same = unit.number(average[best]) == unit.number(rival)
        against = f", as {name}" if same else f", {unit.difference(average[best] - rival)} against {name}"
    return f"Layer {best} of {last}{f' ({site})' * bool(site)} scores best {on}{each}: {scores}{against}{by_task}"


def best_layers(entries: Sequence[Scored], unit: Unit) -> str:
    """Return in one line for how many models a layer before the last scores best, and what it gains."""
    known = [entry for entry in entries if entry.best is not None and entry.grid.depth in entry.average]
    ahead = [entry for entry in known if entry.best != entry.grid.depth]
    if not ahead:
        return f"The last layer scores best on average in each of {len(known):,} models"
    gains = {entry.name: entry.average[entry.best or 0] - entry.average[entry.grid.depth] for entry in ahead}
    if len(ahead) > FEW:
        most = max(gains, key=gains.__getitem__)
        mean = unit.difference(sum(gains.values()) / len(gains))
        gained = f"{mean} on average, most for {most}: {unit.difference(gains[most])}"
    else:
        gained = ", ".join(f"{e.name} at layer {e.best}, {unit.difference(gains[e.name])}" for e in ahead)
    return f"A layer before the last scores best on average in {len(ahead):,} of {len(known):,} models: {gained}"
