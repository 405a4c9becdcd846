"""What a classifier per layer costs in parameters, and what is inconsistent in print."""

from dataclasses import dataclass

from layerscope_papers import drawing
from layerscope_papers.assets import Assets
from layerscope_papers.intervals import Interval, exact
from layerscope_papers.recipe import ANYWHERE, WRITTEN, Evidence, Number, recipe

DIGIT = 0.01
"""The last printed digit, in millions, billions or percent."""


@dataclass(frozen=True)
class Line:
    """A line of table 1: parameters in millions (GPT-3 and Llama-2 in billions), width, depth and classes."""

    model: str
    base: float
    printed_base: float
    width: int
    depth: int
    classes: int
    unit: float = 1e6

    @property
    def heads(self) -> float:
        """Parameters of the L − 1 further classifiers, without biases."""
        return (self.depth - 1) * self.width * self.classes / self.unit


LINES = (
    Line("DeiT-S", 22.05, 22.05, 384, 12, 1000),
    Line("DeiT-B", 86.57, 86.57, 768, 12, 1000),
    Line("GPT-2", 117.00, 117.35, 768, 12, 50257),
    Line("GPT-3", 175.0, 175.63, 12288, 96, 50257, 1e9),
    Line("Llama-2", 70.0, 70.35, 4096, 40, 32000, 1e9),
)
"""`base` is the number of parameters that the printed totals follow from, `printed_base` the one in print."""


@recipe("T-tab1", scales=ANYWHERE)
def shared_parameters(assets: Assets) -> Evidence:
    """Compute totals and savings from widths, depths and classes, and compare them with print."""
    printed = {p["quantity"]: p["value"] for p in WRITTEN["T-tab1"]["printed"]}
    totals = []
    savings = []
    columns = {}
    numbers = []
    saved: dict[str, Interval] = {}
    for line in LINES:
        total = Number(f"{line.model}, a classifier per layer", line.base + line.heads)
        share = 100 * line.heads / total.value
        saving = Number(f"{line.model}, saved by sharing [%]", share)
        in_print = printed[total.quantity]
        totals.append(abs(total.value - in_print))
        savings.append(abs(share - printed[saving.quantity]))
        columns[line.model] = abs(line.printed_base + line.heads - in_print)
        numbers += [total, saving]
        saved[line.model] = exact(share)
    off = [model for model, gap in columns.items() if gap > DIGIT]
    return Evidence(
        {
            "totals": exact(max(totals)),
            "savings": exact(max(savings)),
            "columns": exact(max(columns.values())),
        },
        numbers,
        [drawing.bars("Parameters saved by one classifier", "%", saved)],
        [
            f"The printed sizes with one classifier do not lead to the printed totals for {', '.join(off)}.",
            "Savings of GPT-2 and GPT-3 are truncated in print, that of Llama-2 is rounded.",
            "No Llama-2 has 40 layers of width 4,096: the 13B has 40 of 5,120, the 70B 80 of 8,192.",
        ],
    )
