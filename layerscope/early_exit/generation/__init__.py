"""Language models that read and write at any depth."""
