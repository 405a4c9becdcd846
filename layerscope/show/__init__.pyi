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
    columns as columns,
    row as row,
    words as words,
)
from .drawing import draw as draw
from .figure import Figure as Figure
from .notebook import Shown as Shown
from .numbers import number as number, percent as percent, times as times
from .page.page import render as render
from .plain import escape as escape
from .plots import (
    Axis as Axis,
    Bars as Bars,
    Chart as Chart,
    HeatMap as HeatMap,
    Meaning as Meaning,
    Series as Series,
)
from .pushed import Stored as Stored
from .written import write_page as write_page
