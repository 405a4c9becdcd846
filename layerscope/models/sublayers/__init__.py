"""Sub-layers: what comes after each norm, attention, MLP and residual addition of a block, found by structure."""
