"""Recipes of Layer by Layer, a module each."""
