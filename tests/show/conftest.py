from chromium import language
from small_runs import bare, by_layer, labelled, pairs, rows, written

__all__ = ["bare", "by_layer", "labelled", "language", "pairs", "rows", "written"]
