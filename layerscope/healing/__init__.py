"""A shortened model learns again what its full model gives, from samples without labels."""
