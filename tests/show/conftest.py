from chromium import language

__all__ = ["language"]
