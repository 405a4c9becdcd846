from chromium import browser, content_of, frame_of, language

__all__ = ["browser", "content_of", "frame_of", "language"]
