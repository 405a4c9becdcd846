from tiny import one_thread
from typed import cli

__all__ = ["cli", "one_thread"]
