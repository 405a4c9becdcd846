"""What a classifier per layer costs in parameters, and what is inconsistent in print."""

from dataclasses import dataclass

from layerscope_papers import drawing
from layerscope_papers.assets import Assets
from layerscope_papers.recipe import ANYWHERE, Evidence, Number, Printed, exact, recipe

DIGIT = 0.01
"""The last printed digit, in millions, billions or percent."""


@dataclass(frozen=True)
class Line:
    """A line of table 1: parameters in millions (GPT-3 and Llama-2 in billions), width, depth and classes."""

    model: str
    base: float
    printed_base: float
    multi: float
    saved: float
    width: int
    depth: int
    classes: int
    unit: float = 1e6

    @property
    def heads(self) -> float:
        """Parameters of the L − 1 further classifiers, without biases."""
        return (self.depth - 1) * self.width * self.classes / self.unit


LINES = (
    Line("DeiT-S", 22.05, 22.05, 26.27, 16.07, 384, 12, 1000),
    Line("DeiT-B", 86.57, 86.57, 95.02, 8.89, 768, 12, 1000),
    Line("GPT-2", 117.00, 117.35, 541.57, 78.39, 768, 12, 50257),
    Line("GPT-3", 175.0, 175.63, 233.67, 25.10, 12288, 96, 50257, 1e9),
    Line("Llama-2", 70.0, 70.35, 75.11, 6.81, 4096, 40, 32000, 1e9),
)
"""`base` is the number of parameters that the printed totals follow from, `printed_base` the one in print."""


def _printed() -> tuple[Printed, ...]:
    where = "table 1"
    totals = (
        Printed(f"{line.model}, a classifier per layer", line.multi, where)
        for line in LINES
    )
    return (
        *totals,
        *(
            Printed(f"{line.model}, saved by sharing [%]", line.saved, where)
            for line in LINES
        ),
    )


@recipe("T-tab1", scales=ANYWHERE, printed=_printed())
def shared_parameters(assets: Assets) -> Evidence:
    """Compute totals and savings from widths, depths and classes, and compare them with print."""
    totals = [abs(line.base + line.heads - line.multi) for line in LINES]
    savings = [
        abs(100 * line.heads / (line.base + line.heads) - line.saved) for line in LINES
    ]
    columns = [abs(line.printed_base + line.heads - line.multi) for line in LINES]
    numbers = []
    for line in LINES:
        numbers.append(
            Number(f"{line.model}, a classifier per layer", line.base + line.heads)
        )
        numbers.append(
            Number(
                f"{line.model}, saved by sharing [%]",
                100 * line.heads / (line.base + line.heads),
            )
        )
    off = [line.model for line, gap in zip(LINES, columns, strict=True) if gap > DIGIT]
    return Evidence(
        {
            "totals": exact(max(totals)),
            "savings": exact(max(savings)),
            "columns": exact(max(columns)),
        },
        numbers,
        [drawing.bars("Parameters saved by one classifier", "%", numbers[1::2])],
        [
            f"The printed sizes with one classifier do not lead to the printed totals for {', '.join(off)}.",
            "Savings of GPT-2 and GPT-3 are truncated in print, that of Llama-2 is rounded.",
            "No Llama-2 has 40 layers of width 4,096: the 13B has 40 of 5,120, the 70B 80 of 8,192.",
        ],
    )
