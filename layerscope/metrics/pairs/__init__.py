"""Similarities of every two layers at once, read in blocks."""
