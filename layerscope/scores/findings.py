"""From the scores of one model to sentences about what stands out."""

from __future__ import annotations

import math

from layerscope.scores.scored import Scored


def score_findings(entry: Scored, decimals: int) -> list[str]:
    """Return what stands out in the scores of one model, in sentences computed from its numbers."""
    average, best = entry.average, entry.best
    if best is None:
        return ["No layer has scores on enough tasks for an average."]
    tasks = entry.grid.complete.shape[1]
    on = f"on the average of {tasks:,} tasks" if tasks > 1 else f"on {entry.grid.complete.columns[0]}"
    last = entry.grid.depth

    def told(value: float) -> str:
        return f"{value:.{decimals}f}"

    if last not in average:
        found = [
            f"Layer {best} scores highest {on}: {told(average[best])}, of {len(average)} layers; the last one ({last}) "
            "has no scores to compare it with."
        ]
    elif average[best] == average[last]:
        found = [f"No layer scores higher than the last, layer {last}, {on}: {told(average[last])}."]
    else:
        gain = f"{average[best] - average[last]:+.{decimals}f}"
        found = [
            f"Layer {best} scores highest {on}: {told(average[best])}, {gain} against the last layer ({last}). "
            "It was chosen on the same scores: on other tasks expect less."
        ]
    if average.get(0, -math.inf) > average[best]:
        found.append(f"Layer 0, the embedding output, has {told(average[0])} and is no candidate.")
    if math.isfinite(entry.shipped):
        difference = round(average[best] - entry.shipped, decimals)
        against = (
            f"layer {best} {difference:+.{decimals}f} against that" if difference else f"layer {best} scores the same"
        )
        found.append(f"The model as shipped: {told(entry.shipped)}; {against}.")
    if tasks > 1 and last in average:
        other = sum(entry.best_on(str(task)) != last for task in entry.grid.complete)
        oracle = float(entry.grid.complete.loc[1:].max().mean())
        found.append(
            f"On {other:,} of {tasks:,} tasks another layer than the last is best; with each task at its own best "
            f"layer the average is {told(oracle)}."
        )
    if entry.grid.left_out:
        layers = f"layer{'s' * (len(entry.grid.left_out) > 1)} {', '.join(map(str, entry.grid.left_out))}"
        found.append(f"Left out of averages, with scores on too few tasks: {layers}.")
    return found
