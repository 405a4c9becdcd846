"""The tokenizers that tests of the lens read with, and a reading of odd tokens."""

import pandas as pd
import tiny

from layerscope.logit_lens.reading import GRID, SATURATION, Reading

PLAIN, SPECIAL = tiny.tokenizer(special=False), tiny.tokenizer(special=True)
TEXTS = ["NA", "", "12", "\r\n", 'a"b', "null"]


def odd_reading():
    """Return a reading whose tokens are texts that a CSV could take for numbers, or for nothing."""
    at = {
        "sample": "1",
        "position": range(len(TEXTS)),
        "token": TEXTS,
        "generated": False,
        "prediction": TEXTS[::-1],
    }
    at |= {"id": range(len(TEXTS)), "probability": 0.25}
    each = at | {"rank": 1, "entropy": 1.5}
    rows = [pd.DataFrame({**each, "layer": layer}) for layer in range(3)]
    at |= {"third": None, "phase": None, "counted": True, "layer": 1, "truth": None}
    saturation = pd.DataFrame(at)
    grid = pd.concat(rows, ignore_index=True)
    return Reading(
        "tiny",
        "model",
        None,
        "next",
        2,
        1,
        ("1",),
        ("text",),
        (),
        grid[list(GRID)],
        saturation[list(SATURATION)],
    )
