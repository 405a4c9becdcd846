"""From the curves of a run to the few sentences about what stands out, and the answer in its first line.

A sentence comes with the numbers it was made of, for programs that read the run as JSON. Only
probes of the user's own labels name a layer to use: whether a low entropy or a high similarity is
good differs from model to model, so these are observed and not judged.
"""

from collections.abc import Iterator

import numpy as np

from layerscope.core import capital, count, spans
from layerscope.runs.curves import SIMILAR, Curve, heading, value_text
from layerscope.runs.probed import Finding, Numbers, is_within, probed
from layerscope.runs.run import Run
from layerscope.runs.why import why
from layerscope.show.numbers import error, number

CAUSES = ("valley", "causal_depth")
"""Findings that say why a curve is as it is."""


def findings(run: Run, measured: list[Curve]) -> list[Finding]:
    """Return what stands out in a run, in sentences computed from its numbers.

    Only labels make a layer "best"; everything else is an observation, and layer 0 is never chosen.
    """
    sentences = [*probed(run, measured), *_effective_depth(run), *_settled(run)]
    describers = {"prompt_entropy": _valley, "cosine_similarity": _similar}
    for name, describe in describers.items():
        family = [curve for curve in measured if curve.metric == name]
        if family and np.isfinite(family[0].values).any():
            sentences += describe(family[0], heading(family[0], family))
    return [*sentences, *why(run, measured)]


def answer(run: Run, measured: list[Curve], sentences: list[Finding]) -> str:
    """Return in one line which layer to take, by labels; without them what was observed, and no verdict."""
    judged = [finding for finding in sentences if finding.name == "best_layer"]
    if judged:
        best = max(judged, key=lambda finding: float(finding.numbers["value"] or 0))
        return best.answer
    if not measured:
        return "None of the chosen metrics has a value here"
    causes = [finding.answer for finding in sentences if finding.name in CAUSES]
    if causes:  # who measures these asks why, and not which layer to take
        return capital("; ".join(causes))
    observed = "; ".join(finding.answer for finding in sentences)
    if run.is_history:
        return capital(observed)
    metrics = f"{count(len(measured), 'metric')} at {spans(run.layers, 'layer')}"
    return f"No labels were probed, so no layer is named: {observed or metrics}"


def _valley(curve: Curve, title: str) -> Iterator[Finding]:
    """Yield where prompt entropy is lowest, and whether that is inside the stack beyond the error.

    It is inside where it is lower than at both ends, and by more than the error of the difference.
    """
    lowest = curve.stands_out
    if lowest is None:
        return
    point = curve.at(lowest)
    ends = (curve.at(curve.layers[0]), curve.last())
    interior = all(point[0] < end[0] and not is_within(point, end) for end in ends)
    words = "a valley inside the stack" if interior else "no valley inside the stack"
    answer = f"{title} is lowest at layer {lowest}"
    text = (
        f"{answer} of {curve.layers[-1]} ({value_text(curve.about, *point)}): {words}."
    )
    numbers: Numbers = {"layer": lowest, "value": point[0], "interior": interior}
    yield Finding("prompt_entropy_valley", capital(text), numbers, answer)


def _similar(curve: Curve, title: str) -> Iterator[Finding]:
    """Yield from which layer on the cosine to the last layer is high, and stays so."""
    start = curve.stands_out
    end = curve.layers[-1]
    numbers: Numbers = {"layer": start, "value": None}
    answer = "no layer is close to the last"
    text = f"no other layer has a {title} above {SIMILAR} to the last layer."
    if start is not None and start < end:
        value = curve.at(start)[0]
        numbers["value"] = value
        answer = f"from layer {start} of {end} on, all are close to the last"
        text = f"{answer}: their {title} is above {SIMILAR} ({number(value)} there)."
    yield Finding("similar_to_last", capital(text), numbers, answer)


def _settled(run: Run) -> Iterator[Finding]:
    """Yield at which layer the predictions of the model's own head stop changing."""
    table = run.at()
    rows = table.loc[table["metric"] == "saturation_layer", ["value", "stderr"]]
    finite = rows[np.isfinite(rows["value"])]
    for value, stderr in finite.to_numpy().tolist()[:1]:
        answer = (
            f"predictions settle at layer {number(value)} of {run.depth} on average"
        )
        text = " ".join(filter(None, (answer, error(stderr))))
        numbers: Numbers = {"mean_layer": value, "stderr": stderr}
        yield Finding("saturation", capital(f"{text}."), numbers, answer)


def _effective_depth(run: Run) -> Iterator[Finding]:
    """Yield the first layer that is as good as the last one, on the data and on training data where that is known."""
    rows = run.at()
    depths = rows[rows["metric"] == "effective_depth"].set_index("variant")["value"]
    for variant, value in depths.items():
        if "relative_to=last" not in str(variant):
            continue
        where = " on training data" if str(variant).endswith("on=train") else ""
        answer = f"effective depth {int(value)} of {run.depth}{where}"
        numbers: Numbers = {"layer": int(value)}
        yield Finding("effective_depth", capital(f"{answer}."), numbers, answer)
