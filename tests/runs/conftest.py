from small_runs import bare, by_layer, labelled, pairs, rows, written
from tiny import one_thread

__all__ = ["bare", "by_layer", "labelled", "one_thread", "pairs", "rows", "written"]
