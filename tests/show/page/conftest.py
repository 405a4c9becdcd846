from chromium import content_of, frame_of

__all__ = ["content_of", "frame_of"]
