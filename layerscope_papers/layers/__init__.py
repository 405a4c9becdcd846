"""Recipes of Layer by Layer, a module for what they rest on."""
