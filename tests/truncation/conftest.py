from tiny import few_repeats, one_thread
from typed import cli

__all__ = ["cli", "few_repeats", "one_thread"]
