from chromium import content_of
from tiny import one_thread
from typed import cli

__all__ = ["cli", "content_of", "one_thread"]
