from chromium import content_of

__all__ = ["content_of"]
