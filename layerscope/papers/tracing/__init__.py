"""Recipes of Tracing Representation Progression, a module each."""
