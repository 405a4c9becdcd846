from chromium import content_of, language

__all__ = ["content_of", "language"]
