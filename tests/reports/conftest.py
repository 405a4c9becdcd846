from chromium import content_of
from small_runs import bare, by_layer, labelled, pairs, rows, written

__all__ = ["bare", "by_layer", "content_of", "labelled", "pairs", "rows", "written"]
