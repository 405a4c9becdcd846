"""Figures of runs as matplotlib objects, for the tests that look at what is in them."""

import torch
from torch import nn

from layerscope.runs.details import run_names
from layerscope.show.figures.draw import figures
from layerscope.show.figures.style import TEXT_WIDTH, styled


def headless():
    """Return a model of two blocks without a norm after them."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16),
        nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3))),
    )


def panels_of(figure):
    """Return a figure's panels by title."""
    return {axis.get_title(loc="left").replace("\n", " "): axis for axis in figure.axes}


def drawing(name, runs, width=TEXT_WIDTH, names=None):
    """Return one figure of runs, by its name."""
    given = [
        (called, run.document()) for called, run in zip(names or run_names(runs), runs, strict=True)
    ]
    with styled():
        return dict(figures(given))[name](width)


def all_curves(runs, width=TEXT_WIDTH, names=None):
    return drawing("curves", runs, width, names)
