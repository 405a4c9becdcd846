"""Probes as tasks of `evaluate`: what a layer's states tell about labels, of samples and of words."""
