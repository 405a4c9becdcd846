"""A model that ends at a layer: written as a standard checkpoint, compared with the full one, and measured."""
