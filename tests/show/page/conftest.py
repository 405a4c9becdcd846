from chromium import content_of, frame_of, language

__all__ = ["content_of", "frame_of", "language"]
