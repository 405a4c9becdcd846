"""Recipes of Tracing Representation Progression, a module for what they rest on."""
