"""Probes as tasks of `evaluate`: how well a layer's states predict labels, of samples and of words."""
