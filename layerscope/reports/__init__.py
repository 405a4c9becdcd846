"""A run shown: in a terminal and in figures, both from the same curves and findings."""
