"""Recipes of questions that readers of the papers asked, a module each."""
