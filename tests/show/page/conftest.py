from chromium import frame_of

__all__ = ["frame_of"]
