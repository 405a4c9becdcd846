"""The result of `shrink` as it is shown: its first line, its table, and the picture on its page."""

import math
from dataclasses import replace

from layerscope.reports.results import KINDS
from layerscope.show.page.page import render
from layerscope.shrinking.pipeline import loses_at_most
from layerscope.shrinking.shrunk import Offer, Shrunk, open_shrunk

OFFERS = (
    Offer((1,), 5.5, 55.0, cut_loss=9.0, error=1.2),
    Offer((1, 3), 1.75, 70.0, cut_loss=4.0, loss=1.5, error=0.75, healed=True),
    Offer((1, 2, 3), 1.25, 80.0),
)
SHRUNK = Shrunk(
    "m",
    4,
    True,
    "at most 2 points lost",
    "accuracy",
    "tickets.csv",
    OFFERS,
    kept=(1, 3),
    loss=1.25,
    error=0.5,
    cut_loss=3.5,
    full_score=80.0,
    samples=250,
    speedup=1.75,
    megabytes=70.0,
    full_megabytes=100.0,
    healed="healed: 1 − cosine from 0.2 to 0.1",
    load="SentenceTransformer('small/model')",
    recall=0.5,
)


def test_half_an_error_counts_against_the_budget():
    unsure = replace(OFFERS[1], loss=0.5, error=1.0)
    assert loses_at_most(1.0, unsure)
    assert not loses_at_most(0.99, unsure)
    assert not loses_at_most(1.0, replace(unsure, error=1.02))


def test_the_first_line_is_the_trade():
    shown = SHRUNK.document()
    assert shown.answer == (
        "m at 2 of 4 blocks: -1.2 ±0.5 points, 1.75× as fast, 0.70× the size; -3.5 before healing"
    )
    held, kept, load = shown.reasons
    assert "250 samples held out of tickets.csv" in held
    assert held.endswith("full model 80.0, this 78.8")
    assert kept == "blocks 1,3 kept: 70.0 of 100.0 MB" and load == SHRUNK.load
    assert any("rebuild your index" in note for note in shown.notes)
    assert "healing" not in replace(SHRUNK, healed="").document().answer


def test_the_recall_is_said_where_the_space_is_to_be_the_same():
    mapped = replace(SHRUNK, same_space=True, mapped=True).document()
    assert "full model's: 0.50, by a linear map" in mapped.reasons[2]
    assert not any("rebuild" in note for note in mapped.notes)
    healed = replace(SHRUNK, same_space=True).document()
    assert healed.reasons[2].endswith("0.50")
    without = replace(SHRUNK, same_space=True, recall=None).document()
    assert len(without.reasons) == 3


def test_the_table_and_the_picture_are_on_the_page():
    trade, table = SHRUNK.document().sections[0].parts
    texts = [[cell.text for cell in row.cells] for row in table.rows]
    assert texts == [
        ["1 of 4", "1", "5.50×", "55.0", "9.0", "–", "1.2"],
        ["2 of 4", "1,3", "1.75×", "70.0", "4.0", "1.5", "0.8"],
        ["3 of 4", "1-3", "1.25×", "80.0", "–", "–", "–"],
    ]
    assert [row.marked for row in table.rows] == [False, True, False]
    full, cut, healed = trade.series
    assert (full.x, full.y) == ((1.0,), (0.0,))
    assert (cut.x, cut.y) == ((5.5, 1.75), (-9.0, -4.0))
    assert (healed.x, healed.y, healed.marked) == ((1.75,), (-1.5,), (0,))
    assert (healed.errors, cut.errors) == ((0.75,), ())
    (unhealed,) = (
        replace(SHRUNK, offers=OFFERS[:1]).document().sections[0].parts[0].series[1:]
    )
    assert unhealed.errors == (1.2,)
    page = render([SHRUNK.document()])
    assert "Loss and speed" in page and 'id="shrink"' in page
    assert 'href="#shrink-blocks">By number of blocks' in page


def test_nothing_within_the_budget_names_the_offers():
    shown = replace(SHRUNK, met=False, kept=()).document()
    assert shown.answer == "m: nothing is within the budget (at most 2 points lost)"
    assert shown.reasons == tuple(offer.text for offer in OFFERS)
    assert OFFERS[1].text == (
        "2 blocks (1,3): 1.75× as fast, 70.0 MB, -1.5 ±0.8 points (healed, -4.0 before)"
    )
    assert OFFERS[0].text.endswith("-9.0 ±1.2 points (not healed)")
    assert OFFERS[2].text == "3 blocks (1-3): 1.25× as fast, 80.0 MB"


def test_what_was_not_measured_is_so_when_it_is_opened(tmp_path):
    again = open_shrunk(SHRUNK.save(tmp_path / "saved"))
    assert again.offers[1] == OFFERS[1]
    assert math.isnan(again.offers[2].cut_loss) and again.offers[2].kept == (1, 2, 3)
    assert KINDS["shrunk.json"] == "shrunk"
