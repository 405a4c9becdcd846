from .document import (
    EMPTY as EMPTY,
    Cell as Cell,
    Column as Column,
    Document as Document,
    Facts as Facts,
    Section as Section,
    Sentences as Sentences,
    Table as Table,
    TokenGrid as TokenGrid,
    row as row,
    words as words,
)
from .drawing import draw as draw
from .figure import Figure as Figure
from .notebook import Shown as Shown
from .page.page import render as render
from .plots import (
    Axis as Axis,
    Bars as Bars,
    Chart as Chart,
    HeatMap as HeatMap,
    Series as Series,
)
from .written import write_page as write_page
